"""An exact judge, and its file: the layout of safetensors, read by our own code, so that a hostile file can do nothing.

    8 bytes little-endian: length of the header      JSON header: name → dtype, shape, data_offsets; __metadata__: text → text
    then the arrays back to back, little-endian, without gaps

A file is read whole only if its header fits and says exactly what an exact judge has; every size is bounded before a byte of it
is taken. Nothing in it is executed.

# K knots of the calibration
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gpu_curate.errors import ConfigError
from gpu_curate.ops.judge import MAX_BITS, MAX_NGRAMS, MIN_BITS, raw_scores
from gpu_curate.quality.judges import LIMIT, UNSCORED
from gpu_curate.store.files import publish

VERSION = "1"
MAX_HEADER_BYTES = 1 << 20
MAX_KNOTS = 4096
MAX_RAW = 1 << 40  # of a knot: with scores below 2^20 the interpolation stays inside 64 bits
MAX_PRIOR = 1 << 20
_DTYPES = {"I8": "<i1", "I16": "<i2", "I32": "<i4", "I64": "<i8"}
_KINDS = {"weights": ("I8", "I16"), "knots_x": ("I64",), "knots_y": ("I32",)}
_NAMES = {np.dtype(np.int8): "I8", np.dtype(np.int16): "I16", np.dtype(np.int32): "I32", np.dtype(np.int64): "I64"}
_PICKLES = (b"\x80", b"PK\x03\x04")  # a pickle, and the archive of pickles that PyTorch writes
_HINT = "make one: gpu-curate judge train --good A --bad B"


@dataclass(frozen=True, eq=False)
class ExactJudge:
    """Weights of hashed words and word n-grams, and what turns their mean into a score.

    Attributes:
        weights: int8 or int16 of 2^bits.
        ngrams: longest run of words, 1 to 3.
        prior: features of weight 0 that every text has beside its own.
        knots_x, knots_y: int64 and int32 of K, x increasing, y not decreasing: raw score → score, straight between two knots
            (rounded down), level beyond the outer ones.
        about: what the training says of itself: words, AUC, labels.
    """

    weights: np.ndarray
    ngrams: int
    prior: int
    knots_x: np.ndarray
    knots_y: np.ndarray
    about: dict[str, Any] = field(default_factory=dict)

    @property
    def bits(self) -> int:
        return len(self.weights).bit_length() - 1

    def scores(self, sum_N: np.ndarray, words_N: np.ndarray) -> np.ndarray:
        """int32 of N, from the sums of `ops.judge`; UNSCORED for a text without words. On the host."""
        raw_N = raw_scores(sum_N, words_N, self.ngrams, self.prior)
        return np.where(words_N == 0, np.int32(UNSCORED), self.calibrate(raw_N))

    def calibrate(self, raw_N: np.ndarray) -> np.ndarray:
        """int32 of N: scores of raw scores, in integers."""
        x_K, y_K = self.knots_x, self.knots_y.astype(np.int64)
        if len(x_K) == 1:
            return np.full(len(raw_N), y_K[0], np.int32)
        inside_N = np.clip(raw_N, x_K[0], x_K[-1])
        k_N = np.clip(np.searchsorted(x_K, inside_N, side="right") - 1, 0, len(x_K) - 2)
        rise_N = (inside_N - x_K[k_N]) * (y_K[k_N + 1] - y_K[k_N]) // (x_K[k_N + 1] - x_K[k_N])
        made: np.ndarray = (y_K[k_N] + rise_N).astype(np.int32)
        return made

    def save(self, path: Path) -> None:
        """Write the file; the same judge gives the same bytes."""
        arrays = {"weights": self.weights, "knots_x": self.knots_x, "knots_y": self.knots_y}
        header: dict[str, Any] = {
            "__metadata__": {
                "format": "gpu_curate.judge",
                "version": VERSION,
                "ngrams": str(self.ngrams),
                "prior": str(self.prior),
                "about": json.dumps(self.about, ensure_ascii=False, sort_keys=True),
            }
        }
        at = 0
        for name, array in arrays.items():
            header[name] = {
                "dtype": _NAMES[array.dtype],
                "shape": [len(array)],
                "data_offsets": [at, at + array.nbytes],
            }
            at += array.nbytes
        text = json.dumps(header, ensure_ascii=False, sort_keys=True).encode("utf-8")
        text += b" " * (-len(text) % 8)
        with publish(path) as temp, temp.open("wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            for array in arrays.values():
                f.write(array.astype(array.dtype.newbyteorder("<")).tobytes())


class Fault(ValueError):
    """What is wrong with a judge's file."""


def _hold(sound: bool, otherwise: str) -> None:
    if not sound:
        raise Fault(otherwise)


