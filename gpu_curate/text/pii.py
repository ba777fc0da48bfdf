r"""Personal data: e-mail and IP addresses, phone numbers, payment cards, IBANs. Precision before recall.

Every pattern has bounded length, so time is linear. A finding is a number or address that stands alone: not glued to
letters, digits or `. - + % @` on its left, nor to those and a letter or digit on its right. What a type is:

- email: local@domain with a dot and a top level of letters, Unicode domains too. Not image names (`icon@2x.png`).
- iban: country and length of the registry, checksum mod 97 = 1 (ISO 13616), seven digits without a letter between.
- card: 13 to 19 digits in one piece or in the groups printed on cards, an issuer's prefix, checksum of Luhn.
- ip: public IPv4 and IPv6; the ranges for documentation count as public, since they stand for such addresses. Not:
  private, loopback, link-local, multicast, masks, IPv6 outside 2000::/3 (`abcd::ef` is C++ more often than an address),
  dotted quads that are version or section numbers by the word before them, and those without a part above 99, most of
  which number sections, but for well-known resolvers and after a word like "address" or "ping".
- phone: `+` and a number possible in its country; North American numbers in their usual punctuation, if
  valid; other runs of 7 to 15 digits only after a word like "tel" or "fax" in one of some 130 languages (pii.cldr.tsv and
  pii.labels.tsv). Not dates, years, ISBNs, amounts.

Only ASCII digits count, but for a phone number after a label or `+`: there those of full width, of Arabic, Devanagari,
Bengali and Thai do too, and signs of full width between digits. Deviates: FineWeb takes any dotted quad and no phone numbers; Dolma's
phone pattern eats every long number.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from importlib import resources
from itertools import accumulate, groupby
from typing import NamedTuple

import numpy as np

from gpu_curate.errors import ConfigError, install
from gpu_curate.jit import njit
from gpu_curate.text.sections import Pii
from gpu_curate.text.swar import ONES, U64, at_most, count, equals

# Starts and ends in a bracket: a placeholder never becomes part of what another scan could find.
PLACEHOLDERS = {"email": "<EMAIL>", "iban": "<IBAN>", "card": "<CARD>", "ip": "<IP>", "phone": "<PHONE>"}


class Span(NamedTuple):
    """Where something was found: start..stop - 1 of the text given, characters of a string, bytes of UTF-8."""

    kind: str
    start: int
    stop: int


class Scrubbed(NamedTuple):
    """What `PiiScanner.scrub_all` made of some texts."""

    texts: list[bytes]  # UTF-8; the same object where nothing was replaced
    spans: dict[int, list[Span]]  # findings by the index of their text, in bytes of the text given; most have none


class PiiScanner:
    """Finds and replaces personal data.

    Args:
        config: per type off, count or replace.
    Raises:
        ConfigError: `phone` is on and `phonenumbers` is not installed.
    """

    def __init__(self, config: Pii):
        actions = config.model_dump(include=set(PLACEHOLDERS))
        self._kinds = [kind for kind in PLACEHOLDERS if actions[kind] != "off"]
        self._replaced = {kind for kind in PLACEHOLDERS if actions[kind] == "replace"}
        self._numbers = any(kind in self._kinds for kind in ("iban", "card", "phone"))
        self._ip, self._email = "ip" in self._kinds, "email" in self._kinds
        if "phone" in self._kinds and importlib.util.find_spec("phonenumbers") is None:
            raise ConfigError("pii.phone: phonenumbers is not installed", install("pii"))

    def scrub(self, text: str) -> tuple[str, dict[str, int], list[Span]]:
        """The text with what is to be replaced replaced. Many texts at once cost less: `scrub_all`.

        Args:
            text: any text, normalised or not.
        Returns:
            text: the same object if nothing was replaced. Scrubbing it again changes nothing.
            counts: findings per type, types without any left out; counted and replaced ones alike.
            spans: the findings in order, without overlap; offsets into the text given.
        Memory: a few times the text.
        """
        raw = text.encode("utf-8", "surrogatepass")
        scrubbed = self.scrub_all([raw])
        spans = _in_characters(raw, scrubbed.spans.get(0, []))
        if scrubbed.texts[0] is not raw:
            text = scrubbed.texts[0].decode("utf-8", "surrogatepass")
        return text, dict(Counter(s.kind for s in spans)), spans

    def scrub_all(self, texts: list[bytes]) -> Scrubbed:
        """`scrub` of every text, with the same findings. A call costs 6 us, a text less than one and its scan.

        Args:
            texts: UTF-8; surrogates may be in it.
        Memory: a few times the texts; about a megabyte of them is as good as more.
        """
        sizes = list(map(len, texts))
        # Two line ends after each text: no pattern matches one or looks past two, so that the texts are as good as alone.
        filled = sum(sizes) + 2 * len(sizes)
        buffer = bytearray(b"\n\n").join([b"\n" * (_MARGIN - 2), *texts, b"\n" * (_MARGIN + -filled % _MARGIN)])
        spans: dict[int, list[Span]] = {}
        starts = list(accumulate(map((2).__add__, sizes), initial=_MARGIN))
        found = self._find(buffer)
        if "phone" in self._kinds and not buffer.isascii():
            found = sorted(found + list(_wide_phones(buffer)))
        if not found:
            return Scrubbed(texts, spans)
        texts = list(texts)
        for index, group in groupby(found, lambda span: bisect_right(starts, span[0]) - 1):
            first = starts[index]
            spans[index] = [Span(kind, start - first, stop - first) for start, stop, kind in group]
            texts[index] = self._replace(texts[index], spans[index])
        return Scrubbed(texts, spans)

    def _replace(self, raw: bytes, spans: list[Span]) -> bytes:
        pieces: list[bytes] = []
        done = 0
        for kind, start, stop in spans:
            if kind in self._replaced:
                pieces += [raw[done:start], PLACEHOLDERS[kind].encode()]
                done = stop
        return b"".join([*pieces, raw[done:]]) if pieces else raw

    def _find(self, buffer: bytearray) -> list[tuple[int, int, str]]:
        """Byte spans of all types, in order. A type sees what the types before it took as a placeholder would stand."""
        raw = np.frombuffer(buffer, np.uint8)
        raw.flags.writeable = False  # by us, below
        rows = _candidates(raw, self._email, self._numbers, self._ip)
        found: list[tuple[int, int, str]] = []
        if not len(rows):
            return found
        worthy: Candidates | None = None
        for kind in self._kinds:
            if worthy is None:
                worthy = _worthy(raw, rows, *_labels()).tolist()
            needs, find = _FINDERS[kind]
            candidates = [row for row in worthy if row[0] in needs]
            own = list(find(buffer, candidates)) if candidates else []
            if own:
                _mask(buffer, own)
                found += [(start, stop, kind) for start, stop in own]
                worthy = None
        return sorted(found)


def _in_characters(raw: bytes, spans: list[Span]) -> list[Span]:
    """Spans of bytes as spans of characters."""
    found = []
    last = chars = 0
    for kind, start, stop in spans:
        start_char = chars + len(raw[last:start].decode("utf-8", "surrogatepass"))
        chars = start_char + len(raw[start:stop].decode("utf-8", "surrogatepass"))
        found.append(Span(kind, start_char, chars))
        last = stop
    return found


def _mask(buffer: bytearray, spans: list[tuple[int, int]]) -> None:
    """Overwrite the spans with what a placeholder starts with."""
    for start, stop in spans:
        buffer[start:stop] = b"<" * (stop - start)


def shape(found: str) -> str:
    """A finding without what it says, for reports: letters become x, digits 0."""
    return "".join("0" if c.isdecimal() else "x" if c.isalpha() else c for c in found)


# ------------------------------------------------------------------------------------------------------- first glance

_ZEROS, _COMMAS, _BRACKETS = ONES * U64(48), ONES * U64(44), ONES * U64(40)
U8 = np.uint8
_BLOCK = 16  # words that are looked at closer, or not, together
_MARGIN = (
    8 * _BLOCK
)  # line ends before the first text and after the last: nothing has to ask whether the buffer goes on
_AT, _RUN, _IBAN_START, _QUAD, _V6_START = range(5)  # kinds of candidates
_CARD_START, _CALLED, _NORTH_AMERICAN_RUN = range(5, 8)  # what a run may be at the second glance
Candidates = list[list[int]]  # kind, start, stop


def _candidates(raw: np.ndarray, emails: bool, numbers: bool, ip: bool) -> np.ndarray:
    """Kind, start and stop of what is worth a closer look, int64[N, 3], in order of start for each kind."""
    out = np.empty((max(1024, raw.size // 128), 3), np.int64)
    while (n := _look(raw.view(np.uint64), raw, emails, numbers, ip, out)) < 0:
        out = np.empty((8 * len(out), 3), np.int64)
    return out[:n]


@njit(inline="always")
def _is_digit(c):
    return c >= 48 and c <= 57


@njit(inline="always")
def _is_letter(c):
    return ((c | 32) >= 97 and (c | 32) <= 122) or c >= 128


@njit(inline="always")
def _is_hex(c):
    return _is_digit(c) or ((c | 32) >= 97 and (c | 32) <= 102)


@njit(inline="always")
def _is_gap(c):
    return c == 32 or c == 45 or c == 46 or c == 47 or c == 40 or c == 41


@njit(inline="always")
def _put(out, n, kind, start, stop):
    """Write candidate `n`; return the next one's place."""
    out[n, 0], out[n, 1], out[n, 2] = kind, start, stop
    return n + 1


