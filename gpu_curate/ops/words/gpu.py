"""GPU twin of `words`: the order of launches.

    mark_documents  thread per document       bit mask of document starts
    mark_words      thread per 32 bytes       bit mask and count of word starts
    cumsum          CuPy                      words before each 32 bytes
    rank_documents  thread per document       words before each document
    hash_words      warp per 1 KB             word hashes

Time does not depend on how the text is cut into documents. A word is hashed by one thread, so an unbroken word of 50 MB
keeps one thread busy for about a second (and a run of 50 MB of SKIP code points likewise) while the rest of the text is
long done; nothing else in here is quadratic or serial.

# N documents, W words of all documents, G groups of 32 bytes
"""

from __future__ import annotations

import weakref

import numpy as np

from gpu_curate.device.runtime import Device, Footprint, cuda
from gpu_curate.document import Array, TextColumn
from gpu_curate.ops.words import fold_table

# 5 masks and counts of 4, 4, 4, 1 and 8 bytes a group, and 8 more while CuPy sums; 8 bytes a word: English has 0.17 words a
# byte; the most that documents of more than one byte can have is 0.5, which takes 4.9 bytes a byte.
FOOTPRINT = Footprint(per_text_byte=0.91 + 8 * 0.17, per_document=8)
GROUP = 32  # bytes of text per mask word
# Words of a mask behind those of its text: a window of bits at its very end reads two, whether or not it uses them.
SPARE = 2

_tables: weakref.WeakKeyDictionary[Device, tuple[Array, Array]] = weakref.WeakKeyDictionary()


def word_hashes(text: TextColumn, device: Device | None = None) -> tuple[Array, Array]:
    """See `gpu_curate.ops.words.word_hashes`.

    Device memory: 0.9 bytes a byte of text, 8 a word, 8 a document.
    """
    device = device or cuda()
    xp, n = device.xp, np.int64(len(text))
    base, end = int(text.offsets[0]), int(text.offsets[-1])
    word_offsets = xp.zeros(len(text) + 1, np.int64)
    if base == end:
        return xp.zeros(0, np.uint64), word_offsets
    head = (device.address(text.chars) + base) % GROUP
    origin, groups = base - head, -(-(head + end - base) // GROUP)
    place = (np.int64(origin), np.int64(base), np.int64(end), np.int64(groups))
    stage1, stage2 = _fold_table(device)

    doc_starts = xp.zeros(groups + SPARE, np.uint32)
    device.launch("words", "mark_documents", len(text), (text.offsets, n, place[0], doc_starts))
    starts, ascii_words = xp.empty(groups, np.uint32), xp.zeros(groups + SPARE, np.uint32)
    counts, before = xp.empty(groups, np.uint8), xp.zeros(groups + 1, np.int64)
    masks = (starts, counts, ascii_words)
    device.launch("words", "mark_words", groups, (text.chars, doc_starts, *place, stage1, stage2, *masks))
    xp.cumsum(counts, dtype=np.int64, out=before[1:])
    n_words = int(before[-1])
    args = (text.offsets, n, place[0], place[2], starts, before, np.int64(n_words), word_offsets)
    device.launch("words", "rank_documents", len(text) + 1, args)
    hashes = xp.empty(n_words, np.uint64)
    if n_words:
        size = np.int64(text.chars.size)
        args = (text.chars, size, doc_starts, place[0], place[2], place[3], stage1, stage2)
        device.launch("words", "hash_words", groups, (*args, starts, ascii_words, before, hashes))
    return hashes, word_offsets


def _fold_table(device: Device) -> tuple[Array, Array]:
    """The Unicode table on the device, uploaded once."""
    if device not in _tables:
        stage1, stage2 = fold_table()
        _tables[device] = device.upload(stage1), device.upload(stage2)
    return _tables[device]
