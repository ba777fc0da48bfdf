"""Which documents are duplicates, and which of them survives: exact, then fuzzy, band by band. A run's stage and
`gpu_curate.deduplicate` both go through here; where the hashes and the texts come from is their `Corpus`.

# N documents (those to choose among first, then references), B bands, E candidate pairs, M members of components of two or more
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Literal, NamedTuple, Protocol

import numpy as np

from gpu_curate.document import TextColumn
from gpu_curate.lsh import Fuzzy, content_key
from gpu_curate.ops.minhash import MinHashSpec, jaccard, jaccard_exact, shingles
from gpu_curate.ops.mix import fmix64

JACCARD_SAMPLE = 10_000  # fuzzy duplicates whose Jaccard similarity to their survivor is measured for the report
_PAIR_BYTES = 256 << 20  # of text held while pairs are compared
_NO_PAIRS = (np.zeros(0, np.int64), np.zeros(0, np.int64))

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Settings:
    """What makes a duplicate, and which one survives.

    Args:
        exact: equal content; `compare` compares the texts too.
        fuzzy: None: exact duplicates only.
        keep: random, first, longest or highest:SCORE.
        seed: of `keep: random`, and of the ties of the others.
        by_group: documents of different scopes do not meet.
        survivors: documents kept of a cluster.
        min_cluster_size: documents of a cluster that loses some.
    """

    exact: bool | Literal["compare"] = True
    fuzzy: Fuzzy | None = None
    keep: str = "random"
    seed: int = 42
    by_group: bool = False
    survivors: int = 1
    min_cluster_size: int = 2


class Corpus(Protocol):
    """All documents in one numbering 0..N - 1: the lower number wins a tie.

    Attributes:
        is_reference_N: bool, a document that survives whatever it resembles; those come last.
        train_only_N: bool, one that is compared with nothing here.
        ops: the module of `Components`: `gpu_curate.ops.components`, or its `plain` for few documents.
        scratch: folder for a file without a name; None: the system's.
    """

    @property
    def ops(self) -> ModuleType: ...

    is_reference_N: Array
    train_only_N: Array

    @property
    def scratch(self) -> Path | None: ...

    def __len__(self) -> int: ...

    def column(self, name: str, dtype: Any = np.uint64) -> Array:
        """content_hi, content_lo, bytes or scope of every document."""

    def equal_content(self) -> tuple[Array, Array]:
        """Candidate pairs a < b, k - 1 of a bucket of k, of documents with text whose `content_key` is equal."""

    def equal_band(self, b: int) -> tuple[Array, Array]:
        """Candidate pairs a < b, k - 1 of a bucket of k, of documents with a shingle whose hash of band b is equal."""

    def connect_band(self, b: int, components: Any) -> int:
        """Connect the pairs of `equal_band`; returns how many."""

    def matched(self) -> Array:
        """Numbers of documents whose content key, or whose hash of a band, is that of an item that is `train_only`."""

    def texts(self, numbers: Array) -> list[bytes]:
        """The texts of some documents (sorted numbers are read fastest)."""

    def signature_rows(self, numbers: Array) -> Array:
        """uint32 signatures of some documents, with `verify: signature`."""

    def score(self, name: str) -> Array:
        """float64 of N; 0.0 for a reference."""

    def disk_error(self, error: OSError) -> Exception:
        """What to raise where the scratch file cannot be written; the error itself if nothing is to be added."""


class Clusters(NamedTuple):
    """The members of every component of two or more, in order of their numbers; arrays of M."""

    member: Array
    component: Array  # lowest number in it: all that buckets (or verified pairs) chain
    cluster: Array  # lowest number in it: a survivor and what it stands for; a part of the component
    size: Array  # of the cluster; 1 for a document that is kept beside others of its component
    survivor: Array
    kind: Array  # object: exact | fuzzy; None for the survivor itself and for references
    same: Array  # bool, of equal content with its survivor
    checked: dict[str, int]  # what checking against survivors did


def with_text(corpus: Corpus) -> Array:
    """bool of N: documents that can equal another."""
    valid: Array = (corpus.column("bytes", np.int64) > 0) & ~corpus.train_only_N
    return valid


def exact_duplicates(corpus: Corpus, settings: Settings) -> tuple[Array, Array]:
    """Documents whose content (and scope) an earlier document has: (their numbers in order, that document's number).

    Empty documents and those of `train_only` sets equal nothing here.
    """
    if not settings.exact:
        return _NO_PAIRS
    a, b = corpus.equal_content()
    same = np.ones(len(a), np.bool_)
    for name in ("content_lo", "content_hi", "bytes"):
        values = corpus.column(name)
        same &= values[a] == values[b]
    exact = corpus.ops.Components(len(corpus))
    if not same.all():  # two different contents share 64 bits: compare every pair of those buckets
        lo = corpus.column("content_lo")
        key = content_key(corpus.column("content_hi"), corpus.column("scope") if settings.by_group else None)
        valid = with_text(corpus)
        for bucket in np.unique(key[a[~same]]):
            members = np.flatnonzero((key == bucket) & valid)
            order = members[np.lexsort((members, lo[members]))]
            alike = lo[order[:-1]] == lo[order[1:]]
            exact.add_edges(order[:-1][alike], order[1:][alike])
        a, b = a[same], b[same]
    if settings.exact == "compare":
        keep = [_equal_texts(corpus, x, y) for x, y in _pair_chunks(corpus, a, b)]
        alike = np.concatenate([*keep, np.zeros(0, np.bool_)])
        a, b = a[alike], b[alike]
    exact.add_edges(a, b)
    label_N = exact.labels()
    duplicates = np.flatnonzero(label_N != np.arange(len(label_N)))
    return duplicates, label_N[duplicates]


def _equal_texts(corpus: Corpus, a: Array, b: Array) -> Array:
    return np.array([x == y for x, y in zip(corpus.texts(a), corpus.texts(b), strict=True)], np.bool_)


def _chunks(corpus: Corpus, numbers: Array) -> Iterator[Array]:
    """Documents in slices whose texts fit in memory; the order stays."""
    owner = np.cumsum(corpus.column("bytes", np.int64)[numbers]) // _PAIR_BYTES
    yield from np.split(numbers, np.flatnonzero(np.diff(owner)) + 1)


def _pair_chunks(corpus: Corpus, a: Array, b: Array) -> Iterator[tuple[Array, Array]]:
    """Pairs in slices whose texts fit in memory; the order stays."""
    if not len(a):
        return
    nbytes = corpus.column("bytes", np.int64)
    owner = np.cumsum(nbytes[a] + nbytes[b]) // _PAIR_BYTES
    cuts = np.flatnonzero(np.diff(owner)) + 1
    yield from zip(np.split(a, cuts), np.split(b, cuts), strict=True)


def connect_bands(corpus: Corpus, fuzzy: Fuzzy, components: Any) -> int:
    """Connect every pair of documents that shares a bucket (and passes `verify` against each other); returns the pairs."""
    bands = range(fuzzy.bands.num_bands)
    if not fuzzy.by_pair:
        return sum(corpus.connect_band(b, components) for b in bands)
    pairs = 0
    rank_N = np.empty(len(corpus), np.int64)
    rank_N[np.lexsort((corpus.column("content_hi"), corpus.column("content_lo")))] = np.arange(len(corpus))
    for b in bands:
        x, y = _pairs_to_verify(corpus, *corpus.equal_band(b), rank_N)
        pairs += len(x)
        label_N = components.labels()
        new = label_N[x] != label_N[y]  # the others would connect nothing
        for p, q in _pair_chunks(corpus, x[new], y[new]):
            alike = _similarity(corpus, p, q, fuzzy) >= fuzzy.threshold
            components.add_edges(p[alike], q[alike])
    return pairs


def _pairs_to_verify(corpus: Corpus, a_E: Array, b_E: Array, rank_N: Array) -> tuple[Array, Array]:
    """Candidate pairs of one band where a pair may fail: neighbours in a bucket, and everyone with its first document.

    Buckets are in order of content (`rank_N`), not of place, so that the pairs do not depend on where documents lie.
    """
    chain = corpus.ops.Components(len(rank_N))
    chain.add_edges(a_E, b_E)
    members = np.unique(np.concatenate([a_E, b_E]))
    bucket = chain.labels()[members]
    order = np.lexsort((rank_N[members], bucket))
    members, bucket = members[order], bucket[order]
    begins = np.diff(bucket, prepend=-1) != 0
    first = members[begins][np.cumsum(begins) - 1]
    later = np.flatnonzero(~begins)
    before, first, later = members[later - 1], first[later], members[later]
    far = first != before
    return np.concatenate([before, first[far]]), np.concatenate([later, later[far]])


def _similarity(corpus: Corpus, a: Array, b: Array, fuzzy: Fuzzy) -> Array:
    """float64 Jaccard similarity of pairs, as `verify` asks: estimated from signatures, or exact."""
    return _estimated(corpus, a, b) if fuzzy.verify == "signature" else similarity(corpus, a, b, fuzzy.minhash)


def _estimated(corpus: Corpus, a: Array, b: Array) -> Array:
    used, pairs_P2 = _numbered(a, b)
    return np.asarray(jaccard(corpus.signature_rows(used), pairs_P2))


def similarity(corpus: Corpus, a: Array, b: Array, minhash: MinHashSpec) -> Array:
    """float64 exact Jaccard similarity of the sets of shingles of pairs, in slices whose texts fit in memory."""
    found = []
    for x, y in _pair_chunks(corpus, a, b):
        used, pairs_P2 = _numbered(x, y)
        hash_S, offsets = shingles(TextColumn.from_texts(corpus.texts(used)), minhash)
        found.append(jaccard_exact(hash_S, offsets, pairs_P2))
    return np.concatenate([*found, np.zeros(0, np.float64)])


def _numbered(a: Array, b: Array) -> tuple[Array, Array]:
    """The documents of some pairs, each once, and the pairs as places in them."""
    used, inverse = np.unique(np.concatenate([a, b]), return_inverse=True)
    return used, inverse.reshape(2, -1).T.astype(np.int64)


def clusters(corpus: Corpus, settings: Settings, label_N: Array, duplicates: Array, firsts: Array) -> Clusters:
    """Who survives of every component of two or more, and what stands for what.

    Args:
        label_N: int64 of `Components.labels`.
        duplicates, firsts: as `exact_duplicates` gives them.
    """
    shared = np.zeros(len(label_N), np.bool_)
    joined = label_N != np.arange(len(label_N))
    shared[label_N[joined]] = True
    members = np.flatnonzero(shared | joined)
    del shared, joined
    component = label_N[members]
    rank = _rank(corpus, settings, members)
    is_reference = corpus.is_reference_N[members]
    content = members.copy()  # documents of equal content have one number: that of the first
    content[np.searchsorted(members, duplicates)] = firsts
    fuzzy = settings.fuzzy
    if fuzzy is not None and fuzzy.by_survivor:
        leader, checked = _leaders(corpus, fuzzy, members, component, rank, content)
    else:
        leader, checked = _best(component, rank), {}
    _, inverse, sizes = np.unique(leader, return_inverse=True, return_counts=True)
    cluster = np.full(len(sizes), np.iinfo(np.int64).max)
    np.minimum.at(cluster, inverse, members)
    survivor = members[leader]
    by_content = np.lexsort((rank, content))
    is_copy = np.empty(len(members), np.bool_)  # a document of equal content ranks before it
    is_copy[by_content] = np.diff(content[by_content], prepend=-1) == 0
    spared = _spared(settings, leader, rank, sizes[inverse], is_reference)
    del leader, rank, by_content
    kind = np.full(len(members), "fuzzy", object)  # one text for all; `astype` would make one for each
    kind[is_copy] = "exact"
    spared |= is_reference  # a reference is never dropped
    kind[(survivor == members) | spared] = None
    survivor[spared] = members[spared]
    same = content[np.searchsorted(members, survivor)] == content
    size = sizes[inverse].astype(np.int64)
    return Clusters(members, component, cluster[inverse], size, survivor, kind, same, checked)


def _spared(settings: Settings, leader: Array, rank: Array, size: Array, is_reference: Array) -> Array:
    """bool of M: documents that stay beside their survivor. What matches an item of a reference set does not."""
    spared = np.zeros(len(leader), np.bool_)
    if settings.survivors == 1 and settings.min_cluster_size == 2:
        return spared
    order = np.lexsort((rank, leader))
    begins = np.flatnonzero(np.diff(leader[order], prepend=-1))
    place = np.empty(len(leader), np.int64)
    place[order] = np.arange(len(leader)) - np.repeat(begins, np.diff(np.append(begins, len(leader))))
    spared = (place < settings.survivors) | (size < settings.min_cluster_size)
    return np.asarray(spared & ~is_reference[leader])


def _best(group: Array, rank: Array) -> Array:
    """For every member the place of the best of its group."""
    order = np.lexsort((rank, group))
    head = np.flatnonzero(np.diff(group[order], prepend=-1))
    best = np.empty(len(group), np.int64)
    best[order] = np.repeat(order[head], np.diff(np.append(head, len(group))))
    return best


def _leaders(
    corpus: Corpus, fuzzy: Fuzzy, members: Array, component: Array, rank: Array, content: Array
) -> tuple[Array, dict[str, int]]:
    """For every member the place of the survivor that it reaches the threshold with: itself, or one of its component.

    Equal contents go together, so the best of each is asked for all. References survive whatever they resemble.
    """
    from gpu_curate.ops.components.leaders import lead_by_rows, lead_by_sets

    speaker = _best(content, rank)
    asked = np.flatnonzero(speaker == np.arange(len(members)))
    asked = asked[np.lexsort((rank[asked], component[asked]))]
    starts = np.append(np.flatnonzero(np.diff(component[asked], prepend=-1)), len(asked))
    several = np.repeat(np.diff(starts) > 1, np.diff(starts))  # components of one content need no comparison
    leader = np.arange(len(members))
    compared = 0
    if several.any():
        asked = asked[several]
        starts = np.append(np.flatnonzero(np.diff(component[asked], prepend=-1)), len(asked))
        fixed = corpus.is_reference_N[members[asked]]
        by_number = np.sort(members[asked])
        row = np.searchsorted(by_number, members[asked])
        if fuzzy.verify == "signature":
            found, compared = lead_by_rows(corpus.signature_rows(by_number), row, fixed, starts, fuzzy.threshold)
        else:
            with tempfile.TemporaryFile(dir=corpus.scratch) as file:
                count = _write_sets(corpus, by_number, fuzzy, file)
                begin = np.cumsum(count) - count
                sets = np.memmap(file, np.uint64, "r")
                found, compared = lead_by_sets(sets, begin[row], count[row], fixed, starts, fuzzy.threshold)
        leader[asked] = asked[found]
    leader = leader[speaker]
    apart = int((leader == np.arange(len(members))).sum()) - len(np.unique(component))
    return leader, {"compared_pairs": compared, "kept_apart": apart}


def _write_sets(corpus: Corpus, numbers: Array, fuzzy: Fuzzy, file: IO[bytes]) -> Array:
    """Write the sets of shingles of some documents (in order), each sorted; returns their sizes."""
    from gpu_curate.ops.components.leaders import distinct

    counts = []
    try:
        for chunk in _chunks(corpus, numbers):
            hash_S, offsets = shingles(TextColumn.from_texts(corpus.texts(chunk)), fuzzy.minhash)
            out_S, count = np.empty(len(hash_S), np.uint64), np.empty(len(chunk), np.int64)
            distinct(hash_S, offsets, out_S, count)
            file.write(out_S[: count.sum()].data.cast("B"))
            counts.append(count)
        file.flush()
    except OSError as e:
        told = corpus.disk_error(e)
        raise told from (None if told is e else e)
    return np.concatenate(counts)


def measured(corpus: Corpus, settings: Settings, found: Clusters) -> Array:
    """float32 of M: exact Jaccard similarity to the survivor of its exact duplicates, of matches of a reference set, and of a
    sample of the others; NaN where it was not measured."""
    member, survivor, kind = found.member, found.survivor, found.kind
    value = np.full(len(member), np.nan, np.float32)
    dropped = kind != None  # noqa: E711  elementwise
    value[dropped & found.same] = 1.0
    if settings.fuzzy is not None:
        of_reference = corpus.is_reference_N[survivor]
        where = np.flatnonzero(dropped & ~found.same)
        if len(where) > JACCARD_SAMPLE:
            lo = corpus.column("content_lo")[member[where]]
            chosen = np.zeros(len(where), np.bool_)
            chosen[np.argsort(fmix64(lo), kind="stable")[:JACCARD_SAMPLE]] = True
            where = where[chosen | of_reference[where]]
        value[where] = similarity(corpus, member[where], survivor[where], settings.fuzzy.minhash)
    return value


def _rank(corpus: Corpus, settings: Settings, members: Array) -> Array:
    """int64 rank of each member: the lowest of a component survives. References come first, ties end in order of numbers."""
    keep, seed = settings.keep, settings.seed
    random = fmix64(corpus.column("content_lo")[members] ^ np.uint64(seed))
    keys: list[Array] = [members, random]  # least important first
    if keep == "first":
        keys = [members]
    elif keep == "longest":
        keys.append(-corpus.column("bytes", np.int64)[members])
    elif keep.startswith("highest:"):
        keys.append(-corpus.score(keep.removeprefix("highest:"))[members])
    keys.append(~corpus.is_reference_N[members])
    rank = np.empty(len(members), np.int64)
    rank[np.lexsort(keys)] = np.arange(len(members))
    return rank


def train_only(corpus: Corpus, label_N: Array) -> Array:
    """Numbers of the documents that share a bucket or their content with a `train_only` item, and their components."""
    if not corpus.train_only_N.any():
        return np.zeros(0, np.int64)
    hit = np.zeros(len(corpus), np.bool_)
    hit[label_N[corpus.matched()]] = True
    return np.flatnonzero(hit[label_N] & ~corpus.is_reference_N)
