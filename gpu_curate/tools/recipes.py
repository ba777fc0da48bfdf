"""Recipes: those that come with the package, and one written for the user's own files by looking into them.

A file's kind is told by its first bytes, its text column by its first records; suffixes only say how it is compressed and
which files of a folder go together. Whatever no reader takes is named in the recipe, with what would do.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_curate.config import did_you_mean
from gpu_curate.errors import ConfigError, GpuCurateError, RefusedFooter, one_line
from gpu_curate.runs.progress import human_bytes

_HEAD_BYTES = 1 << 20  # of a file that is looked at, decompressed
_RECORDS = 50  # looked at for the text column
_MAX_FILES = 200  # opened in one folder; the others go by their suffix
_MAX_LISTED = 20  # files named one by one in `path`
# What the text of a document is called most often: such a column is taken unless another one holds eight times as much.
_TEXT_NAMES = (
    "text",
    "content",
    "contents",
    "body",
    "raw_content",
    "page_content",
    "document",
    "article",
    "markdown",
    "code",
)
_TEXT_NAME_WEIGHT = 8
_KEEP_NAMES = ("url", "title", "id", "date", "timestamp", "dump", "language", "license", "path")
_CODE = {
    ".py",
    ".c",
    ".h",
    ".cc",
    ".cpp",
    ".hpp",
    ".cu",
    ".rs",
    ".go",
    ".java",
    ".js",
    ".ts",
    ".rb",
    ".sh",
    ".jl",
    ".kt",
    ".swift",
}
_SETTINGS = {".yaml", ".yml", ".toml", ".ini", ".cfg", ".lock"}
_TABLE_REMEDY = "convert it to Parquet (pyarrow.csv.read_csv, pyarrow.parquet.write_table)"


# ------------------------------------------------------------------------------------------------------- shipped recipes


def folder() -> Path:
    """Where the recipes lie: in the installed package, or in the checkout."""
    own = Path(__file__).parents[1] / "configs"
    return own if own.is_dir() else Path(__file__).parents[2] / "configs"


def names() -> list[str]:
    return sorted(p.stem for p in folder().glob("*.yaml"))


def read(name: str) -> str:
    """The text of a recipe that comes with the package. Raises: ConfigError: there is none of that name."""
    known = names()
    if name.removesuffix(".yaml") not in known:
        raise ConfigError(f"recipe {name!r}: not one of {', '.join(known)}{did_you_mean(name, known)}")
    return (folder() / f"{name.removesuffix('.yaml')}.yaml").read_text(encoding="utf-8")


# ----------------------------------------------------------------------------------------------------- looking at a file


@dataclass
class Look:
    """What a file is."""

    path: str
    size: int
    kind: str | None  # a source's type; None: no reader takes it
    why_not: str = ""
    text_column: str | None = None
    columns: list[str] = field(default_factory=list)
    chars: float = 0.0  # of a text in the sample, on average
    encoding: str = "utf-8"


def look(path: str) -> Look:
    """A file's kind and text column. Reads its first MiB, of Parquet its footer and some rows; never raises for its content."""
    from gpu_curate.sources.compression import damage
    from gpu_curate.sources.files import open_raw, open_stream

    size = os.path.getsize(path)
    if size == 0:
        return Look(path, 0, None, "empty")
    damages: tuple[type[BaseException], ...] = (GpuCurateError, *damage())
    try:
        with open_raw(path) as f:
            magic = f.read(16)
        if magic.startswith(b"PAR1"):
            return _look_at_parquet(path, size)
        with open_stream(path) as f:
            head = f.read(_HEAD_BYTES)
    except damages as e:
        return Look(path, size, None, f"unreadable: {one_line(e, 120)}")
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n\0")
    if start.startswith((b"WARC/", b"filedesc:")) or re.match(rb"https?://\S+ [\d.]+ \d{14} \S+ \d+\r?\n", start):
        return Look(path, size, "warc")
    if b"<mediawiki" in start[:4096]:
        return Look(path, size, "wikipedia")
    if start.startswith((b"{", b"[")) and (found := _look_at_json(path, size, start)) is not None:
        return found
    return _look_at_text(path, size, head)


