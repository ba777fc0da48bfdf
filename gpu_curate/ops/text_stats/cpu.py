"""CPU twin of `text_stats`: a document is read once in blocks of 64 bytes, then its words and lines are compared.

    scan     bit masks of a block → word bounds; words by class, counted by one addition whose carries run through the
             words; and events in their order: line ends, sentence ends, candidates for phrases
    hash     hash and length of every word
    n-grams  a table of the 2-grams, then n-grams only where the (n-1)-gram occurs twice or more: no other can repeat
    lines    tables of line and paragraph hashes

Vector loads reach PAD bytes beyond a document's end; the last documents of a buffer are copied to one that has them.

# N documents, K statistics
"""

from __future__ import annotations

import functools
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from gpu_curate.document import TextColumn
from gpu_curate.jit import I64, U8, U32, U64, njit
from gpu_curate.ops.masks import high64
from gpu_curate.ops.simd import BLOCK, as_input, borrowed, ctz64, load_u64, popcount64
from gpu_curate.ops.text_stats import (
    ALPHABETIC,
    C4_MAX_WORD_CHARS,
    C4_MIN_LINE_WORDS,
    CLOSING,
    DOUBLE,
    DOUBLE_CHARS,
    DUPLICATE_N,
    HAN,
    HAN_CHARS,
    HAN_PARTS,
    KANA,
    KIND,
    NAMES,
    SHORT_LINE_CHARS,
    SPACE,
    STOP_WORDS,
    SYMBOL,
    TABLE_LIMIT,
    TERMINAL,
    TOP_N,
    UNSPACED,
    UNSPACED_PARTS,
    UPPERCASE,
    WORD_PARTS,
    character_classes,
    word_hash,
)
from gpu_curate.ops.text_stats.masks import (
    brace64,
    candidate64,
    clz64,
    continuation64,
    digit64,
    ellipsis64,
    hash64,
    letter64,
    newline64,
    space64,
    terminal64,
)

ZERO, ONE, ALL = U64(0), U64(1), U64(0xFFFFFFFFFFFFFFFF)
PAD = 2 * BLOCK + 2  # a block may start at the document's end; its loads reach 2 bytes further

KA, KB, KC = U64(0x9E3779B97F4A7C15), U64(0xC2B2AE3D27D4EB4F), U64(0xD6E8FEB86659FD93)
STEP = 16  # bytes that the hash takes at once
HIGH_BITS = U64(0x8080808080808080)
# masks of the first and the second 8 bytes of a step of 0..16 bytes
MASK_0 = np.array([(1 << 8 * min(n, 8)) - 1 for n in range(STEP + 1)], np.uint64)
MASK_1 = np.array([(1 << 8 * max(n - 8, 0)) - 1 for n in range(STEP + 1)], np.uint64)

(
    CHARS,
    NEWLINES,
    WORDS,
    ALPHABETIC_WORDS,
    NON_SYMBOL_WORDS,
    NON_SYMBOL_WORD_CHARS,
    STOP,
    HASHES,
    ELLIPSES,
    LINES,
    NONBLANK_LINES,
    BULLET_LINES,
    ELLIPSIS_LINES,
    TERMINAL_LINES,
    SHORT_LINES,
    DUPLICATE_LINES,
    DUPLICATE_LINE_CHARS,
    PARAGRAPHS,
    DUPLICATE_PARAGRAPHS,
    DUPLICATE_PARAGRAPH_CHARS,
    LONGEST_REPEATED_NGRAM,
    TOP_NGRAM,  # the first of len(TOP_N)
    *_,
) = range(len(NAMES))
DUPLICATE_NGRAM = TOP_NGRAM + len(TOP_N)  # the first of len(DUPLICATE_N)
HAN_LETTERS = DUPLICATE_NGRAM + len(DUPLICATE_N)
UNSPACED_LETTERS, DOUBLE_LETTERS, C4 = range(HAN_LETTERS + 1, HAN_LETTERS + 4)
# what a character adds to the letters of a block, HAN | unspaced << 8 | double << 16, by its classes >> 5
_COUNTS = {HAN: 1, KANA: 1 << 8 | 1 << 16, UNSPACED: 1 << 8, DOUBLE: 1 << 16}
KIND_COUNTS = np.array([_COUNTS.get(kind << 5, 0) for kind in range(8)], np.uint64)
BYTE = U64(0xFF)
MAX_TOP_N, MIN_DUPLICATE_N, MAX_N = TOP_N[-1], DUPLICATE_N[0], DUPLICATE_N[-1]

