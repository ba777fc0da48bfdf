"""Positions, documents, segments and targets against a definition that looks at one token at a time."""

import itertools

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from token_shards import EOT, documents, make

from gpu_curate.errors import ConfigError, FatalError
from gpu_curate.loader import ShardLoader

IGNORE = -100


def plain_boundaries(docs, starts, T, labels):
    """The definition. docs: lists of ids without EOT; starts: where rows begin in the stream.

    Returns x, y, position_ids, document_ids as rows of ints, and cu_seqlens.
    """
    stream, owner = [], []
    for number, d in enumerate(docs):
        stream += [*d, EOT]
        owner += [number] * (len(d) + 1)
    x, y, position, document, cu = [], [], [], [], [0]
    for start in starts:
        row = range(start, start + T)
        x.append([stream[t] for t in row])
        y.append([stream[t + 1] if labels == "all" or owner[t + 1] == owner[t] else IGNORE for t in row])
        document.append([owner[t] for t in row])
        position.append([])
        for t in row:
            same = t > start and owner[t] == owner[t - 1]
            position[-1].append(position[-1][-1] + 1 if same else 0)
            if not same:
                cu.append(cu[-1])
            cu[-1] += 1
    return x, y, position, document, cu


def as_lists(batch):
    """A DocumentBatch as plain lists, max_seqlen apart."""
    names = ("x", "y", "position_ids", "document_ids", "cu_seqlens")
    return [np.asarray(getattr(batch, name)).tolist() for name in names]


def numpy_loader(*args, **kwargs):
    return ShardLoader(*args, as_torch=False, boundaries=True, **kwargs)


lengths = st.lists(st.integers(0, 30), min_size=1, max_size=25)


@settings(max_examples=80, deadline=None)
@given(lengths, st.integers(1, 17), st.integers(1, 3), st.sampled_from(["all", "document"]), st.sampled_from([None, 5]))
def test_boundaries_equal_the_definition(tmp_path_factory, lens, T, B, labels, shuffle):
    docs = [[i * 31 + j for j in range(n)] for i, n in enumerate(lens)]
    docs = [[t % 900 for t in d] for d in docs]
    folder = tmp_path_factory.mktemp("s")
    stream = make(folder, {"train": docs}, per_shard=23)["train"]
    rows = (len(stream) - 1) // T
    if rows < B:
        return
    loader = numpy_loader(folder, "train", B, T, labels=labels, shuffle=shuffle)
    plain = ShardLoader(folder, "train", B, T, as_torch=False, shuffle=shuffle)
    place = {tuple(stream[r * T : r * T + T + 1].tolist()): r * T for r in range(rows)}
    for i in range(len(loader)):
        batch = loader.batch(i)
        x, y = plain.batch(i)
        starts = [place[tuple([*a, b])] for a, b in zip(x.tolist(), y[:, -1].tolist(), strict=True)]
        x, y, position, document, cu = plain_boundaries(docs, starts, T, labels)
        if len(place) < rows:  # two rows are equal: which of them it is cannot be told from its tokens
            assert as_lists(batch)[:2] == [x, y]
            continue
        assert as_lists(batch) == [x, y, position, document, cu]
        assert batch.max_seqlen == max(b - a for a, b in itertools.pairwise(cu))
        assert batch.x.dtype == batch.y.dtype == np.int64
        assert batch.position_ids.dtype == batch.document_ids.dtype == batch.cu_seqlens.dtype == np.int32


@pytest.mark.parametrize("shuffle", [None, 1])
def test_rows_of_many_tiny_documents_have_all_their_segments(tmp_path, shuffle):
    """More of them than there is room for at first."""
    docs = [[i % 7] * (i % 2) for i in range(3000)]
    stream = make(tmp_path / "s", {"train": docs}, per_shard=700)["train"].tolist()
    loader = numpy_loader(tmp_path / "s", "train", 3, 250, labels="document", shuffle=shuffle)
    starts = loader.row_starts(1).tolist()
    x, y, position, document, cu = plain_boundaries(docs, starts, 250, "document")
    assert as_lists(loader.batch(1)) == [x, y, position, document, cu]
    assert x == [stream[s : s + 250] for s in starts]
    assert len(cu) > 400


