"""The tokenizer against its reference libraries, and the faults that users of others have met."""

import base64
import hashlib
import json
import logging
import os
import pickle
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from gpu_curate.cli import app
from gpu_curate.config import Tokenizer
from gpu_curate.document import TextColumn
from gpu_curate.errors import ConfigError, FatalError, InputError
from gpu_curate.tokenizer import backends, loading, model, patterns, proof, reading
from gpu_curate.tokenizer import encoder as encoding
from gpu_curate.tokenizer.backends import LIBRARIES
from gpu_curate.tokenizer.encoder import id_dtype
from gpu_curate.tokenizer.loading import load
from gpu_curate.tokenizer.patterns import CHUNKABLE, CL100K, GPT2, GPT2_POSSESSIVE, O200K, QWEN2
from gpu_curate.tokenizer.training import train

EOT = "<|endoftext|>"


def installed(monkeypatch, version_of) -> None:
    """Let `version_of(library)` say what is installed."""
    for module in (backends, loading, proof):
        monkeypatch.setattr(module, "version_of", version_of)


INSTALLED = [pytest.param(n, marks=pytest.mark.skipif(not backends.version_of(n), reason=f"no {n}")) for n in LIBRARIES]


STEMS = """the of and to in is that for it as was with be by on not he his but at are this have from or had an naïve Straße
Привет мир こんにちは 世界 東京 สวัสดี שלום 12 2024 3.14 don't I'll __init__ return (x) == {} ; !!""".split()  # noqa: SIM905


def sample(count=300, seed=0):
    """Texts with words of several scripts, invented words, code and odd spacing; the same in every run."""
    rng = np.random.default_rng(seed)
    invented = ["".join(map(chr, rng.integers(97, 123, rng.integers(2, 9)))) for _ in range(400)]
    stems = STEMS * 8 + invented
    gaps = [" "] * 12 + ["\n", "\n\n", "  ", "\t", "\r\n", ", ", ". "]
    texts = []
    for _ in range(count):
        words = rng.choice(stems, rng.integers(1, 60))
        texts.append("".join(f"{w}{g}" for w, g in zip(words, rng.choice(gaps, len(words)), strict=True)))
    return texts


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    train(sample(), 800, EOT, path)
    return path


@pytest.fixture
def variant(trained, tmp_path):
    """A function that writes an edited copy of the trained tokenizer.json."""

    def write(change, name="variant.json"):
        data = json.loads(trained.read_bytes())
        change(data)
        (tmp_path / name).write_text(json.dumps(data, ensure_ascii=False), encoding="utf-8")
        return tmp_path / name

    return write


def section(path, **keys):
    return Tokenizer(path=str(path), **keys)


def reference(path):
    """`tokenizers` by itself, told to take special tokens as text."""
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    tokenizer.encode_special_tokens = True
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def check(encoder, expected, texts):
    ids, lens = encoder.encode_batch(texts)
    assert ids.dtype == encoder.dtype
    assert lens.dtype == np.int64
    got = np.split(ids, np.cumsum(lens))[:-1]
    for text, one in zip(texts, got, strict=True):
        assert one.tolist() == expected(text), repr(text[:60])
    assert len(ids) == lens.sum()
    column = TextColumn.from_texts(["before", *texts, "after"]).slice(1, len(texts) + 1)
    of_column = encoder.encode_column(column)
    assert (of_column[0].dtype, of_column[1].dtype) == (encoder.dtype, np.int64)
    assert all(map(np.array_equal, of_column, (ids, lens)))


# ------------------------------------------------------------------------------------------------------- the same ids


@pytest.mark.parametrize("library", INSTALLED)
def test_ids_are_the_reference_libraries(trained, library):
    check(load(section(trained, library=library)), reference(trained), [*sample(50, 1), "", "a", "\0", EOT])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(max_size=60), max_size=6), st.sampled_from(LIBRARIES))
def test_ids_of_any_text_are_the_reference_libraries(trained, texts, library):
    if not backends.version_of(library):
        pytest.skip(f"no {library}")
    texts = [t.encode("utf-8", "replace").decode() for t in texts]
    check(load(section(trained, library=library)), reference(trained), texts)


@pytest.mark.parametrize("library", INSTALLED)
def test_gpt2_ids_are_those_of_the_published_tokenizer(shared_data, library):
    path = shared_data("tok/gpt2/tokenizer.json")
    encoder = load(section(path, library=library))
    assert (encoder.eot_id, encoder.vocab_size, encoder.dtype) == (50256, 50257, np.uint16)
    texts = shared_data("patho/blns.txt").read_text(encoding="utf-8").split("\n")
    check(encoder, reference(path), texts)
    assert encoder.encode_batch(["Hello world"])[0].tolist() == [15496, 995]


@pytest.mark.parametrize("texts", [[], [""], ["", "", ""], ["", "x", ""]])
@pytest.mark.parametrize("library", INSTALLED)
def test_no_texts_and_empty_texts(trained, library, texts):
    ids, lens = load(section(trained, library=library)).encode_batch(texts)
    assert ids.dtype == np.uint16
    assert lens.tolist() == [len(t) for t in texts]
    assert len(ids) == lens.sum()