# phrase, its place in PHRASES, and the byte by which candidate64 finds it
JAVASCRIPT, LOREM_IPSUM, POLICY = 1, 2, 4
_PHRASES = [
    ("j", "javascript", JAVASCRIPT),
    ("p", "lorem ipsum", LOREM_IPSUM),
    ("v", "privacy policy", POLICY),
    ("f", "terms of use", POLICY),
    ("k", "cookie policy", POLICY),
    ("k", "uses cookies", POLICY),
    ("k", "use of cookies", POLICY),
    ("k", "use cookies", POLICY),
]
PHRASES = np.frombuffer("".join(phrase for _, phrase, _ in _PHRASES).encode(), np.uint8).copy()
PHRASE_ENDS = np.cumsum([len(phrase) for _, phrase, _ in _PHRASES])
PHRASE_KEYS = np.array([ord(key) for key, _, _ in _PHRASES])
PHRASE_KEY_AT = np.array([phrase.index(key) for key, phrase, _ in _PHRASES])  # "terms of use": its only "f"
PHRASE_FLAGS = np.array([flag for _, _, flag in _PHRASES])


@functools.cache
def _stop_slots(words: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray, int, int]:
    """A table of the stop words' hashes, each in a slot of its own: hashes, place in `words`, multiplier m, shift s.

    Hash h is looked for at (h * m mod 2^64) >> s. Eight words fit into 16 slots.
    """
    hashes = [word_hash(word.encode()) for word in words]
    bits, m = 4, 1
    while len({(h * m & (1 << 64) - 1) >> (64 - bits) for h in hashes}) < len(hashes):
        m += 2
        if m > 2000:
            bits, m = bits + 1, 1
    slots, place = np.zeros(1 << bits, np.uint64), np.zeros(1 << bits, np.uint8)  # 0: the hash of no word but by chance
    for k, h in enumerate(hashes):
        slot = (h * m & (1 << 64) - 1) >> (64 - bits)
        slots[slot], place[slot] = h, k
    return slots, place, U64(m), U64(64 - bits)


Table: TypeAlias = NDArray[np.integer[Any]]  # of classes of characters
Work: TypeAlias = tuple[NDArray[np.integer[Any]], ...]  # see `scratch`

CITATIONS = np.frombuffer(b"[edit][citation needed]", np.uint8).copy()
EDIT_SIZE = len("[edit]")


@njit
def below(bit: int) -> int:
    """The bits under number `bit` (0..64)."""
    return ALL if bit >= 64 else (ONE << U64(bit)) - ONE


@njit
def mix(h: int, c0: int, c1: int) -> int:
    """One step of the hash of a word or line: see the package."""
    u = (c0 ^ h) * KA
    u ^= u >> U64(32)
    v = c1 * KB
    v ^= v >> U64(29)
    h = (u + v) * KC
    return h ^ (h >> U64(32))


@njit
def hash_bytes(chars: NDArray[np.uint8], start: int, stop: int) -> int:
    """The hash of a word or line."""
    size = stop - start
    h = U64(size)
    while size > STEP:
        h = mix(h, load_u64(chars, start), load_u64(chars, start + 8))
        start += STEP
        size -= STEP
    return mix(h, load_u64(chars, start) & MASK_0[size], load_u64(chars, start + 8) & MASK_1[size])


@njit
def count_chars(chars: NDArray[np.uint8], start: int, stop: int) -> int:
    count = 0
    for i in range(start, stop):
        count += not is_tail(chars, i)
    return count


@njit
def is_at(chars: NDArray[np.uint8], i: int, a: int, b: int) -> bool:
    is_pair: bool = chars[i] == a and chars[i + 1] == b
    return is_pair


@njit
def is_tail(chars: NDArray[np.uint8], i: int) -> bool:
    """Whether byte i is a continuation byte."""
    tail: bool = (chars[i] & 0xC0) == 0x80
    return tail


@njit
def character(chars: NDArray[np.uint8], i: int, end: int, stage1: Table, stage2: Table) -> tuple[int, int, int]:
    """(size, classes, code point) of the character at a lead byte; (1, SYMBOL, -1) where the sequence is ill-formed."""
    c = I64(chars[i])
    size, cp = 1, I64(-1)
    if c < 0x80:
        cp = c
    elif c >= 0xC2 and c < 0xE0 and i + 1 < end and is_tail(chars, i + 1):
        size, cp = 2, (c & 0x1F) << 6 | I64(chars[i + 1] & 0x3F)
    elif c >= 0xE0 and c < 0xF0 and i + 2 < end and is_tail(chars, i + 1) and is_tail(chars, i + 2):
        long = (c & 0x0F) << 12 | I64(chars[i + 1] & 0x3F) << 6 | I64(chars[i + 2] & 0x3F)
        if long >= 0x800 and (long < 0xD800 or long > 0xDFFF):
            size, cp = 3, long
    elif (
        c >= 0xF0
        and c < 0xF5
        and i + 3 < end
        and is_tail(chars, i + 1)
        and is_tail(chars, i + 2)
        and is_tail(chars, i + 3)
    ):
        long = (c & 0x07) << 18 | I64(chars[i + 1] & 0x3F) << 12 | I64(chars[i + 2] & 0x3F) << 6
        long |= I64(chars[i + 3] & 0x3F)
        if long >= 0x10000 and long <= 0x10FFFF:
            size, cp = 4, long
    if cp < 0:
        return size, I64(SYMBOL), cp
    if cp >= TABLE_LIMIT:
        return size, I64(0), cp
    return size, I64(stage2[I64(stage1[cp >> 8]) * 256 + (cp & 255)]), cp


