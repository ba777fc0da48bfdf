"""The judges of a recipe as the stages use them: their tables, their scores of a partition, the thresholds of top shares.

# N documents
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from gpu_curate.judges import perplexity
from gpu_curate.judges.model import identity, load
from gpu_curate.ops.judge import PREFIX, Tables
from gpu_curate.quality.judges import BELOW_TOP, COLUMN, FAMILY, UNSCORED, Judge
from gpu_curate.stages import Boxes


def identities(judges: Mapping[str, Judge]) -> dict[str, str]:
    """Name → sha256 of the model, and what else its scores depend on, for a fingerprint. Raises: ConfigError: it is none."""
    found = {}
    for name, judge in judges.items():
        if judge.type == "exact":
            found[name] = identity(judge.model, _key(name))
        else:
            found[name] = f"{judge.type} {judge.unit} {perplexity.identity(judge.model, _key(name))}"
    return found


def libraries(judges: Mapping[str, Judge]) -> tuple[str, ...]:
    """Distributions that scores depend on."""
    return ("kenlm",) if any(judge.type == "perplexity" for judge in judges.values()) else ()


def _key(name: str) -> str:
    return f"quality.{FAMILY}.{name}.model"


def _exact(judges: Mapping[str, Judge]) -> dict[str, Judge]:
    return {name: judge for name, judge in judges.items() if judge.type == "exact"}


_tables: dict[tuple[str, ...], Tables] = {}  # sha256 of every model → their weights: the device keeps what was uploaded


def tables_of(judges: Mapping[str, Judge]) -> Tables:
    """The weights of the exact judges, in the order of the recipe. Memory: 1 to 4 MB each, once a process."""
    exact = _exact(judges)
    digests = tuple(identities(exact).values())
    if digests not in _tables:
        models = [load(judge.model, _key(name)) for name, judge in exact.items()]
        _tables.clear()
        _tables[digests] = Tables.of([m.weights for m in models], [m.ngrams for m in models])
    return _tables[digests]


def scores(
    stats: Mapping[str, np.ndarray], judges: Mapping[str, Judge], texts: Callable[[], Iterable[str]]
) -> dict[str, np.ndarray]:
    """The columns of the judges, on the host: int32 of N.

    Args:
        stats: of `text_stats` with the tables of the exact judges.
        texts: gives the N texts, for judges of other types.
    """
    found = {}
    for number, (name, judge) in enumerate(_exact(judges).items()):
        model = load(judge.model, _key(name))
        found[COLUMN + name] = model.scores(stats[f"{PREFIX}{number}"], stats["words"])
    for name, judge in judges.items():
        if judge.type == "perplexity":
            found[COLUMN + name] = perplexity.scores(judge.model, _key(name), texts(), judge.unit)
    return {COLUMN + name: found[COLUMN + name] for name in judges}


# ------------------------------------------------------------------------------------------------------- top shares

Thresholds = dict[str, dict[str, int]]  # judge → source, group or "" → the lowest score that stays


def _places(boxes: Boxes, part: str, per: str) -> tuple[list[str], np.ndarray]:
    """Names, and of every document the number of its name."""
    box = boxes.box("documents")
    if per == "all":
        return [""], np.zeros(len(box.columns(part, "doc_id")[0]), np.int64)
    names = ["source"] if per == "source" else ["source", "group"]
    there = [n for n in names if n in pq.read_schema(box.path(part, ".parquet")).names]
    table = box.read_table(part, there)
    columns = [[("" if v is None else str(v)) for v in table[n].to_pylist()] for n in there]
    keys = ["\t".join(row) for row in zip(*columns, strict=True)]
    unique = sorted(set(keys))
    number = {key: i for i, key in enumerate(unique)}
    return unique, np.array([number[k] for k in keys], np.int64)


def thresholds(boxes: Boxes, judges: Mapping[str, Judge]) -> Thresholds:
    """The lowest score that a top share keeps, of every judge that has one: among all scored documents of a source (or group),
    the highest score that ceil(share * documents) of them reach. Memory: an entry for each different score."""
    found: Thresholds = {}
    for name, judge in judges.items():
        if judge.top_share is None:
            continue
        counts: dict[str, Counter[int]] = {}
        for part in boxes.box("documents").parts():
            (score_N,) = boxes.box("scores").columns(part, COLUMN + name)
            names, place_N = _places(boxes, part, judge.per)
            for number, place in enumerate(names):
                own = score_N[(place_N == number) & (score_N != UNSCORED)]
                values, times = np.unique(own, return_counts=True)
                counts.setdefault(place, Counter()).update(dict(zip(values.tolist(), times.tolist(), strict=True)))
        found[name] = {place: _threshold(own, judge.top_share) for place, own in sorted(counts.items())}
    return found


def _threshold(times: Counter[int], share: float) -> int:
    wanted = math.ceil(share * times.total() - 1e-9)
    reached = 0
    for value in sorted(times, reverse=True):
        reached += times[value]
        if reached >= wanted:
            return value
    return UNSCORED


def below_top(
    boxes: Boxes, part: str, judges: Mapping[str, Judge], found: Thresholds, values: Mapping[str, Any]
) -> dict[str, np.ndarray]:
    """BELOW_TOP and a score's name → bool of N: the document has a score, and it is below its threshold."""
    made = {}
    for name, of_place in found.items():
        score_N = values[COLUMN + name]
        names, place_N = _places(boxes, part, judges[name].per)
        limit_N = np.array([of_place[n] for n in names], np.int64)[place_N] if len(names) else np.zeros(0, np.int64)
        made[BELOW_TOP + COLUMN + name] = (score_N < limit_N) & (score_N != UNSCORED)
    return made


# ------------------------------------------------------------------------------------------------------------ bands


def weights(boxes: Boxes, part: str, judges: Mapping[str, Judge]) -> np.ndarray:
    """float64 of N: how often a document is to be in the stream, the product over the judges that have bands."""
    weight_N = np.ones(len(boxes.box("decisions").columns(part, "doc_id")[0]), np.float64)
    for name, judge in judges.items():
        if judge.bands:
            (score_N,) = boxes.box("scores").columns(part, COLUMN + name)
            bands = sorted(judge.bands, key=lambda b: b.min)
            place_N = np.searchsorted(np.array([b.min for b in bands], np.int64), score_N, side="right")
            weight_N *= np.array([1.0, *(b.weight for b in bands)])[place_N]
    return weight_N