@pytest.mark.parametrize("library", INSTALLED)
def test_added_tokens_that_are_not_special_keep_their_ids(variant, library):
    def add(data):
        last = max(data["model"]["vocab"].values())
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": True}
        data["added_tokens"] = [{"id": last + 1, "content": EOT, "special": True, **flags}]
        data["added_tokens"] += [{"id": last + 2, "content": "<think>", "special": False, **flags}]
        data["added_tokens"] += [{"id": last + 3, "content": "        ", "special": False, **flags}]

    path = variant(add)
    if library == "tiktoken":
        with pytest.raises(ConfigError, match="added tokens are none of tiktoken's"):
            load(section(path, library=library))
        return
    encoder = load(section(path, library=library))
    check(encoder, reference(path), ["a <think> b", f"x{' ' * 20}y", f"<think>{EOT}", "<thin"])
    assert encoder.vocab_size - 1 in encoder.encode_batch([" " * 8])[0]


# -------------------------------------------------------------------------------------- specials, lengths, truncation


@pytest.mark.parametrize("library", INSTALLED)
def test_special_text_in_a_document_is_ordinary_text(trained, library):
    encoder = load(section(trained, library=library))
    texts = [f"The marker {EOT} splits files.", EOT, f"ends in {EOT}", f"{EOT}{EOT}", ""]
    ids, lens = encoder.encode_batch(texts)
    assert encoder.eot_id not in ids
    assert encoder.decode(ids) == "".join(texts)
    assert lens[1] > 1
    assert [encoder.count_special(t) for t in texts] == [1, 1, 1, 2, 0]
    column = TextColumn.from_texts([*texts, EOT[:5], EOT[5:]])  # two texts that meet are not one
    assert encoder.count_special_in(column) == 5
    assert encoder.count_special_in(column.slice(5, 7)) == encoder.count_special_in(column.slice(4, 4)) == 0


def test_counting_special_texts_knows_all_of_them_and_prefers_the_longest(variant):
    def add(data):
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        last = max(data["model"]["vocab"].values())
        data["added_tokens"] += [
            {"id": last + 1 + i, "content": c, **flags} for i, c in enumerate(["[A]", "[A]B", "{x"])
        ]

    encoder = load(section(variant(add)))
    assert encoder.count_special(f"[A]B [A] {{x {EOT} [a] {{ x") == 4


@pytest.mark.parametrize("library", INSTALLED)
def test_truncation_padding_and_post_processors_never_apply(variant, library):
    def change(data):
        data["truncation"] = {"direction": "Right", "max_length": 16, "strategy": "LongestFirst", "stride": 0}
        data["padding"] = {
            "strategy": {"Fixed": 64}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
            "pad_token": "!",
        }  # fmt: skip
        eot = {"id": EOT, "ids": [799], "tokens": [EOT]}
        data["post_processor"] = {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": EOT, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {EOT: eot},
        }

    path = variant(change)
    text = " ".join(["the"] * 100_000)
    _, lens = load(section(path, library=library)).encode_batch([text, "the"])
    assert lens.tolist() == [100_000, 1]
    check(load(section(path, library=library)), reference(path), ["the", "", text[:1000]])


def test_bpe_dropout_is_ignored_aloud(variant, trained, caplog):
    path = variant(lambda data: data["model"].update(dropout=0.5))
    with caplog.at_level(logging.WARNING):
        encoder = load(section(path))
    assert "dropout 0.5 is ignored" in caplog.text
    check(encoder, reference(trained), sample(20, 2))


@pytest.mark.parametrize("library", INSTALLED)
def test_a_lone_surrogate_is_refused_by_its_position(trained, library):
    encoder = load(section(trained, library=library))
    with pytest.raises(InputError, match="text 2 of 4"):
        encoder.encode_batch(["fine", "also", "half \ud83c end", "x"])


# ---------------------------------------------------------------------------------------------------------- id widths


def test_a_vocabulary_above_65536_gives_uint32(variant):
    path = variant(lambda data: _renumber(data, 69_500))
    encoder = load(section(path))
    assert encoder.vocab_size == 70_300
    assert encoder.dtype == np.uint32
    texts = sample(10, 3)
    check(encoder, reference(path), texts)
    assert encoder.encode_batch(texts)[0].max() > 65_535


def _renumber(data, by):
    data["model"]["vocab"] = {token: i + by for token, i in data["model"]["vocab"].items()}
    data["added_tokens"] = []
    data["model"]["vocab"][EOT] = 799 + by


def test_the_widest_vocabulary_of_16_bits():
    assert [id_dtype(n).name for n in (1, 65_536, 65_537)] == ["uint16", "uint16", "uint32"]


@pytest.mark.parametrize(
    ("change", "message"), [({"vocab_size": 300}, "vocab_size is 300"), ({"eot_id": 32}, "end-of-text id 32")]
)
def test_ids_are_checked_on_every_call(trained, change, message):
    from dataclasses import replace

    encoder = replace(load(section(trained)), **change)
    with pytest.raises(FatalError, match=message):
        encoder.encode_batch(["the AAAA of and ABC"])