class _Parquet:
    """Looks at a Parquet file; asked in another process, which a damaged one may end."""

    def __init__(self, source: None):
        self.source = source

    def look(self, path: str, size: int) -> Look:
        return _look_inside(path, size)


def _look_at_parquet(path: str, size: int) -> Look:
    from gpu_curate.sources import footers

    try:
        look: Look
        look, _ = footers.ask(_Parquet(None), "look", path, size)
        return look
    except RefusedFooter as e:
        return Look(path, size, None, f"unreadable: {e.message}")


def _look_inside(path: str, size: int) -> Look:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            wanted = [f.name for f in schema if _may_hold_text(f.type)]
            batch = next(file.iter_batches(_RECORDS, columns=wanted, use_threads=False), None)
            records = batch.to_pylist() if batch is not None else []
    except (pa.ArrowException, OSError, ValueError) as e:
        return Look(path, size, None, f"unreadable: {one_line(e, 120)}")
    return _with_column(Look(path, size, "parquet", columns=list(schema.names)), records)


def _may_hold_text(kind: Any) -> bool:
    import pyarrow as pa

    t = pa.types
    if t.is_dictionary(kind):
        return _may_hold_text(kind.value_type)
    tests = (t.is_struct, t.is_string, t.is_large_string, t.is_string_view, t.is_binary)
    return any(test(kind) for test in tests)


def _look_at_json(path: str, size: int, start: bytes) -> Look | None:
    """JSON Lines or an array of objects; None: it is no JSON, only text that begins like it."""
    from gpu_curate.sources.jsonl import parse_object

    if start.startswith(b"["):
        records = list(_array_head(start))
        return _with_column(Look(path, size, "jsonl"), records) if records else None
    records = []
    lines = start.split(b"\n")
    for line in lines[: _RECORDS * 2]:
        try:
            records.append(parse_object(line.rstrip(b"\r")))
        except (ValueError, RecursionError):
            continue
    if not records:
        try:
            json.loads(start)
        except (ValueError, RecursionError):
            return None
        return Look(path, size, None, "one JSON object over many lines: write one object a line")
    return _with_column(Look(path, size, "jsonl"), records[:_RECORDS])


def _array_head(start: bytes) -> Iterator[dict[str, Any]]:
    """The first objects of a JSON array."""
    text = start.decode("utf-8", "replace")
    decoder = json.JSONDecoder()
    at = 1
    for _ in range(_RECORDS):
        at += len(text[at:]) - len(text[at:].lstrip(" \t\r\n,"))
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        if isinstance(value, dict):
            yield value


