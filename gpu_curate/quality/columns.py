"""Rules on a column that the sources carry: a score that came with the data, a label, a mark.

A kept column is text in documents/ (numbers as JSON writes them), so a value is read here as the number it was: an integer
of any size as it is, any other as float64. `true` and `false` are 1 and 0. A number in quotes is that number. Missing is
null, blank text, and NaN.

# N documents
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, model_serializer, model_validator

from gpu_curate.quality.rule import ANY_SCRIPT, Rule
from gpu_curate.section import Section

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

FAMILY = "columns"
PREFIX = "columns:"  # of a column among the scores that rules look at
_NUMBER = r"^-?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?$"
_INTEGER = r"^-?\d+$"
_EXACT = 1 << 53  # up to here float64 has every integer
_NAMED = {
    "true": 1.0,
    "false": 0.0,
    "Infinity": float("inf"),
    "-Infinity": -float("inf"),
}  # as Python writes them in JSON


class ColumnBounds(Section):
    """What a document's value of a kept column must be."""

    off: ClassVar[dict[str, Any]] = {}

    min: int | float | None = Field(None, description="drops a document with a lower value; null: off")
    max: int | float | None = Field(None, description="drops a document with a higher value; null: off")
    in_: list[bool | int | float | str] | None = Field(
        None,
        alias="in",
        min_length=1,
        description="drops a document with another value; text is compared as it is, numbers by value; null: off",
    )
    missing: Literal["keep", "drop"] = Field(
        "keep", description="what becomes of a document without a value, or whose source does not carry the column"
    )

    @model_validator(mode="after")
    def _bounds_something(self) -> ColumnBounds:
        if self.min is None and self.max is None and self.in_ is None and self.missing == "keep":
            raise ValueError("bounds nothing: give min, max, in, or missing: drop")
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min={self.min} above max={self.max} drops every document; swap them")
        return self

    @model_serializer
    def _as_written(self) -> dict[str, Any]:
        given = {"min": self.min, "max": self.max, "in": self.in_}
        return {**{key: value for key, value in given.items() if value is not None}, "missing": self.missing}


@dataclass(frozen=True, eq=False)
class Values:
    """A column's values of N documents, as rules compare them.

    Attributes:
        number_N: float64; NaN where there is no number.
        exact: of integers that float64 has not: their place and value.
        text: Arrow strings of N, null where the value is missing.
    """

    number_N: np.ndarray
    exact: Mapping[int, int]
    text: pa.Array

    @classmethod
    def none(cls, n: int) -> Values:
        """N documents without a value."""
        import numpy as np
        import pyarrow as pa

        return cls(np.full(n, np.nan), {}, pa.nulls(n, pa.string()))

    @classmethod
    def of(cls, column: Any) -> Values:
        """The values of an Arrow column of strings, numbers or booleans."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if pa.types.is_dictionary(array.type):
            array = array.cast(array.type.value_type)
        text = array.cast(pa.string())
        bare = pc.utf8_trim_whitespace(text)
        bare = pc.replace_substring_regex(pc.replace_substring_regex(bare, r'^"(.*)"$', r"\1"), r"^\+", "")
        missing = pc.or_kleene(pc.is_null(text), pc.is_in(bare, pa.array(["", "NaN", "nan"])))
        text = pc.if_else(missing, None, text)
        numeric = pc.fill_null(pc.match_substring_regex(bare, _NUMBER), False)
        number_N = _floats(pc.if_else(numeric, bare, None))
        for name, value in _NAMED.items():
            number_N[pc.fill_null(pc.equal(pc.utf8_lower(bare), name.lower()), False).to_numpy(False)] = value
        large = np.flatnonzero(np.abs(number_N) >= _EXACT)
        values = ((row, bare[row].as_py()) for row in large.tolist())
        return cls(number_N, {row: int(value) for row, value in values if re.fullmatch(_INTEGER, value)}, text)

    def __len__(self) -> int:
        return len(self.number_N)

    @property
    def missing_N(self) -> np.ndarray:
        """bool of N."""
        missing_N: np.ndarray = self.text.is_null().to_numpy(zero_copy_only=False)
        return missing_N

    @property
    def wordy_N(self) -> np.ndarray:
        """bool of N: there is a value, and it is no number."""
        import numpy as np

        strange_N: np.ndarray = np.isnan(self.number_N) & ~self.missing_N
        return strange_N

    def beyond(self, bound: str, limit: float) -> np.ndarray:
        """bool of N: the number is below `limit` (bound `min`) or above it (`max`), exactly; False where there is none."""
        beyond_N: np.ndarray = self.number_N < limit if bound == "min" else self.number_N > limit
        for row, value in self.exact.items():
            beyond_N[row] = value < limit if bound == "min" else value > limit
        return beyond_N

    def among(self, values: tuple[Any, ...]) -> np.ndarray:
        """bool of N: the text is one of `values`, or the number is."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        numbers = [v for v in values if isinstance(v, int | float)]  # true and false are 1 and 0
        words = pa.array([v for v in values if isinstance(v, str)], pa.string())
        among_N: np.ndarray = pc.is_in(self.text, words).to_numpy(zero_copy_only=False) & ~self.missing_N
        among_N |= np.isin(self.number_N, np.array([float(v) for v in numbers], np.float64))
        for row, value in self.exact.items():
            among_N[row] = any(value == v for v in numbers) or self.text[row].as_py() in words.to_pylist()
        return among_N