@njit(inline="always")
def _digits(text, start, stop):
    """How many of fewer than 256 bytes are digits: a sum of bytes."""
    digits = U8(0)
    for i in range(start, stop):
        digits = U8(digits + U8(U8(text[i] - U8(48)) <= U8(9)))
    return int(digits)


@njit
def _glance(raw, seen):
    """For each block of `raw`: 1 for an `@`, 2 if it may hold the end of a number, 4 of an IPv4, 8 of an IPv6 address.

    By how many digits (of two half blocks), dots after one and colons (of this block and the one before) there are, which
    most prose does not pass. The sums are of bytes, since a block is short, and the compiler knows its length: all of it is
    about a hundred instructions.
    """
    half = 4 * _BLOCK
    seen[0] = digits_1 = dots_1 = colons_1 = 0
    for block in range(1, seen.size):
        text = raw[2 * half * block - 1 : 2 * half * (block + 1)]
        dots = colons = at_signs = U8(0)
        for i in range(2 * half):
            before, c = text[i], text[i + 1]
            dots = U8(dots + U8(U8(c == U8(46)) & U8(U8(before - U8(48)) <= U8(9))))
            colons = U8(colons + U8(c == U8(58)))
            at_signs = U8(at_signs | U8(c == U8(64)))
        first, second = _digits(text, 1, half + 1), _digits(text, half + 1, 2 * half + 1)
        number = (digits_1 + first >= 7) | (first + second >= 7)
        v4, v6 = dots + dots_1 >= 3, colons + colons_1 >= 2
        seen[block] = at_signs | number << 1 | v4 << 2 | v6 << 3
        digits_1, dots_1, colons_1 = second, int(dots), int(colons)


@njit
def _digits_meet(text):
    """Whether seven bytes of a run start with a digit, as seven digits within 17 bytes do."""
    some = run_1 = pair_1 = digit_1 = U64(0)
    for i in range(text.size):
        word = text[i]
        digit = at_most(word ^ _ZEROS, 9)
        mark = at_most(word ^ _BRACKETS, 1) | (at_most(word ^ _COMMAS, 3) & ~equals(word, 44))  # () and -./
        run = digit | equals(word, 32) | mark
        pair = run & (run << U64(8) | run_1 >> U64(56))
        four = pair & (pair << U64(16) | pair_1 >> U64(48))
        some |= four & (pair << U64(32) | pair_1 >> U64(32)) & (digit << U64(48) | digit_1 >> U64(16))
        run_1, pair_1, digit_1 = run, pair, digit
    return some != U64(0)


@njit
def _dots_meet(text):
    """Whether the three dots of an IPv4 address, 15 bytes at most, each between digits, lie in three words."""
    some = digit_1 = dot_1 = dots_1 = pair_1 = U64(0)
    for i in range(text.size):
        digit, dot = at_most(text[i] ^ _ZEROS, 9), equals(text[i], 46)
        dots = count(digit & (dot << U64(8) | dot_1 >> U64(56)) & (digit << U64(16) | digit_1 >> U64(48)))
        some |= U64(dots + pair_1 >= U64(3))
        pair_1 = dots + dots_1  # of this word and the one before
        digit_1, dot_1, dots_1 = digit, dot, dots
    return some != U64(0)


@njit
def _colons_meet(text):
    """Whether two colons meet, or the first three of an IPv6 address, 14 bytes at most, lie in three words."""
    some = colon_1 = colons_1 = pair_1 = U64(0)
    for i in range(text.size):
        colon = equals(text[i], 58)
        colons = count(colon)
        some |= U64(colons + pair_1 >= U64(3)) | colon & (colon << U64(8) | colon_1 >> U64(56))
        pair_1 = colons + colons_1
        colon_1, colons_1 = colon, colons
    return some != U64(0)