@njit
def character_before(chars: NDArray[np.uint8], start: int, i: int, stage1: Table, stage2: Table) -> tuple[int, int]:
    """(start, classes) of the character that ends at i > start; classes SYMBOL if none does."""
    lead = i - 1
    while lead > start and i - lead < 4 and is_tail(chars, lead):
        lead -= 1
    size, classes, _ = character(chars, lead, i, stage1, stage2)
    if lead + size != i:
        return i - 1, I64(SYMBOL)
    return lead, classes


@njit
def without_closing(chars: NDArray[np.uint8], start: int, stop: int, stage1: Table, stage2: Table) -> tuple[int, int]:
    """(end of chars[start:stop] without the CLOSING characters at its end, classes of the last one left, or 0)."""
    while stop > start:
        c = I64(chars[stop - 1])
        if c < 0x80:
            return stop, I64(stage2[I64(stage1[0]) * 256 + c])
        at, classes = character_before(chars, start, stop, stage1, stage2)
        if classes & KIND != CLOSING:
            return stop, classes
        stop = at
    return stop, I64(0)


@njit
def hides_words(chars: NDArray[np.uint8], start: int, stop: int, stage1: Table, stage2: Table) -> bool:
    """Whether chars[start:stop] holds a letter of a script without spaces."""
    i = start
    while i < stop:
        size, classes, _ = character(chars, i, stop, stage1, stage2)
        kind = classes & KIND
        if kind in (HAN, KANA, UNSPACED):
            return True
        i += size
    return False


@njit
def phrases_at(chars: NDArray[np.uint8], i: int, start: int, end: int) -> int:
    """Flags of the phrases within chars[start:end] whose key byte is at i."""
    flags = 0
    key = I64(chars[i] | 0x20)
    first = 0
    for k in range(len(PHRASE_KEYS)):
        size = PHRASE_ENDS[k] - first
        at = i - PHRASE_KEY_AT[k]
        if key == PHRASE_KEYS[k] and at >= start and at + size <= end:
            same = True
            for j in range(size):
                c = chars[at + j]
                c |= 0x20 if c >= 65 and c <= 90 else 0
                if c != PHRASES[first + j]:
                    same = False
                    break
            if same:
                flags |= PHRASE_FLAGS[k]
        first = PHRASE_ENDS[k]
    return flags


@njit
def without_citations(chars: NDArray[np.uint8], start: int, stop: int) -> int:
    """The end of chars[start:stop] without the citations at its end."""
    while stop - start >= 2 and chars[stop - 1] == 93:  # ]
        at = stop - 2
        while at > start and chars[at] >= 48 and chars[at] <= 57:
            at -= 1
        if chars[at] == 91:  # [
            stop = at
            continue
        first = 0
        size = EDIT_SIZE
        if chars[at] == 100:  # the d of needed]
            first, size = EDIT_SIZE, len(CITATIONS) - EDIT_SIZE
        if stop - start < size:
            break
        same = True
        for j in range(size):
            same &= chars[stop - size + j] == CITATIONS[first + j]
        if not same:
            break
        stop -= size
    return stop


@njit
def stripped_end(chars: NDArray[np.uint8], start: int, end: int, stage1: Table, stage2: Table) -> int:
    """Where the last word of chars[start:end] ends; start if there is none."""
    while end > start:
        at, classes = character_before(chars, start, end, stage1, stage2)
        if not classes & SPACE:
            break
        end = at
    return end


@njit
def write_bits(bits: int, base: int, positions: NDArray[np.int32], count: int) -> int:
    """Append base + the numbers of the set bits to positions[count:]; up to 7 entries more are overwritten."""
    more = I64(popcount64(bits))
    at = count
    while at < count + more:
        for _ in range(8):  # always eight, so that there is little to mispredict
            positions[at] = base + I64(ctz64(bits))
            bits &= bits - ONE
            at += 1
    return count + more


