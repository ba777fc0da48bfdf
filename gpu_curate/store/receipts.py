"""Receipts: what a partition holds, by file, and what its task counted and cost. Typed here, flat JSON on disk.

They are read back by pydantic, which the recipe needs anyway: anybody may have edited such a file, and one with a key of
another type is no receipt.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from gpu_curate.errors import CorruptError


@dataclass(frozen=True, kw_only=True)
class Counts:
    """What a task counted. A stage's own counts are a frozen dataclass below this one: a field is a key of its receipts.

    Attributes:
        documents: of the partition.
        bytes: of text.
        backend: where it was made: cpu, gpu, ...
    """

    documents: int = 0
    bytes: int = 0
    backend: str = "cpu"

    quiet: ClassVar[frozenset[str]] = frozenset()  # keys that a receipt lacks where they say nothing

    def facts(self) -> dict[str, Any]:
        """The keys and values of a receipt."""
        values = dataclasses.asdict(self)
        return {name: value for name, value in values.items() if value or name not in self.quiet}


def total(counts: Iterable[Counts]) -> dict[str, Any]:
    """The sums of what is theirs beside documents, bytes and backend: numbers, and numbers by name; nothing else has a sum."""
    found: dict[str, Any] = {}
    for one in counts:
        for key, value in one.facts().items():
            if key in ("documents", "bytes", "backend") or isinstance(value, bool):
                continue
            if isinstance(value, int | float):
                found[key] = found.get(key, 0) + value
            elif isinstance(value, Mapping) and all(isinstance(v, int | float) for v in value.values()):
                of = found.setdefault(key, {})
                of.update({name: of.get(name, 0) + n for name, n in value.items()})
    return found


C = TypeVar("C", bound=Counts)
C_co = TypeVar("C_co", bound=Counts, covariant=True)


@dataclass(frozen=True)
class Written:
    """A file of a partition, under its name seen from the box."""

    file: str
    bytes: int
    xxh3: str


@dataclass(frozen=True)
class Cost:
    """What a task took.

    Attributes:
        seconds: of the worker's time.
        cpu_seconds: its children included.
        compile_seconds: of `seconds`, what compiling took.
    """

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    compile_seconds: float = 0.0


@dataclass(frozen=True)
class Receipt(Generic[C_co]):
    """What is known of a partition.

    Attributes:
        part: its name.
        files: what was written.
        counts: what was counted.
        cost: what it took.
        warnings: for the user.
        late_rejects: documents that the step could not take.
        more: names of the further partitions of the same task.
        key: of documents/: what its task reads, as a hash.
        of: what it was made of, as `Stage.made_of` tells it.
    """

    part: str
    files: tuple[Written, ...]
    counts: C_co
    cost: Cost = Cost()
    warnings: tuple[str, ...] = ()
    late_rejects: int = 0
    more: tuple[str, ...] = ()
    key: str = ""
    of: str = ""

    def json(self) -> dict[str, Any]:
        """As it lies on disk: flat."""
        cost = dataclasses.asdict(self.cost)
        if not self.cost.compile_seconds:
            del cost["compile_seconds"]
        own = {
            "warnings": list(self.warnings),
            "late_rejects": self.late_rejects,
            "more": list(self.more),
            "key": self.key,
            "of": self.of,
        }
        return {
            "part": self.part,
            "files": [vars(f) for f in self.files],
            **self.counts.facts(),
            **cost,
            **{name: value for name, value in own.items() if value},
        }


def parse(data: Any, kind: type[C]) -> Receipt[C]:
    """A receipt as it was written, its counts as `kind`. Raises: CorruptError: a key is missing or of another type."""
    try:
        if not isinstance(data, Mapping):
            raise TypeError("no object")
        head, counts = _adapter(_Head).validate_python(data), _adapter(kind).validate_python(data)  # type: ignore[arg-type]  # a class can be hashed
    except (ValueError, TypeError) as e:
        raise CorruptError(f"not a receipt of this program: {type(e).__name__}") from e
    cost = Cost(head.seconds, head.cpu_seconds, head.compile_seconds)
    own = (head.warnings, head.late_rejects, head.more, head.key, head.of)
    return Receipt(head.part, head.files, counts, cost, *own)


@dataclass(frozen=True)
class _Head:
    """The keys that every receipt has."""

    part: str
    files: tuple[Written, ...]
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    compile_seconds: float = 0.0
    warnings: tuple[str, ...] = ()
    late_rejects: int = 0
    more: tuple[str, ...] = ()
    key: str = ""
    of: str = ""


@functools.cache
def _adapter(kind: type[Any]) -> Any:
    from pydantic import TypeAdapter  # not with this module: what writes receipts does without

    return TypeAdapter(kind)