# ------------------------------------------------------------------------------------------------- choosing a library


def test_auto_takes_the_fastest_that_is_installed(trained, monkeypatch):
    assert load(section(trained)).library == next(n for n in LIBRARIES if backends.version_of(n))
    installed(monkeypatch, lambda name: "9" if name == "tokenizers" else "")
    loading._choose.cache_clear()
    encoder = load(section(trained))
    loading._choose.cache_clear()
    assert encoder.library == "tokenizers"
    assert "gigatoken: not installed" in encoder.reason


def test_a_library_that_differs_is_passed_over_aloud(trained, monkeypatch, caplog):
    def off_by_one(encoder):
        encode = backends._open_tokenizers(encoder)

        def wrong(texts):
            ids, lens = encode(texts)
            return np.where(ids == 32, 33, ids).astype(np.uint32), lens

        return wrong

    def panics(encoder):
        raise type("PanicException", (BaseException,), {})("no such pre-tokenizer")

    monkeypatch.setitem(backends.BACKENDS, "gigatoken", backends.Library(off_by_one, bounded=True))
    monkeypatch.setitem(backends.BACKENDS, "snaptokens", backends.Library(panics, bounded=True))
    monkeypatch.setitem(backends.BACKENDS, "tiktoken", backends.Library(panics, bounded=True))
    installed(monkeypatch, lambda name: f"1.{name}")  # unlike any opened before
    loading._choose.cache_clear()
    with caplog.at_level(logging.WARNING):
        encoder = load(section(trained))
    assert encoder.library == "tokenizers"
    assert "not using gigatoken: 1.gigatoken gives" in caplog.text
    assert "not using snaptokens: 1.snaptokens cannot run it: no such pre-tokenizer" in caplog.text
    for library, message in (("gigatoken", "the reference"), ("snaptokens", "cannot run it")):
        with pytest.raises(ConfigError, match=message):
            load(section(trained, library=library))
    loading._choose.cache_clear()


def test_an_explicit_library_that_is_missing_is_an_error(trained, monkeypatch):
    installed(monkeypatch, lambda name: "" if name == "gigatoken" else "9")
    loading._choose.cache_clear()
    with pytest.raises(ConfigError, match=r"tokenizer.library gigatoken: not installed"):
        load(section(trained, library="gigatoken"))
    loading._choose.cache_clear()


def _models():
    from tokenizers import models, normalizers, pre_tokenizers, trainers

    yield "WordPiece", models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer, pre_tokenizers.BertPreTokenizer()
    yield "Unigram", models.Unigram(), trainers.UnigramTrainer, pre_tokenizers.Metaspace()
    yield "lower", models.BPE(), trainers.BpeTrainer, pre_tokenizers.ByteLevel(add_prefix_space=True)
    assert normalizers


@pytest.mark.parametrize("kind", ["WordPiece", "Unigram", "lower"])
def test_tokenizers_of_other_kinds_give_the_reference_ids(tmp_path, kind):
    """Whoever ends up running them: the fast libraries where they are exact, else `tokenizers`."""
    from tokenizers import normalizers

    _, model, trainer, pre = next(m for m in _models() if m[0] == kind)
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = pre
    if kind != "Unigram":
        tokenizer.normalizer = normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase()])
    options = {"unk_token": "[UNK]"} if kind == "Unigram" else {}
    specials = ["[UNK]", "[EOS]"]
    tokenizer.train_from_iterator(
        sample(), trainer(vocab_size=500, special_tokens=specials, show_progress=False, **options)
    )
    tokenizer.save(str(tmp_path / "t.json"))
    encoder = load(section(tmp_path / "t.json", eot="[EOS]"))
    check(encoder, reference(tmp_path / "t.json"), [*sample(30, 4), "", "unseen: ☃"])
    assert not {encoder.eot_id} & set(encoder.encode_batch(["[EOS]", "a [EOS] b", "[EOS][EOS]"])[0].tolist())


def test_two_tokenizers_of_one_class_and_size_have_different_identities(trained, tmp_path):
    train(sample(seed=9), 800, EOT, tmp_path / "other.json")
    a, b = load(section(trained)), load(section(tmp_path / "other.json"))
    assert a.vocab_size == b.vocab_size
    assert a.identity != b.identity
    assert a.identity == hashlib.sha256(trained.read_bytes()).hexdigest()
    for library in LIBRARIES:
        if backends.version_of(library):
            assert load(section(trained, library=library)).identity == a.identity


# -------------------------------------------------------------------------------------------------- long documents


PATTERNS = {"gpt2": GPT2, "gpt2 possessive": GPT2_POSSESSIVE, "cl100k": CL100K, "qwen2": QWEN2, "o200k": O200K}