@njit
def _look(text, raw, emails, numbers, ip, out):
    """Write (kind, start, stop) of the candidates to `out`; return their number, -1: too many.

    `text` is `raw` in words. Run: digits with at most three of ` .-()/` between two, 7 of them within 17 bytes. Quad: four
    groups of digits, dots between. Only what is near enough digits or colons is looked at, from 64 bytes before, as far as
    an IBAN may reach, and the start of its run.
    """
    n = 0
    done = run_stop = _MARGIN
    seen = np.empty(raw.size // (8 * _BLOCK), np.uint8)
    _glance(raw, seen)
    wanted = U8(1 * emails | 2 * numbers | 12 * ip)
    for b in range(seen.size):
        flags = seen[b] & wanted
        if flags == 0:
            continue
        block, high = _BLOCK * b, _BLOCK * (b + 1)
        if flags & 1:
            if n + 8 * _BLOCK > out.shape[0]:
                return -1
            for i in range(8 * block, 8 * high):
                if raw[i] == 64 and _may_join(raw[i - 1], raw[i + 1]):
                    n = _put(out, n, _AT, i, i + 1)
            if flags == 1:
                continue
        near_by = text[block - 2 : high]
        addresses = (flags & 4 and _dots_meet(near_by)) or (flags & 8 and _colons_meet(near_by))
        if not addresses and not (flags & 2 and _digits_meet(near_by)):
            continue
        # an IPv4 address has 4 digits or more, an IPv6 address two colons; a number alone has 7 digits
        enough_digits = U64(4) if addresses else U64(7)
        digits_1 = digits_2 = colons_1 = colons_2 = U64(0)
        for w in range(block - 2, high):
            digits_0 = count(at_most(text[w] ^ _ZEROS, 9))
            near = digits_0 + digits_1 + digits_2 >= enough_digits
            digits_2, digits_1 = digits_1, digits_0
            if addresses:
                colons = count(equals(text[w], 58))
                near = near or colons + colons_1 + colons_2 >= U64(2)
                colons_2, colons_1 = colons_1, colons
            if w < block or not near:
                continue
            low = max(done, 8 * w - 64)
            while low > done and (_is_digit(raw[low - 1]) or _is_gap(raw[low - 1])):
                low -= 1
            done = 8 * w + 8
            for i in range(low, done):
                c = raw[i]
                if c < 48 or c > 58:
                    continue
                if n + 3 > out.shape[0]:
                    return -1
                if c == 58:
                    if not ip:
                        continue
                    # four hexadecimal digits of which the first is 2 or 3 (2000::/3), or ::f (mapped IPv4)
                    allocated = raw[i - 4] == 50 or raw[i - 4] == 51
                    if allocated and _is_hex(raw[i - 3]) and _is_hex(raw[i - 2]) and _is_hex(raw[i - 1]):
                        n = _put(out, n, _V6_START, i - 4, i + 1)
                    if raw[i + 1] == 58 and (raw[i + 2] | 32) == 102:
                        n = _put(out, n, _V6_START, i, i + 3)
                    continue
                if _is_digit(raw[i - 1]):
                    continue
                if ip:
                    dots = 0
                    group = j = i
                    while j - group <= 3:
                        if raw[j] == 46 and j > group and dots < 3:
                            dots += 1
                            group = j + 1
                        elif not _is_digit(raw[j]):
                            break
                        j += 1
                    if dots == 3 and j > group and j - group <= 3:
                        n = _put(out, n, _QUAD, i, j)
                if not numbers:
                    continue
                x, y = raw[i - 2], raw[i - 1]
                if x >= 65 and x <= 90 and y >= 65 and y <= 90 and _is_digit(raw[i + 1]):
                    n = _put(out, n, _IBAN_START, i - 2, i + 2)
                if i < run_stop:
                    continue
                gap = 0
                dense = False
                recent = digits = 0  # bit k: a digit k bytes back, of 17; how many are set
                j = i
                while gap <= 3:
                    digits -= recent >> 16
                    recent = recent << 1 & 0x1FFFF
                    if _is_digit(raw[j]):
                        recent |= 1
                        digits += 1
                        gap = 0
                        run_stop = j + 1
                        dense = dense or digits >= 7
                    elif _is_gap(raw[j]):
                        gap += 1
                    else:
                        break
                    j += 1
                if dense:
                    n = _put(out, n, _RUN, i, run_stop)
    return n


@njit(inline="always")
def _may_join(before, after):
    """What stands left and right of the `@` of an address."""
    local = _is_letter(before) or _is_digit(before) or before in (95, 37, 43, 39, 45)  # _%+'-
    return local and (_is_letter(after) or _is_digit(after))


# ------------------------------------------------------------------------------------------------------- second glance
#
# Conditions that a candidate meets if the patterns below find something there, maybe also if they do not: most never
# leave compiled code. They look at what the types before left of the text, as the patterns do.


@njit
def _with_room(out, n):
    """`out` for n rows, at most twice as many as it has."""
    return out if n <= len(out) else np.concatenate((out, np.empty_like(out)))


@njit
def _worthy(raw, rows, edges, targets, chars, ends):
    """Those of the candidates that a pattern is worth trying at, int64[N, 3] in the same order; a run as what it may be."""
    out = np.empty((len(rows) + 64, 3), np.int64)
    n = 0
    for k in range(len(rows)):
        candidate, start, stop = rows[k]
        out = _with_room(out, n + 3)
        if candidate == _RUN:
            for i in range(start, stop - 12):
                if _may_be_card(raw, i):
                    n = _put(out, n, _CARD_START, i, stop)
                    out = _with_room(out, n + 3)
            if _may_be_called(raw, start, edges, targets, chars, ends):
                n = _put(out, n, _CALLED, start, stop)
            if _may_hold_north_american(raw, start, stop):
                n = _put(out, n, _NORTH_AMERICAN_RUN, start, stop)
        elif (
            candidate == _AT
            or (candidate == _IBAN_START and _may_be_iban(raw, start))
            or (candidate == _QUAD and _may_be_v4(raw, start, stop))
            or (candidate == _V6_START and _may_be_v6(raw, start))
        ):
            n = _put(out, n, candidate, start, stop)
    return out[:n]


@njit(inline="always")
def _is_word(c):
    return _is_digit(c) or c == 95 or ((c | 32) >= 97 and (c | 32) <= 122)


@njit(inline="always")
def _stands_left(c):
    """`_LEFT`: c may stand left of a finding."""
    return not (_is_word(c) or c == 46 or c == 45 or c == 43 or c == 37 or c == 64)


@njit(inline="always")
def _stands_right(c, d):
    """`_RIGHT`: c and d after it may stand right of a finding."""
    if c == 46 or c == 45 or c == 43 or c == 37:
        return not (_is_word(d) or d == 64)
    return not (_is_word(c) or c == 64)


@njit
def _may_be_iban(raw, start):
    x, y = raw[start], raw[start + 1]
    if x < 65 or x > 90 or y < 65 or y > 90 or not _stands_left(raw[start - 1]):
        return False
    length = _IBAN_SIZES[x - 65, y - 65]
    rest = n = 0
    head = 0  # country and check digits, which count as the last four
    digits = 0  # since the last letter; without seven it would go unseen unless the text around it had them
    dense = False
    i = start
    while n < length:
        c = raw[i]
        if (c == 32 or c == 45) and n >= 4:
            i += 1
            c = raw[i]
        if _is_digit(c):
            rest = (rest * 10 + c - 48) % 97
            digits += 1
            dense = dense or digits >= 7
        elif c >= 65 and c <= 90:
            rest = (rest * 100 + c - 55) % 97
            digits = 0
        else:
            return False
        n += 1
        if n == 4:
            head, rest = rest, 0
        i += 1
    # two letters and two digits are six digits: 10**6 % 97 == 27
    return dense and (rest * 27 + head) % 97 == 1 and _stands_right(raw[i], raw[i + 1])


@njit
def _may_be_card(raw, i):
    """Whether digits from here, in one piece or in groups that start with four, have a right checksum where a group ends."""
    if raw[i] < 50 or raw[i] > 54 or not _stands_left(raw[i - 1]):  # issuers start with 2 to 6
        return False
    n = size = groups = plain = doubled = 0  # sums with every second digit doubled, from this one or the one before
    gap = raw[i]
    while n < 19 and _is_digit(raw[i]):
        digit = int(raw[i]) - 48
        twice = 2 * digit - 9 if digit > 4 else 2 * digit
        plain, doubled = doubled + digit, plain + twice
        n += 1
        size += 1
        i += 1
        if _is_digit(raw[i]):
            continue
        if n >= 13 and plain % 10 == 0:
            return True
        if groups == 0:
            gap = raw[i]
        if (gap != 32 and gap != 45) or raw[i] != gap or (size != 4 and (groups != 1 or size != 6)):
            return False
        groups += 1
        size = 0
        i += 1
    return False


@njit
def _may_be_v4(raw, start, stop):
    if not (_stands_left(raw[start - 1]) and _stands_right(raw[stop], raw[stop + 1])):
        return False
    address = part = width = 0
    for i in range(start, stop):
        if raw[i] == 46:
            address = address << 8 | part
            part = width = 0
            continue
        if width and part == 0:
            return False
        part = part * 10 + raw[i] - 48
        width += 1
        if part > 255:
            return False
    address = address << 8 | part
    public = True
    for k in range(len(_RESERVED_V4)):
        public = public and (address < _RESERVED_V4[k, 0] or address > _RESERVED_V4[k, 1])
    return public


@njit
def _may_be_v6(raw, start):
    if raw[start - 1] == 58 or not _stands_left(raw[start - 1]):
        return False
    if raw[start] == 58 and raw[start - 1] == 62:
        return False
    colons = 0
    gap = False
    i = start
    while i < start + 45 and (_is_hex(raw[i]) or raw[i] == 58 or raw[i] == 46):
        if raw[i] == 58:
            colons += 1
            gap = gap or (i > start and raw[i - 1] == 58)
        i += 1
    # without :: seven colons, or six and a quad
    return colons >= 2 and (gap or colons >= 6)


@njit
def _may_be_called(raw, start, edges, targets, chars, ends):
    """Whether what stands before a run makes it a number to call: `+`, or a label."""
    if raw[start - 1] == 43:
        return raw[start] != 48 and _stands_left(raw[start - 2])  # no country code starts with 0
    sign = start - 1 if raw[start - 1] == 40 else start
    if sign == start and raw[start - 1] != 46 and not _stands_left(raw[start - 1]):
        return False
    return _is_called(raw, sign, edges, targets, chars, ends)


# ------------------------------------------------------------------------------------------------------------- labels
#
# Words that say that a number is one to call, and those that may stand between ("call us at", "phone number is"), as a tree
# of their bytes from the last to the first: node n has the edges edges[n]..edges[n + 1] - 1, edge e the byte chars[e] and the
# node targets[e]; ends[n] says what word ends there. Node 0, where every word begins, has an edge for each byte.

_LABEL, _BETWEEN = 1, 2  # of a script with case: nothing of a word may stand before it
_LABEL_ANYWHERE, _BETWEEN_ANYWHERE = 4, 8  # other scripts write words together, or glue articles to them
_LABEL_BYTES = 96  # how far back labels are looked for
_WORDS_BETWEEN = 3
Labels = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


@cache
def _labels() -> Labels:
    """The tree: edges int32[N + 1], targets int32[E], chars uint8[E], ends uint8[N]."""
    tree: list[dict[int, int]] = [{}]
    ends = [0]
    for words, kind in ((_label_words("label"), _LABEL), (_label_words("between"), _BETWEEN)):
        for word in words:
            anywhere = word.lower() == word.upper() and (len(word) > 2 or word[0] > "\u2e80")
            for spelt in _spellings(word):
                node = 0
                for byte in reversed(spelt.encode()):
                    if byte not in tree[node]:
                        tree[node][byte] = len(tree)
                        tree.append({})
                        ends.append(0)
                    node = tree[node][byte]
                ends[node] |= kind * 4 if anywhere else kind
    tree[0] = {byte: tree[0].get(byte, 0) for byte in range(256)}
    edges = np.array([0, *accumulate(map(len, tree))], np.int32)
    chars = np.array([byte for node in tree for byte in node], np.uint8)
    targets = np.array([target for node in tree for target in node.values()], np.int32)
    return edges, targets, chars, np.array(ends, np.uint8)


def _label_words(kind: str) -> set[str]:
    """The words of a kind in the tables, in small letters."""
    rows = [line.split("\t") for line in _table("pii.labels.tsv")]
    joined = [words for name, _, words, _ in rows if name == kind]
    if kind == "label":
        joined += [line.split("\t")[1] for line in _table("pii.cldr.tsv")]
    return {word for words in joined for word in words.lower().split("|")} - _NO_LABELS


def _table(name: str) -> list[str]:
    text = resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
    return [line for line in text.splitlines() if line[:1] != "#"]


# CLDR's words for what telephones do, not for telephones
_NO_LABELS = frozenset(("iphone", "kommunikation", "通信", "溝通", "通訊", "שיחה", "ҫыхӑну", "برقی آلہ", "waya", "அழை"))


def _spellings(word: str) -> set[str]:
    """A word as it is written at the start of a line and in capitals, without accents too; ASCII letters small."""
    spelt = {word, word.upper(), word.title(), word[0].upper() + word[1:]}
    if word[0].lower() != word[0].upper():
        bare = unicodedata.normalize("NFD", word.upper())
        spelt.add("".join(c for c in bare if not unicodedata.combining(c)))
    return {"".join(c.lower() if c.isascii() else c for c in s) for s in spelt}


@njit(inline="always")
def _blank_before(raw, i):
    """Bytes of the blank, colon, full stop or number sign that ends before `i`; 0: another character."""
    c = raw[i - 1]
    if c == 32 or c == 58 or c == 46 or c == 35 or c == 9:
        return 1
    if c < 128:
        return 0
    if c == 0xA0 and raw[i - 2] == 0xC2:  # no-break space
        return 2
    x, y = raw[i - 3], raw[i - 2]
    full = x == 0xEF and y == 0xBC and (c == 0x9A or c == 0x8E or c == 0x83)  # full-width : . #
    cjk = x == 0xE3 and y == 0x80 and (c == 0x80 or c == 0x91)  # ideographic space, a bracket that closes a label
    other = (x == 0xE2 and y == 0x88 and c == 0xB6) or (x == 0xEF and y == 0xB9 and c == 0x95)  # ratio, small colon
    thin = (
        x == 0xE2 and y == 0x80 and (c == 0xAF or c == 0x89 or c == 0x8E or c == 0x8F)
    )  # thin spaces, direction marks
    picture = x == 0xEF and y == 0xB8 and (c == 0x8E or c == 0x8F)  # how a sign before it is shown
    return 3 if full or cjk or other or thin or picture else 0


@njit(inline="always")
def _word_goes_on(raw, i):
    """Whether a letter or digit of ASCII, or a character that is no punctuation, ends before `i`."""
    c = raw[i - 1]
    if c < 128:
        return _is_letter(c)
    if raw[i - 2] == 0xC2:
        return not (c <= 0xBF and c != 0xAA and c != 0xB5 and c != 0xBA)  # signs of Latin-1
    x, y = raw[i - 3], raw[i - 2]
    general = x == 0xE2 and (y == 0x80 or y == 0x81)
    cjk = x == 0xE3 and y == 0x80 and c != 0x85 and c != 0x86 and c != 0x87
    full = x == 0xEF and y == 0xBC and (c <= 0x8F or (c >= 0x9A and c <= 0xA0) or c >= 0xBB)
    return not (general or cjk or full)


@njit
def _is_called(raw, sign, edges, targets, chars, ends):
    """Whether a label stands before the number that starts at `sign`, maybe with words between, blanks and colons."""
    low = max(4, sign - _LABEL_BYTES)
    i = sign
    for _ in range(_WORDS_BETWEEN + 1):
        while i > low and _blank_before(raw, i):
            i -= _blank_before(raw, i)
        if i > low and raw[i - 1] == 10:
            i -= 1
        node = between = 0
        j = i
        while j > low:
            c = raw[j - 1]
            if c >= 65 and c <= 90:
                c |= U8(32)
            following = targets[c] if node == 0 else 0
            for e in range(edges[node], edges[node + 1] if node else 0):
                if chars[e] == c:
                    following = targets[e]
            if following == 0:
                break
            node = following
            j -= 1
            end = ends[node]
            if end == 0:
                continue
            free = not _word_goes_on(raw, j)
            if end & _LABEL_ANYWHERE or (end & _LABEL and free):
                return True
            if end & _BETWEEN_ANYWHERE or (end & _BETWEEN and free):
                between = j
        if between == 0:
            return False
        i = between
    return False


@njit
def _may_hold_north_american(raw, start, stop):
    """Whether NXX-NXX-XXXX, NXX.NXX.XXXX or (NXX) NXX-XXXX, blanks allowed, stands in the run."""
    for i in range(start, stop - 9):
        if not (raw[i] >= 50 and _is_digit(raw[i]) and _is_digit(raw[i + 1]) and _is_digit(raw[i + 2])):
            continue
        j = i + 3
        if raw[i - 1] == 40 and raw[j] == 41:
            j += 1
            if raw[j] == 32:
                j += 1
        elif raw[j] == raw[j + 4] and (raw[j] == 45 or raw[j] == 46):
            j += 1
        else:
            continue
        if not (raw[j] >= 50 and _is_digit(raw[j]) and _is_digit(raw[j + 1]) and _is_digit(raw[j + 2])):
            continue
        j += 3
        if raw[j] != 45 and raw[j] != 46 and raw[j] != 32:
            continue
        digits = 0
        while digits < 4 and _is_digit(raw[j + 1 + digits]):
            digits += 1
        if digits == 4 and _stands_right(raw[j + 5], raw[j + 6]):
            return True
    return False


# What may not stand next to a finding, see the head. An e-mail address's own characters are among it, so that taking
# one finding out never frees another.
_LEFT = rb"(?<![\w.\-+%@])"
_RIGHT = rb"(?![\w@]|[.\-+%][\w@])"
_right = re.compile(_RIGHT)

# ------------------------------------------------------------------------------------------------------------- e-mail

_LOCAL = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._%+'-"
_DOMAIN = re.compile(rb"[A-Za-z0-9.\x80-\xff-]{3,255}+")
_TOP_LEVEL = re.compile(r"xn--[A-Za-z0-9-]{1,59}|[A-Za-z]{2,24}|[^\W\d_A-Za-z]{2,24}")
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf]")  # no character, so no part of an address
_IMAGE_SCALE = re.compile(rb"\dx\.")
# The longest run of labels that ends in a top level, and what is right for all others of it.
_ASCII_DOMAIN = re.compile(rb"((?:[A-Za-z0-9-]++\.)+)(?>xn--[A-Za-z0-9-]{1,59}+|[A-Za-z]{2,24}+)(?![A-Za-z0-9])")
_ASCII_LABELS = re.compile(rb"(?:(?!-)[A-Za-z0-9-]{1,63}(?<!-)\.)+")