@njit
def scan(
    chars: NDArray[np.uint8],
    start: int,
    end: int,
    stage1: Table,
    stage2: Table,
    out_NK: NDArray[np.int32],
    d: int,
    bounds: NDArray[np.int32],
    line_hash: NDArray[np.uint64],
    line_chars: NDArray[np.int32],
    part_hash: NDArray[np.uint64],
    part_chars: NDArray[np.int32],
    letters_to: NDArray[np.uint64],
) -> tuple[int, int, int]:
    """Everything but the comparisons of words and lines: fills out_NK[d] but for those.

    Writes start, end, start, end ... of the words, relative to the document, to bounds; hash and characters of the lines
    with a word to line_hash, line_chars, and of paragraphs to part_hash, part_chars.
    Returns: numbers of words, such lines, paragraphs.
    """
    n = end - start
    last_word_end = stripped_end(chars, start, end, stage1, stage2) - start

    n_bounds = I64(0)
    word_carry = ZERO  # the block before ended inside a word
    alphabetic_carry = solid_carry = ZERO  # ... which has had an ALPHABETIC, a non-SYMBOL character
    space_tail = ZERO  # bytes of this block that belong to a SPACE begun in the one before
    n_chars = newlines = alphabetic_words = symbol_words = symbol_chars = word_chars = I64(0)
    hashes = ellipses = I64(0)
    ellipsis_free = I64(0)  # the next "..." starts here or later
    long_word_end = I64(-1)

    han = unspaced = double = I64(0)  # letters before the block
    line_han = line_unspaced = line_double = I64(0)  # ... before the line

    lines = nonblank = bullets = ellipsis_lines = terminals = shorts = I64(0)
    kept_lines = kept_words = sentences_kept = lorem = braces = I64(0)
    un_sentences = un_lorem = un_braces = I64(0)
    line = I64(0)  # where the line starts
    line_words = I64(0)  # words before it
    continuations = I64(0)  # continuation bytes before the block
    line_continuations = I64(0)  # ... before the line
    line_flags = I64(0)
    line_brace = False
    sentence = I64(-1)  # where the sentence starts; -1: nothing of the line is read
    sentence_end = I64(-1)  # the TERMINAL characters of a sentence reach so far
    initial = False  # the rest has an UPPERCASE character with its "."
    sentences = I64(0)

    parts = part_lines = part_size = I64(0)
    part = ZERO
    part_blank = True

    for base in range(0, n + 1, BLOCK):  # the last block holds position n, which ends the last word and line
        i = start + base
        left = n - base
        valid = below(left)
        high = high64(chars, i) & valid
        tails = ZERO
        letters = ZERO  # of this block, by kind, so far
        word = ~space64(chars, i) & valid
        letter = letter64(chars, i) & valid
        solid = letter | (digit64(chars, i) & valid)
        line_end = newline64(chars, i) & valid
        terminal = terminal64(chars, i) & valid
        brace = brace64(chars, i) & valid
        dots = ellipsis64(chars, i) & valid
        found = candidate64(chars, i) & valid
        hashes += I64(popcount64(hash64(chars, i) & valid))

        if (high | space_tail) != ZERO:
            tails = continuation64(chars, i) & valid
            word &= ~space_tail
            space_tail = ZERO
            lead = high & ~tails
            while lead != ZERO:
                bit = ctz64(lead)
                lead &= lead - ONE
                size, classes, cp = character(chars, i + I64(bit), end, stage1, stage2)
                mask = ONE << bit
                letters += KIND_COUNTS[classes >> 5]
                letters_to[bit] = letters
                if classes & SPACE:
                    bytes_ = below(size) << bit
                    word &= ~bytes_
                    if I64(bit) + size > BLOCK:
                        space_tail = below(I64(bit) + size - BLOCK)
                else:
                    if classes & ALPHABETIC:
                        letter |= mask
                    if not classes & SYMBOL:
                        solid |= mask
                    if classes & TERMINAL:
                        terminal |= mask
                    ellipses += cp == 0x2026

        n_chars += I64(popcount64(valid & ~tails))
        word_chars += I64(popcount64(word & ~tails))
        before = (word << ONE) | word_carry
        word_carry = word >> U64(BLOCK - 1)
        start_bits, end_bits = word & ~before, ~word & before
        ended = n_bounds >> 1  # words that ended, and that started, before this block
        started = n_bounds - ended
        n_bounds = write_bits(word ^ before, base, bounds, n_bounds)

        # word + marks carries out of every word with a mark into the bit that ends it
        total = word + letter
        over = total < word
        total += alphabetic_carry
        over |= total < alphabetic_carry
        alphabetic_carry = ONE if over else ZERO
        alphabetic_words += I64(popcount64(total & end_bits))
        total = word + solid
        over = total < word
        total += solid_carry
        over |= total < solid_carry
        solid_carry = ONE if over else ZERO
        symbols = end_bits & ~total
        while symbols != ZERO:
            bit = I64(ctz64(symbols))
            symbols &= symbols - ONE
            symbol_words += 1
            first = bounds[2 * (ended + I64(popcount64(end_bits & below(bit))))]
            symbol_chars += count_chars(chars, start + first, i + bit)

        if end_bits != ZERO and bounds[2 * ended + 1] - bounds[2 * ended] > C4_MAX_WORD_CHARS:
            # only the first word that ends in a block can be so long
            size = count_chars(chars, start + bounds[2 * ended], start + bounds[2 * ended + 1])
            if size > C4_MAX_WORD_CHARS and not hides_words(
                chars, start + bounds[2 * ended], start + bounds[2 * ended + 1], stage1, stage2
            ):
                long_word_end = I64(bounds[2 * ended + 1])

        while dots != ZERO:
            at = base + I64(ctz64(dots))
            dots &= dots - ONE
            if at >= ellipsis_free and at + 3 <= n:
                ellipses += 1
                ellipsis_free = at + 3

        newlines += I64(popcount64(line_end))
        if left < BLOCK and n > 0 and chars[end - 1] != 10:
            line_end |= ONE << U64(left)
        events = line_end | terminal | found
        while events != ZERO:
            bit = ctz64(events)
            events &= events - ONE
            at = base + I64(bit)
            mask = ONE << bit
            if terminal & mask:
                if sentence < 0:
                    sentence = I64(bounds[2 * line_words])
                if sentence_end >= 0 and at != sentence_end:
                    sentence = sentence_end
                    c = chars[start + sentence]  # before `at`, so inside the document
                    if c == 34 or c == 39:
                        sentence += 1
                    elif c >= 0x80:
                        size, classes, _ = character(chars, start + sentence, end, stage1, stage2)
                        if classes & KIND == CLOSING:
                            sentence += size
                    sentence_end = I64(-1)
                size = I64(1)
                if chars[i + I64(bit)] >= 0x80:
                    size = character(chars, i + I64(bit), end, stage1, stage2)[0]
                if sentence_end >= 0:
                    sentence_end += size
                elif at > sentence:
                    upper = False
                    if chars[i + I64(bit)] == 46:
                        c = chars[start + at - 1]
                        if c < 0x80:
                            upper = c >= 65 and c <= 90
                        else:
                            upper = (
                                character_before(chars, start + sentence, start + at, stage1, stage2)[1] & UPPERCASE
                            ) != 0
                    if upper:
                        initial = True
                    else:
                        sentences += 1
                        sentence_end = at + size
                        initial = False
            elif found & mask:
                line_flags |= phrases_at(chars, i + I64(bit), start + line, end)
            else:
                lines += 1
                line_continuation_end = continuations + I64(popcount64(tails & below(I64(bit))))
                size = (at - line) - (line_continuation_end - line_continuations)
                line_words_end = started + I64(popcount64(start_bits & below(I64(bit))))
                n_words = line_words_end - line_words
                h = hash_bytes(chars, start + line, start + at) if at > line else ZERO
                measure, c4_words = size, n_words
                now_han, now_unspaced, now_double = han, unspaced, double
                if letters != ZERO:
                    leads_before = high & ~tails & below(I64(bit))
                    if leads_before != ZERO:
                        counts = letters_to[63 - I64(clz64(leads_before))]
                        now_han += I64(counts & BYTE)
                        now_unspaced += I64(counts >> U64(8) & BYTE)
                        now_double += I64(counts >> U64(16))
                if now_han + now_unspaced + now_double > line_han + line_unspaced + line_double:
                    measure += (now_han - line_han) * (HAN_CHARS - 1) + (now_double - line_double) * (DOUBLE_CHARS - 1)
                    parts_of_words = (now_han - line_han) * HAN_PARTS + (now_unspaced - line_unspaced) * UNSPACED_PARTS
                    c4_words += parts_of_words // WORD_PARTS
                    line_han, line_unspaced, line_double = now_han, now_unspaced, now_double
                if n_words > 0:
                    first, last = start + bounds[2 * line_words], start + bounds[2 * line_words_end - 1]
                    line_hash[nonblank] = h
                    line_chars[nonblank] = size
                    nonblank += 1
                    shorts += measure <= SHORT_LINE_CHARS
                    c = chars[first]
                    if c == 45:
                        bullets += 1
                    elif c == 0xE2 and first + 3 <= last:
                        bullets += is_at(chars, first + 1, 0x80, 0xA2)
                    c = chars[last - 1]
                    if c == 46 and last - 3 >= first:
                        ellipsis_lines += is_at(chars, last - 3, 46, 46)
                    elif c == 0xA6 and last - 3 >= first:
                        ellipsis_lines += is_at(chars, last - 3, 0xE2, 0x80)
                    c = chars[start + at - 1]
                    if c < 0x80:
                        terminals += c == 46 or c == 63 or c == 33
                    elif without_closing(chars, start + line, start + at, stage1, stage2)[1] & TERMINAL:
                        terminals += 1

                    if c4_words >= C4_MIN_LINE_WORDS and long_word_end <= line:
                        last = without_citations(chars, first, last)
                        ended_well = False
                        if last > first:
                            c = chars[last - 1]
                            if c < 0x80:
                                ended_well = c == 46 or c == 63 or c == 33 or c == 34 or c == 39
                            else:
                                last, classes = without_closing(chars, first, last, stage1, stage2)
                                c = chars[last - 1] if last > first else U8(0)
                                ended_well = (classes & TERMINAL) != 0 or c == 34 or c == 39
                            if c == 46 and last - 3 >= first and is_at(chars, last - 3, 46, 46):
                                ended_well = False
                        has_brace = line_brace or (brace & below(I64(bit)) & ~below(max(line - base, 0))) != ZERO
                        if line_flags & LOREM_IPSUM:
                            un_lorem += 1
                            lorem += ended_well
                        elif line_flags & JAVASCRIPT:
                            pass
                        elif has_brace:
                            un_braces += 1
                            braces += ended_well
                        elif line_flags & POLICY:
                            pass
                        else:
                            count = max(sentences + initial, 1)
                            un_sentences += count
                            if ended_well:
                                kept_lines += 1
                                kept_words += n_words
                                sentences_kept += count

                if at == line:
                    if part_lines > 0 and not part_blank:
                        part_hash[parts] = part
                        part_chars[parts] = part_size
                        parts += 1
                    part, part_lines, part_size, part_blank = ZERO, I64(0), I64(0), True
                elif line_words_end > 0:
                    first, last = max(line, I64(bounds[0])), min(at, last_word_end)
                    if first < last:
                        if first > line or last < at:
                            h = hash_bytes(chars, start + first, start + last)
                            size = count_chars(chars, start + first, start + last)
                        part = part * KA + h
                        part_size += size + (part_lines > 0)
                        part_lines += 1
                        part_blank &= n_words == 0

                line = at + 1
                line_words = line_words_end
                line_continuations = line_continuation_end
                line_flags = I64(0)
                line_brace = False
                sentence = sentence_end = I64(-1)
                initial = False
                sentences = I64(0)

        line_brace |= (brace & ~below(max(line - base, 0))) != ZERO
        continuations += I64(popcount64(tails))
        han += I64(letters & BYTE)
        unspaced += I64(letters >> U64(8) & BYTE)
        double += I64(letters >> U64(16))

    if part_lines > 0 and not part_blank:
        part_hash[parts] = part
        part_chars[parts] = part_size
        parts += 1

    words = n_bounds >> 1
    out_NK[d, CHARS] = n_chars
    out_NK[d, NEWLINES] = newlines
    out_NK[d, WORDS] = words
    out_NK[d, ALPHABETIC_WORDS] = alphabetic_words
    out_NK[d, NON_SYMBOL_WORDS] = words - symbol_words
    out_NK[d, NON_SYMBOL_WORD_CHARS] = word_chars - symbol_chars
    out_NK[d, HASHES] = hashes
    out_NK[d, ELLIPSES] = ellipses
    out_NK[d, LINES] = lines
    out_NK[d, NONBLANK_LINES] = nonblank
    out_NK[d, BULLET_LINES] = bullets
    out_NK[d, ELLIPSIS_LINES] = ellipsis_lines
    out_NK[d, TERMINAL_LINES] = terminals
    out_NK[d, SHORT_LINES] = shorts
    out_NK[d, PARAGRAPHS] = parts
    out_NK[d, HAN_LETTERS] = han
    out_NK[d, UNSPACED_LETTERS] = unspaced
    out_NK[d, DOUBLE_LETTERS] = double
    for k, count in enumerate(
        (kept_lines, kept_words, sentences_kept, lorem, braces, un_sentences, un_lorem, un_braces)
    ):
        out_NK[d, C4 + k] = count
    return words, nonblank, parts


