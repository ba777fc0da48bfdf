"""What the documents stage is made of: what is read, and what becomes of a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpu_curate.sources.sections import SourceBase
from gpu_curate.text.sections import Normalize, Pii


@dataclass(frozen=True)
class Intake:
    """The values of the recipe that the documents stage depends on.

    Attributes:
        sources: in the order that numbers their files.
        normalize: None: texts stay as they are.
        pii: what is searched for, and replaced.
        partition_bytes: of text, in a partition.
        by_reference: types of sources whose texts may stay where they are.
        strict: a rejected record ends the run.
    """

    sources: Sequence[SourceBase]
    normalize: Normalize | None
    pii: Pii
    partition_bytes: int
    by_reference: Sequence[str]
    strict: bool = False

    def refers(self, source: SourceBase) -> bool:
        """True if texts of this source are not copied, as far as the recipe alone tells."""
        return self.why_not(source.type) is None  # type: ignore[attr-defined]  # every source has one of its own

    def why_not(self, kind: str) -> str | None:
        """Why texts of sources of a type are copied; None: they are not."""
        if kind not in self.by_reference:
            return "it is not listed"
        return None if kind == "parquet" else "reading them again in every step costs more than a copy"

    @property
    def leaves_texts(self) -> bool:
        """True if no text can be another than the source's."""
        return self.normalize is None and "replace" not in self.pii.model_dump().values()