@pytest.mark.parametrize("name", list(PATTERNS))
def test_chunks_give_the_ids_of_the_whole_text(trained, monkeypatch, name):
    """Every cut that may be made is made; the reference sees the text whole."""
    pattern = PATTERNS[name]
    data = json.loads(trained.read_bytes())
    ranks = {bytes(map(model.CHAR_TO_BYTE.__getitem__, t)): i for t, i in data["model"]["vocab"].items()}
    encoded = reading.from_ranks(ranks, pattern, {EOT: 799})
    whole = tokenizers.Tokenizer.from_str(encoded.decode())
    encoder = encoding.Encoder("x", encoded, None, 799, 800, "tokenizers", backends.version_of("tokenizers"), "")
    assert backends.open_backend(encoder).chunkable
    monkeypatch.setattr(encoding, "CHUNK_CHARS", 1)
    texts = [*sample(40, 5), " ".join(proof.probe_texts())]
    assert sum(1 for _ in encoding._chunks(texts[-1])) > 100
    check(encoder, lambda text: whole.encode(text).ids, texts)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet=st.sampled_from("ab 'sS.\n\t1é中!A\u0301"), max_size=80), st.sampled_from(sorted(CHUNKABLE)))
def test_no_pattern_matches_across_a_cut(text, pattern):
    regex = pytest.importorskip("regex")
    whole = [m.group() for m in regex.finditer(pattern, text)]
    pieces = [m.start() for m in patterns.BOUNDARY.finditer(text)]
    parts = [text[a:b] for a, b in zip([0, *pieces], [*pieces, len(text)], strict=True)]
    assert [m.group() for part in parts for m in regex.finditer(pattern, part)] == whole


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(normalizer={"type": "Lowercase"}),
        lambda d: d["pre_tokenizer"].update(use_regex=False),
        lambda d: d.update(pre_tokenizer={"type": "Whitespace"}),
        lambda d: d["added_tokens"].append({**d["added_tokens"][0], "id": 800, "content": "a b", "special": False}),
        lambda d: d["added_tokens"].append(
            {**d["added_tokens"][0], "id": 800, "content": "ab", "special": False, "rstrip": True}
        ),
    ],
)
def test_a_text_is_encoded_whole_where_chunks_are_not_proved(trained, change):
    data = json.loads(trained.read_bytes())
    change(data)
    encoder = encoding.Encoder("x", json.dumps(data).encode(), None, 799, 801, "tokenizers", "", "")
    assert not backends.is_chunkable(data, encoder)


@pytest.mark.parametrize("library", [p for p in INSTALLED if p.values[0] != "tokenizers"])
def test_a_long_document_costs_about_as_much_as_its_parts(trained, library):
    encoder = load(section(trained, library=library))
    letters = np.random.default_rng(0).integers(97, 123, 1 << 20, np.uint8).tobytes().decode()
    words = " ".join(letters[i : i + 6] for i in range(0, len(letters), 6))
    for text in (words, letters[: 1 << 18]):
        quarter = len(text) // 4
        encoder.encode_batch([text[:quarter]])
        seconds = []
        for part in (text[:quarter], text):
            start = time.process_time()
            ids, lens = encoder.encode_batch([part])
            seconds.append(time.process_time() - start)
        assert encoder.decode(ids) == text
        assert lens.tolist() == [len(ids)]
        assert seconds[1] < 12 * seconds[0] + 0.2  # linear would be 4


def test_batches_are_cut_by_characters_and_lose_nothing(trained, monkeypatch):
    encoder = load(section(trained))
    texts = [t for t in sample(60, 6)]
    expected = encoder.encode_batch(texts)
    for limit in (1, 7, 100, 1000):
        monkeypatch.setattr(encoding, "BATCH_CHARS", limit)
        ids, lens = encoder.encode_batch(texts)
        np.testing.assert_array_equal(ids, expected[0])
        np.testing.assert_array_equal(lens, expected[1])


# ---------------------------------------------------------------------------------------------- processes and memory


