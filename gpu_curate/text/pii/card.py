"""Payment cards: the compiled condition and the pattern, issuer and Luhn's checksum."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gpu_curate.jit import njit
from gpu_curate.text.pii.marks import LEFT, RIGHT, is_digit, stands_left
from gpu_curate.text.pii.spans import Candidates


@njit
def may_be_card(raw: NDArray[np.uint8], i: int) -> bool:
    """Whether digits from here, in one piece or in groups that start with four, have a right checksum where a group ends."""
    if raw[i] < 50 or raw[i] > 54 or not stands_left(raw[i - 1]):  # issuers start with 2 to 6
        return False
    n = size = groups = plain = doubled = 0  # sums with every second digit doubled, from this one or the one before
    gap = raw[i]
    while n < 19 and is_digit(raw[i]):
        digit = int(raw[i]) - 48
        twice = 2 * digit - 9 if digit > 4 else 2 * digit
        plain, doubled = doubled + digit, plain + twice
        n += 1
        size += 1
        i += 1
        if is_digit(raw[i]):
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


# --------------------------------------------------------------------------------------------------------------- card

_CARD = re.compile(
    LEFT + rb"(?:\d{4}([ -])\d{4}\1\d{4}\1\d{4}(?:\1\d{1,3})?|\d{4}([ -])\d{6}\2\d{4,5}|\d{13,19}+)" + RIGHT
)
_CARD_OF_16 = re.compile(
    LEFT + rb"\d{4}([ -])\d{4}\1\d{4}\1\d{4}" + RIGHT
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


def find_cards(raw: bytearray, candidates: Candidates) -> Iterator[tuple[int, int]]:
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