def _emails(raw: bytearray, candidates: Candidates) -> Iterator[tuple[int, int]]:
    done = 0
    for _, at, here in candidates:
        domain = _DOMAIN.match(raw, here) if at >= done else None
        if domain is None:
            continue
        start = _local_start(bytes(raw[max(done, here - 66) : here - 1]), here - 1)
        size = _domain_size(domain.group()) if start < here - 1 else 0
        if size:
            done = here + size
            yield start, done


def _local_start(before: bytes, at: int) -> int:
    """Where the local part of at most 64 bytes starts; `at` if there is none."""
    if not before.isascii():
        before = before[max((m.end() for m in _SURROGATE.finditer(before)), default=0) :]
    run = before[len(before.rstrip(_LOCAL)) :]
    if not run and before[-1:] >= b"\x80":  # an internationalised one: letters of any script
        letters = before.decode("utf-8", "ignore")
        size = 0
        while size < len(letters) and (letters[-1 - size].isalnum() or letters[-1 - size] in "._+-"):
            size += 1
        run = letters[len(letters) - size :].encode()
    if len(run) > 64 or run.endswith(b"."):
        return at
    run = run[run.rfind(b"..") + 2 :] if b".." in run else run
    return at - len(run.lstrip(b".%+'-"))


def _domain_size(run: bytes) -> int:
    """Bytes of the domain that `run` starts with; 0 if it is none."""
    if _IMAGE_SCALE.match(run):
        return 0
    if run.isascii():  # `_labels_size` in two patterns
        match = _ASCII_DOMAIN.match(run)
        return match.end() if match and _ASCII_LABELS.fullmatch(match[1]) else 0
    surrogate = _SURROGATE.search(run)
    run = run[: surrogate.start()] if surrogate else run
    domain = run.decode("utf-8", "ignore")
    foreign = re.search(r"[^\w.\-\u0300-\u036f\u0900-\u0dff]", domain)  # quotes, dashes, full stops of other scripts
    return _labels_size(domain[: foreign.start()] if foreign else domain)


