"""`gpu-curate sql`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from gpu_curate.commands.options import AsJson, RunFolder, ShardsName

EXAMPLES = (
    "Examples:  gpu-curate sql runs/web 'select reason, count(*), sum(tokens) from decisions group by all order by 2 desc'  |  "
    "gpu-curate sql runs/web 'select path, avg(words) from scores join documents using (doc_id) group by all' --json"
)
_CELL_CHARS = 60


def sql(
    run: RunFolder,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="SQL as DuckDB has it.")],
    n: Annotated[int, typer.Option("-n", min=1, help="Rows printed; --json fingerprint_of all.")] = 100,
    shards: ShardsName = None,
    as_json: AsJson = False,
) -> None:
    """Ask a run's documents, scores, decisions, clusters, contamination and tokens in SQL. Changes nothing."""
    import json

    from gpu_curate.inquiry import sql as asking
    from gpu_curate.inquiry.stored import Stored
    from gpu_curate.visible import say, say_json

    found = asking.sql(Stored(run, shards), query)
    if as_json:
        say_json(json.loads(json.dumps(found.to_pylist(), default=str)))
        return
    _print(found, asking.rows(found, n))
    if found.num_rows > n:
        say(f"{found.num_rows:,} rows, of which {n:,} are shown (-n)")


def _print(found: Any, rows: list[list[str]]) -> None:
    from gpu_curate.terminal import new_table, show

    shown = new_table(*found.column_names)
    for row in rows:
        shown.add_row(*(cell[:_CELL_CHARS] + ("..." if len(cell) > _CELL_CHARS else "") for cell in row))
    show(shown)
