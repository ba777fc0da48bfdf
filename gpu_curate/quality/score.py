"""The base of scores that a user writes: a class gives a number, or several, of a text; the recipe bounds them.

# N texts
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from gpu_curate.errors import ConfigError, FatalError
from gpu_curate.section import Section

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

DTYPES = ("float64", "float32", "int64", "int32")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BATCH_TEXTS = 1024
_BATCH_BYTES = 4 << 20


class Score(Section):
    """A score of your own. Parameters are fields, as of any pydantic model; a recipe gives them beside the bounds.

        class Digits(gc.Score):
            name = "digit_fraction"
            alphabet: str = "0123456789"

            def score(self, text: str) -> float:
                return sum(text.count(c) for c in self.alphabet) / len(text)

    A class gives one score, `name` with its `dtype`, or several: `names`, name → dtype, and then `score` returns a mapping.
    `score_all` in its place takes a batch. A score depends on the text and the parameters alone, and is the same in every
    process. An empty text is not asked: it scores 0.
    """

    name: ClassVar[str] = ""
    dtype: ClassVar[str] = "float64"  # or float32, int64, int32
    names: ClassVar[Mapping[str, str]] = {}
    libraries: ClassVar[tuple[str, ...]] = ()  # installed packages whose version the values depend on

    def score(self, text: str) -> float | Mapping[str, float]:
        """The score of one text, or each by its name. What it raises rejects the text."""
        raise NotImplementedError(f"{type(self).__name__} has neither `score` nor `score_all`")

    def score_all(self, texts: pa.Array) -> Any:
        """The scores of a batch of texts (Arrow strings): an array of N, or one each by its name."""
        values = [self.score(text) for text in texts.to_pylist()]
        if not type(self).names:
            return values
        return {name: [of_text[name] for of_text in values] for name in self.types()}  # type: ignore[index]  # one value, or a table of them

    def files(self) -> Iterable[str]:
        """Files whose content the values depend on (a list of words, a model)."""
        return ()

    @classmethod
    def types(cls) -> dict[str, str]:
        """Score → dtype, in order. Raises: ConfigError: what the class says of them is wrong."""
        types = dict(cls.names) or {cls.name: cls.dtype}
        for name, dtype in types.items():
            if not _NAME.fullmatch(name):
                what = f"{name!r} is no name of a score: letters, digits and `_`" if name else "it names no score"
                raise ConfigError(
                    f"class {cls.__name__}: {what}", 'name = "my_fraction", or names = {"a": "int32", ...}'
                )
            if dtype not in DTYPES:
                raise ConfigError(f"class {cls.__name__}: {name} has dtype {dtype!r}", f"there are {', '.join(DTYPES)}")
        taken = {key for name in types for key in ("min", "max", f"min_{name}", f"max_{name}")} & set(cls.model_fields)
        if taken:
            raise ConfigError(f"class {cls.__name__}: {min(taken)} is a parameter and a bound", "rename the parameter")
        return types


def scores_of(scorer: Score, texts: pa.Array, label: str) -> tuple[dict[str, np.ndarray], dict[int, str]]:
    """Every score of N texts, and which texts the class refuses.

    Args:
        texts: Arrow strings of N without null.
        label: of the class, for messages.
    Returns:
        score → array of N of its dtype, 0 for an empty or refused text; number of a refused text → why: the class raised, or
        gave what is no finite number, or none that its dtype holds.
    Raises:
        FatalError: the class gives another number of values, or other scores than it says.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    types = scorer.types()
    found = {name: np.zeros(len(texts), dtype) for name, dtype in types.items()}
    refused: dict[int, str] = {}
    bytes_N = pc.binary_length(texts).to_numpy(zero_copy_only=False)
    asked = np.flatnonzero(bytes_N)
    starts = [0]
    total = 0
    for place, n in enumerate(bytes_N[asked].tolist()):
        total += n
        if place - starts[-1] >= _BATCH_TEXTS or total > _BATCH_BYTES:
            starts.append(place)
            total = n
    for start, stop in zip(starts, [*starts[1:], len(asked)], strict=True):
        waiting = [asked[start:stop]]
        while waiting:
            rows = waiting.pop()
            if not len(rows):
                continue
            why = _ask(scorer, texts.take(pa.array(rows)), rows, types, found, refused, label)
            if why is not None and len(rows) == 1:
                refused[int(rows[0])] = why
            elif why is not None:
                half = len(rows) // 2
                waiting += [rows[half:], rows[:half]]
    return found, dict(sorted(refused.items()))


