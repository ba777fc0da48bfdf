"""Texts into texts and tokens, against the functions that a run uses."""

from __future__ import annotations

import random

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from corpora import document

import gpu_curate as gc
from gpu_curate.text import normalize as normalizing
from gpu_curate.text.sections import Normalize
from gpu_curate.tokenizer.training import train

TEXTS = ["a\u00a0 b\r\n\r\n\r\n\r\nc\ufeff  ", "e\u0301", "", None, "plain", "ﬁ\tx"]


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD", None])
def test_normalize_is_that_of_a_run(form, monkeypatch):
    monkeypatch.setattr("gpu_curate.api.texts._BATCH_BYTES", 5)
    for keep in (False, True):
        wanted = [normalizing.normalize(t or "", Normalize(form=form, keep_indentation=keep)).decode() for t in TEXTS]
        made = gc.normalize(TEXTS, form=form, keep_indentation=keep)
        assert (made.type, made.null_count, made.to_pylist()) == (pa.large_string(), 0, wanted)
        assert gc.normalize(made, form=form, keep_indentation=keep).equals(made)
    assert gc.normalize([]).to_pylist() == []


def test_what_cannot_be_normalised_is_named():
    with pytest.raises(gc.ConfigError, match=r"normalize\.form"):
        gc.normalize(["a"], form="NFX")
    with pytest.raises(gc.InputError, match="not UTF-8"):
        gc.normalize([b"\xff"])


def test_scrub_replaces_counts_and_leaves_off(monkeypatch):
    monkeypatch.setattr("gpu_curate.api.texts._BATCH_BYTES", 30)
    texts = ["write to a.b@example.com", None, "8.8.8.8 and x@example.org", "card 4111 1111 1111 1111", ""]
    made = gc.scrub(pd.Series(texts), card="count")
    assert made.texts.to_pylist() == ["write to <EMAIL>", "", "<IP> and <EMAIL>", texts[3], ""]
    assert made.counts.to_pydict() == {"email": [1, 0, 1, 0, 0], "card": [0, 0, 0, 1, 0], "ip": [0, 0, 1, 0, 0]}
    assert gc.scrub(made.texts, card="count").texts.equals(made.texts)
    assert gc.scrub(texts, email="off", ip="off").texts.to_pylist() == [t or "" for t in texts]
    with pytest.raises(gc.ConfigError, match=r"scrub\.email: .*'remove'"):
        gc.scrub(texts, email="remove")


def test_wikitext_and_html_of_one_page_and_of_columns():
    assert gc.extract_wikitext("'''Bold''' [[page|text]].") == "Bold text."
    assert gc.extract_wikitext("x [[Datei:a.png|b]]", language="de") == "x"
    assert gc.extract_wikitext(pl.Series(["''a''", None])).to_pylist() == ["a", None]
    with pytest.raises(gc.InputError, match="expected str, got int"):
        gc.extract_wikitext([1])
    pytest.importorskip("trafilatura")
    words = "This is a sentence of the text of a page. " * 9
    page = f"<html><body><article><p>{words}</p></article></body></html>"
    assert gc.extract_html(page) == gc.extract_html(page.encode("utf-16")) == words.strip()
    deep = "<html>" + "<div>" * 300 + words
    with pytest.raises(gc.InputError, match="max_html_depth"):
        gc.extract_html(deep)
    for column in (pd.Series([page, None, deep]), pa.array([page, None, deep]), [page.encode(), None, deep]):
        assert gc.extract_html(column).to_pylist() == [words.strip(), None, None]
    with pytest.raises(gc.InputError, match="got int"):
        gc.extract_html(7)
    with pytest.raises(gc.InputError, match="got int"):
        gc.extract_html([7])
    with pytest.raises(gc.ConfigError, match="extractor='lxml'"):
        gc.extract_html(page, extractor="lxml")


def test_tokens_are_those_of_the_tokenizer(tmp_path, monkeypatch):
    tokenizers = pytest.importorskip("tokenizers")
    texts = [document(random.Random(i)) for i in range(30)] + ["", None, "a <|endoftext|> b"]
    train([t for t in texts if t], 320, "<|endoftext|>", tmp_path / "tokenizer.json")
    plain = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    monkeypatch.setattr("gpu_curate.api.texts._TOKENS_BYTES", 999)
    made = gc.tokenize(texts, tmp_path / "tokenizer.json", library="tokenizers")
    wanted = [plain.encode(t or "", add_special_tokens=False).ids for t in texts[:-1]]
    assert made.ids.dtype == np.uint16
    assert made.lengths.tolist()[:-1] == [len(w) for w in wanted]
    assert made.ids[: sum(map(len, wanted))].tolist() == [i for w in wanted for i in w]
    assert made.eot_id not in made.ids
    ended = gc.tokenize(texts, tmp_path / "tokenizer.json", library="tokenizers", append_eot=True)
    assert np.array_equal(ended.lengths, made.lengths + 1)
    assert np.array_equal(np.flatnonzero(ended.ids == made.eot_id), np.cumsum(ended.lengths) - 1)
    assert gc.tokenize([], tmp_path / "tokenizer.json").ids.tolist() == []
    with pytest.raises(gc.ConfigError, match=r"nothing\.json"):
        gc.tokenize(texts, tmp_path / "nothing.json")
    with pytest.raises(gc.InputError, match="not UTF-8"):
        gc.tokenize([b"\xff\xfe"], tmp_path / "tokenizer.json", library="tokenizers")
