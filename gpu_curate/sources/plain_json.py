"""JSON by the standard library with the values and the refusals of orjson, for machines without it; a quarter of its speed."""

from __future__ import annotations

import json
import math
from typing import Any

_LONGEST_INTEGER = len(str(-(1 << 63)))


def loads(data: bytes) -> Any:
    """The value of a document in UTF-8.

    An integer past 64 bits is the nearest float. Refused are NaN, numbers past float64 and escapes of lone surrogates.
    Raises: ValueError, RecursionError.
    """
    value = json.loads(bytes(data).decode("utf-8"), parse_int=_integer, parse_float=_finite, parse_constant=_refused)
    if b"\\u" in data:
        json.dumps(value, ensure_ascii=False).encode("utf-8")  # UnicodeEncodeError is a ValueError
    return value


def _integer(digits: str) -> int | float:
    value = int(digits) if len(digits) <= _LONGEST_INTEGER else 1 << 64
    return value if -(1 << 63) <= value < 1 << 64 else _finite(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"{digits[:20]} is past float64")
    return value


def _refused(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
