"""One pass over a document in blocks of 64 bytes: words, sentences, lines and paragraphs."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu_curate.jit import I64, U8, U64, njit
from gpu_curate.ops.masks import high64
from gpu_curate.ops.simd import BLOCK, ctz64, popcount64
from gpu_curate.ops.text_stats import (
    ALPHABETIC,
    C4_MAX_WORD_CHARS,
    C4_MIN_LINE_WORDS,
    CLOSING,
    DOUBLE,
    DOUBLE_CHARS,
    HAN,
    HAN_CHARS,
    HAN_PARTS,
    KANA,
    KIND,
    SHORT_LINE_CHARS,
    SPACE,
    SYMBOL,
    TERMINAL,
    UNSPACED,
    UNSPACED_PARTS,
    UPPERCASE,
    WORD_PARTS,
)
from gpu_curate.ops.text_stats.characters import (
    KA,
    ONE,
    ZERO,
    Table,
    below,
    character,
    character_before,
    count_chars,
    hash_bytes,
    hides_words,
    is_at,
    stripped_end,
    without_closing,
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
from gpu_curate.ops.text_stats.rows import (
    ALPHABETIC_WORDS,
    BULLET_LINES,
    C4,
    CHARS,
    DOUBLE_LETTERS,
    ELLIPSES,
    ELLIPSIS_LINES,
    HAN_LETTERS,
    HASHES,
    LINES,
    NEWLINES,
    NON_SYMBOL_WORD_CHARS,
    NON_SYMBOL_WORDS,
    NONBLANK_LINES,
    PARAGRAPHS,
    SHORT_LINES,
    TERMINAL_LINES,
    UNSPACED_LETTERS,
    WORDS,
)

# what a character adds to the letters of a block, HAN | unspaced << 8 | double << 16, by its classes >> 5
_COUNTS = {HAN: 1, KANA: 1 << 8 | 1 << 16, UNSPACED: 1 << 8, DOUBLE: 1 << 16}
KIND_COUNTS = np.array([_COUNTS.get(kind << 5, 0) for kind in range(8)], np.uint64)
BYTE = U64(0xFF)

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

CITATIONS = np.frombuffer(b"[edit][citation needed]", np.uint8).copy()
EDIT_SIZE = len("[edit]")


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
    One function: what a block, the line, the sentence and the paragraph have so far are fifty locals. With sentence ends, line ends
    and C4's fates in functions of their own, inlined by Numba or not, the same counts take 8 to 10 % longer.
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