def _labels_size(domain: str) -> int:
    """Bytes of the longest run of labels from the start whose last may be a top level; 0 if there is none or one is bad."""
    labels = domain.split(".")
    if "" in labels:
        labels = labels[: labels.index("")]
    while len(labels) > 1:
        top = _TOP_LEVEL.match(labels[-1])
        # ASCII letters with others after them, or the reverse: text that goes on without a blank, as in Chinese
        if top and (
            top.end() == len(labels[-1])
            or not (labels[-1][top.end()].isascii() and top.group()[-1].isascii())
            or labels[-1][top.end()] == "-"
        ):
            if all(0 < len(label) <= 63 and label[0] != "-" and label[-1] != "-" for label in labels[:-1]):
                return len(".".join([*labels[:-1], top.group()]).encode())
            return 0
        labels.pop()
    return 0


# --------------------------------------------------------------------------------------------------------------- IBAN

# Country and length in characters: SWIFT IBAN registry.
_IBAN_LENGTHS = {
    entry[:2]: int(entry[2:])
    for entry in (  # noqa: SIM905
        "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 EG29 "
        "ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 "
        "LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 "
        "PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 "
        "YE30"
    ).split(" ")
}
_IBAN_SIZES = np.zeros((26, 26), np.int64)
for _country, _size in _IBAN_LENGTHS.items():
    _IBAN_SIZES[ord(_country[0]) - 65, ord(_country[1]) - 65] = _size
_IBAN = re.compile(_LEFT + rb"[A-Z]{2}\d\d(?:[ -]?[A-Z0-9]){11,29}")


