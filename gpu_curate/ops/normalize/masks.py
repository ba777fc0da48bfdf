"""Bit masks of 64 bytes of text, bit b for byte b, that tell what normalising changes; see `ops.simd`.

No bounds are checked: a mask reads array[i : i + 64 + reach].
"""

from __future__ import annotations

from typing import Any

from gpu_curate.ops.masks import any_of, equal, filled, mask_of, within

REACH = 3  # the most that a mask here looks ahead


def _blank(b: Any, v: Any) -> Any:
    return b.or_(equal(b, v, 32), equal(b, v, 10))


def _control(b: Any, v: Any) -> Any:
    """C0 but for LF, and U+007F: line ends and blanks of another kind, and what is deleted."""
    c0 = b.and_(b.icmp_unsigned("<", v, filled(32)), b.not_(equal(b, v, 10)))
    return b.or_(c0, equal(b, v, 127))


def _untidy(b: Any, v: Any, v1: Any, v2: Any) -> Any:
    """Controls; a blank before a blank or LF; the first of three LF."""
    lf, lf_1, lf_2 = (equal(b, x, 10) for x in (v, v1, v2))
    runs = b.or_(b.and_(equal(b, v, 32), _blank(b, v1)), b.and_(lf, b.and_(lf_1, lf_2)))
    return b.or_(_control(b, v), runs)


def _changes(b: Any, v: Any, v1: Any, v2: Any) -> Any:
    """First bytes of what is rewritten wherever it stands: controls, other blanks, U+FEFF."""
    low = within(b, v2, 0x80, 0x8A)  # U+2000..U+200A
    thin = b.and_(equal(b, v1, 0x80), b.or_(low, equal(b, v2, 0xAF)))
    mathematical = b.and_(equal(b, v1, 0x81), equal(b, v2, 0x9F))
    return any_of(
        b,
        [
            _control(b, v),
            b.and_(equal(b, v, 0xC2), within(b, v1, 0x80, 0xA0)),  # C1 (and U+0085, which stays), U+00A0
            b.and_(equal(b, v, 0xE2), b.or_(thin, mathematical)),
            b.and_(equal(b, v, 0xE1), b.and_(equal(b, v1, 0x9A), equal(b, v2, 0x80))),  # U+1680
            b.and_(equal(b, v, 0xE3), b.and_(equal(b, v1, 0x80), equal(b, v2, 0x80))),  # U+3000
            b.and_(equal(b, v, 0xEF), b.and_(equal(b, v1, 0xBB), equal(b, v2, 0xBF))),  # U+FEFF
        ],
    )


def _stops(b: Any, v: Any, v1: Any, v2: Any, v3: Any) -> Any:
    """Where copying has to stop: at what changes, and at a blank that another blank or a change follows."""
    changes, changes_1 = _changes(b, v, v1, v2), _changes(b, v1, v2, v3)
    return b.or_(changes, b.and_(_blank(b, v), b.or_(_blank(b, v1), changes_1)))


untidy64 = mask_of(_untidy, 2)
stops64 = mask_of(_stops, REACH)
