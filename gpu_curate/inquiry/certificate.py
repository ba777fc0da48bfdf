"""What removing near-duplicates lost: the words of removed documents that stand in no kept one.

A word stands in a kept document if a shingle around it does: n words in a row, as duplicates are found by. Compared are 64-bit
hashes of shingles, so two different ones are taken for equal once in some 10^10.

# R removed documents, S their shingles
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpu_curate.document import TextColumn, matching
from gpu_curate.errors import ConfigError
from gpu_curate.inquiry.stored import Array, Stored
from gpu_curate.ops.minhash import MinHashSpec, shingles
from gpu_curate.ops.mix import fmix64
from gpu_curate.ops.words import word_hashes
from gpu_curate.privacy import cleaned
from gpu_curate.report.samples import Library, excerpt
from gpu_curate.stages.cuts import without_cuts
from gpu_curate.stages.reasons import OTHER_BITS
from gpu_curate.stages.signatures import fuzzy_of

MOST = 100_000  # removed documents that are looked at: about 60 bytes a word of them
_WIDTH_BITS = 20  # of the filter in front of the look-up


def certificate(stored: Stored, most: int = MOST, worst: int = 10) -> dict[str, Any]:
    """What share of the words of removed near-duplicates stands in no kept document; the worst pairs first.

    Looked at are documents that fail as fuzzy duplicates and nothing else: what another rule drops is no loss of this one.

    Args:
        most: removed documents that are looked at; of more, those of the lowest hash of their content.
        worst: pairs that are shown.
    Returns:
        run; shingle_words; removed: near-duplicates that fail nothing else; looked_at; words, lost_words, lost_share;
        whole: removed documents of which every word stands in a kept one; survivor_dropped: those whose survivor fails a rule
        itself; histogram: removed documents by tenth of their words that are lost, the last for all;
        worst: {doc_id, source, path, row, survivor, survivor_kept, words, lost_words, lost: their first run, as text}.
    Raises:
        ConfigError: the run removed no near-duplicates.
    Cost: one scan of documents/, as fast as shingles are made; memory: 60 bytes a word of what is looked at.
    """
    fuzzy = stored.config.dedup.fuzzy
    if fuzzy is None or not stored.has("duplicates"):
        raise ConfigError(f"{stored.run}: near-duplicates were not looked for (dedup.fuzzy: null)")
    spec = fuzzy_of(fuzzy).minhash
    removed = _removed(stored)
    if not len(removed):
        raise ConfigError(f"{stored.run}: no near-duplicate was removed that fails nothing else, so nothing was lost")
    chosen = np.sort(removed[np.argsort(fmix64(removed.astype(np.uint64)), kind="stable")[:most]])
    ids, survivor, counts_R, hash_S, offsets = _shingles(stored, chosen, spec)
    found_S = _in_kept(stored, hash_S, spec)
    lost_R = np.array(
        [
            _lost(found_S[a:b], n, spec.shingle_words).sum()
            for a, b, n in zip(offsets[:-1], offsets[1:], counts_R, strict=True)
        ],
        np.int64,
    )
    kept = _kept(stored, survivor)
    share = lost_R / np.maximum(counts_R, 1)
    order = np.lexsort((ids, -lost_R))[:worst]
    words, lost = int(counts_R.sum()), int(lost_R.sum())
    return {
        "run": str(stored.run),
        "shingle_words": spec.shingle_words,
        "removed": len(removed),
        "looked_at": len(ids),
        "words": words,
        "lost_words": lost,
        "lost_share": lost / max(words, 1),
        "whole": int((lost_R == 0).sum()),
        "survivor_dropped": int((~kept).sum()),
        "histogram": np.bincount(np.ceil(share * 10).astype(int), minlength=11).tolist(),
        "worst": [
            _pair(stored, int(ids[i]), int(survivor[i]), bool(kept[i]), int(counts_R[i]), int(lost_R[i]), spec, _runs)
            for i, _runs in ((i, found_S[offsets[i] : offsets[i + 1]]) for i in order)
        ],
    }


def _removed(stored: Stored) -> Array:
    """doc_ids of documents that fail as fuzzy duplicates and nothing else."""
    own = np.uint64(1 << OTHER_BITS["fuzzy_duplicate"])

    def of(part: str) -> Array:
        doc_id, failing = stored.columns("decisions", part, "doc_id", "failing")
        alone: Array = doc_id[failing == own]
        return alone

    return np.concatenate([np.zeros(0, np.int64), *stored.each(of)])


def _kept(stored: Stored, doc_ids: Array) -> Array:
    """bool: these documents are kept (a reference always is)."""
    ids = np.unique(doc_ids)
    kept = np.ones(len(ids), np.bool_)
    for part in stored.parts_with_documents:
        table = stored.table("decisions", part, ["doc_id", "keep"])
        own = table["doc_id"].to_numpy()
        rows, places = matching(own, ids)
        kept[places] = table["keep"].to_numpy()[rows]
    found: Array = kept[np.searchsorted(ids, doc_ids)]
    return found


def _shingles(stored: Stored, chosen: Array, spec: MinHashSpec) -> tuple[Array, Array, Array, Array, Array]:
    """doc_id, survivor and words of the chosen documents, and the hashes of their shingles: hash_S, offsets."""
    ids, survivors, counts, hashes, sizes = [], [], [], [], []
    for part in stored.parts_with_documents:
        table = stored.table("decisions", part, ["doc_id", "partner"])
        own = table["doc_id"].to_numpy()
        rows, _ = matching(own, chosen)
        if not len(rows):
            continue
        text = stored.text(part, rows)
        hash_S, offsets = shingles(text, spec)
        ids.append(own[rows])
        survivors.append(table["partner"].fill_null(-1).to_numpy()[rows])
        counts.append(np.diff(word_hashes(text)[1]))
        hashes.append(hash_S)
        sizes.append(np.diff(offsets))
    bounds = np.concatenate([[0], np.cumsum(np.concatenate(sizes))])
    made = [np.concatenate(arrays) for arrays in (ids, survivors, counts, hashes)]
    return made[0], made[1], made[2], made[3], bounds


def _in_kept(stored: Stored, hash_S: Array, spec: MinHashSpec) -> Array:
    """bool of S: the shingle stands in a kept document."""
    wanted, inverse = np.unique(hash_S, return_inverse=True)
    filter_ = np.zeros(1 << _WIDTH_BITS, np.bool_)
    filter_[wanted >> np.uint64(64 - _WIDTH_BITS)] = True

    def of(part: str) -> Array:
        rows = np.flatnonzero(stored.table("decisions", part, ["keep"])["keep"].to_numpy())
        if not len(rows):
            return np.zeros(0, np.int64)
        text = without_cuts(stored.context, part, rows, stored.text(part, rows))  # as it went into the shards
        made, _ = shingles(text, spec)
        made = made[filter_[made >> np.uint64(64 - _WIDTH_BITS)]]
        place = np.minimum(np.searchsorted(wanted, made), len(wanted) - 1)
        hit: Array = np.unique(place[wanted[place] == made])
        return hit

    seen = np.zeros(len(wanted), np.bool_)
    for hit in stored.each(of):
        seen[hit] = True
    found: Array = seen[inverse]
    return found


def _lost(found_S: Array, words: int, width: int) -> Array:
    """bool of a document's words: no shingle around it stands in a kept document."""
    if len(found_S) != words - width + 1:  # fewer words than a shingle has: one of all of them
        return np.full(words, not found_S.any())
    covered = np.zeros(words + 1, np.int64)
    starts = np.flatnonzero(found_S)
    np.add.at(covered, starts, 1)
    np.add.at(covered, starts + width, -1)
    lost: Array = np.cumsum(covered[:-1]) == 0
    return lost


