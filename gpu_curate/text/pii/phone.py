"""Telephone numbers: with a label, with an international prefix, North American ones."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from gpu_curate.jit import U8, U64, njit
from gpu_curate.text.pii.labels import is_called, phone_labels
from gpu_curate.text.pii.marks import BLOCK, CALLED, NORTH_AMERICAN_RUN, RIGHT, count_digits, is_digit, stands_right
from gpu_curate.text.pii.spans import Candidates, is_within, mask
from gpu_curate.text.swar import ONES


@njit
def may_hold_north_american(raw: NDArray[np.uint8], start: int, stop: int) -> bool:
    """Whether NXX-NXX-XXXX, NXX.NXX.XXXX or (NXX) NXX-XXXX, blanks allowed, stands in the run."""
    for i in range(start, stop - 9):
        if not (raw[i] >= 50 and is_digit(raw[i]) and is_digit(raw[i + 1]) and is_digit(raw[i + 2])):
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
        if not (raw[j] >= 50 and is_digit(raw[j]) and is_digit(raw[j + 1]) and is_digit(raw[j + 2])):
            continue
        j += 3
        if raw[j] != 45 and raw[j] != 46 and raw[j] != 32:
            continue
        digits = 0
        while digits < 4 and is_digit(raw[j + 1 + digits]):
            digits += 1
        if digits == 4 and stands_right(raw[j + 5], raw[j + 6]):
            return True
    return False


# -------------------------------------------------------------------------------------------------------------- phone

_GAP = rb"(?:[ .\-/]|[ .\-]?\(|\)[ .\-]?| - )?"  # between two digits of a number
_LEFT_OF_PHONE = re.compile(rb"[\w.\-+%@]")
# (NPA) NXX-XXXX, NPA-NXX-XXXX, NPA.NXX.XXXX: no part starts with 0 or 1, none of both is a service code (911), no area
# code has 9 in the middle (North American Numbering Plan). No library needed, and none checks more but for area codes.
_NPA, _NXX = rb"(?!.11)[2-9][0-8]\d", rb"(?!.11)[2-9]\d\d"
_NORTH_AMERICAN = re.compile(
    rb"(?:(?<![\w.\-+%@/#$])(?:1[ .\-])?" + _NPA + rb"([.\-])" + _NXX + rb"\1|"
    rb"(?:(?<![\w.\-+%@/#$])1[ .\-]?)?\(" + _NPA + rb"\) ?" + _NXX + rb"[ .\-])\d{4}" + RIGHT
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


def find_phones(raw: bytearray, candidates: Candidates) -> Iterator[tuple[int, int]]:
    """Numbers, and those of what is left of their runs as a scan of the replaced text would see it."""
    found: list[tuple[int, int]] = []
    for _ in range(8):
        chosen = list(_first_phones(raw, candidates))
        if not chosen:
            break
        mask(raw, chosen)
        found += chosen
        candidates = [c for c in candidates if _reaches_beyond(c, chosen)]
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


def find_wide_phones(buffer: bytearray) -> Iterator[tuple[int, int, str]]:
    """Phone numbers with digits that are not ASCII, or signs of full width, after a label or `+`; in order."""
    view = np.frombuffer(buffer, np.uint8)
    view.flags.writeable = False
    size = 8 * BLOCK
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
    if not called and not international and not is_called(view, start, *phone_labels()):
        return None
    left = number[:1] != b"(" and buffer[start - 1] != 46 and _LEFT_OF_PHONE.match(buffer, start - 1)
    match = None if left else _NUMBER.match(number)
    spans = _cut(number, match.span(), _is_international if international else _is_labelled) if match else []
    end = spans[0][1] if spans else 0
    return (start, start + len(written[:end].encode())) if 0 < end <= len(written) else None


@njit
def _wide_blocks(words: NDArray[np.uint64], raw: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """For each block of `raw`: whether seven digits may end in it, some of them not ASCII or beside a full-width ( ) - sign.

    Sums of bytes, as `glance_at` has them; blocks of ASCII cost the look at their words.
    """
    size = 8 * BLOCK
    seen = np.zeros(raw.size // size, np.uint8)
    digits_1 = wide_1 = 0
    for block in range(1, seen.size - 1):
        some = U64(0)
        for w in range(BLOCK * block, BLOCK * (block + 1)):
            some |= words[w]
        if some & _HIGH == 0 and wide_1 == 0:
            digits_1 = count_digits(raw, size * block, size * (block + 1))
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


def _reaches_beyond(candidate: list[int], spans: list[tuple[int, int]]) -> bool:
    """A run that one of the spans, in order and apart, is a part of."""
    _, start, stop = candidate
    i = bisect_right(spans, start, key=lambda span: span[1])
    return i < len(spans) and spans[i][0] < stop and not (spans[i][0] <= start and stop <= spans[i][1])


def _first_phones(raw: bytearray, candidates: Candidates) -> Iterator[tuple[int, int]]:
    view = np.frombuffer(raw, np.uint8)
    view.flags.writeable = False
    found = [m.span() for m in is_within(_NORTH_AMERICAN, raw, [c for c in candidates if c[0] == NORTH_AMERICAN_RUN])]
    for kind, start, _ in candidates:
        if kind != CALLED:
            continue
        sign = start - 1 if bytes(raw[start - 1 : start]) in (b"+", b"(") else start
        after_stop = raw[sign - 1 : sign] == b"." and raw[sign : sign + 1] != b"+"  # "Tel.0123456"
        if raw[sign : sign + 1] != b"(" and not after_stop and _LEFT_OF_PHONE.match(raw, sign - 1):
            continue
        number = _NUMBER.match(raw, sign)
        if number is None:
            continue
        if raw[sign : sign + 1] == b"+":
            found += _cut(raw, number.span(), _is_international)
        elif is_called(view, sign, *phone_labels()):
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


def word_before(text: bytes, skipped: bytes, between: frozenset[bytes]) -> bytes:
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
