"""Static embeddings with a linear head become an exact judge; hostile and unfit files are refused."""

from __future__ import annotations

import json
import pickle
import random
import struct

import numpy as np
import pytest
from corpora import WORDS

from gpu_curate.errors import ConfigError
from gpu_curate.judges.static import as_judge, tensors, token_weights
from gpu_curate.tokenizer.training import train

RNG = np.random.default_rng(6)
DIM = 8


def save(path, **arrays):
    header, body = {}, b""
    for name, array in arrays.items():
        kind = {"f4": "F32", "f2": "F16", "f8": "F64", "i4": "I32"}[array.dtype.str[1:]]
        header[name] = {
            "dtype": kind,
            "shape": list(array.shape),
            "data_offsets": [len(body), len(body) + array.nbytes],
        }
        body += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def texts(count=200):
    rng = random.Random(3)
    topics = [rng.sample(WORDS, 12) for _ in range(9)]
    return [" ".join(rng.choices(rng.choice(topics) + WORDS[:5], k=rng.randint(20, 80))) for _ in range(count)]


@pytest.fixture
def folder(tmp_path):
    train(texts(), 400, "<|endoftext|>", tmp_path / "tokenizer.json")
    save(tmp_path / "model.safetensors", embeddings=RNG.normal(0, 1, (400, DIM)).astype("<f4"))
    save(tmp_path / "head.safetensors", weight=RNG.normal(0, 1, DIM).astype("<f4"), bias=np.array([0.5], "<f4"))
    return tmp_path


def test_the_order_of_the_texts_is_kept(folder):
    judge, likeness = as_judge(folder, texts(), bits=16)
    assert likeness > 0.9
    assert judge.ngrams == 1
    assert (np.diff(judge.knots_y) >= 0).all()
    middle = int(judge.calibrate(np.array([0]))[0])
    assert middle == pytest.approx(1000 / (1 + np.exp(-0.5)), abs=2)


def test_two_rows_count_by_their_difference(folder):
    _, one, _ = token_weights(folder)
    weight = tensors(folder / "head.safetensors")["weight"]
    save(folder / "head.safetensors", weight=np.stack([-weight / 2, weight / 2]).astype("<f4"))
    _, two, bias = token_weights(folder)
    np.testing.assert_allclose(one, two, rtol=1e-5)
    assert bias == 0.0


def test_what_does_not_fit_is_refused(folder):
    def refused(said):
        with pytest.raises(ConfigError, match=said):
            as_judge(folder, texts(5), bits=12)

    save(folder / "head.safetensors", weight=np.zeros(DIM + 1, "<f4"))
    refused("a token has 8 numbers")
    save(folder / "head.safetensors", weight=np.full(DIM, np.nan, "<f4"))
    refused("no numbers")
    save(folder / "head.safetensors", weight=np.zeros(DIM, "<i4"))
    refused("is of I32")
    (folder / "head.safetensors").write_bytes(pickle.dumps([1.0]))
    refused("is a pickle")
    (folder / "head.safetensors").write_bytes(struct.pack("<Q", 1 << 50) + b"{}")
    refused("header of")
    save(folder / "head.safetensors", weight=np.zeros(DIM, "<f4"))
    (folder / "head.safetensors").write_bytes((folder / "head.safetensors").read_bytes()[:-1])
    refused("does not lie")
    save(folder / "head.safetensors", weight=np.zeros(DIM, "<f4"))
    save(folder / "model.safetensors", embeddings=np.zeros((100, DIM), "<f4"))
    refused("400 tokens and the matrix 100 rows")
    (folder / "tokenizer.json").write_text("{}")
    refused("tokenizer.json cannot be read")