def _floats(numbers: Any) -> np.ndarray:
    """float64 of N of decimal numbers, correctly rounded; NaN for null, infinity beyond its range."""
    import numpy as np
    import pyarrow as pa

    try:
        made: np.ndarray = numbers.cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:  # 1e999
        made = np.array([np.nan if v is None else float(v) for v in numbers.to_pylist()], np.float64)
    return np.array(made, np.float64)


@dataclass(frozen=True)
class ColumnRule(Rule):
    """One bound on a kept column: `min`, `max`, `in` (its values in `among`), or `no`, that there is a value at all."""

    among: tuple[Any, ...] = field(default=())

    def fails(self, scores: Mapping[str, Any]) -> np.ndarray:
        """bool of N; the scores hold the column's Values under PREFIX and its name."""
        values: Values = scores[self.score]
        if self.bound == "no":
            return values.missing_N
        if self.bound == "in":
            fails_N: np.ndarray = ~values.among(self.among) & ~values.missing_N
            return fails_N
        assert self.limit is not None
        return values.beyond(self.bound, self.limit)

    @property
    def meaning(self) -> str:
        column = self.score.removeprefix(PREFIX)
        if self.bound == "no":
            return f"no value of column {column}"
        if self.bound == "in":
            return f"column {column} is none of {', '.join(map(str, self.among))}"
        return f"column {super().meaning.removeprefix(PREFIX)}"


def rules(columns: Mapping[str, ColumnBounds]) -> Iterator[ColumnRule]:
    """The rules of all columns, in the order of the recipe: `columns:no_NAME`, `min_NAME`, `max_NAME`, `in_NAME`."""
    for name, bounds in columns.items():
        limits: tuple[tuple[Literal["no", "min", "max", "in"], Any], ...] = (
            ("no", True if bounds.missing == "drop" else None),
            ("min", bounds.min),
            ("max", bounds.max),
            ("in", bounds.in_),
        )
        for bound, value in limits:
            if value is not None:
                limit = value if bound in ("min", "max") else None
                among = tuple(value) if bound == "in" else ()
                key = "missing" if bound == "no" else bound
                at = f"quality.{FAMILY}.{name}.{key}"
                yield ColumnRule(f"{FAMILY}:{bound}_{name}", PREFIX + name, bound, limit, key, ANY_SCRIPT, at, among)


def compared(columns: Mapping[str, ColumnBounds]) -> list[str]:
    """The columns whose values must be numbers."""
    return [name for name, bounds in columns.items() if bounds.min is not None or bounds.max is not None]