def test_boundaries_are_those_of_documents_parquet_not_of_the_end_of_text_token_in_a_text(tmp_path):
    """The token may occur inside a document of shards that another program wrote: it ends nothing there."""
    docs = [[1, EOT, 2], [3, 4], [5, EOT, EOT, 6]]
    make(tmp_path / "s", {"train": docs})
    batch = numpy_loader(tmp_path / "s", "train", 1, 11, labels="document").batch(0)
    assert batch.x.tolist() == [[1, EOT, 2, EOT, 3, 4, EOT, 5, EOT, EOT, 6]]
    assert batch.document_ids.tolist() == [[0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3]]
    assert batch.cu_seqlens.tolist() == [0, 4, 7, 11]
    assert batch.max_seqlen == 4
    assert batch.y.tolist() == [[EOT, 2, EOT, IGNORE, 4, EOT, IGNORE, EOT, EOT, 6, EOT]]


def test_the_ignore_index_is_the_one_asked_for_and_labels_need_no_boundaries(tmp_path):
    make(tmp_path / "s", {"train": [[1], [2], [3]]})
    loader = ShardLoader(tmp_path / "s", "train", 1, 5, as_torch=False, labels="document", ignore_index=-1)
    x, y = loader.batch(0)
    assert x.tolist() == [[1, EOT, 2, EOT, 3]]
    assert y.tolist() == [[EOT, -1, EOT, -1, EOT]]


@pytest.mark.parametrize("options", [{}, {"shuffle": 3}, {"packing": "best_fit"}, {"packing": "pad"}])
def test_a_curriculum_cuts_rows_and_keeps_every_token_and_the_order(tmp_path, options):
    docs = documents(120, seed=4)
    make(tmp_path / "s", {"train": docs}, per_shard=500)
    whole = numpy_loader(tmp_path / "s", "train", 2, 32, labels="document", **options)
    taken = 2 * 32  # of a batch
    lengths = {0: 4, 2 * taken: 16, 5 * taken: 32}
    cut = numpy_loader(tmp_path / "s", "train", 2, 32, labels="document", curriculum=lengths, **options)
    for i in range(8):
        a, b = whole.batch(i), cut.batch(i)
        T = 4 if i < 2 else 16 if i < 5 else 32
        assert b.x.shape == (64 // T, T)
        assert b.x.reshape(2, 32).tolist() == a.x.tolist()
        assert b.y.reshape(2, 32).tolist() == a.y.tolist()
        assert b.document_ids.reshape(2, 32).tolist() == a.document_ids.tolist()
        expected, cu = [], [0]  # of every row anew
        for row in b.document_ids.tolist():
            for j, d in enumerate(row):
                expected.append(expected[-1] + 1 if j and row[j - 1] == d else 0)
                if not expected[-1]:
                    cu.append(cu[-1])
                cu[-1] += 1
        assert b.position_ids.reshape(-1).tolist() == expected
        assert b.cu_seqlens.tolist() == cu


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({5: 8}, "the first length holds from 0 tokens on"),
        ({0: 12}, "length 12 from 0 tokens on does not divide seq_len 32"),
        ({}, "the first length holds from 0"),
        ([8, 16], "expected a mapping"),
        ({0: "8"}, "curriculum: length '8'"),
    ],
)
def test_an_odd_curriculum_is_named(tmp_path, given, said):
    make(tmp_path / "s", {"train": documents(60)})
    with pytest.raises(ConfigError, match=said):
        ShardLoader(tmp_path / "s", "train", 1, 32, curriculum=given)


def test_labels_are_all_or_document(tmp_path):
    make(tmp_path / "s", {"train": documents(60)})
    with pytest.raises(ConfigError, match="labels 'eot': expected all or document"):
        ShardLoader(tmp_path / "s", "train", 1, 8, labels="eot")


# ------------------------------------------------------------------------------------------------ documents.parquet


def test_boundaries_without_documents_parquet_are_an_error(tmp_path):
    make(tmp_path / "s", {"train": documents(60)})
    (tmp_path / "s" / "documents.parquet").unlink()
    with pytest.raises(ConfigError, match=r"documents\.parquet: no such file; it says where documents start"):
        numpy_loader(tmp_path / "s", "train", 1, 8)


def test_a_documents_parquet_of_other_shards_is_named(tmp_path):
    make(tmp_path / "s", {"train": documents(60)})
    make(tmp_path / "other", {"train": documents(60, seed=1)})
    (tmp_path / "other" / "documents.parquet").replace(tmp_path / "s" / "documents.parquet")
    with pytest.raises(
        FatalError, match=r"documents\.parquet: split train has \d+ tokens, and document 59 has .*\n.*of other"
    ):
        numpy_loader(tmp_path / "s", "train", 1, 8)


