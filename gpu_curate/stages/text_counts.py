"""What is counted of a partition that is made from texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from gpu_curate.store.receipts import Counts


@dataclass(frozen=True, kw_only=True)
class TextCounts(Counts):
    """Of a partition that was made from texts.

    Attributes:
        read_by_cpu: why the text that cuDF read was not taken.
    """

    read_by_cpu: str | None = None

    quiet: ClassVar[frozenset[str]] = frozenset({"read_by_cpu"})
