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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_curate.config import did_you_mean
from gpu_curate.errors import ConfigError
from gpu_curate.runs.progress import human_bytes
from gpu_curate.tools.look import CODE_SUFFIXES, SETTINGS_SUFFIXES, Look, look, suffix_of

_MAX_FILES = 200  # opened in one folder; the others go by their suffix
_MAX_LISTED = 20  # files named one by one in `path`
_KEEP_NAMES = ("url", "title", "id", "date", "timestamp", "dump", "language", "license", "path")


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
                by_suffix = suffix_of(one.path) if one.kind == "text" and os.path.isdir(path) else None
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
        suffix = suffix_of(file.path)
        if inside and suffix in SETTINGS_SUFFIXES:
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
    elif kind == "text" and (suffix := suffix_of(files[0].path)):
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
    code = any(s.kind == "text" and suffix_of(f.path) in CODE_SUFFIXES for s in sources for f in s.files)
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
        by_suffix = Counter(suffix_of(f.path) or "no suffix" for f in left[_MAX_LISTED:])
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
