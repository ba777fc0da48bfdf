"""A fastText model that contradicts itself is refused before the library reads it: rows, dimensions, counts, weights."""

from __future__ import annotations

import struct
import subprocess
import sys

import pytest

from gpu_curate.config import Language
from gpu_curate.errors import ConfigError
from gpu_curate.text import fasttext_file
from gpu_curate.text.language import LanguageId, model_path

DIM = 2
ARGS = {
    "dim": DIM, "ws": 5, "epoch": 5, "minCount": 1, "neg": 5, "wordNgrams": 1, "loss": 3, "model": 3, "bucket": 4,
    "minn": 2, "maxn": 3, "lrUpdateRate": 100,
}  # fmt: skip
WORDS = [(b"</s>", 9, 0), (b"ferry", 4, 0), (b"__label__en", 5, 1), (b"__label__qq", 4, 1)]


def quantizer(dim=DIM, parts=1, of_each=DIM, of_last=DIM, weight=0.25):
    return struct.pack("<4i", dim, parts, of_each, of_last) + struct.pack("<f", weight) * (256 * max(dim, 0))


def quantized(rows, dim=DIM, codes=None, normed=True, **parts):
    count = rows if codes is None else codes
    tail = bytes(rows) + quantizer(1, 1, 1, 1) if normed else b""
    return struct.pack("<?qqi", normed, rows, dim, count) + bytes(max(count, 0)) + quantizer(dim, **parts) + tail


def dense(rows, dim=DIM, weight=0.5):
    return struct.pack("<qq", rows, dim) + struct.pack("<f", weight) * (rows * dim)


def model(
    words=WORDS, counts=None, pruned=None, first=None, last=None, flags=(False, False), magic=fasttext_file.MAGIC, version=12,
    **args,
) -> bytes:  # fmt: skip
    """A sound classifier of two words and two labels, with what differs."""
    size, nwords, nlabels = counts or (len(words), 2, 2)
    table = [] if pruned is None else pruned
    return b"".join(
        [
            struct.pack("<ii12id", magic, version, *{**ARGS, **args}.values(), 1e-4),
            struct.pack("<iiiqq", size, nwords, nlabels, 9, -1 if pruned is None else len(table)),
            *(w + b"\0" + struct.pack("<qb", count, kind) for w, count, kind in words),
            *(struct.pack("<ii", *pair) for pair in table),
            bytes([flags[0]]), first or dense(6), bytes([flags[1]]), last or dense(2),
        ]
    )  # fmt: skip


