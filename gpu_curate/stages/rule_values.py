"""What the rules of a run look at, partition by partition: scores, and the columns that the recipe bounds.

The rules of a run stand in its decisions: every partition's Parquet file says under `gpu_curate.rules` which bit of `failing`
is which rule, with its bound. Whoever reads `failing` takes the names from there (`rules_of_run`), since a later version may
have more rules of its own below those that a recipe brings.

# N documents
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gpu_curate.errors import ConfigError
from gpu_curate.quality import Quality, rules
from gpu_curate.quality.columns import PREFIX, Values, compared
from gpu_curate.stages import Boxes, Context
from gpu_curate.stages.annotated import annotations_of
from gpu_curate.stages.reasons import in_order, rule_bits
from gpu_curate.stages.rejects import LateRejects, place_of
from gpu_curate.visible import one

_KEY = b"gpu_curate.rules"
_LOOKED_AT = 1000  # values of a column that tell whether it holds numbers


def rule_values(boxes: Boxes, part: str, quality: Quality) -> dict[str, Any]:
    """Scores as arrays of N by name, and the Values of every bounded column. Raises: CorruptError."""
    table = boxes.box("scores").read_table(part)
    values: dict[str, Any] = {n: table[n].to_numpy() for n in table.column_names if n != "language"}
    return values | column_values(boxes, part, list(quality.columns))


def column_values(boxes: Boxes, part: str, names: list[str]) -> dict[str, Values]:
    """The values of kept columns of one partition, and of columns of annotations; none where there is no such column."""
    if not names:
        return {}
    box = boxes.box("documents")
    path = box.path(part, ".parquet")
    there = set(pq.read_schema(path).names)
    table = box.read_table(part, ["doc_id", *(name for name in names if name in there)])
    others = [name for name in names if name not in there]
    annotated = annotations_of(boxes, table["doc_id"].to_numpy(), others) if others else {}
    columns = {**{name: table[name] for name in names if name in there}, **annotated}
    return {PREFIX + n: Values.of(columns[n]) if n in columns else Values.none(table.num_rows) for n in names}


def check_columns_hold_numbers(boxes: Boxes, quality: Quality) -> None:
    """Refuse a bound on a column whose first values, of whatever partitions, are no numbers.

    Raises:
        ConfigError: names column, file, row and value.
    """
    for name in compared(quality.columns):
        seen = list(islice(_present(boxes, name), _LOOKED_AT))
        if seen and not any(number for _, _, number in seen):
            (part, row, _) = seen[0]
            columns = ["path", "row"]
            place = boxes.box("documents").read_table(part, columns).slice(row, 1).to_pylist()[0]
            value = column_values(boxes, part, [name])[PREFIX + name].text[row].as_py()
            raise ConfigError(
                f"quality.columns.{name}: {place_of(place['path'], place['row'], None)}: {one(value)[:80]!r} is no number, "
                f"and none of the first {len(seen):,} values is",
                "min and max are for numbers; `in` names the values that are kept",
            )


def _present(boxes: Boxes, name: str) -> Iterator[tuple[str, int, bool]]:
    """Partition and number of the documents that have a value, and whether it is a number."""
    for part in boxes.box("documents").parts():
        values = column_values(boxes, part, [name])[PREFIX + name]
        wordy_N = values.wordy_N
        for row in np.flatnonzero(~values.missing_N).tolist():
            yield part, row, not wordy_N[row]


def reject_wordy(values: dict[str, Any], quality: Quality, rejects: LateRejects) -> None:
    """Reject the documents whose value of a compared column is no number."""
    for name in compared(quality.columns):
        own: Values = values[PREFIX + name]
        for row in np.flatnonzero(own.wordy_N).tolist():
            text = own.text[row].as_py()
            rejects.add(row, f"column {name} is no number: {one(text)[:80]!r}", text.encode("utf-8", "replace"))


# ------------------------------------------------------------------------------------------------- the rules of a run


def with_rules(table: pa.Table, quality: Quality, forget: str | None = None) -> pa.Table:
    """A table of decisions whose schema says which bits are which rules."""
    bit = rule_bits(quality, forget)
    bounds = {r.name: {"score": r.score, "bound": r.bound, "limit": _plain(r), "at": r.path} for r in rules(quality)}
    stated = [{"bit": number, "name": name, **bounds.get(name, {})} for name, number in bit.items()]
    text = json.dumps(stated, ensure_ascii=False).encode("utf-8")
    return table.replace_schema_metadata({**(table.schema.metadata or {}), _KEY: text})


def _plain(rule: Any) -> Any:
    return list(rule.among) if rule.bound == "in" else rule.limit


def rules_of_run(context: Context) -> list[dict[str, Any]]:
    """The quality rules of a run as its decisions state them, by bit: bit and name; of those that are on also score, bound
    (`min`, `max`, `in`, `no`), limit, and at (where the recipe gives it).

    A run without a partition has those of its config.
    """
    box = context.box("decisions")
    for part in box.parts():
        metadata = pq.read_schema(box.path(part, ".parquet")).metadata or {}
        if _KEY in metadata:
            stated: list[dict[str, Any]] = json.loads(metadata[_KEY])
            return stated
    return [
        {"bit": bit, "name": name} for name, bit in rule_bits(context.config.quality, context.config.forget).items()
    ]


def bits_of_run(context: Context) -> dict[str, int]:
    """Reason → its bit in `failing` of a run's decisions, in the order in which the reasons are tried."""
    return in_order({rule["name"]: rule["bit"] for rule in rules_of_run(context)})
