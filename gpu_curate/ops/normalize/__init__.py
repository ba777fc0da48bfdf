"""Normalising a column of texts: what each of them needs, and the texts that come out.

`text.normalize` defines the result, one text at a time. Here a text gets a class first:

- 0: well-formed, and nothing changes;
- BLANKS: blanks, line ends or controls may change, nothing else;
- FORM: its normal form may change, by the quick check of Unicode Standard Annex 15: a code point that is not in the form,
  one that may join with another before it, one that this table does not know, or combining classes out of order;
- INVALID: it is not UTF-8.

Texts of class 0 are copied, those of BLANKS alone rewritten, both in compiled code; FORM goes through Python, one by one.

# N documents
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import numpy as np

from gpu_curate.document import TextColumn
from gpu_curate.ops import twin
from gpu_curate.text.sections import Normalize

BLANKS, FORM, INVALID = 1, 2, 4
FORMS = (None, "NFC", "NFD", "NFKC", "NFKD")
# entries of the table; 1..240 is a combining class of a code point in the form, 0 all others in it
DELETED, BLANK, MAY_CHANGE = 253, 254, 255


class Forms(NamedTuple):
    """A code point's entry is stage2[stage1[cp >> 7] * 128 + (cp & 127)]."""

    stage1: Any  # uint16 of 8,704
    stage2: Any  # uint8


@cache
def forms(form: str | None) -> Forms:
    """The table of a normal form."""
    with (
        resources.files(__package__).joinpath("normal_forms.npz").open("rb") as file,
        np.load(file, allow_pickle=False) as table,
    ):
        return Forms(np.ascontiguousarray(table["stage1"][FORMS.index(form)]), table["stage2"])


@dataclass(frozen=True)
class Normalized:
    """A column after normalising.

    Attributes:
        text: N texts; that of class INVALID, or of one in `refused`, is empty.
        class_N: uint8.
        changed_N: bool: the bytes are others than before.
        refused: number → what was raised when it was normalised.
    """

    text: TextColumn
    class_N: Any
    changed_N: Any
    refused: dict[int, BaseException]


def classify(text: TextColumn, config: Normalize | None) -> Any:
    """What every text needs.

    Args:
        text: N documents, any bytes.
        config: None: only whether they are UTF-8.
    Returns:
        class_N: uint8: flags BLANKS, FORM, INVALID. 0: `text.normalize.normalize` leaves the text as it is. INVALID stands
            alone.
    """
    return twin("normalize", text.on_gpu).classify(text, config)


def normalize_column(text: TextColumn, config: Normalize | None) -> Normalized:
    """`text.normalize.normalize` of every text of a host column; without a config, the texts that are UTF-8.

    Args:
        text: N documents, any bytes.
        config: None: texts stay as they are.
    Memory: where a text changes the column once more; else none.
    """
    made: Normalized = twin("normalize", False).normalize_column(text, config)
    return made


def replaced(text: TextColumn, new: dict[int, bytes]) -> TextColumn:
    """The host column with other texts in the place of some; the same one if there are none."""
    if not new:
        return text
    made: TextColumn = twin("normalize", False).replaced(text, new)
    return made