def _look_at_text(path: str, size: int, head: bytes) -> Look:
    suffix = _suffix(path)
    if suffix in (".csv", ".tsv"):
        return Look(path, size, None, f"a table: {_TABLE_REMEDY}")
    for encoding in ("utf-8", "utf-16" if head.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8"):
        try:
            text = head.decode(encoding)
        except UnicodeDecodeError as e:
            if e.start < len(head) - 4 or len(head) < _HEAD_BYTES:  # not a character that the end of the head cuts
                continue
            text = head[: e.start].decode(encoding)
        if "\0" not in text[:4096]:
            return Look(path, size, "text", encoding=encoding, chars=float(size))
    if b"\0" in head[:4096]:
        return Look(path, size, None, "binary")
    return Look(path, size, "text", encoding="cp1252", chars=float(size))


def _with_column(found: Look, records: list[Any]) -> Look:
    """`found` with the column that holds most text, and the names of all that hold some."""
    chars: Counter[str] = Counter()
    filled: Counter[str] = Counter()
    for record in records:
        for name, text in _strings(record):
            chars[name] += len(text)
            filled[name] += bool(text)

    def weight(name: str) -> float:
        named = name.rsplit(".", 1)[-1].lower() in _TEXT_NAMES
        return chars[name] * (_TEXT_NAME_WEIGHT if named else 1)

    candidates = [n for n in chars if filled[n] * 2 >= len(records)]
    found.columns = list(dict.fromkeys([*found.columns, *(n.split(".")[0] for r in records for n in r), *chars]))
    if candidates:
        found.text_column = max(candidates, key=weight)
        found.chars = chars[found.text_column] / len(records)
    elif found.kind is not None:
        found.kind, found.why_not = (
            None,
            f"no column with text in its first records (it has {', '.join(found.columns[:12])})",
        )
    return found


def _strings(value: Any, prefix: str = "", depth: int = 4) -> Iterator[tuple[str, str]]:
    """Dotted names and values of all strings of a record; bytes count if they are UTF-8."""
    for name, inner in value.items():
        if isinstance(inner, bytes):
            try:
                inner = inner.decode("utf-8")
            except UnicodeDecodeError:
                continue
        if isinstance(inner, str):
            yield prefix + str(name), inner
        elif isinstance(inner, dict) and depth:
            yield from _strings(inner, f"{prefix}{name}.", depth - 1)


def _suffix(path: str) -> str:
    from gpu_curate.sources.files import stem

    return os.path.splitext(stem(path))[1]


# ---------------------------------------------------------------------------------------------------- files to sources


@dataclass
class Source:
    """A source of the recipe to be."""

    name: str
    paths: list[str]
    files: list[Look]

    @property
    def kind(self) -> str:
        return self.files[0].kind or ""

    @property
    def size(self) -> int:
        return sum(f.size for f in self.files)

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(c for f in self.files for c in f.columns))


def find_sources(paths: Iterable[str]) -> tuple[list[Source], list[Look]]:
    """What sources the files below `paths` make, and the files that no reader takes.

    Raises: ConfigError: a path matches nothing, or is a URL.
    """
    sources: list[Source] = []
    every: list[Look] = []
    for path in paths:
        if "://" in path:
            raise ConfigError(
                f"init {path}: looks at local files", "write the URL as a source's path: `gpu-curate init --recipe`"
            )
        groups: dict[tuple[str | None, ...], list[Look]] = {}
        for one in _looks(path):
            every.append(one)
            if one.kind is not None:
                by_suffix = _suffix(one.path) if one.kind == "text" and os.path.isdir(path) else None
                groups.setdefault((one.kind, one.text_column, one.encoding, by_suffix), []).append(one)
        for key, files in groups.items():
            alone = sum(k[0] == key[0] for k in groups) == 1
            sources += _source(path, key[0] or "", files, alone, [s.name for s in sources])
    return sources, [f for f in every if f.kind is None]


def _looks(path: str) -> Iterator[Look]:
    """Every file of a path; in a folder of many, most by the suffix of one that was looked at."""
    from gpu_curate.sources.files import find

    files = find([path], (), {}, f"init {path}").files
    seen: Counter[str] = Counter()
    known: dict[str, Look] = {}
    for file in files:
        inside = os.path.isdir(path)
        if inside and any(p.startswith((".", "_")) for p in file.relative.split("/")):
            continue
        suffix = _suffix(file.path)
        if inside and suffix in _SETTINGS:
            continue
        if seen[suffix] >= _MAX_FILES and suffix in known:
            yield Look(**{**vars(known[suffix]), "path": file.path, "size": file.size})
            continue
        seen[suffix] += 1
        known[suffix] = found = look(file.path)
        yield found


def _suffixes(kind: str) -> tuple[str, ...]:
    """What the names of files that a reader takes end in, compression apart; () takes any."""
    from gpu_curate.sources.jsonl import JsonlReader
    from gpu_curate.sources.parquet import ParquetReader
    from gpu_curate.sources.warc import WarcReader
    from gpu_curate.sources.wikipedia import WikipediaReader

    suffixes = {
        "jsonl": JsonlReader.suffixes,
        "parquet": ParquetReader.suffixes,
        "warc": WarcReader.suffixes,
        "wikipedia": WikipediaReader.suffixes,
    }
    return suffixes.get(kind, ())