@njit
def continuations_in(c: int) -> int:
    """How many of the 8 bytes are 10xxxxxx."""
    return popcount64(c & ~(c << ONE) & HIGH_BITS)


@njit
def hash_words(
    chars: NDArray[np.uint8],
    start: int,
    words: int,
    bounds: NDArray[np.int32],
    word: NDArray[np.uint64],
    reach: NDArray[np.uint32],
    slots: NDArray[np.uint64],
    places: NDArray[np.uint8],
    multiplier: int,
    shift: int,
) -> int:
    """Hash of every word, and the characters of the words up to it modulo 2^32. Returns how many stop words occur."""
    stop = ZERO
    total = U32(0)
    reach[0] = total
    for k in range(words):
        first, last = start + bounds[2 * k], start + bounds[2 * k + 1]
        size = last - first
        if size <= STEP:
            c0 = load_u64(chars, first) & MASK_0[size]
            c1 = load_u64(chars, first + 8) & MASK_1[size]
            h = mix(U64(size), c0, c1)
            total += U32(size) - U32(continuations_in(c0) + continuations_in(c1))
        else:
            h = hash_bytes(chars, first, last)
            total += U32(count_chars(chars, first, last))
        word[k] = h
        reach[k + 1] = total
        slot = (h * multiplier) >> shift
        stop |= U64(slots[slot] == h) << U64(places[slot])
    return I64(popcount64(stop))