def _ibans(raw: bytearray, candidates: Candidates) -> Iterator[tuple[int, int]]:
    done = 0
    for _, start, _ in candidates:
        match = _IBAN.match(raw, start) if start >= done else None
        if match is None:
            continue
        text = match.group().decode()
        length = _IBAN_LENGTHS.get(text[:2])
        if length is None:
            continue
        compact, size = "", 0
        while len(compact) < length and size < len(text):
            compact += text[size].strip(" -")
            size += 1
        if len(compact) == length and _right.match(raw, match.start() + size) and _mod_97(compact) == 1:
            done = match.start() + size
            yield match.start(), done


def _mod_97(iban: str) -> int:
    return int("".join(str(int(c, 36)) for c in iban[4:] + iban[:4])) % 97


# --------------------------------------------------------------------------------------------------------------- card

_CARD = re.compile(
    _LEFT + rb"(?:\d{4}([ -])\d{4}\1\d{4}\1\d{4}(?:\1\d{1,3})?|\d{4}([ -])\d{6}\2\d{4,5}|\d{13,19}+)" + _RIGHT
)
_CARD_OF_16 = re.compile(
    _LEFT + rb"\d{4}([ -])\d{4}\1\d{4}\1\d{4}" + _RIGHT
)  # where digits that follow are not of the card
# Prefix range and lengths of the issuers: ISO/IEC 7812 and the networks' own pages.
_ISSUERS = (
    ("4", "4", (13, 16, 19)),  # Visa
    ("51", "55", (16,)), ("2221", "2720", (16,)),  # Mastercard
    ("34", "34", (15,)), ("37", "37", (15,)),  # American Express
    ("6011", "6011", (16, 19)), ("644", "649", (16, 19)), ("65", "65", (16, 19)),  # Discover
    ("3528", "3589", (16, 19)),  # JCB
    ("300", "305", (14,)), ("36", "36", (14,)), ("38", "39", (14,)),  # Diners Club
    ("62", "62", (16, 17, 18, 19)),  # UnionPay
    ("50", "50", (16,)), ("56", "58", (16,)), ("6304", "6304", (16,)), ("67", "67", (16,)),  # Maestro
)  # fmt: skip


def _cards(raw: bytearray, candidates: Candidates) -> Iterator[tuple[int, int]]:
    done = 0
    for _, start, stop in candidates:
        for pattern in (_CARD, _CARD_OF_16) if start >= done else ():
            match = pattern.match(raw, start, stop + 2)
            digits = match.group().translate(None, b" -") if match else b""
            if match and _luhn(digits) and _is_issued(digits.decode()):
                yield match.span()
                done = match.end()
                break


_PLAIN = bytes.maketrans(b"0123456789", bytes(range(10)))
_DOUBLED = bytes.maketrans(b"0123456789", bytes((0, 2, 4, 6, 8, 1, 3, 5, 7, 9)))  # and the digits of that added


def _luhn(digits: bytes) -> bool:
    return (sum(digits[-1::-2].translate(_PLAIN)) + sum(digits[-2::-2].translate(_DOUBLED))) % 10 == 0


def _is_issued(digits: str) -> bool:
    return any(low <= digits[: len(low)] <= high and len(digits) in n for low, high, n in _ISSUERS)


# ----------------------------------------------------------------------------------------------------------------- IP

_V4 = re.compile(_LEFT + rb"\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}" + _RIGHT)
# What starts with a colon does not follow `>` and what ends in one does not precede `<`: it would only be found once what
# it is glued to has become a placeholder.
_V6 = re.compile(rb"(?<![\w:.\-+%@])(?!(?<=>):)(?=[0-9A-Fa-f]{0,4}:)[0-9A-Fa-f:.]{2,45}+(?![\w@]|[\-%][\w@]|(?<=:)<)")
# Words that a version or section number follows, maybe with others of its kind between ("sections 1.2.3.4 and 1.2.3.5").
_NUMBERED = frozenset(
    rb"version versions ver v release releases build rev revision firmware update patch section sections sec chapter "
    rb"chapters clause clauses article articles paragraph paragraphs para figure figures fig table tables appendix item "
    rb"items step steps rule rules oid \xc2\xa7".split()
)
# Of the quads with no part above 99 most number a section of a text. These do not, nor those after a word of networking.
_RESOLVERS = frozenset((b"8.8.8.8", b"8.8.4.4", b"1.1.1.1", b"1.0.0.1", b"9.9.9.9"))
_CUE = re.compile(
    rb"(?<![\w<>])(?:ips?|ipv4|addr|address|addresses|dns|nameserver|server|hosts?|ping|gateway|router|resolver|subnet|whois|ssh)\b"
)
_HEADING = re.compile(rb"\.?[ \t]+[A-Z\x80-\xff]")
_AND = frozenset((b"and", b"or", b"to"))
# First and last address as integers; documentation ranges are left out on purpose.
_RESERVED = """0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.168.0.0/16
198.18.0.0/15 224.0.0.0/3"""
_NOT_PUBLIC_V4 = [(int(net[0]), int(net[-1])) for net in map(ipaddress.IPv4Network, _RESERVED.split())]
_RESERVED_V4 = np.array(_NOT_PUBLIC_V4)
_V4_STARTS = [low for low, _ in _NOT_PUBLIC_V4]


def _ips(raw: bytearray, candidates: Candidates) -> Iterator[tuple[int, int]]:
    found = list(_v6(raw, candidates))
    _mask(raw, found)  # an IPv6 address may end in an IPv4 one
    for kind, start, _ in candidates:
        match = _V4.match(raw, start) if kind == _QUAD else None
        if match and _is_public_v4(match.group()) and not _is_numbering(raw, match):
            found.append(match.span())
    yield from sorted(found)


def _is_public_v4(quad: bytes) -> bool:
    parts = quad.split(b".")
    if any(int(p) > 255 or (len(p) > 1 and p[:1] == b"0") for p in parts):
        return False
    a, b, c, d = map(int, parts)
    address = a << 24 | b << 16 | c << 8 | d
    return _NOT_PUBLIC_V4[bisect_right(_V4_STARTS, address) - 1][1] < address


def _is_numbering(raw: bytearray, match: re.Match[bytes]) -> bool:
    """A version or section number, by what stands before it."""
    start = match.start()
    line = bytes(raw[max(0, start - 96) : start])
    line = line[line.rfind(b"\n") + 1 :]
    if line.endswith(b"/") and line[-2:-1].isalpha():  # Browser/1.2.3.4
        return True
    if _word_before(line, b"0123456789.,;:#- \t", _AND) in _NUMBERED:  # also "sections 1.2.3.4 and 1.2.3.5"
        return True
    quad = match.group()
    if any(int(p) > 99 for p in quad.split(b".")):
        return False
    heads_line = not line.strip(b" \t#*>-")
    cue = (
        quad in _RESOLVERS
        or _CUE.search(line.lower(), max(0, len(line) - 48, line.rfind(b"<")))
        or line.endswith(b"://")
    )
    return not cue or (heads_line and bool(_HEADING.match(raw, match.end())))


def _v6(raw: bytearray, candidates: Candidates) -> Iterator[tuple[int, int]]:
    for kind, start, _ in candidates:
        match = _V6.match(raw, start) if kind == _V6_START else None
        if match is None:
            continue
        text = match.group().rstrip(b".").decode()
        if text.endswith(":") and not text.endswith("::"):
            text = text[:-1]
        if text.count(":") < 2:
            continue
        try:
            address = ipaddress.IPv6Address(text)
        except ValueError:
            continue
        mapped = address.ipv4_mapped
        if int(address) >> 125 == 1 or (mapped is not None and _is_public_v4(str(mapped).encode())):
            yield match.start(), match.start() + len(text)