def _source(path: str, kind: str, files: list[Look], alone: bool, taken: list[str]) -> list[Source]:
    """The source that reads `files` of `path`; [] where none is left. What cannot be read becomes of no kind."""
    from gpu_curate.sources.files import find, fits, stem

    for file in files:
        if stem(file.path).endswith(".wat"):
            file.kind, file.why_not = None, "metadata of a crawl, no text"
        elif not fits(file.path, _suffixes(kind), False):
            file.kind, file.why_not = None, f"{kind} data under another name: rename it to end in {_suffixes(kind)[0]}"
    files = [f for f in files if f.kind is not None]
    if not files:
        return []
    if not os.path.isdir(path) or (alone and kind != "text"):
        ways = [[path]]
    elif kind == "text" and (suffix := _suffix(files[0].path)):
        endings = {os.path.basename(f.path)[len(os.path.basename(f.path).split(suffix)[0]) :] for f in files}
        ways = [[f"{path.rstrip('/')}/**/*{e}" for e in sorted(endings)]]
    else:
        ways = []
    ways.append([f.path for f in files])
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", Path(path).resolve().name.split("*")[0].split(".")[0]).strip("-") or "data"
    name = name if name not in taken else f"{name}-{kind}"
    number = 2
    while name in taken:
        name, number = f"{name.rstrip('0123456789')}{number}", number + 1
    refused = ""
    for paths in ways:
        try:
            found = {os.path.realpath(f.path) for f in find(paths, _suffixes(kind), {}, "path").files if f.size}
        except ConfigError as e:
            refused = e.message
            continue
        if {os.path.realpath(f.path) for f in files} == found:
            return [Source(name, paths, files)]
        refused = "its neighbours are of another kind: give it a folder of its own"
    for file in files:
        file.kind, file.why_not = None, refused
    return []


def _keys(source: Source) -> dict[str, Any]:
    """A source's keys in the recipe."""
    paths: Any = source.paths[0] if len(source.paths) == 1 else source.paths
    keys = {"name": source.name, "type": source.kind, "path": paths}
    first = source.files[0]
    if source.kind in ("jsonl", "parquet"):
        keys["text_column"] = first.text_column
    if source.kind == "text" and first.encoding != "utf-8":
        keys["encoding"] = first.encoding
    return keys


# ------------------------------------------------------------------------------------------------------- writing a recipe