@njit
def clear(table: NDArray[np.int32], entries: int) -> int:
    """Empty a table for up to `entries` keys, at most half full; returns how far to shift a 64-bit product down."""
    bits = 4
    while (1 << bits) < 2 * entries:
        bits += 1
    table[: 1 << bits] = 0
    return U64(64 - bits)


@njit
def duplicates(
    hashes: NDArray[np.uint64], chars: NDArray[np.int32], n: int, table: NDArray[np.int32]
) -> tuple[int, int]:
    """(how many of n hashes an equal one precedes, the sum of their characters)."""
    if n < 2:
        return I64(0), I64(0)
    shift = clear(table, n)
    last = (ONE << (U64(64) - shift)) - ONE
    count = total = I64(0)
    for k in range(n):
        slot = hashes[k] >> shift
        while True:
            other = table[slot]
            if other == 0:
                table[slot] = k + 1
                break
            if hashes[other - 1] == hashes[k]:
                count += 1
                total += I64(chars[k])
                break
            slot = (slot + ONE) & last
    return count, total


@njit
def likely_repeats(
    word: NDArray[np.uint64], words: int, slots: NDArray[np.int32], seen: NDArray[np.uint8], where: NDArray[np.int32]
) -> int:
    """List in `where` the 2-grams that share a slot of `seen` with another: all that occur twice, and one in eight others.

    Two passes without a branch; a table of the 2-grams themselves mispredicts at every other word.
    """
    bits = 6
    while (1 << bits) < 8 * words:
        bits += 1
    shift = U64(64 - bits)
    seen[: 1 << bits] = 0
    for i in range(words - 1):
        slot = I64((word[i] * KA + word[i + 1]) >> shift)
        slots[i] = slot
        seen[slot] += seen[slot] < 2
    found = 0
    for i in range(words - 1):
        where[found] = i
        found += seen[slots[i]] == 2
    return found