def run(code, **env):
    path = os.pathsep.join(p for p in sys.path if p)
    command = [sys.executable, "-c", textwrap.dedent(code)]
    return subprocess.run(
        command, env={**os.environ, "PYTHONPATH": path, **env}, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("library", INSTALLED)
def test_forked_workers_encode_after_their_parent_has(trained, library):
    done = run(f"""
        import os, signal
        from gpu_curate.config import Tokenizer
        from gpu_curate.tokenizer.loading import load
        encoder = load(Tokenizer(path={str(trained)!r}, library={library!r}))
        texts = ["the of and " * 200] * 20
        expected = encoder.encode_batch(texts)[0].tobytes()
        children = []
        for _ in range(8):
            pid = os.fork()
            if pid == 0:
                signal.alarm(30)
                os._exit(0 if encoder.encode_batch(texts)[0].tobytes() == expected else 1)
            children.append(pid)
        print([os.waitpid(pid, 0)[1] for pid in children])
    """)
    assert done.stdout.strip() == str([0] * 8), done.stderr


def test_an_encoder_by_pickle_encodes_the_same_in_another_process(trained, tmp_path):
    encoder = load(section(trained))
    (tmp_path / "encoder").write_bytes(pickle.dumps(encoder))
    done = run(f"""
        import pickle, pathlib, sys
        before = set(sys.modules)
        encoder = pickle.loads(pathlib.Path({str(tmp_path / "encoder")!r}).read_bytes())
        assert not {{"gigatoken", "tokenizers", "snaptokens", "tiktoken"}} & set(sys.modules)
        print(encoder.encode_batch(["the marker of the day"])[0].tolist(), encoder.identity)
    """)
    assert done.stdout.split("] ")[0] + "]" == str(encoder.encode_batch(["the marker of the day"])[0].tolist()), (
        done.stderr
    )
    assert encoder.identity in done.stdout


def test_a_worker_with_another_library_version_stops(trained):
    from dataclasses import replace

    encoder = replace(load(section(trained)), version="0.0.1")
    with pytest.raises(FatalError, match=r"0\.0\.1, this process has"):
        encoder.encode_batch(["x"])


def test_a_cache_without_bound_is_dropped_when_it_has_grown(trained, monkeypatch):
    opened, resident = [], [0]

    def opener(encoder):
        opened.append(1)

        def encode(texts):
            resident[0] += 100
            return np.zeros(0, np.uint32), np.zeros(len(texts), np.int64)

        return encode

    monkeypatch.setattr(backends, "_resident_bytes", lambda: 1000 + resident[0])
    monkeypatch.setattr(backends, "CACHE_BYTES", 250)
    for bounded, expected in ((False, 4), (True, 1)):
        opened.clear()
        backend = backends.Backend(backends.Library(opener, bounded), load(section(trained)))
        for _ in range(10):
            backend.encode(["x"])
        assert len(opened) == expected  # at first, and after every third call


@pytest.mark.parametrize("library", INSTALLED)
def test_memory_is_flat_over_documents_of_unique_strings(trained, library):
    megabytes = {"gigatoken": 64, "snaptokens": 8, "tiktoken": 3, "tokenizers": 2}[library]
    done = run(f"""
        import numpy as np
        from gpu_curate.tokenizer import backends, loading
        from gpu_curate.config import Tokenizer
        from gpu_curate.document import TextColumn
        backends.CACHE_BYTES = 20 << 20
        encoder = loading.load(Tokenizer(path={str(trained)!r}, library={library!r}))
        rng, peaks = np.random.default_rng(0), []
        for _ in range({megabytes}):
            block = rng.integers(97, 123, 1_000_000, np.uint8)
            block[rng.integers(0, len(block), len(block) // 8)] = 32
            text = block.tobytes().decode()
            encoder.encode_column(TextColumn.from_texts(text[i : i + 5000] for i in range(0, len(text), 5000)))
            peaks.append(backends._resident_bytes() >> 20)
        print(max(peaks[len(peaks) // 2 :]) - max(peaks[: len(peaks) // 2]))
    """)
    assert int(done.stdout) < 100, done.stderr  # MiB; without the bound gigatoken grows by 220


def test_no_library_starts_threads_for_its_work(trained):
    done = run(f"""
        import os
        from gpu_curate.config import Tokenizer
        from gpu_curate.tokenizer.loading import load
        encoder = load(Tokenizer(path={str(trained)!r}))
        print(os.environ["RAYON_NUM_THREADS"], os.environ["TOKENIZERS_PARALLELISM"])
    """)
    assert done.stdout.split() == ["1", "false"], done.stderr


def test_importing_the_module_imports_no_tokenizer_library():
    done = run("""
        import sys, gpu_curate.tokenizer
        print({"gigatoken", "tokenizers", "snaptokens", "tiktoken", "awkward", "huggingface_hub"} & set(sys.modules))
    """)
    assert done.stdout.strip() == "set()", done.stderr


# ------------------------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "not a tokenizer.json"),
        (b"[]", "not a tokenizer.json"),
        (b'{"model": {"vocab": {}}}', "vocabulary is empty"),
        (b"[" * 100_000, "not a tokenizer.json"),
        (b'{"model": {"vocab": {"a": "1"}}}', "not a tokenizer.json"),
        (b'{"model": {"vocab": {"a": -1}}}', "not a tokenizer.json"),
        (b'{"model": {"vocab": {"a": true}}}', "not a tokenizer.json"),
        (b'{"model": {"vocab": [1, 2]}}', "not a tokenizer.json"),
        (b'{"model": {"vocab": {"a": 1}}, "added_tokens": [{"id": 2}]}', "not a tokenizer.json"),
        (b'{"model": {"vocab": {"a": 1}}, "added_tokens": {"a": 2}}', "not a tokenizer.json"),
        (b'{"model": {"vocab": {"<|endoftext|>": 1}}}', "cannot run it"),
        (b'{"model": {"type": "Other", "vocab": {"<|endoftext|>": 1}}, "version": "1.0"}', "cannot run it"),
    ],
)
def test_a_file_that_is_no_tokenizer_is_named(tmp_path, content, message):
    (tmp_path / "t.json").write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        load(section(tmp_path / "t.json"))


def test_merges_of_unknown_tokens_are_one_error_that_names_the_file(variant):
    for merge in (["zq", "qz"], "zq qz", ["a"], 7):
        path = variant(lambda t, merge=merge: t["model"]["merges"].append(merge))
        with pytest.raises(ConfigError, match=r"variant\.json: tokenizers [0-9.]+ cannot run it"):
            load(section(path))


