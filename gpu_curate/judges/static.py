"""Static embeddings with a linear head as an exact judge, or as near to one as it can be.

A text's vector is the mean of its tokens' vectors (model2vec, wordllama), and a linear head makes one number of it: a weight a
token. A word's weight is the sum over its tokens, for the words of the texts that are given. What differs: the mean is over
words, not tokens; rounding; words that meet in our table.

A folder holds `tokenizer.json`, `model.safetensors` (one matrix, a row a token) and `head.safetensors` (`weight` of as many
numbers as a row, or two rows of which the difference counts; `bias` changes no order and only moves the score).

# V tokens, D dimensions
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from gpu_curate.document import TextColumn
from gpu_curate.errors import ConfigError
from gpu_curate.judges.evaluate import rank_correlation
from gpu_curate.judges.model import MAX_HEADER_BYTES, ExactJudge
from gpu_curate.ops.judge import RAW_SHIFT, Tables, judge_sums, raw_scores
from gpu_curate.ops.mix import GOLDEN
from gpu_curate.ops.text_stats import word_hash

MAX_BYTES = 4 << 30
_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}
_SCALE = 1000
_MASK = (1 << 64) - 1


def tensors(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a safetensors file as float64, every size checked before a byte is taken. Raises: ConfigError."""
    try:
        data = path.read_bytes() if path.stat().st_size <= MAX_BYTES else b""
    except OSError as e:
        raise ConfigError(f"{path}: {e.strerror or e}") from e
    if data.startswith((b"\x80", b"PK\x03\x04")):
        raise ConfigError(f"{path} is a pickle, which runs code when it is read", "save it as safetensors")
    try:
        (size,) = struct.unpack_from("<Q", data)
        if size > MAX_HEADER_BYTES:
            raise ValueError(f"a header of {size} bytes")
        header = json.loads(data[8 : 8 + size])
        header.pop("__metadata__", None)
        return {name: _tensor(name, entry, data, 8 + size) for name, entry in header.items()}
    except (struct.error, ValueError, TypeError, KeyError, AttributeError, RecursionError) as e:
        raise ConfigError(f"{path} is no safetensors file of floats: {str(e)[:120]}") from e


def _tensor(name: str, entry: dict[str, Any], data: bytes, base: int) -> np.ndarray:
    shape, (begin, end) = [int(n) for n in entry["shape"]], entry["data_offsets"]
    if entry["dtype"] not in _DTYPES:
        raise ValueError(f"{name} is of {entry['dtype']}; {', '.join(_DTYPES)} are read")
    kind = np.dtype(_DTYPES[entry["dtype"]])
    count = math.prod(shape)
    if (
        min(shape, default=1) < 0
        or not 0 <= begin <= end
        or end - begin != count * kind.itemsize
        or base + end > len(data)
    ):
        raise ValueError(f"{name} does not lie where its size says")
    values = np.frombuffer(data, kind, count, base + begin).astype(np.float64).reshape(shape)
    if not bool(np.isfinite(values).all()):
        raise ValueError(f"{name} has weights that are no numbers")
    return values


def token_weights(folder: Path) -> tuple[Any, np.ndarray, float]:
    """Tokenizer, float64 of V, and the head's bias. Raises: ConfigError: a file is missing or does not fit the others."""
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    except Exception as e:
        raise ConfigError(f"{folder / 'tokenizer.json'} cannot be read: {str(e)[:200]}") from e
    tokenizer.no_padding()
    tokenizer.no_truncation()
    matrices = [m for m in tensors(folder / "model.safetensors").values() if m.ndim == 2]
    head = tensors(folder / "head.safetensors")
    if len(matrices) != 1:
        raise ConfigError(f"{folder / 'model.safetensors'} has {len(matrices)} matrices; one, a row a token, is wanted")
    (matrix,) = matrices
    weight, bias = np.atleast_2d(head.get("weight", np.zeros((0, 0)))), np.atleast_1d(head.get("bias", np.zeros(1)))
    if weight.shape[0] == 2:
        weight, bias = weight[1:] - weight[:1], bias[-1:] - (bias[:1] if len(bias) == 2 else 0)
    if weight.shape != (1, matrix.shape[1]):
        raise ConfigError(
            f"{folder / 'head.safetensors'}: its weight is {weight.shape}, and a token has {matrix.shape[1]} numbers",
            "one row, or two of which the second is the good class",
        )
    if tokenizer.get_vocab_size() > len(matrix):
        raise ConfigError(
            f"{folder}: the tokenizer has {tokenizer.get_vocab_size()} tokens and the matrix {len(matrix)} rows"
        )
    return tokenizer, matrix @ weight[0], float(bias[0])


def as_judge(folder: Path, texts: list[str], bits: int = 20, wide: bool = True) -> tuple[ExactJudge, float]:
    """An exact judge of the words of the texts, and the rank correlation of both on them (1.0: the same order).

    Raises: ConfigError: no texts, or `token_weights`.
    """
    if not texts:
        raise ConfigError("no texts", "give files of texts: their words are those that get a weight")
    tokenizer, weight_V, bias = token_weights(folder)
    times = Counter(word for text in texts for word in text.split())
    encoded = tokenizer.encode_batch([f" {word}" for word in times], add_special_tokens=False)
    total_F, times_F = np.zeros(1 << bits), np.zeros(1 << bits)
    for (word, n), found in zip(times.items(), encoded, strict=True):
        # the mean over a word's tokens: then the mean over words is near that over tokens, whatever the words' length
        value = float(weight_V[found.ids].mean()) if found.ids else 0.0
        bucket = ((GOLDEN + word_hash(word.encode("utf-8", "surrogatepass"))) & _MASK) >> (64 - bits)
        total_F[bucket] += n * value
        times_F[bucket] += n
    weight_F = np.divide(total_F, times_F, out=np.zeros(1 << bits), where=times_F > 0)
    top, kind = (32767, np.int16) if wide else (127, np.int8)
    unit = (float(np.abs(weight_F).max()) or 1.0) / top
    outputs = np.arange(-8.0, 8.01, 0.125) - bias
    x_K = np.unique(np.rint(outputs / unit * (1 << RAW_SHIFT)).astype(np.int64))
    y_K = np.rint(_SCALE / (1 + np.exp(-(x_K * unit / (1 << RAW_SHIFT) + bias)))).astype(np.int32)
    judge = ExactJudge(np.rint(weight_F / unit).astype(kind), 1, 0, x_K, y_K)
    sum_JN, words_N = judge_sums(TextColumn.from_texts(texts), Tables.of([judge.weights], [1]))
    ours_N = raw_scores(sum_JN[0], words_N, 1, 0).astype(np.float64)
    theirs = tokenizer.encode_batch(texts, add_special_tokens=False)
    theirs_N = np.array([float(weight_V[e.ids].mean()) if e.ids else 0.0 for e in theirs])
    return judge, rank_correlation(ours_N, theirs_N)