@njit
def match_ngrams(
    word: NDArray[np.uint64],
    n: int,
    first: NDArray[np.int32],
    where: NDArray[np.int32],
    candidates: int,
    other: NDArray[np.int32],
    count: NDArray[np.int32],
    rest: NDArray[np.int32],
) -> int:
    """Guess that an n-gram occurs first where its (n-1)-gram does, and check it; no branch depends on the text.

    other[i] = j: so guessed; count[j]: how many equal that of word j; rest: the i whose guess is wrong. Returns its length.
    """
    n_rest = 0
    for k in range(candidates):
        i = I64(where[k])
        j = I64(first[i])
        same = word[j + n - 1] == word[i + n - 1]
        other[i] = j
        count[j] = I64(count[j]) * (j < i) + same
        rest[n_rest] = i
        n_rest += 1 - same
    return n_rest


@njit
def match_rest(
    word: NDArray[np.uint64],
    n: int,
    first: NDArray[np.int32],
    rest: NDArray[np.int32],
    n_rest: int,
    table: NDArray[np.int32],
    other: NDArray[np.int32],
    count: NDArray[np.int32],
) -> None:
    """Find out where the n-grams of `rest` occur first, by a table; they equal none of those that were guessed right."""
    if n_rest == 0:
        return
    shift = clear(table, n_rest)
    last = (ONE << (U64(64) - shift)) - ONE
    for k in range(n_rest):
        i = I64(rest[k])
        # an n-gram is its first word (n = 2) or where its (n-1)-gram occurs first, and its last word
        head = word[i] if n == 2 else U64(first[i])
        tail = word[i + n - 1]
        slot = (head * KA + tail) >> shift
        while True:
            j = I64(table[slot]) - 1
            if j < 0:
                table[slot] = i + 1
                other[i] = i
                count[i] = 1
                break
            if word[j + n - 1] == tail and (word[j] if n == 2 else U64(first[j])) == head:
                other[i] = j
                count[j] += 1
                break
            slot = (slot + ONE) & last


@njit
def ngrams(
    word: NDArray[np.uint64],
    reach: NDArray[np.uint32],
    words: int,
    n_chars: int,
    out_NK: NDArray[np.int32],
    d: int,
    table: NDArray[np.int32],
    seen: NDArray[np.uint8],
    first: NDArray[np.int32],
    other: NDArray[np.int32],
    where: NDArray[np.int32],
    count: NDArray[np.int32],
    rest: NDArray[np.int32],
) -> None:
    """Fills the n-gram columns of out_NK[d].

    `where` lists in order the words where an n-gram starts that occurs twice or more; only there can an (n+1)-gram do so.
    first[i] is where the n-gram of word i occurs first, count[first[i]] how often.
    """
    for row in range(LONGEST_REPEATED_NGRAM, HAN_LETTERS):
        out_NK[d, row] = 0
    for n in range(2, min(MAX_TOP_N, words) + 1):  # until one repeats, the commonest is the first
        out_NK[d, TOP_NGRAM + n - 2] = I64(U32(reach[n] - reach[0])) + n - 1
    candidates = likely_repeats(word, words, other, seen, where)
    for n in range(2, MAX_N + 1):
        while candidates > 0 and where[candidates - 1] + n > words:
            candidates -= 1
        if n == 2:
            match_rest(word, n, first, where, candidates, table, other, count)
        else:
            n_rest = match_ngrams(word, n, first, where, candidates, other, count, rest)
            match_rest(word, n, first, rest, n_rest, table, other, count)
        starts = candidates
        candidates = 0
        best, best_at = I64(1), I64(-1)
        for k in range(starts):
            i = I64(where[k])
            times = I64(count[other[i]])
            where[candidates] = i
            candidates += times > 1
            if times > best:
                best, best_at = times, i
        if candidates == 0:
            return
        first, other = other, first
        out_NK[d, LONGEST_REPEATED_NGRAM] = n
        if n <= MAX_TOP_N:
            size = I64(U32(reach[best_at + n] - reach[best_at])) + n - 1
            out_NK[d, TOP_NGRAM + n - 2] = min(best * size, n_chars)
        if n >= MIN_DUPLICATE_N:
            total = resume = I64(0)
            for k in range(candidates):
                i = I64(where[k])
                if i >= resume:
                    if count[first[i]] < 0:  # the walk has stopped at an equal one before
                        total += I64(U32(reach[i + n] - reach[i]))
                        resume = i + n
                    else:
                        count[first[i]] = -1
            out_NK[d, DUPLICATE_NGRAM + n - MIN_DUPLICATE_N] = total


