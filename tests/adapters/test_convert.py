"""What other programs read, by a few lines of their readers each, or by their own code where it is installed."""

import gzip
import hashlib
import json
import struct

import numpy as np
import pyarrow.parquet as pq
import pytest
from token_shards import EOT, documents, make
from typer.testing import CliRunner

from gpu_curate.adapters import folders, writers
from gpu_curate.adapters.writers import convert
from gpu_curate.cli import app
from gpu_curate.errors import ConfigError, FatalError
from gpu_curate.shards_check import head, verify

DOCS, HELD = documents(120, seed=8, longest=60), documents(20, seed=9)


@pytest.fixture(params=[np.uint16, np.uint32], ids=["uint16", "uint32"])
def shards(request, tmp_path):
    more = 65_536 if request.param == np.uint32 else 0
    docs = {"train": [[t + more for t in d] for d in DOCS], "validation": [[t + more for t in d] for d in HELD]}
    streams = make(tmp_path / "s", docs, per_shard=500, dtype=request.param, vocab=70_000 if more else None)
    return tmp_path / "s", docs, streams


@pytest.fixture
def narrow(tmp_path):
    return tmp_path / "s", make(tmp_path / "s", {"train": DOCS, "validation": HELD}, per_shard=500)


def nanogpt_reader(path, dtype):
    """train.py, get_batch: data = np.memmap(..., dtype=np.uint16, mode='r')."""
    return np.memmap(path, dtype=dtype, mode="r")


def llmc_reader(path, dtype):
    """llmc/dataloader.h: 256 int32, magic, version, count; ids behind them fill the file."""
    data = path.read_bytes()
    header = np.frombuffer(data, np.int32, 256)
    assert (header[0], header[1]) == {np.uint16: (20240520, 1), np.uint32: (20240801, 7)}[dtype]
    assert len(data) == 1024 + int(header[2]) * np.dtype(dtype).itemsize
    return np.frombuffer(data, dtype, int(header[2]), 1024)


def megatron_reader(prefix):
    """indexed_dataset.py, _IndexReader and IndexedDataset.get: documents as arrays."""
    index = prefix.with_suffix(".idx").read_bytes()
    assert index[:9] == b"MMIDIDX\x00\x00"
    version, code, sequences, bounds = struct.unpack("<QBQQ", index[9:34])
    assert version == 1
    dtype = {1: np.uint8, 2: np.int8, 3: np.int16, 4: np.int32, 5: np.int64, 8: np.uint16}[code]
    lengths = np.frombuffer(index, np.int32, sequences, 34)
    pointers = np.frombuffer(index, np.int64, sequences, 34 + lengths.nbytes)
    document = np.frombuffer(index, np.int64, bounds, 34 + lengths.nbytes + pointers.nbytes)
    assert document.tolist() == list(range(sequences + 1))
    data = prefix.with_suffix(".bin").read_bytes()
    return [np.frombuffer(data, dtype, n, p) for n, p in zip(lengths, pointers, strict=True)]


