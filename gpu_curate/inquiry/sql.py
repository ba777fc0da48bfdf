"""A run's boxes as views of DuckDB: `gpu-curate sql` and `gpu_curate.open_run(RUN).sql`.

DuckDB is an extra ([sql]): the questions that have a command of their own read three or four columns, which pyarrow and NumPy
do as fast (scripts/bench/LOG.md), and a library of 60 MB is not asked of everybody for the others.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_curate.errors import ConfigError, install, one_line
from gpu_curate.inquiry.stored import Stored
from gpu_curate.stages.ngrams import NGRAMS
from gpu_curate.stages.order import benchmarks_of
from gpu_curate.stages.overlaps import box_of

if TYPE_CHECKING:
    import pyarrow as pa

VIEWS = {
    "documents": "doc_id, source, path, row, group, and what sources carry",
    "texts": "doc_id and text",
    "texts_by_reference": "doc_id, and length and hash of texts that lie in the sources' files (run.by_reference)",
    "scores": "doc_id and every statistic",
    "decisions": "doc_id, keep, reason, failing (a list of rules, in the order in which they are tried), partner, tokens, bytes",
    "clusters": "documents of components of two or more: doc_id, component, cluster, size, survivor, kind, jaccard",
    "contamination": "doc_id, set, coverage, hits, item: a row for every document and set of which it holds something",
    "ngrams": "set, ngram (hash), documents, items, template, text: a row for every benchmark n-gram that a document holds",
    "cuts": "doc_id, start, end, rule: a row for every range of bytes that a rule cut out of a document",
    "tokens": "documents.parquet of the shards: split, position, tokens, doc_id, source, path, row",
}


def sql(stored: Stored, query: str) -> pa.Table:
    """The result of a query over the views of VIEWS. Nothing of the run can be changed by it.

    Raises:
        ConfigError: DuckDB is missing, or it refuses the query; its message is told.
    """
    try:
        import duckdb
    except ImportError as e:
        raise ConfigError("sql: duckdb is not installed", install("sql")) from e
    connection = duckdb.connect(":memory:", config={"autoinstall_known_extensions": "false"})
    try:
        for name, definition in _definitions(stored).items():
            connection.execute(f"CREATE VIEW {name} AS {definition}")
        try:
            found = connection.sql(query)
            if found is None:
                raise ConfigError(f"sql: {query.strip()[:80]}: this gives no table", "ask with SELECT ...")
            return found.to_arrow_table()
        except duckdb.Error as e:
            views = "; ".join(f"{name}: {what}" for name, what in VIEWS.items())
            raise ConfigError(f"sql: {one_line(e, 1000)}", f"views are {views}") from e
    finally:
        connection.close()


def _definitions(stored: Stored) -> dict[str, str]:
    """View → its SELECT; those of boxes that the run has."""
    parts = [part for part in stored.parts if part in set(stored.parts_with_documents)]
    found = {"documents": f"SELECT * FROM {_parquet([stored.path('documents', p) for p in parts])}"}
    decided = _parquet([stored.path("decisions", p) for p in parts])
    for kind, files in stored.text_files(parts).items():
        name = "texts" if kind == "text" else "texts_by_reference"
        found[name] = _beside(_parquet([stored.path("decisions", p) for p in files]), _parquet(list(files.values())))
    cases = (f"CASE WHEN (failing >> {bit}) & 1 = 1 THEN {_text(name)} END" for name, bit in stored.bits.items())
    names = ", ".join(cases)
    failing = f"[name FOR name IN [{names}] IF name IS NOT NULL] AS failing"
    found["decisions"] = f"SELECT * REPLACE ({failing}) FROM {decided}"
    if stored.has("scores"):
        # rows of all boxes are in one order, and scores/ has no doc_id
        found["scores"] = _beside(decided, _parquet([stored.path("scores", p) for p in parts]))
    if stored.has("duplicates"):
        found["clusters"] = f"SELECT * FROM {_parquet([stored.box('duplicates').folder / 'clusters.parquet'])}"
    if stored.has(box_of(stored.context)):
        beside = _beside(decided, _parquet([stored.path(box_of(stored.context), p) for p in parts]))
        sets = [
            f'SELECT doc_id, {_text(r.name)} AS "set", {_name("coverage_" + r.name)} AS coverage, '
            f"{_name('hits_' + r.name)} AS hits, {_name('item_' + r.name)} AS item FROM ({beside}) "
            f"WHERE {_name('hits_' + r.name)} > 0"
            for r, _ in benchmarks_of(stored.config)
        ]
        found["contamination"] = " UNION ALL ".join(sets)
    if stored.has("ngrams"):
        found["ngrams"] = f"SELECT * FROM {_parquet([stored.box('ngrams').folder / NGRAMS])}"
    if stored.has("cuts"):
        cut, rows = (_parquet([stored.path(box, p) for p in parts], rows=True) for box in ("cuts", "decisions"))
        found["cuts"] = (
            f'SELECT d.doc_id, c.start, c."end", c.rule FROM {cut} c JOIN {rows} d '
            "ON parse_filename(c.filename) = parse_filename(d.filename) AND c.number = d.file_row_number"
        )
    if stored.has("shards") and (path := stored.box("shards").folder / "documents.parquet").exists():
        found["tokens"] = f"SELECT * FROM {_parquet([path])}"
    return found


def _beside(decided: str, other: str) -> str:
    """doc_id and the columns of a box that has none, row by row."""
    return f"SELECT * FROM (SELECT doc_id FROM {decided}) POSITIONAL JOIN {other}"


def _parquet(paths: list[Path], rows: bool = False) -> str:
    """A source of rows, file after file. `rows`: with their file and number in it."""
    more = ", filename = true, file_row_number = true" if rows else ""
    return f"read_parquet([{', '.join(_text(str(path)) for path in paths)}], hive_partitioning = false{more})"


def _text(value: str) -> str:
    quoted = value.replace("'", "''")
    return f"'{quoted}'"


def _name(value: str) -> str:
    quoted = value.replace('"', '""')
    return f'"{quoted}"'


def rows(table: Any, limit: int) -> list[list[str]]:
    """The first rows of a result as text for a terminal."""
    return [["" if v is None else str(v) for v in row.values()] for row in table.slice(0, limit).to_pylist()]