# -------------------------------------------------------------------------------------------------------------- phone

_GAP = rb"(?:[ .\-/]|[ .\-]?\(|\)[ .\-]?| - )?"  # between two digits of a number
_LEFT_OF_PHONE = re.compile(rb"[\w.\-+%@]")
# (NPA) NXX-XXXX, NPA-NXX-XXXX, NPA.NXX.XXXX: no part starts with 0 or 1, none of both is a service code (911), no area
# code has 9 in the middle (North American Numbering Plan). No library needed, and none checks more but for area codes.
_NPA, _NXX = rb"(?!.11)[2-9][0-8]\d", rb"(?!.11)[2-9]\d\d"
_NORTH_AMERICAN = re.compile(
    rb"(?:(?<![\w.\-+%@/#$])(?:1[ .\-])?" + _NPA + rb"([.\-])" + _NXX + rb"\1|"
    rb"(?:(?<![\w.\-+%@/#$])1[ .\-]?)?\(" + _NPA + rb"\) ?" + _NXX + rb"[ .\-])\d{4}" + _RIGHT
)  # fmt: skip
_NUMBER = re.compile(rb"[+(]?\d(?:" + _GAP + rb"\d){6,24}+")
# what stands between two numbers after one label
_AND_MORE = (
    rb"/ , ; | & or and und oder et ou y o e i ili lub oraz \xd0\xb8 \xd0\xb8\xd0\xbb\xd0\xb8 "
    + "、 ， ； ／ ｜ 和 或 及 や または 및 또는 หรือ และ و أو یا ، ή και או".encode()
).split()
_JOIN = re.compile(
    rb"(?:[ \t]|\xe3\x80\x80){0,2}(?:"
    + b"|".join(re.escape(sign) for sign in sorted(_AND_MORE, key=len, reverse=True))
    + rb")(?:[ \t]|\xe3\x80\x80){0,2}"
)
_NEXT = re.compile(_JOIN.pattern + rb"(?=[+(]?\d)")
_NUMBER_ENDS = re.compile(rb"(?![\d_@]|[A-Z]{2}\d|[.\-+%][\w@])")  # a letter may follow: web text often lacks the blank
_BLANK = re.compile(rb"(?<=\d)[ (]")
_NOT_A_PHONE = re.compile(
    rb"(?:1[5-9]|20)\d\d[ ./-]{1,3}(?:(?:1[5-9]|20)\d\d|[01]?\d[ ./-][0-3]?\d(?:\D.*)?)$"  # years, 2024-05-01
    rb"|[0-3]?\d[./-][01]?\d[./-](?:1[5-9]|20)\d\d(?:\D.*)?$"  # 01.05.2024
    rb"|97[89][ -]?\d"  # ISBN-13
)


def _phones(raw: bytearray, candidates: Candidates) -> Iterator[tuple[int, int]]:
    """Numbers, and those of what is left of their runs as a scan of the replaced text would see it."""
    found: list[tuple[int, int]] = []
    for _ in range(8):
        chosen = list(_first_phones(raw, candidates))
        if not chosen:
            break
        _mask(raw, chosen)
        found += chosen
        candidates = [c for c in candidates if _reaches_out(c, chosen)]
        if not candidates:
            break
    yield from sorted(found)


# Digits of other scripts, and signs and blanks of full width that stand between them, as those of ASCII
_ASCII_FOR = {
    first + i: str(i) for first in (0xFF10, 0x0660, 0x06F0, 0x0966, 0x09E6, 0x0E50) for i in range(10)
} | dict(zip(map(ord, "（）－．／　‐‑–−"), "()-./ ----", strict=True))
_HIGH = ONES * U64(128)


# a class of bytes first, which the regex engine looks for at once
_ANY_DIGIT = (
    rb"[0-9\xef\xd9\xdb\xe0](?:(?<=[0-9])|(?<=\xef)\xbc[\x90-\x99]|(?<=\xd9)[\xa0-\xa9]|(?<=\xdb)[\xb0-\xb9]|"
    rb"(?<=\xe0)(?:[\xa5\xa7][\xa6-\xaf]|\xb9[\x90-\x99]))"
)
_ANY_GAP = rb"(?:[ .\-/()]|\xef\xbc[\x88\x89\x8d-\x8f]|\xe3\x80\x80|\xe2\x80[\x90\x91\x93]|\xe2\x88\x92)"
_ANY_RUN = re.compile(_ANY_DIGIT + rb"(?:" + _ANY_GAP + rb"{0,3}" + _ANY_DIGIT + rb"){6,24}+")
_OPENING = re.compile(rb"(?:[+(]|\xef\xbc\x88)?(?=" + _ANY_DIGIT + rb")")
_OF_RUNS = frozenset(
    (*b"0123456789 .-/()+\xef\xbc\xd9\xdb\xe0\xe3\xe2\xa5\xa7\xb9", *range(0x80, 0x9A), *range(0xA0, 0xBA))
)


def _wide_phones(buffer: bytearray) -> Iterator[tuple[int, int, str]]:
    """Phone numbers with digits that are not ASCII, or signs of full width, after a label or `+`; in order."""
    view = np.frombuffer(buffer, np.uint8)
    view.flags.writeable = False
    size = 8 * _BLOCK
    done = 0
    for block in np.flatnonzero(_wide_blocks(view.view(np.uint64), view)).tolist():
        at, stop = max(done, size * (block - 1)), size * (block + 1)
        while (
            at > done and buffer[at - 1] in _OF_RUNS
        ):  # to where no run goes on: it does not matter where a block begins
            at -= 1
        while buffer[stop] in _OF_RUNS:
            stop += 1
        while run := _ANY_RUN.search(buffer, at, stop):
            at = run.end()
            found = _wide_phone(buffer, view, run, called=False)
            while found:
                yield *found, "phone"
                at = max(at, found[1])
                more = _JOIN.match(buffer, found[1])
                opening = more and _OPENING.match(buffer, more.end())
                following = opening and _ANY_RUN.match(buffer, opening.end())
                found = following and _wide_phone(buffer, view, following, called=True)
        done = max(at, stop)


def _wide_phone(buffer: bytearray, view: np.ndarray, run: re.Match[bytes], called: bool) -> tuple[int, int] | None:
    """Where the phone number is that a run of any digits begins with, if a label stands before it or it is `called`."""
    start = run.start()
    if buffer[start - 1] in b"+(":
        start -= 1
    elif buffer[start - 3 : start] == b"\xef\xbc\x88":
        start -= 3
    written = bytes(buffer[start : run.end()]).decode()
    if written.isascii():
        return None
    number = bytearray(written.translate(_ASCII_FOR).encode() + buffer[run.end() : run.end() + 3])
    international = number[:1] == b"+"
    if not called and not international and not _is_called(view, start, *_labels()):
        return None
    left = number[:1] != b"(" and buffer[start - 1] != 46 and _LEFT_OF_PHONE.match(buffer, start - 1)
    match = None if left else _NUMBER.match(number)
    spans = _cut(number, match.span(), _is_international if international else _is_labelled) if match else []
    end = spans[0][1] if spans else 0
    return (start, start + len(written[:end].encode())) if 0 < end <= len(written) else None


