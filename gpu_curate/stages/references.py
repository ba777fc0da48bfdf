"""Reference sets: benchmarks, a tokenizer's training sample, an older corpus.

Their items are read once into references/, numbered above every document of the sources, so that a match can be named.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa

from gpu_curate.config import Config, ParquetSource, Reference
from gpu_curate.document import MAX_FILES, doc_id
from gpu_curate.errors import ConfigError
from gpu_curate.sources import Record
from gpu_curate.sources.files import File, find, open_raw, open_stream, stem
from gpu_curate.sources.jsonl import get_field, parse_object
from gpu_curate.sources.parquet import ParquetReader
from gpu_curate.stages import Context, Stage, Stopwatch
from gpu_curate.stages.documents import SCHEMA
from gpu_curate.stages.signatures import Signatures
from gpu_curate.storage import write_table

SUFFIXES = (".jsonl", ".ndjson", ".json", ".parquet", ".txt", ".zip")


def reference_files(config: Config) -> list[tuple[Reference, list[File]]]:
    """The files of every reference set. Raises: ConfigError."""
    return [(r, find(r.paths, SUFFIXES, {}, f"reference {r.name}: path")) for r in config.references]


class References(Stage):
    """Read the items of every reference set.

    Reads: `references`.  Writes: documents as in documents/, `source` = name of the set, one per text field.
    A field that is missing in an item is passed over; a set that gives no text at all is an error.
    Formats: JSON Lines, one JSON document (every list of objects in it, every object that has the fields), Parquet,
    plain text (one item a file), and zip archives of these.
    """

    name: ClassVar[str] = "references"
    code: ClassVar[tuple[str, ...]] = ("stages.references", "text.normalize", "text.swar", "sources")

    def active(self, config: Config) -> bool:
        return bool(config.references)

    def settings(self, config: Config) -> Any:
        keep = {"name", "text_fields"}
        return [
            r.model_dump(include=keep) for r in config.references
        ], config.normalize and config.normalize.model_dump()

    def inputs(self, config: Config) -> Any:
        return [[(f.relative, f.size, f.identity) for f in files] for _, files in reference_files(config)]

    def plan(self, context: Context) -> dict[str, Any]:
        return {f"{i:06d}": i for i in range(len(context.config.references))}

    def run(self, context: Context, part: str, task: Any) -> dict[str, Any]:
        from gpu_curate.text.normalize import normalizer

        watch = Stopwatch()
        config = context.config
        normalize = normalizer(config.normalize)
        sets = reference_files(config)
        reference, files = sets[task]
        first = MAX_FILES + sum(len(own) for _, own in sets[:task])
        rows: dict[str, list[Any]] = {name: [] for name in SCHEMA.names}
        nbytes = 0
        for number, file in enumerate(files, first):
            for row, text in enumerate(items(file.path, reference.text_fields)):
                text = normalize(text)
                values = (doc_id(number, row), text, reference.name, file.path, row, None)
                for name, value in zip(SCHEMA.names, values, strict=True):
                    rows[name].append(value)
                nbytes += len(text.encode("utf-8"))
        if not rows["doc_id"]:
            raise ConfigError(
                f"reference {reference.name}: no text under {', '.join(reference.text_fields)} in {len(files)} files",
                "set text_fields to fields the files have",
            )
        box = context.box(self.name)
        path = box.path(part, ".parquet")
        write_table(path, pa.table({f.name: pa.array(rows[f.name], f.type) for f in SCHEMA}))
        facts = {"documents": len(rows["doc_id"]), "bytes": nbytes, "backend": "cpu", "set": reference.name}
        return box.commit(part, [path], {**facts, **watch.facts()})


class ReferenceSignatures(Signatures):
    """Signatures of the sets that documents are compared with as wholes (`dedup_against`, `train_only`)."""

    name: ClassVar[str] = "reference_signatures"
    follows: ClassVar[str | None] = "references"

    def active(self, config: Config) -> bool:
        return any(r.action != "decontaminate" for r in config.references)


def items(path: str, fields: list[str]) -> Iterator[str]:
    """The texts of a reference file, field by field, in file order. Raises: ConfigError: it cannot be read."""
    if path.lower().endswith(".zip"):
        with open_raw(path) as f, zipfile.ZipFile(f) as archive:
            for name in sorted(archive.namelist()):
                if not name.endswith("/") and stem(name).endswith(SUFFIXES):
                    yield from _texts(f"{path}!{name}", stem(name), archive.read(name), fields)
        return
    if stem(path).endswith(".parquet"):
        source = ParquetSource(name="r", type="parquet", text_column=fields[0], keep_columns=fields)
        reader = ParquetReader(source)
        for split in reader.splits(path, 0, 1 << 40):
            for item in reader.read(split):
                if isinstance(item, Record):
                    yield from _fields(dict(item.columns), fields)
        return
    with open_stream(path) as f:
        yield from _texts(path, stem(path), f.read(), fields)


def _texts(path: str, name: str, data: bytes, fields: list[str]) -> Iterator[str]:
    if name.endswith(".txt"):
        yield data.decode("utf-8", "replace")
    elif name.endswith(".json"):
        try:
            yield from _walk(json.loads(data), fields)
        except ValueError:  # .json that is really JSON Lines
            yield from _lines(path, data, fields)
    else:
        yield from _lines(path, data, fields)


def _lines(path: str, data: bytes, fields: list[str]) -> Iterator[str]:
    for number, line in enumerate(io.BytesIO(data), 1):
        if line.strip():
            try:
                value = parse_object(line.removeprefix(b"\xef\xbb\xbf"))
            except ValueError as e:
                raise ConfigError(f"reference file {path}: line {number}: {e}") from e
            yield from _fields(value, fields)


def _walk(value: Any, fields: list[str]) -> Iterator[str]:
    """Every object in a JSON document that has one of the fields; a string under a bare key counts too."""
    if isinstance(value, list):
        for entry in value:
            yield from _walk(entry, fields)
    elif isinstance(value, dict):
        found = list(_fields(value, fields))
        yield from found
        if not found:
            for entry in value.values():
                yield from _walk(entry, fields)


def _fields(value: dict[str, Any], fields: list[str]) -> Iterator[str]:
    for field in fields:
        try:
            text = get_field(value, field.split("."))
        except KeyError:
            continue
        if isinstance(text, str) and text:
            yield text
        elif isinstance(text, list):
            yield from (t for t in text if isinstance(t, str) and t)