def drop_bytes(tokenizer, characters):
    """Take tokens that hold these characters out of the vocabulary, and their merges."""
    model = tokenizer["model"]
    gone = {t for t in model["vocab"] if set(t) & set(characters) and t != EOT}
    model["vocab"] = {t: i for t, i in model["vocab"].items() if t not in gone}
    model["merges"] = [m for m in model["merges"] if not {*m, "".join(m)} & gone]


def test_a_byte_level_vocabulary_without_all_bytes_is_refused(variant):
    path = variant(lambda t: drop_bytes(t, "Z\u00c3"))
    with pytest.raises(ConfigError, match=r"without the bytes 0x5a, 0xc3 \(2 in all\) loses text"):
        load(section(path))


def test_bytes_that_utf8_never_has_may_be_missing(variant):
    never = "".join(model.BYTE_TO_CHAR[b] for b in (0xC0, 0xC1, *range(0xF5, 0x100)))
    assert load(section(variant(lambda t: drop_bytes(t, never)), library="tokenizers")).eot_id == 799


@pytest.mark.parametrize("highest", [1 << 31, 1 << 32, 10**30, 2 * 801 + model.SPARE_IDS])
def test_an_id_far_beyond_the_vocabulary_is_refused_before_a_library_sees_it(variant, monkeypatch, highest):
    monkeypatch.setattr(loading, "_reference", lambda draft: pytest.fail("a library was asked"))
    for change in (
        lambda t: t["model"]["vocab"].update({"zzz": highest}),
        lambda t: t["added_tokens"].append({**t["added_tokens"][0], "content": "<|far|>", "id": highest}),
    ):
        with pytest.raises(ConfigError, match=f"id {highest} in a vocabulary of"):
            load(section(variant(change)))


def test_a_folder_holds_its_tokenizer_json(trained):
    assert load(section(trained.parent)).identity == load(section(trained)).identity


@pytest.mark.parametrize("path", ["nowhere/tokenizer.json", "/nowhere/at/all", "./x"])
def test_a_missing_file_is_not_asked_of_the_hub(path):
    with pytest.raises(ConfigError, match="no such file"):
        load(section(path))


def test_a_hub_name_without_network_is_one_clear_error(monkeypatch, trained):
    import huggingface_hub

    asked = []

    def offline(name, file, revision=None):
        asked.append((name, file, revision))
        raise OSError("no route to host")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", offline)
    with pytest.raises(ConfigError, match=r"org/name@v1: no such file, and the hub did not give one: no route"):
        load(section("org/name@v1"))
    assert asked == [("org/name", "tokenizer.json", "v1")]
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *a, **k: str(trained))
    assert load(section("org/name")).identity == load(section(trained)).identity


def test_an_unknown_eot_token_is_named_with_those_there_are(trained):
    with pytest.raises(ConfigError, match="'</s>'") as e:
        load(section(trained, eot="</s>"))
    assert EOT in e.value.hint
    with pytest.raises(ConfigError, match="800"):
        load(section(trained, eot=800))
    assert load(section(trained, eot=799)).eot_id == load(section(trained)).eot_id == 799


def test_an_eot_token_that_text_produces_is_refused(trained):
    with pytest.raises(ConfigError, match="of ordinary text"):
        load(section(trained, eot="a"))


def test_a_tokenizer_still_to_be_trained_cannot_be_loaded():
    with pytest.raises(ConfigError, match="to be trained"):
        load(Tokenizer(train={"vocab_size": 300}))


# ----------------------------------------------------------------------------------------------------------- tiktoken


@pytest.fixture
def tiktoken():
    return pytest.importorskip("tiktoken")


def test_tiktoken_gpt2_ids_are_those_of_encode_ordinary(tiktoken, shared_data, tmp_path, monkeypatch):
    url = "https://openaipublic.blob.core.windows.net/gpt-2/encodings/main/"
    for name in ("vocab.bpe", "encoder.json"):  # tiktoken names cached files by the sha1 of their address
        data = shared_data(f"tok/gpt2/{name}").read_bytes()
        (tmp_path / hashlib.sha1((url + name).encode()).hexdigest()).write_bytes(data)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    encoder = load(Tokenizer(path="tiktoken:gpt2"))
    texts = shared_data("patho/blns.txt").read_text(encoding="utf-8").split("\n")
    check(encoder, tiktoken.get_encoding("gpt2").encode_ordinary, [*texts, EOT, ""])
    assert (encoder.eot_id, encoder.vocab_size) == (50256, 50257)
    encoder.save(tmp_path / "t.json")
    assert tokenizers.Tokenizer.from_file(str(tmp_path / "t.json")).encode(f"Hi {EOT}").ids == [17250, 220, 50256]