NAN, INF = float("nan"), float("inf")
ANOTHER_ORDER = [WORDS[2], WORDS[0], WORDS[1], WORDS[3]]
SMALL_FIRST = [*WORDS[:2], (b"__label__en", 4, 1), (b"__label__qq", 5, 1)]
PRUNED = {"flags": (True, False), "first": quantized(3)}
BAD = {
    "fewer rows than words and buckets": (dict(first=dense(5)), "5 vectors, and words and n-grams that need 6"),
    "more buckets than rows": (dict(bucket=2_000_000), "need 2000002"),
    "n-grams of words alone": (dict(minn=0, maxn=0, wordNgrams=2, first=dense(2)), "need 6"),
    "no rows for the words": (dict(minn=0, maxn=0, bucket=0, first=dense(1)), "1 vectors, and .* need 2"),
    "a pruned n-gram behind the matrix": (dict(PRUNED, pruned=[(1, 0), (3, 1)]), "3 vectors, and .* need 4"),
    "a pruned n-gram far away": (dict(PRUNED, pruned=[(1, 2**31 - 1)]), "need"),
    "a pruned n-gram before the matrix": (dict(PRUNED, pruned=[(1, -2)]), "negative"),
    "pruned and not quantized": (dict(pruned=[(1, 0)]), "pruned"),
    "another dimension": (dict(dim=3), "6 x 2 for vectors of 3"),
    "no dimension": (dict(dim=0), "0 dimensions"),
    "outputs of another dimension": (dict(last=dense(2, 3)), "2 x 3 for vectors of 2"),
    "fewer outputs": (dict(last=dense(1)), "1 outputs for 2 labels"),
    "more outputs": (dict(last=dense(3)), "3 outputs for 2 labels"),
    "negative rows": (dict(first=struct.pack("<qq", -1, DIM)), "-1 x 2"),
    "no buckets": (dict(bucket=0), "no buckets"),
    "negative buckets": (dict(bucket=-1), "-1 buckets"),
    "endless n-grams": (dict(maxn=2**31 - 1), "n-grams are longer"),
    "endless n-grams of words": (dict(wordNgrams=2**31 - 1), "n-grams are longer"),
    "n-grams of a length below zero": (dict(maxn=-1), "lengths of 1, 2 and -1"),
    "n-grams from a length below zero": (dict(minn=-2), "lengths of 1, -2 and 3"),
    "n-grams of words below zero": (dict(wordNgrams=-(2**31)), "lengths of -2147483648"),
    "no entries": (dict(words=[], counts=(0, 0, 0)), "0 entries"),
    "entries below zero": (dict(counts=(-4, -6, 2)), "-4 entries"),
    "more words than entries": (dict(counts=(4, 9, 2)), "4 entries, 9 words"),
    "labels before words": (dict(words=ANOTHER_ORDER), "not in order at entry 0"),
    "a kind of no kind": (dict(words=[(b"</s>", 9, 7), *WORDS[1:]]), "not in order at entry 0"),
    "a label without end": (dict(words=[*WORDS[:3], (b"x" * 300, 4, 1)]), "a label of 300 bytes"),
    "a tree that cannot be built": (dict(words=SMALL_FIRST, loss=1), "counts of its labels"),
    "a tree of endless counts": (dict(words=[*WORDS[:2], (b"en", 2**60, 1), (b"qq", 2**60, 1)], loss=1), "counts"),
    "NaN": (dict(first=dense(6, weight=NAN)), "no numbers"),
    "infinity": (dict(last=dense(2, weight=-INF)), "no numbers"),
    "sums that pass float32": (dict(first=dense(6, weight=1e38)), "above 1e"),
    "NaN in a codebook": (dict(flags=(True, False), first=quantized(6, weight=NAN)), "no numbers"),
    "codes for other rows": (dict(flags=(True, False), first=quantized(6, codes=5)), "6 rows of 1 codes has 5"),
    "codes below zero": (dict(flags=(True, False), first=quantized(6, codes=-1)), "-1 codes"),
    "parts that do not make a vector": (dict(flags=(True, False), first=quantized(6, of_last=1)), "parts of 2, the last of 1"),
    "parts of nothing": (dict(flags=(True, False), first=quantized(6, parts=0)), "into 0 parts"),
    "a last part that is longer": (dict(flags=(True, False), first=quantized(6, of_each=1)), "the last of 2"),
    "a flag of 2": (dict(flags=(2, False)), "a flag is 2"),
    "no classifier": (dict(model=1), "no classifier"),
    "a version to come": (dict(version=13), "version is 13"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_model_that_contradicts_itself_is_refused(tmp_path, name):
    changes, said = BAD[name]
    path = tmp_path / "m.bin"
    path.write_bytes(model(**changes))
    with pytest.raises(fasttext_file.Fault, match=said):
        fasttext_file.check(path)


SOUND = {
    "dense": {},
    "pruned": dict(PRUNED, pruned=[(0, 0), (3, 0)]),
    "pruned to nothing": dict(PRUNED, pruned=[]),
    "quantized": dict(flags=(True, True), first=quantized(6), last=quantized(2, normed=False)),
    "without n-grams": dict(minn=0, maxn=0, bucket=0, first=dense(2)),
    "of an earlier version": dict(version=11, first=dense(2)),
    "hierarchical": dict(loss=1),
    "one against all": dict(loss=4),
}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_model_passes_and_the_library_reads_it(tmp_path, name):
    pytest.importorskip("fasttext")
    path = tmp_path / "m.bin"
    path.write_bytes(model(**SOUND[name]))
    fasttext_file.check(path)
    code = "import fasttext, sys; print(len(fasttext.load_model(sys.argv[1]).f.predict('ferry tide\\n', -1, -1.0, 'strict')))"
    done = subprocess.run([sys.executable, "-P", "-c", code, path], capture_output=True, text=True)
    assert done.stdout == "2\n", done.stderr


def test_what_is_cut_short_is_so_at_every_byte_and_the_lengths_are_named(tmp_path):
    whole, path = model(**SOUND["quantized"], pruned=[(0, 0)]), tmp_path / "m.bin"
    for cut in range(4, len(whole), 7):
        path.write_bytes(whole[:cut])
        with pytest.raises(fasttext_file.CutShort, match=f"has {cut} bytes"):
            fasttext_file.check(path)
    for other in (b"", b"not", b"not a model"):  # the library refuses these
        path.write_bytes(other)
        fasttext_file.check(path)


def test_the_error_names_key_file_fault_and_remedy(tmp_path):
    pytest.importorskip("fasttext")
    path = tmp_path / "m.bin"
    path.write_bytes(model(bucket=2_000_000))
    with pytest.raises(ConfigError, match=r"language\.model: .*m\.bin cannot be loaded: it has 6 vectors") as e:
        LanguageId(Language(model=str(path)))
    assert "is damaged: get it anew" in e.value.hint


def test_a_model_that_ends_its_process_at_a_text_is_refused(tmp_path, monkeypatch):
    """What no look at the file finds ends the process of the trial, which asks the model for the probe texts."""
    pytest.importorskip("fasttext")
    monkeypatch.setattr(fasttext_file, "check", lambda path: None)
    whole, path = bytearray(model_path(Language(model="lid.176.ftz")).read_bytes()), tmp_path / "m.ftz"
    table = whole.index(b"__label__", 0)
    (pruned,) = struct.unpack_from("<q", whole, 8 + 48 + 8 + 20)
    assert pruned > 0
    last = whole.rindex(b"__label__")
    table = whole.index(b"\0", last) + 10
    for entry in range(pruned):
        struct.pack_into("<i", whole, table + 8 * entry + 4, 2**30)
    path.write_bytes(whole)
    with pytest.raises(ConfigError, match="cannot be loaded: it does not load"):
        LanguageId(Language(model=str(path)))