def compose(paths: list[str], target: str) -> tuple[str, list[Source], list[Look]]:
    """A commented recipe for the files below `paths`, its sources, and the files that no reader takes.

    Args:
        target: the name that the recipe will have, for its comments.
    Raises:
        ConfigError: a path matches nothing, or nothing in them can be read.
    """
    sources, left = find_sources(paths)
    left = [f for f in left if os.path.realpath(f.path) != os.path.realpath(target)]
    if not sources:
        reasons = "; ".join(f"{f.path}: {f.why_not}" for f in left[:3])
        raise ConfigError(
            f"init {' '.join(paths)}: no file that can be read{' (' + reasons + ')' if reasons else ''}",
            "readers take Parquet, JSON Lines, text, WARC and Wikipedia dumps, compressed or not",
        )
    size = sum(s.size for s in sources)
    kinds = {s.kind for s in sources}
    code = any(s.kind == "text" and _suffix(f.path) in _CODE for s in sources for f in s.files)
    short = [s.name for s in sources if s.kind in ("jsonl", "parquet") and s.files[0].chars < 400]
    lines = [
        f"# Written by `gpu-curate init {' '.join(paths)}`. All keys: `gpu-curate config reference`.",
        f"#   gpu-curate plan {target}     # what a run would do; writes nothing",
        f"#   gpu-curate run  {target}     # to runs/{Path(target).stem}",
        "",
        "sources:",
    ]
    for source in sources:
        lines += _source_lines(source)
    if left:
        lines += ["  # not read:"]
        lines += [f"  #   {_one_line(f.path)}: {f.why_not}" for f in left[:_MAX_LISTED]]
        by_suffix = Counter(_suffix(f.path) or "no suffix" for f in left[_MAX_LISTED:])
        lines += [f"  #   and {n:,} more ({suffix})" for suffix, n in by_suffix.most_common()]
    keep = ", keep_indentation: true" if code else ""
    lines += ["", f"normalize: {{form: NFC{keep}}}" + ("     # some of it is source code" if code else "")]
    if "warc" in kinds:
        lines += ["", "# language: {model: lid.176.ftz, keep: [en], min_score: 0.65}   # needs the extra `language`"]
    on = "on " if kinds == {"warc"} else "off"
    lines += [
        "",
        "# Rules made for web pages in English; scores are stored all the same, so switching one on later costs seconds.",
        "quality:",
        f"  gopher_quality: {on}      # Rae et al. 2021, arXiv:2112.11446, section A.1.1",
        f"  gopher_repetition: {on}   # the same paper, table A1",
        "  c4: off                  # Raffel et al. 2020, arXiv:1910.10683, section 2.2",
        "  fineweb: off             # Penedo et al. 2024, arXiv:2406.17557, section 3.6",
        "",
        "dedup:",
        "  exact: true",
        "  fuzzy: {shingle_words: 5, num_bands: 14, rows_per_band: 8}   # FineWeb, section 3.4; null: off",
        "",
        "tokenizer:",
        f"  train: {{vocab_size: {8192 if size < 50e6 else 32768}}}      # on the documents of the run; or take one:",
        "  # path: gpt2                     # a hub name, a tokenizer.json or tiktoken:NAME, instead of `train`",
        '  eot: "<|endoftext|>"',
        "",
        f"min_tokens: {8 if short else 64}"
        + (
            f"                 # documents of {', '.join(short)} are short"
            if short
            else "                # a shorter document is dropped"
        ),
        "",
        "shards:",
        "  format: llmc                   # or nanogpt, megatron",
        "  tokens_per_shard: 100_000_000",
        "  validation: {tokens: 1_000_000}   # at most a tenth of what is kept",
        "",
    ]
    return "\n".join(lines), sources, left


def _source_lines(source: Source) -> list[str]:
    n = len(source.files)
    lines = [f"  # {n:,} file{'s' if n > 1 else ''}, {human_bytes(source.size)}"]
    for i, (key, value) in enumerate(_keys(source).items()):
        lines.append(f"  {'- ' if i == 0 else '  '}{key}: {_yaml(value)}")
        if key == "text_column" and len(source.columns) > 1:
            lines[-1] += f"     # its columns: {', '.join(map(_one_line, source.columns[:12]))}"
        if key == "encoding":
            lines[-1] += "     # a guess"
    keep = [c for c in source.columns if c in _KEEP_NAMES and c != source.files[0].text_column]
    if keep:
        lines.append(f"    # keep_columns: [{', '.join(keep)}]     # carried to shards/documents.parquet")
    if source.kind == "warc":
        lines.append("    extractor: trafilatura     # resiliparse takes a tenth of the time and keeps more clutter")
    return lines


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _yaml(value: str | list[str]) -> str:
    """A value as YAML that is read back as the same; names and words bare, the rest in double quotes."""
    if isinstance(value, list):
        return f"[{', '.join(map(_yaml, value))}]"
    words = {"yes", "no", "on", "off", "true", "false", "null", "y", "n"}
    if re.fullmatch(r"[A-Za-z_][\w.-]*", value) and value.lower() not in words:
        return value
    return json.dumps(value, ensure_ascii=True)