def _pair(
    stored: Stored,
    doc_id: int,
    survivor: int,
    kept: bool,
    words: int,
    lost: int,
    spec: MinHashSpec,
    found_S: Array,
) -> dict[str, Any]:
    document = Library(stored.context).read([doc_id])[doc_id]
    return {
        **cleaned({name: getattr(document, name) for name in ("doc_id", "source", "path", "row")}),
        "survivor": survivor,
        "survivor_kept": kept,
        "words": words,
        "lost_words": lost,
        "lost": excerpt(_first_run(document.text, _lost(found_S, words, spec.shingle_words))),
    }


def _first_run(text: str, lost_W: Array) -> str:
    """The text of the longest run of lost words. Words are counted as the hashes count them, by halving the text."""
    if not lost_W.any():
        return ""
    edges = np.flatnonzero(np.diff(lost_W, prepend=False, append=False)).reshape(-1, 2)
    start, stop = edges[np.argmax(edges[:, 1] - edges[:, 0])].tolist()
    return text[_char_of(text, start) : _char_of(text, stop)].strip()


def _char_of(text: str, word: int) -> int:
    """The shortest beginning of a text that holds `word` words and the first letter of no further one."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if len(word_hashes(TextColumn.from_texts([text[:middle]]))[0]) <= word:
            low = middle
        else:
            high = middle - 1
    return low