def scratch(longest: int) -> Work:
    """What `documents` works in, for documents of up to `longest` bytes; what is not written to is never backed by memory.

    bounds, word, reach: of the words. first, other, where, count, rest, table, seen: of the n-grams. The next four: of lines
    and paragraphs. The last: of a block. Every word, and every line with a word, takes two bytes, but the last; write_bits writes up to 7 entries
    beyond. A table is at most half full, and a power of two.
    """
    most = longest // 2 + 1 + BLOCK
    word, reach, table, seen = (
        np.empty(most, np.uint64),
        np.empty(most, np.uint32),
        np.empty(4 * most, np.int32),
        np.empty(16 * most, np.uint8),
    )
    first, other, where, count, rest = (np.empty(most, np.int32) for _ in range(5))
    line_hash, part_hash = np.empty(most, np.uint64), np.empty(most, np.uint64)
    line_chars, part_chars = np.empty(most, np.int32), np.empty(most, np.int32)
    ngram_work = (word, reach, table, seen, first, other, where, count, rest)
    return (
        np.empty(2 * most, np.int32),
        *ngram_work,
        line_hash,
        line_chars,
        part_hash,
        part_chars,
        np.empty(BLOCK, np.uint64),
    )


@njit
def documents(
    chars: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    stage1: Table,
    stage2: Table,
    out_NK: NDArray[np.int32],
    work: Work,
    slots: NDArray[np.uint64],
    places: NDArray[np.uint8],
    multiplier: int,
    shift: int,
) -> None:
    """Fill out_NK for every document of the column."""
    chars, offsets, stage1, stage2 = borrowed(chars), borrowed(offsets), borrowed(stage1), borrowed(stage2)
    out_NK, slots, places = borrowed(out_NK), borrowed(slots), borrowed(places)
    bounds, word, reach, table = borrowed(work[0]), borrowed(work[1]), borrowed(work[2]), borrowed(work[3])
    seen, first, other, where = borrowed(work[4]), borrowed(work[5]), borrowed(work[6]), borrowed(work[7])
    count, rest, line_hash, line_chars = borrowed(work[8]), borrowed(work[9]), borrowed(work[10]), borrowed(work[11])
    part_hash, part_chars, letters_to = borrowed(work[12]), borrowed(work[13]), borrowed(work[14])
    for d in range(len(offsets) - 1):
        start, end = offsets[d], offsets[d + 1]
        if start == end:
            out_NK[d] = 0
            continue
        words, lines, parts = scan(
            chars,
            start,
            end,
            stage1,
            stage2,
            out_NK,
            d,
            bounds,
            line_hash,
            line_chars,
            part_hash,
            part_chars,
            letters_to,
        )
        out_NK[d, STOP] = hash_words(chars, start, words, bounds, word, reach, slots, places, multiplier, shift)
        n_chars = I64(out_NK[d, CHARS])
        ngrams(word, reach, words, n_chars, out_NK, d, table, seen, first, other, where, count, rest)
        repeated, size = duplicates(line_hash, line_chars, lines, table)
        out_NK[d, DUPLICATE_LINES], out_NK[d, DUPLICATE_LINE_CHARS] = repeated, size
        repeated, size = duplicates(part_hash, part_chars, parts, table)
        out_NK[d, DUPLICATE_PARAGRAPHS], out_NK[d, DUPLICATE_PARAGRAPH_CHARS] = repeated, size


def text_stats(text: TextColumn, stop_words: tuple[str, ...] = STOP_WORDS) -> np.ndarray:
    """stats_KN: int32, in the order of NAMES. The contract is in the package."""
    n = len(text)
    stats_NK = np.empty((n, len(NAMES)), np.int32)
    offsets = text.offsets
    stop = int(offsets[-1])
    with_room = int(np.searchsorted(offsets[1:], text.chars.size - PAD, side="right"))
    tail_start = int(offsets[with_room])
    tail = np.zeros(stop - tail_start + PAD, np.uint8)
    tail[:-PAD] = text.chars[tail_start:stop]
    stage1, stage2 = (as_input(stage) for stage in character_classes())
    work = scratch(int((offsets[1:] - offsets[:-1]).max(initial=0)))
    slots, places, multiplier, shift = _stop_slots(stop_words)
    how = (as_input(slots), as_input(places), multiplier, shift)
    head_offsets, tail_offsets = as_input(offsets[: with_room + 1]), as_input(offsets[with_room:] - tail_start)
    documents(as_input(text.chars), head_offsets, stage1, stage2, stats_NK[:with_room], work, *how)
    documents(as_input(tail), tail_offsets, stage1, stage2, stats_NK[with_room:], work, *how)
    return np.ascontiguousarray(stats_NK.T)