def litdata_reader(folder, block):
    """item_loader.py, TokensLoader: blocks of each chunk, behind its header of item count and offsets."""
    index = json.loads((folder / "index.json").read_text())
    assert index["config"]["data_format"] == ["no_header_tensor:16"]  # 16: torch.int
    assert index["config"]["item_loader"] == "TokensLoader"
    for chunk in index["chunks"]:
        data = np.memmap(folder / chunk["filename"], mode="r", offset=(1 + chunk["chunk_size"] + 1) * 4)
        for i in range(chunk["dim"] // block):
            yield np.frombuffer(data, np.int32, block, i * block * 4)


def test_nanogpt(shards, tmp_path):
    folder, _, streams = shards
    facts = convert(folder, tmp_path / "out", "nanogpt")
    for split, name in (("train", "train.bin"), ("validation", "val.bin")):
        assert nanogpt_reader(tmp_path / "out" / name, streams[split].dtype).tolist() == streams[split].tolist()
        assert facts["splits"][split]["tokens"] == len(streams[split])


def test_llmc(shards, tmp_path):
    folder, _, streams = shards
    convert(folder, tmp_path / "out", "llmc", tokens_per_file=700, name="edu")
    for split, name in (("train", "train"), ("validation", "val")):
        files = sorted((tmp_path / "out").glob(f"edu_{name}_*.bin"))
        found = [llmc_reader(f, streams[split].dtype.type) for f in files]
        assert np.concatenate(found).tolist() == streams[split].tolist()
        assert all(len(part) == 700 for part in found[:-1])


def test_modded_nanogpt_finds_the_beginning_of_every_document(narrow, tmp_path):
    folder, _ = narrow
    convert(folder, tmp_path / "out", "modded-nanogpt", tokens_per_file=700)
    files = sorted((tmp_path / "out").glob("shards_train_*.bin"))
    tokens = np.concatenate([llmc_reader(f, np.uint16) for f in files])
    begins = (tokens == EOT).nonzero()[0]  # BOSFinder, with its BOS_ID
    found = [tokens[a:b].tolist() for a, b in zip(begins, [*begins[1:], len(tokens)], strict=True)]
    assert found == [[EOT, *d] for d in DOCS]


def test_megatron(shards, tmp_path):
    folder, docs, _ = shards
    convert(folder, tmp_path / "out", "megatron")
    for split, name in (("train", "train"), ("validation", "val")):
        found = megatron_reader(tmp_path / "out" / name)
        assert [d.tolist() for d in found] == [[*d, EOT] for d in docs[split]]


def test_olmo_core(shards, tmp_path):
    folder, docs, streams = shards
    convert(folder, tmp_path / "out", "olmo-core", tokens_per_file=400)
    for split, name in (("train", "train"), ("validation", "val")):
        found = []
        for path in sorted((tmp_path / "out" / name).glob("*.npy")):
            data = np.memmap(path, mode="r", dtype=streams[split].dtype)  # as its NumpyDatasets read them
            with gzip.open(path.with_name(path.name.replace(".npy", ".csv.gz")), "rt") as f:
                bounds = [tuple(map(int, line.split(",")[:2])) for line in f]
            assert bounds[-1][1] == len(data)
            ends = ((data == EOT).nonzero()[0] + 1).tolist()  # what it infers without the table
            assert [b for _, b in bounds] == ends
            found += [data[a:b].tolist() for a, b in bounds]
        assert found == [[*d, EOT] for d in docs[split]]


def test_litgpt(shards, tmp_path):
    folder, _, streams = shards
    convert(folder, tmp_path / "out", "litgpt", tokens_per_file=640)
    stream = streams["train"].tolist()
    blocks = [b.tolist() for b in litdata_reader(tmp_path / "out" / "train", 65)]
    expected = [stream[c : c + 640][i : i + 65] for c in range(0, len(stream), 640) for i in range(0, 640, 65)]
    assert blocks == [b for b in expected if len(b) == 65]


def test_litdata_itself(narrow, tmp_path):
    litdata = pytest.importorskip("litdata")
    folder, streams = narrow
    convert(folder, tmp_path / "out", "litgpt", tokens_per_file=6500)
    data = litdata.StreamingDataset(str(tmp_path / "out" / "train"), item_loader=litdata.TokensLoader(block_size=65))
    assert [data[i].tolist() for i in range(len(data))] == [
        streams["train"][i : i + 65].tolist() for i in range(0, len(data) * 65, 65)
    ]


def stacklm_reader(folder, name, split):
    """Ids and position ids of a set: files that the manifest names, each as its .meta says, positions from the beginnings on."""
    manifest = json.loads((folder / "manifest.json").read_text())
    for file in manifest["sets"][name][split]["files"]:
        meta = json.loads((folder / file.replace(".bin", ".meta")).read_text())
        ids = np.fromfile(folder / file, meta["dtype"])
        assert (len(ids), int(np.count_nonzero(ids == meta["bos_id"]))) == (meta["tokens"], meta["documents"])
        assert hashlib.sha256(ids.tobytes()).hexdigest() == meta["sha256"]
        assert ids[0] == manifest["bos_id"] == meta["bos_id"]
        position, at = [], 0
        for token in ids.tolist():
            at = 0 if token == meta["bos_id"] else at + 1
            position.append(at)
        yield ids.tolist(), position


def test_stacklm_and_a_second_set_joins_the_manifest(shards, tmp_path):
    folder, docs, _ = shards
    facts = convert(folder, tmp_path / "out", "stacklm", tokens_per_file=400, name="web")
    convert(folder, tmp_path / "out", "stacklm", name="more")
    for name, split in (("web", "train"), ("web", "validation"), ("more", "train"), ("more", "validation")):
        read = list(stacklm_reader(tmp_path / "out", name, split))
        assert [i for ids, _ in read for i in ids] == [i for d in docs[split] for i in (EOT, *d)]
        assert [p for _, own in read for p in own] == [p for d in docs[split] for p in range(len(d) + 1)]
        assert len(read) > 5 if (name, split) == ("web", "train") else len(read) == 1
    assert facts["splits"]["train"]["documents"] == len(docs["train"])
    with pytest.raises(ConfigError, match="has a set web already"):
        convert(folder, tmp_path / "out", "stacklm", name="web")
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    (tmp_path / "out" / "manifest.json").write_text(json.dumps({**manifest, "tokenizer_sha256": "0"}))
    with pytest.raises(ConfigError, match=r"tokenizer_sha256 is '0', that of .* '[0-9a-f]{64}'"):
        convert(folder, tmp_path / "out", "stacklm", name="third")
    (tmp_path / "out" / "manifest.json").write_text("[]")
    with pytest.raises(ConfigError, match="no manifest of sets"):
        convert(folder, tmp_path / "out", "stacklm", name="third")


def test_stacklm_refuses_texts_that_hold_the_token_positions_are_counted_from(tmp_path):
    make(tmp_path / "s", {"train": [[1, 2], [3, EOT, 4]]})
    with pytest.raises(ConfigError, match=f"3 of token {EOT} for 2 documents"):
        convert(tmp_path / "s", tmp_path / "out", "stacklm")


def test_datasets_blocks_and_what_is_there_is_taken(shards, tmp_path):
    folder, _, streams = shards
    if streams["train"].dtype == np.uint32:
        pytest.skip("the same code")
    facts = convert(folder, tmp_path / "out", "datasets", block=32)
    (path,) = facts["splits"]["train"]["files"]
    rows = pq.read_table(path).to_pydict()
    stream = streams["train"].tolist()
    assert rows["input_ids"] == rows["labels"] == [stream[i : i + 32] for i in range(0, len(stream) - 31, 32)]
    before = (tmp_path / "out").stat().st_mtime_ns
    assert convert(folder, tmp_path / "out", "datasets", block=32) == facts
    assert (tmp_path / "out").stat().st_mtime_ns == before
    assert convert(folder, tmp_path / "out", "datasets", block=16)["splits"]["train"]["files"] != [path]


def test_datasets_itself(narrow, tmp_path):
    datasets = pytest.importorskip("datasets")
    folder, streams = narrow
    facts = convert(folder, tmp_path / "out", "datasets", block=32)
    (path,) = facts["splits"]["train"]["files"]
    data = datasets.load_dataset("parquet", data_files=path, split="train", cache_dir=str(tmp_path / "cache"))
    assert data.column_names == ["input_ids", "labels"]
    assert data[3]["input_ids"] == streams["train"][96:128].tolist()


def test_nanochat(tmp_path):
    """dataset.py and dataloader.py: files in order, the last for validation, row groups in turn, the column text."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    texts = {"train": [f"Text {i}, čeština.\n" * (i % 5 + 1) for i in range(30)], "validation": ["held out", "too"]}
    docs = {split: [tokenizer.encode(t).ids for t in own] for split, own in texts.items()}
    make(tmp_path / "s", docs, per_shard=500)
    tokenizer.save(str(tmp_path / "s" / "tokenizer.json"))
    convert(tmp_path / "s", tmp_path / "out", "nanochat", tokens_per_file=600)
    files = sorted((tmp_path / "out").glob("*.parquet"))
    assert len(files) > 2

    def read(paths):
        groups = [pq.ParquetFile(p) for p in paths]
        return [
            t for f in groups for g in range(f.num_row_groups) for t in f.read_row_group(g).column("text").to_pylist()
        ]

    assert read(files[:-1]) == texts["train"]
    assert read(files[-1:]) == texts["validation"]


def test_odd_arguments_are_named(shards, tmp_path):
    folder, _, streams = shards
    with pytest.raises(ConfigError, match="no format 'tfrecord'; there are nanogpt, llmc"):
        convert(folder, tmp_path / "out", "tfrecord")
    with pytest.raises(ConfigError, match="holds something already"):
        convert(folder, folder, "nanogpt")
    with pytest.raises(ConfigError, match="tokens per file 0"):
        convert(folder, tmp_path / "out", "llmc", tokens_per_file=0)
    if streams["train"].dtype == np.uint32:
        with pytest.raises(ConfigError, match="ids of 32 bits, and modded-nanogpt reads 16"):
            convert(folder, tmp_path / "out", "modded-nanogpt")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match="nanochat reads texts"):
        convert(folder, tmp_path / "chat", "nanochat")
    (folder / "manifest.json").unlink()
    with pytest.raises(ConfigError, match=r"no manifest\.json"):
        convert(folder, tmp_path / "out2", "nanogpt")


def test_what_reads_otherwise_than_it_was_written_is_an_error(narrow, tmp_path, monkeypatch):
    folder, _ = narrow
    write = writers._write

    def damaged(path, parts):
        write(path, parts)
        data = bytearray(path.read_bytes())
        data[-2] ^= 1
        path.write_bytes(data)
        return path

    monkeypatch.setattr(writers, "_write", damaged)
    for to in ("nanogpt", "llmc", "modded-nanogpt", "olmo-core", "litgpt", "stacklm"):
        with pytest.raises(FatalError, match="reads otherwise than the tokens that were written"):
            convert(folder, tmp_path / to, to)


# ------------------------------------------------------------------------------------------------ shards made of shards


def read_back(folder, split="train"):
    from gpu_curate.loader import Stream, documents

    stream = Stream(folder, split)
    position, tokens = documents(folder, split)
    return [stream.read(p, p + n).tolist() for p, n in zip(position.tolist(), tokens.tolist(), strict=True)]


@pytest.mark.parametrize("format", ["llmc", "nanogpt", "megatron"])
def test_merge_puts_documents_of_several_behind_each_other(tmp_path, format):
    make(tmp_path / "a", {"train": DOCS, "validation": HELD}, per_shard=500, format=format, sources=["x"])
    make(tmp_path / "b", {"train": HELD}, per_shard=77, format=format, sources=["y", "z"])
    manifest = folders.merge([tmp_path / "a", tmp_path / "b"], tmp_path / "both", 333)
    assert verify(tmp_path / "both") == []
    assert read_back(tmp_path / "both") == [[*d, EOT] for d in [*DOCS, *HELD]]
    assert read_back(tmp_path / "both", "validation") == [[*d, EOT] for d in HELD]
    assert manifest["splits"]["train"]["documents"] == len(DOCS) + len(HELD)
    table = pq.read_table(tmp_path / "both" / "documents.parquet").to_pydict()
    assert table["source"] == ["x"] * len(DOCS) + [["y", "z"][i % 2] for i in range(len(HELD))] + ["x"] * len(HELD)
    whole = make(tmp_path / "whole", {"train": [*DOCS, *HELD], "validation": HELD}, per_shard=333, format=format)
    assert whole
    for path in (tmp_path / "whole").glob("*.bin"):
        assert (tmp_path / "both" / path.name).read_bytes() == path.read_bytes()


def test_split_gives_every_document_to_one_part(narrow, tmp_path):
    folder, _ = narrow
    folders.split(folder, tmp_path / "parts", 3)
    for part in range(3):
        assert verify(tmp_path / "parts" / f"part-{part}") == []
        assert read_back(tmp_path / "parts" / f"part-{part}") == [[*d, EOT] for d in DOCS[part::3]]
        assert read_back(tmp_path / "parts" / f"part-{part}", "validation") == [[*d, EOT] for d in HELD[part::3]]


def test_a_sample_holds_the_tokens_asked_for_in_the_order_of_the_shards(narrow, tmp_path):
    folder, streams = narrow
    manifest = folders.sample(folder, tmp_path / "few", 1000, seed=1)
    assert verify(tmp_path / "few") == []
    found = read_back(tmp_path / "few")
    places = [[*d, EOT] for d in DOCS]
    at = iter(places)
    assert all(d in at for d in found)  # a subsequence
    assert 1000 <= manifest["splits"]["train"]["tokens"] < 1000 + max(map(len, found))
    share = manifest["splits"]["validation"]["tokens"] / len(streams["validation"])
    assert share == pytest.approx(1000 / len(streams["train"]), abs=0.15)
    again = folders.sample(folder, tmp_path / "again", 1000, seed=1)
    assert again["splits"] == manifest["splits"]
    assert folders.sample(folder, tmp_path / "other", 1000, seed=2)["splits"] != manifest["splits"]
    assert read_back(tmp_path / "few") != read_back(tmp_path / "other")


def test_what_does_not_go_together_is_not_merged(narrow, tmp_path):
    folder, _ = narrow
    make(tmp_path / "wide", {"train": HELD}, dtype=np.uint32)
    make(tmp_path / "foreign", {"train": HELD})
    path = tmp_path / "foreign" / "manifest.json"
    path.write_text(path.read_text().replace(json.loads(path.read_text())["tokenizer"]["sha256"], "ab" * 32))
    with pytest.raises(ConfigError, match="has dtype uint32"):
        folders.merge([folder, tmp_path / "wide"], tmp_path / "out")
    with pytest.raises(ConfigError, match="was made with tokenizer abab"):
        folders.merge([folder, tmp_path / "foreign"], tmp_path / "out")
    with pytest.raises(ConfigError, match="expected two or more"):
        folders.merge([folder], tmp_path / "out")
    with pytest.raises(ConfigError, match="20 documents for 21 parts"):
        folders.split(folder, tmp_path / "out", 21)
    with pytest.raises(ConfigError, match="0 tokens"):
        folders.sample(folder, tmp_path / "out", 0)
    with pytest.raises(ConfigError, match="holds something already"):
        folders.sample(folder, folder, 10)


def test_the_commands_say_what_they_made(narrow, tmp_path):
    folder, streams = narrow
    count = f"{len(streams['train']):,} tokens, 120 documents"
    for words, said in (
        (
            ["convert", str(folder), "--to", "megatron", "--out", str(tmp_path / "m")],
            f"train, {count}, 2 files, read back",
        ),
        (["split", str(folder), "--parts", "2", "--out", str(tmp_path / "p")], "part-1: train, "),
        (
            ["merge", str(tmp_path / "p/part-0"), str(tmp_path / "p/part-1"), "--out", str(tmp_path / "w")],
            f"train, {count}",
        ),
        (["sample", str(folder), "--tokens", "500", "--out", str(tmp_path / "few")], "shards, verified"),
    ):
        done = CliRunner().invoke(app, ["shards", *words])
        assert done.exit_code == 0, done.output
        assert said in done.output


def test_what_is_made_of_a_hostile_folder_stays_in_its_place_and_in_memory(narrow, tmp_path):
    folder, _ = narrow
    for name in ("../x", "/x", "a/b", ""):
        with pytest.raises(ConfigError, match=r"--name .* is no beginning"):
            convert(folder, tmp_path / "out", "llmc", name=name)
    assert not (tmp_path / "out").exists()
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "tokens_per_shard": 1 << 61}))
    folders.merge([folder, folder], tmp_path / "merged")
    assert verify(tmp_path / "merged") == []
    named = json.loads((tmp_path / "merged" / "manifest.json").read_text())
    assert (named["tokens_per_shard"], named["made_of"]) == (1 << 61, ["s"])  # no folder of this machine
    (folder / "tokenizer.json").write_text('{"model": {"vocab": {"a": 0}}, "normalizer": 3}')
    for to in ("nanochat",):
        with pytest.raises(ConfigError, match=r"not a tokenizer\.json \(normalizer is of another kind\)"):
            convert(folder, tmp_path / to, to)


def test_a_column_whose_name_is_no_text_is_one_error(narrow):
    folder, _ = narrow
    path = folder / "documents.parquet"
    table = pq.read_table(path)
    pq.write_table(table.append_column("zqzqzq", table["position"]), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"zqzqzq", b"\xbeqzqzq"))
    for look in (lambda: convert(folder, folder / "out", "olmo-core"), lambda: head(folder, 3)):
        with pytest.raises(FatalError, match=r"documents\.parquet:? cannot be read"):
            look()