def test_a_rank_file_is_read_without_a_network(tiktoken, trained, tmp_path):
    vocab = json.loads(trained.read_bytes())["model"]["vocab"]
    ranks = {bytes(map(model.CHAR_TO_BYTE.__getitem__, t)): i for t, i in vocab.items()}
    lines = [f"{base64.b64encode(t).decode()} {i}" for t, i in ranks.items()]
    path = tmp_path / "cl100k_base.tiktoken"
    path.write_text("\n".join(lines))
    encoder = load(Tokenizer(path=f"tiktoken:{path}"))
    specials = {EOT: 100257}
    expected = tiktoken.Encoding("x", pat_str=encoder.pattern, mergeable_ranks=ranks, special_tokens=specials)
    check(encoder, expected.encode_ordinary, [*sample(40, 7), *proof.probe_texts()[-300:], EOT])
    assert (encoder.eot_id, encoder.dtype) == (100257, np.uint32)
    assert encoder.count_special("<|fim_prefix|> <|endofprompt|>") == 2
    path.rename(tmp_path / "mine.tiktoken")
    with pytest.raises(ConfigError, match="not a published rank file"):
        load(Tokenizer(path=f"tiktoken:{tmp_path / 'mine.tiktoken'}"))


def test_unknown_and_unreachable_encodings_are_named(tiktoken, tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match=r"tiktoken:gpt9: unknown, known are .*gpt2"):
        load(Tokenizer(path="tiktoken:gpt9"))
    monkeypatch.setattr(tiktoken, "get_encoding", lambda name: (_ for _ in ()).throw(OSError("no route to host")))
    with pytest.raises(ConfigError, match="cannot get its ranks: no route") as e:
        load(Tokenizer(path="tiktoken:o200k_base"))
    assert "TIKTOKEN_CACHE_DIR" in e.value.hint
    with pytest.raises(ConfigError, match="No such file"):
        load(Tokenizer(path=f"tiktoken:{tmp_path}/o200k_base.tiktoken"))


# ----------------------------------------------------------------------------------------------------------- training


def test_training_gives_the_same_bytes_in_any_process(trained, tmp_path):
    (tmp_path / "sample.json").write_text(json.dumps(sample()))
    digests = set()
    for seed, threads in (("0", "1"), ("1", "4")):
        done = run(
            f"""
            import json, pathlib
            from gpu_curate.tokenizer.training import train
            texts = json.loads(pathlib.Path({str(tmp_path / "sample.json")!r}).read_text())
            train(iter(texts), 800, {EOT!r}, {str(tmp_path / "t.json")!r})
            """,
            PYTHONHASHSEED=seed,
            RAYON_NUM_THREADS=threads,
        )
        assert done.returncode == 0, done.stderr
        digests.add((tmp_path / "t.json").read_bytes())
    assert digests == {trained.read_bytes()}


def test_a_trained_tokenizer_has_all_bytes_and_eot_last(trained):
    encoder = load(section(trained))
    assert (encoder.vocab_size, encoder.eot_id) == (800, 799)
    text = "".join(map(chr, range(256))) + "☃𝟘\U0010ffff"
    ids, _ = encoder.encode_batch([text])
    assert encoder.decode(ids) == text
    assert encoder.decode([799]) == EOT


def test_eot_text_in_the_sample_is_not_learnt_as_the_token(tmp_path):
    train([f"a {EOT} b"] * 50, 400, EOT, tmp_path / "t.json")
    encoder = load(section(tmp_path / "t.json"))
    assert encoder.eot_id not in encoder.encode_batch([f"a {EOT} b"])[0]


def test_a_small_sample_gives_a_smaller_vocabulary(tmp_path):
    assert train(["abab abab"], 5000, EOT, tmp_path / "t.json") == load(section(tmp_path / "t.json")).vocab_size < 300
    assert train(["x"], 257, EOT, tmp_path / "t.json") == 257


def test_training_refuses_what_cannot_be_trained(tmp_path):
    with pytest.raises(ConfigError, match="at least 257"):
        train(["x"], 256, EOT, tmp_path / "t.json")
    with pytest.raises(ConfigError, match="not an id"):
        train(["x"], 300, 299, tmp_path / "t.json")
    for texts in ([], ["", ""]):
        with pytest.raises(ConfigError, match="no text"):
            train(texts, 300, EOT, tmp_path / "t.json")
    assert not (tmp_path / "t.json").exists()


def test_a_proof_is_found_again_for_the_same_content_and_libraries_only(trained, tmp_path, monkeypatch):
    section, proof = Tokenizer(path=str(trained)), tmp_path / "proof.json"
    first = loading.load(section, proof)
    asked = []
    monkeypatch.setattr(loading, "_choose", lambda *args: (asked.append(1), first)[1])
    assert loading.load(section, proof) == first
    assert not asked
    other = tmp_path / "tokenizer.json"
    other.write_bytes(first.data + b"\n")
    loading.load(Tokenizer(path=str(other)), proof)
    assert len(asked) == 1
    loading.load(section, proof)  # what was found for the other content is no proof for this one
    proof.write_text("{")
    loading.load(section, proof)
    assert len(asked) == 3
    installed(monkeypatch, lambda name: "0.0")
    loading.load(section, proof)
    assert len(asked) == 4


# ------------------------------------------------------------------------------------------------------- reserved tokens