def _ask(
    scorer: Score,
    texts: pa.Array,
    rows: np.ndarray,
    types: Mapping[str, str],
    found: dict[str, np.ndarray],
    refused: dict[int, str],
    label: str,
) -> str | None:
    """Put the scores of a batch in their place. Returns: what the class raised."""
    import numpy as np

    from gpu_curate.guard import refusal

    try:
        given = scorer.score_all(texts)
    except BaseException as e:
        return f"{label} raises {refusal(e)}"
    columns = given if isinstance(given, Mapping) else {next(iter(types)): given}
    if set(columns) != set(types) or (len(types) > 1 and not isinstance(given, Mapping)):
        raise FatalError(f"{label} gives {', '.join(map(str, columns))}, not its scores {', '.join(types)}")
    for name, dtype in types.items():
        values = _array(columns[name], dtype)
        if values.ndim != 1 or len(values) != len(rows):
            what = f"{len(values)} values" if values.ndim == 1 else f"an array of shape {values.shape}"
            raise FatalError(f"{label}: score_all gives {what} of {name} for {len(rows)} texts")
        held, wrong = _held(values, dtype)
        for place in np.flatnonzero(wrong).tolist():
            refused.setdefault(int(rows[place]), f"{label} gives no {dtype} for {name}: {_shown(values[place])}")
        found[name][rows] = held
    return None


def _shown(value: Any) -> str:
    return repr(value.item() if hasattr(value, "item") else value)[:80]


def _array(values: Any, dtype: str) -> np.ndarray:
    """What a class gave as a NumPy array, of objects where it is no array of numbers, or a list of integers: NumPy makes
    floats of integers of which one passes int64."""
    import numpy as np

    if hasattr(values, "to_numpy"):  # Arrow, pandas, polars
        values = values.to_numpy(zero_copy_only=False) if hasattr(values, "null_count") else values.to_numpy()
    try:
        array = np.asarray(values, object if isinstance(values, list | tuple) and dtype.startswith("int") else None)
    except ValueError:  # of several lengths
        array = np.asarray(values, object)
    return array if array.dtype.kind in "biuf" or array.dtype == object else array.astype(object)


def _held(values: np.ndarray, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """The values in their dtype, and where one is no finite number or does not fit in it (0 there)."""
    import numpy as np

    wrong = np.zeros(len(values), np.bool_)
    if values.dtype == object:
        numbers = np.zeros(len(values), np.int64 if dtype.startswith("int") else np.float64)
        for place, value in enumerate(values):
            try:
                if (
                    isinstance(value, str | bytes)
                    or value is None
                    or (numbers.dtype.kind == "i" and int(value) != value)
                ):
                    raise ValueError
                numbers[place] = value
            except (TypeError, ValueError, OverflowError):
                wrong[place] = True
        values = numbers
    if values.dtype.kind == "f":
        wrong |= ~np.isfinite(values)
        values = np.where(wrong, 0.0, values)
    if not dtype.startswith("int"):
        with np.errstate(over="ignore"):
            held = values.astype(dtype)
        wrong |= ~np.isfinite(held)
    else:
        limits = np.iinfo(dtype)
        values = values.astype(np.int8) if values.dtype.kind == "b" else values
        if values.dtype.kind == "f":  # limits.max + 1 is a power of two, which a float has
            wrong |= (values != np.floor(values)) | (values < limits.min) | (values >= float(int(limits.max) + 1))
        else:
            wrong |= (values < limits.min) | (values > limits.max)
        held = np.where(wrong, 0, values).astype(dtype)
    return np.where(wrong, np.zeros(1, dtype), held), wrong