def read(data: bytes) -> ExactJudge:
    """The judge in the bytes of a file. Raises: Fault."""
    _hold(not data.startswith(_PICKLES), "it is a pickle, which runs code when it is read")
    _hold(len(data) >= 8, f"it has {len(data)} bytes")
    (size,) = struct.unpack("<Q", data[:8])
    _hold(size <= MAX_HEADER_BYTES, f"its header has {size} bytes, at most {MAX_HEADER_BYTES} are read: no judge")
    _hold(8 + size <= len(data), f"it is cut short: {len(data)} bytes, and a header of {size}")
    try:
        header = json.loads(data[8 : 8 + size].decode("utf-8"))
    except (ValueError, RecursionError) as e:
        raise Fault(f"its header is no JSON: {str(e)[:80]}") from e
    _hold(isinstance(header, dict), "its header is no JSON object")
    facts = header.pop("__metadata__", None)
    _hold(
        isinstance(facts, dict) and facts.get("format") == "gpu_curate.judge", "its header names no judge of gpu_curate"
    )
    _hold(
        facts.get("version") == VERSION, f"its version is {str(facts.get('version'))[:20]!r}; this code reads {VERSION}"
    )
    _hold(header.keys() == _KINDS.keys(), f"it has the arrays {', '.join(sorted(map(str, header)))[:80]}")
    arrays, at = {}, 8 + size
    for name, kinds in _KINDS.items():
        kind, count, begin, end = _entry(name, header[name], kinds)
        width = np.dtype(_DTYPES[kind]).itemsize
        _hold(begin == at - 8 - size and end == begin + count * width, f"{name} does not lie where its size says")
        _hold(at + count * width <= len(data), f"it is cut short: {name} reaches beyond its {len(data)} bytes")
        arrays[name] = np.frombuffer(data, _DTYPES[kind], count, at).astype(_DTYPES[kind][1:], copy=True)
        at += count * width
    _hold(at == len(data), f"it has {len(data) - at} bytes behind its arrays")
    return _judge(arrays, facts)


def _entry(name: str, entry: Any, kinds: tuple[str, ...]) -> tuple[str, int, int, int]:
    _hold(isinstance(entry, dict), f"{name} is no array")
    kind, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    _hold(kind in kinds, f"{name} is of {str(kind)[:20]}, not {' or '.join(kinds)}")
    _hold(isinstance(shape, list) and len(shape) == 1 and type(shape[0]) is int, f"{name} has no shape of one number")
    most = 1 << MAX_BITS if name == "weights" else MAX_KNOTS
    _hold(0 < shape[0] <= most, f"{name} has {shape[0]} entries, at most {most} are read")
    _hold(isinstance(offsets, list) and [type(o) for o in offsets] == [int, int], f"{name} has no data_offsets")
    return kind, shape[0], offsets[0], offsets[1]


def _judge(arrays: dict[str, np.ndarray], facts: dict[str, Any]) -> ExactJudge:
    weights, x_K, y_K = arrays["weights"], arrays["knots_x"], arrays["knots_y"]
    bits = len(weights).bit_length() - 1
    _hold(
        len(weights) == 1 << bits and bits >= MIN_BITS,
        f"it has {len(weights)} weights: no power of two from {1 << MIN_BITS}",
    )
    ngrams, prior = (_whole(facts.get(key), key) for key in ("ngrams", "prior"))
    _hold(1 <= ngrams <= MAX_NGRAMS, f"its n-grams have {ngrams} words, 1 to {MAX_NGRAMS} are possible")
    _hold(0 <= prior <= MAX_PRIOR, f"its prior is {prior}")
    _hold(len(x_K) == len(y_K), f"its calibration has {len(x_K)} raw scores and {len(y_K)} scores")
    _hold(int(np.abs(x_K).max()) <= MAX_RAW and bool((np.diff(x_K) > 0).all()), "its calibration does not increase")
    _hold(
        int(np.abs(y_K.astype(np.int64)).max()) <= LIMIT and bool((np.diff(y_K.astype(np.int64)) >= 0).all()),
        "its scores decrease",
    )
    try:
        about = json.loads(facts.get("about", "{}"))
    except (TypeError, ValueError, RecursionError) as e:
        raise Fault("what it says of itself is no JSON") from e
    _hold(isinstance(about, dict), "what it says of itself is no JSON object")
    return ExactJudge(weights, ngrams, prior, x_K, y_K, about)


def _whole(value: Any, key: str) -> int:
    _hold(isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10, f"its {key} is no number")
    return int(value)


def _bytes(path: str, key: str) -> bytes:
    """A file's bytes, no more than a judge can have. Raises: ConfigError."""
    most = 8 + MAX_HEADER_BYTES + (2 << MAX_BITS) + 12 * MAX_KNOTS
    try:
        with open(path, "rb") as f:
            data = f.read(most + 1)
    except OSError as e:
        raise ConfigError(f"{key}: {path}: {e.strerror or e}", _HINT) from e
    if len(data) > most:
        raise ConfigError(f"{key}: {path} is no judge: it has more than {most} bytes", _HINT)
    return data


def identity(path: str, key: str = "judge") -> str:
    """sha256 of a judge's file, which is read and found sound. Raises: ConfigError."""
    data = _bytes(path, key)
    digest = hashlib.sha256(data).hexdigest()
    try:
        _loaded(digest, data)
    except Fault as e:
        raise ConfigError(f"{key}: {path} is no judge: {e}", _HINT) from e
    return digest


def load(path: str, key: str = "judge") -> ExactJudge:
    """The judge of a file; one a process and content. Raises: ConfigError."""
    data = _bytes(path, key)
    try:
        return _loaded(hashlib.sha256(data).hexdigest(), data)
    except Fault as e:
        raise ConfigError(f"{key}: {path} is no judge: {e}", _HINT) from e


_judges: dict[str, ExactJudge] = {}  # sha256 → judge, of the files that this process has read


def _loaded(digest: str, data: bytes) -> ExactJudge:
    if digest not in _judges:
        _judges[digest] = read(data)
    return _judges[digest]