@njit
def _wide_blocks(words, raw):
    """For each block of `raw`: whether seven digits may end in it, some of them not ASCII or beside a full-width ( ) - sign.

    Sums of bytes, as `_glance` has them; blocks of ASCII cost the look at their words.
    """
    size = 8 * _BLOCK
    seen = np.zeros(raw.size // size, np.uint8)
    digits_1 = wide_1 = 0
    for block in range(1, seen.size - 1):
        some = U64(0)
        for w in range(_BLOCK * block, _BLOCK * (block + 1)):
            some |= words[w]
        if some & _HIGH == 0 and wide_1 == 0:
            digits_1 = _digits(raw, size * block, size * (block + 1))
            continue
        text = raw[size * block - 3 : size * (block + 1) + 1]
        digits = signs = U8(0)
        for i in range(size):
            before, lead, c, after = text[i], text[i + 2], text[i + 3], text[i + 4]
            wide = U8(U8((lead == U8(0xBC)) | (lead == U8(0xB9))) & U8(U8(c - U8(0x90)) <= U8(9)))
            arabic = U8(U8(lead == U8(0xD9)) & U8(U8(c - U8(0xA0)) <= U8(9)))
            persian = U8(U8(lead == U8(0xDB)) & U8(U8(c - U8(0xB0)) <= U8(9)))
            indic = U8(U8((lead == U8(0xA5)) | (lead == U8(0xA7))) & U8(U8(c - U8(0xA6)) <= U8(9)))
            other = U8(wide | arabic | persian | indic)
            digits = U8(digits + U8(other | U8(U8(c - U8(48)) <= U8(9))))
            signs = U8(signs | other)
            sign = U8(U8(lead == U8(0xBC)) & U8((c == U8(0x88)) | (c == U8(0x89)) | (c == U8(0x8D))))
            beside = U8(U8(U8(before - U8(48)) <= U8(9)) | U8(U8(after - U8(48)) <= U8(9)))
            signs = U8(signs | U8(sign & beside))
        seen[block] = (int(digits) + digits_1 >= 7) and (int(signs) + wide_1 > 0)
        digits_1, wide_1 = int(digits), int(signs)
    return seen


def _reaches_out(candidate: list[int], spans: list[tuple[int, int]]) -> bool:
    """A run that one of the spans, in order and apart, is a part of."""
    _, start, stop = candidate
    i = bisect_right(spans, start, key=lambda span: span[1])
    return i < len(spans) and spans[i][0] < stop and not (spans[i][0] <= start and stop <= spans[i][1])


def _first_phones(raw: bytearray, candidates: Candidates) -> Iterator[tuple[int, int]]:
    view = np.frombuffer(raw, np.uint8)
    view.flags.writeable = False
    found = [m.span() for m in _within(_NORTH_AMERICAN, raw, [c for c in candidates if c[0] == _NORTH_AMERICAN_RUN])]
    for kind, start, _ in candidates:
        if kind != _CALLED:
            continue
        sign = start - 1 if raw[start - 1 : start] in (b"+", b"(") else start
        after_stop = raw[sign - 1 : sign] == b"." and raw[sign : sign + 1] != b"+"  # "Tel.0123456"
        if raw[sign : sign + 1] != b"(" and not after_stop and _LEFT_OF_PHONE.match(raw, sign - 1):
            continue
        number = _NUMBER.match(raw, sign)
        if number is None:
            continue
        if raw[sign : sign + 1] == b"+":
            found += _cut(raw, number.span(), _is_international)
        elif _is_called(view, sign, *_labels()):
            found += _cut(raw, number.span(), _is_labelled)
    done = 0
    for start, stop in sorted(found, key=lambda span: (span[0], -span[1])):
        if start < done:
            continue
        yield start, stop
        done = stop
        while following := _NEXT.match(raw, done):  # "Tel. 555-0142 / 555-0143"
            number = _NUMBER.match(raw, following.end())
            more = _cut(raw, number.span(), _is_labelled) if number else []
            if not more:
                break
            yield more[0]
            done = more[0][1]


def _cut(raw: bytearray, span: tuple[int, int], good: Callable[[bytes], bool]) -> list[tuple[int, int]]:
    """The longest head of a run of digits that is a number: all of it, or up to a blank."""
    start, stop = span
    run = bytes(raw[start:stop])
    ends = [m.start() for m in _BLANK.finditer(run)]
    if _NUMBER_ENDS.match(raw, stop):
        ends.append(len(run))
    for end in reversed(ends):
        head = run[:end]
        if head[:1] == b"(" and b")" not in head:
            continue
        if 7 <= end - len(head.translate(None, b"0123456789")) <= 15 and good(head):
            return [(start, start + end)]
    return []


def _is_international(number: bytes) -> bool:
    import phonenumbers  # loads 0.1 s of tables

    try:
        parsed = phonenumbers.parse(number.decode())
    except phonenumbers.NumberParseException:
        return False
    if phonenumbers.is_valid_number(parsed):
        return True
    # possible, or local after a country code (+1-555-0142), needs the look of one: amounts are grouped by blanks
    reason = phonenumbers.is_possible_number_with_reason(parsed)
    possible = (phonenumbers.ValidationResult.IS_POSSIBLE, phonenumbers.ValidationResult.IS_POSSIBLE_LOCAL_ONLY)
    return reason in possible and b" " not in number


def _is_labelled(number: bytes) -> bool:
    if number[:1] == b"+":
        return _is_international(number) or b" " in number
    return not _NOT_A_PHONE.match(number)


# -------------------------------------------------------------------------------------------------------------- common

_LAST_WORD = re.compile(rb"(?<![A-Za-z\x80-\xff])[A-Za-z\x80-\xff]+(?=\n?\Z)")


def _word_before(text: bytes, skipped: bytes, between: frozenset[bytes]) -> bytes:
    """The last word of `text` in lower case, behind the bytes `skipped`, a line end and up to three words `between`."""
    head = text.rstrip(skipped)
    for _ in range(4):
        word = _LAST_WORD.search(head, max(0, len(head) - 16))
        if word is None:
            return b""
        last = word.group().lower()
        if last not in between:
            break
        head = head[: word.start()].rstrip(skipped)
    return last


def _within(pattern: re.Pattern[bytes], raw: bytearray, candidates: Candidates) -> Iterator[re.Match[bytes]]:
    """Matches inside the candidates, which may start one byte earlier and look two bytes further."""
    for _, start, stop in candidates:
        yield from pattern.finditer(raw, start - 1, stop + 2)


# By type, in their order: which candidates it needs, and what finds it among them.
_FINDERS: dict[str, tuple[frozenset[int], Callable[[bytearray, Candidates], Iterator[tuple[int, int]]]]] = {
    "email": (frozenset((_AT,)), _emails),
    "iban": (frozenset((_IBAN_START,)), _ibans),
    "card": (frozenset((_CARD_START,)), _cards),
    "ip": (frozenset((_QUAD, _V6_START)), _ips),
    "phone": (frozenset((_CALLED, _NORTH_AMERICAN_RUN)), _phones),
}
