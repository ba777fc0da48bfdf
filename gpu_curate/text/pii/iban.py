"""IBANs: the compiled condition and the pattern, country, length and mod 97."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gpu_curate.jit import njit
from gpu_curate.text.pii.marks import LEFT, is_digit, right_of, stands_left, stands_right
from gpu_curate.text.pii.spans import Candidates


@njit
def may_be_iban(raw: NDArray[np.uint8], start: int) -> bool:
    x, y = raw[start], raw[start + 1]
    if x < 65 or x > 90 or y < 65 or y > 90 or not stands_left(raw[start - 1]):
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
        if is_digit(c):
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
    return dense and (rest * 27 + head) % 97 == 1 and stands_right(raw[i], raw[i + 1])


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
_IBAN = re.compile(LEFT + rb"[A-Z]{2}\d\d(?:[ -]?[A-Z0-9]){11,29}")


def find_ibans(raw: bytearray, candidates: Candidates) -> Iterator[tuple[int, int]]:
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
        if len(compact) == length and right_of.match(raw, match.start() + size) and mod_97(compact) == 1:
            done = match.start() + size
            yield match.start(), done


def mod_97(iban: str) -> int:
    return int("".join(str(int(c, 36)) for c in iban[4:] + iban[:4])) % 97
