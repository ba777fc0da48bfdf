"""The proof that a library gives the ids of the reference: awkward texts, encoded by both."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from gpu_curate.document import TextColumn
from gpu_curate.errors import FatalError, one_line
from gpu_curate.tokenizer.backends import Ids, open_backend, version_of
from gpu_curate.tokenizer.model import added_tokens
from gpu_curate.tokenizer.patterns import BOUNDARY

if TYPE_CHECKING:
    from gpu_curate.tokenizer.encoder import Encoder


def probe_of(draft: Encoder) -> list[str]:
    return probe_texts([t["content"] for t in added_tokens(json.loads(draft.data))][:2000])


@functools.lru_cache(maxsize=4)
def stand_ins(encoder: Encoder) -> tuple[Encoder, ...]:
    """The libraries that a text goes to when that of `encoder` fails on it: proven to give its ids on the probe texts.

    Only those whose versions a run's fingerprint holds, or its bytes would depend on what else is installed.
    """
    probe = probe_texts([t["content"] for t in added_tokens(json.loads(encoder.data))][:2000])
    expected = ids_of_probe(encoder, probe)
    reference = "tokenizers" if encoder.pattern is None else "tiktoken"
    names = [n for n in dict.fromkeys((reference, "tokenizers")) if n != encoder.library]
    found = [
        replace(encoder, library=n, version=version_of(n), reason=f"stands in for {encoder.library}")
        for n in names
        if problem_of(encoder, n, probe, expected) is None
    ]
    return tuple(found)


def problem_of(draft: Encoder, name: str, probe: list[str], expected: Ids) -> str | None:
    """Why library `name` cannot stand in for the reference; None if it can."""
    version = version_of(name)
    if not version:
        return "not installed"
    candidate = replace(draft, library=name, version=version)
    try:
        ids, lens = ids_of_probe(candidate, probe)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as e:  # a Rust panic reaches Python as a BaseException
        return f"{version} cannot run it: {one_line(e, 200)}"
    ends, expected_ends = np.cumsum(lens), np.cumsum(expected[1])
    for i, text in enumerate(probe):
        got, want = ids[ends[i] - lens[i] : ends[i]], expected[0][expected_ends[i] - expected[1][i] : expected_ends[i]]
        if not np.array_equal(got, want):
            return f"{version} gives {got[:8].tolist()} for {text[:40]!r}, the reference {want[:8].tolist()}"
    return None


def ids_of_probe(encoder: Encoder, probe: list[str]) -> Ids:
    """Ids of the probe texts, uint32, unchecked; and the proof that neither a column nor chunks change them."""
    backend = open_backend(encoder)
    ids, lens = backend.encode(probe)
    if backend.reads_columns:
        of_column = backend.encode(TextColumn.from_texts(probe))
        if not all(map(np.array_equal, of_column, (ids, lens))):
            raise FatalError(f"{encoder.source}: {encoder.library} gives other ids for a column than for its texts")
    if backend.chunkable:
        text = " ".join(probe)
        cuts = [0, *(m.start() for m in BOUNDARY.finditer(text)), len(text)]
        whole, _ = backend.encode([text])
        chunked, _ = backend.encode([text[a:b] for a, b in pairwise(cuts)])
        if not np.array_equal(whole, chunked):
            raise FatalError(f"{encoder.source}: {encoder.library} gives other ids for a text in chunks")
    return ids, lens


def probe_texts(added: Sequence[str] = ()) -> list[str]:
    """Texts on which tokenizers of the same name have been seen to differ; about 60 KB, the same in every run.

    Args:
        added: texts of added and special tokens, written into the probe in several surroundings.
    """
    ascii_all = [chr(c) for c in range(128)]
    spaces = " \t\n\r\x0b\x0c\x1c\x1d\x85\xa0\u1680\u2003\u2028\u2029\u202f\u205f\u3000\u200b\ufeff"
    words = [
        "a",
        "the",
        "Hello",
        "don't",
        "I'LL",
        "x\u2019s",
        "naïve",
        "Straße",
        "ÉCOLE",
        "中文",
        "日本語です",
        "한국어",
        "ไทย",
    ]
    words += ["Привет", "שלום", "مرحبا", "हिन्दी", "é", "e\u0301\u0302", "\u0301", "ﬁ", "Ǆ", "ʰ", "İ", "ſ", "Ω", "𝔘𝔫𝔦"]
    words += ["0", "12", "1234567", "3.14", "1,000", "٣٤", "Ⅷ", "½", "²", "𝟘"]
    words += ["👩‍👩‍👧‍👦", "🇩🇪", "👍🏽", "❤️", "\ufffd", "\u0378", "\U000e0041", "\U0010ffff", "\x00", "\x7f", "\u0600"]
    words += [
        "...",
        "--",
        "__init__",
        "=>",
        "://",
        "\\n",
        "''",
        '""',
        "#",
        "@x",
        "<b>",
        "{%",
        "'s",
        "'S",
        "'ve",
        "'",
        "’",
    ]
    texts = ["", *ascii_all, *(c * 2 for c in ascii_all), "".join(ascii_all), *spaces]
    texts += [
        f"{a}{s}{b}" for a in ("a", "1", "!", "é", "中", "") for b in ("b", "2", "?", "ß", "文", "") for s in spaces
    ]
    texts += [f"x{a}{b}y" for a in spaces for b in spaces] + [f"{a}{b}" for a in spaces[:8] for b in spaces[:8]]
    texts += [
        f"x{a}{b}{c}" for a in " \n\r\t" for b in " \n\r\t" for c in (" ", "\n", "\xa0", "")
    ]  # at the end of a text
    texts += [f"{a}{b}" for i, a in enumerate(words) for b in words[i % 3 :: 3]]
    texts += [f"{a} {b}" for i, a in enumerate(words) for b in words[i % 5 :: 5]]
    texts += [f"w{' ' * n}w{' ' * n}" for n in range(1, 70)] + ["\n" * n + " x" + "\r\n" * n for n in range(1, 20)]
    texts += [c * n for c in "aA1!= \n\té中" for n in (3, 7, 15, 16, 17, 31, 33, 64, 129, 500)]
    letters = np.random.default_rng(0).integers(97, 123, 4096, np.uint8).tobytes().decode()
    texts += [letters[: 1 << n] for n in range(1, 13)] + [letters[i : i + 40].title() for i in range(0, 400, 40)]
    texts += [
        "Mixed case: aBcDeF XMLHttpRequest snake_case kebab-case a1b2c3 1st 2nd \tTab\r\nCRLF \r\n\r\n  indent\n    "
    ]
    texts += [f"{a}{special}{b}" for special in added for a, b in (("", ""), ("a", "b"), (" ", " "), ("<", ">"))]
    texts += [special[:-1] for special in added] + [special * 2 for special in added]
    return texts