def test_a_documents_parquet_of_other_shards_of_the_same_size_is_named_too(tmp_path):
    docs = documents(60)
    make(tmp_path / "s", {"train": docs})
    make(tmp_path / "other", {"train": docs[::-1]})
    (tmp_path / "other" / "documents.parquet").replace(tmp_path / "s" / "documents.parquet")
    with pytest.raises(FatalError, match=r"ends in token .*, not in the end-of-text token 999"):
        numpy_loader(tmp_path / "s", "train", 1, 8)


def test_a_documents_parquet_without_a_row_of_the_split_is_named(tmp_path):
    make(tmp_path / "s", {"train": documents(60)})
    path = tmp_path / "s" / "documents.parquet"
    pq.write_table(pq.read_table(path).slice(0, 0), path)
    with pytest.raises(FatalError, match="and there is no document"):
        numpy_loader(tmp_path / "s", "train", 1, 8)


# -------------------------------------------------------------------------------------------------------- attention


@pytest.fixture(params=[{}, {"shuffle": 1}, {"packing": "best_fit"}, {"packing": "pad"}], ids=str)
def torch_batch(request, tmp_path):
    pytest.importorskip("torch")
    make(tmp_path / "s", {"train": documents(40, seed=2, longest=90)}, per_shard=500)
    return ShardLoader(tmp_path / "s", "train", 3, 64, as_torch=True, boundaries=True, **request.param).batch(1)


def plain_mask(batch):
    """A token sees those before it, and itself, of the segment of cu_seqlens that holds it."""
    B, T = batch.x.shape
    segment, number = [], -1
    bounds = set(batch.cu_seqlens.tolist())
    for t in range(B * T):
        number += t in bounds
        segment.append(number)
    return [
        [[k <= q and segment[b * T + q] == segment[b * T + k] for k in range(T)] for q in range(T)] for b in range(B)
    ]


def test_dense_and_block_mask_equal_the_plain_one(torch_batch):
    from gpu_curate.loader.attention import block_mask, dense_mask

    expected = plain_mask(torch_batch)
    assert dense_mask(torch_batch)[:, 0].tolist() == expected
    import torch

    blocks = block_mask(torch_batch, block_size=16)
    B, T = torch_batch.x.shape
    grid = torch.arange(T)
    seen = blocks.mask_mod(torch.arange(B)[:, None, None], torch.tensor(0), grid[:, None], grid[None, :])
    assert seen.tolist() == expected
    dense = torch.tensor(expected).reshape(B, 4, 16, 4, 16)
    assert blocks.to_dense()[:, 0].bool().tolist() == dense.any(4).any(2).tolist()  # blocks that are looked at


def test_flex_and_varlen_attention_give_what_a_dense_mask_gives(torch_batch):
    import torch
    from torch.nn.attention.flex_attention import flex_attention
    from torch.nn.functional import scaled_dot_product_attention

    from gpu_curate.loader.attention import block_mask, segment_attention

    torch.manual_seed(0)
    B, T = torch_batch.x.shape
    q, k, v = (torch.randn(B, 2, T, 8, dtype=torch.float64) for _ in range(3))
    expected = scaled_dot_product_attention(q, k, v, attn_mask=torch.tensor(plain_mask(torch_batch))[:, None])
    # float64: 64 terms of size 1 and one division, a few thousand times 2^-53 at most
    assert torch.allclose(segment_attention(q, k, v, torch_batch), expected, rtol=0, atol=1e-12)
    with torch.no_grad():
        got = flex_attention(q.float(), k.float(), v.float(), block_mask=block_mask(torch_batch))
    assert torch.allclose(got.double(), expected, rtol=0, atol=1e-5)  # float32


def test_a_batch_with_boundaries_passes_through_workers(tmp_path):
    data = pytest.importorskip("torch.utils.data")
    from gpu_curate.torch_dataset import torch_dataset

    make(tmp_path / "s", {"train": documents(60)}, per_shard=101)
    loader = ShardLoader(tmp_path / "s", "train", 2, 16, boundaries=True)
    got = list(data.DataLoader(torch_dataset(loader, num_batches=3), batch_size=None, num_workers=1))
    assert [as_lists(b) for b in got] == [as_lists(loader.batch(i)) for i in range(3)]
    assert got[0].max_seqlen == loader.batch(0).max_seqlen