def test_reserved_tokens_stand_before_the_end_of_text_token_and_no_text_gives_them(tmp_path):
    reserved = ["<|user|>", "<|model|>"]
    assert train(sample(), 400, EOT, tmp_path / "t.json", reserved) == 400
    encoder = load(section(tmp_path / "t.json"))
    by_text = {t["content"]: t["id"] for t in json.loads((tmp_path / "t.json").read_bytes())["added_tokens"]}
    assert by_text == {"<|user|>": 397, "<|model|>": 398, EOT: 399}
    assert encoder.eot_id == 399
    ids, _ = encoder.encode_batch(["<|user|>Hello<|model|>", *sample(20, 3)])
    assert ids.max() < 397
    assert encoder.decode([397, *ids[:3], 398]).startswith("<|user|>")
    train(sample(), 398, EOT, tmp_path / "plain.json")  # the same merges, two entries fewer
    plain, _ = load(section(tmp_path / "plain.json")).encode_batch(sample(20, 3))
    np.testing.assert_array_equal(encoder.encode_batch(sample(20, 3))[0], plain)


@pytest.mark.parametrize(
    ("reserved", "said"),
    [
        (["<a>", "<a>"], "reserved token '<a>' is there twice"),
        ([EOT], "is the end-of-text token"),
        ([""], "reserved token '' is empty"),
        (["<a>"] * 200, "vocab_size 400: a byte-level BPE has at least 457 entries"),
    ],
)
def test_odd_reserved_tokens_are_named(tmp_path, reserved, said):
    with pytest.raises(ConfigError, match=said):
        train(sample(), 400, EOT, tmp_path / "t.json", reserved)


def test_files_give_as_many_bytes_as_asked_for(tmp_path):
    from gpu_curate.tools.train_tokenizer import train_from_files

    for name, count in (("a", 50), ("b", 5)):
        lines = [json.dumps({"text": f"{name} text number {i:03}"}) for i in range(count)]  # 17 bytes each
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    facts = train_from_files(
        [str(tmp_path / "*.jsonl")], tmp_path / "t.json", 270, EOT, "text", 1 << 20, ["<|x|>"], bytes_per_file=170
    )
    assert facts["documents"] == 10 + 5
    assert facts["bytes"] == 15 * 17
    facts = train_from_files([str(tmp_path / "*.jsonl")], tmp_path / "t.json", 270, EOT, "text", 1 << 20)
    assert facts["documents"] == 55


def test_the_first_texts_of_each_file_and_the_sample_that_is_kept(tmp_path):
    from gpu_curate.tools.train_tokenizer import train_from_files

    for name in "ab":
        lines = [json.dumps({"text": f"{name} č text {i:03}"}) for i in range(9)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines))
    facts = train_from_files(
        [str(tmp_path / "?.jsonl")],
        tmp_path / "t.json",
        270,
        EOT,
        "text",
        1 << 20,
        documents_per_file=2,
        sample=tmp_path / "sample.jsonl",
    )
    assert facts["documents"] == 4
    kept = [json.loads(line)["text"] for line in (tmp_path / "sample.jsonl").read_text(encoding="utf-8").splitlines()]
    assert kept == ["a č text 000", "a č text 001", "b č text 000", "b č text 001"]


def test_tokenizers_are_compared_file_by_file(tmp_path):
    from gpu_curate.tools.train_tokenizer import compare

    train(["abab abab abab " * 9], 262, EOT, tmp_path / "ab.json")
    train(["x y"], 257, EOT, tmp_path / "bytes.json")
    (tmp_path / "one.txt").write_text("abab abab")
    (tmp_path / "two.txt").write_text(f"čč {EOT}")
    (tmp_path / "none.txt").write_text("")
    names = [str(tmp_path / "ab.json"), str(tmp_path / "bytes.json")]
    facts = compare([str(tmp_path / "*.txt")], names, "text", 1 << 20)
    one, two = (facts["files"][str(tmp_path / name)] for name in ("one.txt", "two.txt"))
    assert set(facts["files"]) == {str(tmp_path / "one.txt"), str(tmp_path / "two.txt")}
    assert (one["bytes"], one["words"], one["tokens"][names[1]]) == (9, 2, 9)
    plain = tokenizers.Tokenizer.from_file(names[0])
    assert one["tokens"][names[0]] == len(plain.encode("abab abab").ids) < 9
    assert two["tokens"][names[1]] == 5 + len(EOT)  # text like a special token is text
    assert facts["tokenizers"][names[1]] == {"entries": 257}
    done = CliRunner().invoke(
        app, ["tokenizer", "compare", str(tmp_path / "one.txt"), *(a for t in names for a in ("--tokenizer", t))]
    )
    assert done.exit_code == 0
    assert "1.000, 4.50" in done.output
    with pytest.raises(ConfigError, match="name each one, and once"):
        compare([str(tmp_path / "one.txt")], names[:1] * 2, "text", 1)
    with pytest.raises(ConfigError, match=r"one.txt: not a tokenizer.json"):
        compare([str(tmp_path / "one.txt")], [str(tmp_path / "one.txt")], "text", 1)
    with pytest.raises(ConfigError, match="no text in"):
        compare([str(tmp_path / "none.txt")], names, "text", 1)
