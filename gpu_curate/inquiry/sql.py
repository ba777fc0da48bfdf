"""A run's boxes as views of DuckDB: `gpu-curate sql` and `gpu_curate.open_run(RUN).sql`.

DuckDB is an extra ([sql]): the questions that have a command of their own read three or four columns, which pyarrow and NumPy
do as fast (scripts/bench/LOG.md), and a library of 60 MB is not asked of everybody for the others.

A query may come from anybody: it reaches the views and nothing else. DuckDB's access to files, network and extensions is
off, its settings are locked, and the one thing that it may open, the run's files, is a file system of ours that reads only (`read_only`):
what DuckDB is allowed to read by its own settings (`allowed_paths`) it may write as well, from within a SELECT
(`WITH x AS (COPY ... TO ...) SELECT ...`).
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu_curate.errors import ConfigError, install, one_line
from gpu_curate.inquiry.stored import Stored
from gpu_curate.stages.ngrams import NGRAMS
from gpu_curate.stages.order import benchmarks_of
from gpu_curate.stages.overlaps import box_of

if TYPE_CHECKING:
    import pyarrow as pa

    from gpu_curate.inquiry.read_only import ReadOnly

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
    """The result of a query over the views of VIEWS. It reads these alone and writes nothing, whatever it says.

    Raises:
        ConfigError: DuckDB is missing, or it refuses the query; its message is told.
    """
    try:
        import duckdb

        from gpu_curate.inquiry.read_only import ReadOnly
    except ImportError as e:
        raise ConfigError(f"sql: {e.name} is not installed", install("sql")) from e
    files = ReadOnly()
    with tempfile.TemporaryDirectory(prefix="gpu-curate-sql-") as spilled:  # DuckDB's own is the current folder
        connection = duckdb.connect(":memory:", config={**_SETTINGS, "temp_directory": spilled})
        try:
            connection.register_filesystem(files)
            for name, definition in _definitions(stored, files).items():
                connection.execute(f"CREATE VIEW {name} AS {definition}")
            allowed = ", ".join(_text(path) for path in files.paths)
            connection.execute(f"SET allowed_paths = [{allowed}]")
            connection.execute("SET enable_external_access = false")
            connection.execute("SET lock_configuration = true")
            found = connection.sql(query)
            if found is None:
                raise ConfigError(f"sql: {query.strip()[:80]}: this gives no table", "ask with SELECT ...")
            return found.to_arrow_table()
        except duckdb.Error as e:
            if files.refused:
                raise ConfigError(f"sql: {query.strip()[:80]}: a query cannot write", "ask with SELECT ...") from e
            views = "; ".join(f"{name}: {what}" for name, what in VIEWS.items())
            raise ConfigError(f"sql: {one_line(e, 1000)}", f"views are {views}") from e
        finally:
            connection.close()


_SETTINGS = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",  # else a name that is no view is looked for among our own variables
}


def _definitions(stored: Stored, files: ReadOnly) -> dict[str, str]:
    """View → its SELECT; those of boxes that the run has."""
    parts = [part for part in stored.parts if part in set(stored.parts_with_documents)]
    found = {"documents": f"SELECT * FROM {_parquet(files, [stored.path('documents', p) for p in parts])}"}
    decided = _parquet(files, [stored.path("decisions", p) for p in parts])
    for kind, own in stored.text_files(parts).items():
        name = "texts" if kind == "text" else "texts_by_reference"
        texts = _parquet(files, list(own.values()))
        found[name] = _beside(_parquet(files, [stored.path("decisions", p) for p in own]), texts)
    cases = (f"CASE WHEN (failing >> {bit}) & 1 = 1 THEN {_text(name)} END" for name, bit in stored.bits.items())
    names = ", ".join(cases)
    failing = f"[name FOR name IN [{names}] IF name IS NOT NULL] AS failing"
    found["decisions"] = f"SELECT * REPLACE ({failing}) FROM {decided}"
    if stored.has("scores"):
        # rows of all boxes are in one order, and scores/ has no doc_id
        found["scores"] = _beside(decided, _parquet(files, [stored.path("scores", p) for p in parts]))
    if stored.has("duplicates"):
        found["clusters"] = f"SELECT * FROM {_parquet(files, [stored.box('duplicates').folder / 'clusters.parquet'])}"
    if stored.has(box_of(stored.context)):
        beside = _beside(decided, _parquet(files, [stored.path(box_of(stored.context), p) for p in parts]))
        sets = [
            f'SELECT doc_id, {_text(r.name)} AS "set", {_name("coverage_" + r.name)} AS coverage, '
            f"{_name('hits_' + r.name)} AS hits, {_name('item_' + r.name)} AS item FROM ({beside}) "
            f"WHERE {_name('hits_' + r.name)} > 0"
            for r, _ in benchmarks_of(stored.config)
        ]
        found["contamination"] = " UNION ALL ".join(sets)
    if stored.has("ngrams"):
        found["ngrams"] = f"SELECT * FROM {_parquet(files, [stored.box('ngrams').folder / NGRAMS])}"
    if stored.has("cuts"):
        cut, rows = (_parquet(files, [stored.path(box, p) for p in parts], True) for box in ("cuts", "decisions"))
        found["cuts"] = (
            f'SELECT d.doc_id, c.start, c."end", c.rule FROM {cut} c JOIN {rows} d '
            "ON parse_filename(c.filename) = parse_filename(d.filename) AND c.number = d.file_row_number"
        )
    if stored.has("shards") and (path := stored.box("shards").folder / "documents.parquet").exists():
        found["tokens"] = f"SELECT * FROM {_parquet(files, [path])}"
    return found


def _beside(decided: str, other: str) -> str:
    """doc_id and the columns of a box that has none, row by row."""
    return f"SELECT * FROM (SELECT doc_id FROM {decided}) POSITIONAL JOIN {other}"


def _parquet(files: ReadOnly, paths: list[Path], rows: bool = False) -> str:
    """A source of rows, file after file. `rows`: with their file and number in it."""
    more = ", filename = true, file_row_number = true" if rows else ""
    names = ", ".join(_text(files.add(path)) for path in paths)
    # by name: sources carry columns of their own
    return f"read_parquet([{names}], hive_partitioning = false, union_by_name = true{more})"


def _text(value: str) -> str:
    quoted = value.replace("'", "''")
    return f"'{quoted}'"


def _name(value: str) -> str:
    quoted = value.replace('"', '""')
    return f'"{quoted}"'


def rows(table: Any, limit: int) -> list[list[str]]:
    """The first rows of a result as text for a terminal."""
    return [["" if v is None else str(v) for v in row.values()] for row in table.slice(0, limit).to_pylist()]
