"""Hugging Face data sets, by hub name or local folder: straight from their files, or streamed through `datasets`.

Straight (the default) reads Parquet and JSON Lines files with our own readers, so row groups are sampled and files read
in parallel, and a revision is pinned to its commit before anything is read. Which files make a configuration and a
split follows the rules of `datasets` 5: the `configs` of README.md; else `data/SPLIT-00000-of-00002...`; else split
names in folder names; else in file names; else every file is train. `streaming: true` leaves all that to the library,
and is for the formats it alone reads (CSV, Arrow, WebDataset, ...).
"""

from __future__ import annotations

import importlib.util
import os
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, NoReturn

from gpu_curate import hub
from gpu_curate.errors import ConfigError, RetryableError, UnreachableError, install, one_line
from gpu_curate.sources import Batch, Record, Reject, Skip, Split
from gpu_curate.sources.compression import COMPRESSIONS
from gpu_curate.sources.files import open_raw, refuse_other_protocols, stem
from gpu_curate.sources.jsonl import JsonlReader, JsonlSource
from gpu_curate.sources.listing import File, Listing, PassedOver, Tree, local_file
from gpu_curate.sources.parquet import ParquetReader
from gpu_curate.sources.sections import HuggingFaceSource, ParquetSource, RowGroups

_INSTALL = install("huggingface")
_DOWNLOAD = "download it once (hf download --repo-type dataset --local-dir DIR NAME) and give the folder"
_STREAM = "stream://"

_KEYWORDS = {
    "train": ("train", "training"),
    "validation": ("validation", "valid", "dev", "val"),
    "test": ("test", "testing", "eval", "evaluation"),
}
_SHARDED = re.compile(r"data/(?P<split>[^/]+?)-\d{5}-of-\d{5}[^/]*\.[^/]*")
_CONVERTED = re.compile(r"(?:partial-)?(?P<split>[^/]+)/\d{4}\.parquet")  # what the hub makes: refs/convert/parquet


class HuggingFaceReader:
    """Reads one split of one configuration of a data set.

    Straight: rows, splits, rejects and memory as ParquetReader and JsonlReader have them. Streamed: a file is one shard of
    the library's, read in order by one worker, its rows numbered from 0; a text that is no string is rejected.
    """

    suffixes: tuple[str, ...] = ()

    def __init__(self, source: HuggingFaceSource):
        self.source = source
        common = source.model_dump(include={"name", "keep_columns", "group_column", "storage_options", "text_column"})
        self._parquet = ParquetReader(ParquetSource(type="parquet", row_groups=source.row_groups, **common))
        self.rows = self._parquet.rows
        lines = source.model_dump(include={"max_line_bytes", "max_window_bytes"})
        self._jsonl = JsonlReader(JsonlSource(type="jsonl", **lines, **common))

    def files(self) -> Listing:
        """The files of the split, in order of their names, and what a folder holds beside them that links lead out of it.

        Raises:
            ConfigError: no such data set, revision, configuration or split (the message names those there are), files of
                another format, a library that is missing, or no network.
        """
        source = self.source
        if source.path:
            self._fail(f"path {source.path!r}: a data set has none", "give its name or folder as `dataset`")
        if source.streaming:
            return Listing(self._shards(), PassedOver())
        local = os.path.isdir(source.dataset)
        passed_over = PassedOver()
        files, readme = self._local(passed_over) if local else self._hub()
        splits = self._splits(sorted(files), readme)
        if source.split not in splits:
            hint = "limit what is read by max_documents or row_groups" if "[" in source.split else None
            self._fail(f"split {source.split!r} does not exist (it has {_names(splits)})", hint)
        chosen = self._readable(splits[source.split])
        return Listing([files[name] for name in chosen], passed_over)

    def in_footer(self, path: str) -> bool:
        """As ParquetReader has it, of files that it reads."""
        return not path.startswith(_STREAM) and self._reader(path) is self._parquet

    def columns(self, path: str) -> tuple[list[str], int | None]:
        """As the readers of its files have it; of a stream, what the library knows."""
        if path.startswith(_STREAM):
            return list(self._open().column_names or []), None
        return self._reader(path).columns(path)

    def splits(self, path: str, size: int, max_bytes: int) -> list[Split]:
        if path.startswith(_STREAM):
            return [Split(path, 0, -1, 0, size)]
        return self._reader(path).splits(path, size, max_bytes)

    def read(self, split: Split, skip: int = 0) -> Iterator[Record | Reject | Skip]:
        if split.path.startswith(_STREAM):
            return self._stream(split, skip)
        return self._reader(split.path).read(split, skip)

    def read_batches(self, split: Split, skip: int = 0) -> Iterator[Batch | Record | Reject | Skip]:
        if split.path.startswith(_STREAM):
            return self._stream(split, skip)
        return self._reader(split.path).read_batches(split, skip)

    def records(self, batch: Batch) -> Iterator[Record | Reject]:
        return self._parquet.records(batch)

    def _reader(self, path: str) -> ParquetReader | JsonlReader:
        return self._parquet if stem(path).endswith(self._parquet.suffixes) else self._jsonl

    def _fail(self, what: str, hint: str | None = None) -> NoReturn:
        raise ConfigError(f"source {self.source.name}: data set {self.source.dataset}: {what}", hint)

    # ------------------------------------------------------------------------------------------- which files there are

    def _local(self, passed_over: PassedOver) -> tuple[dict[str, File], str]:
        """Files by their name relative to the folder, and README.md."""
        root = self.source.dataset
        if self.source.revision is not None:
            self._fail(
                f"revision {self.source.revision!r}: a local folder has none", "leave it out, or name a data set"
            )

        def unreadable(e: OSError) -> None:
            raise UnreachableError(
                f"source {self.source.name}: data set {root}: the folder {e.filename} cannot be listed: {e.strerror}"
            ) from e

        hidden = (lambda name: False) if self.source.hidden_files else _is_hidden
        tree = Tree(root, self.source.follow_links, unreadable, hidden)
        files = {file.relative: file for file in (local_file(path, root) for path in tree.files())}
        tree.passed_over.hidden.clear()  # what the hub itself never takes for data
        passed_over.add(tree.passed_over)
        if "README.md" not in files:
            return files, ""
        with open(files["README.md"].path, encoding="utf-8", errors="replace") as f:
            return files, f.read()

    def _hub(self) -> tuple[dict[str, File], str]:
        """Files by their name in the repository, pinned to the commit of the revision, and README.md."""
        source = self.source
        if source.dataset.startswith((".", "/", "~")) or source.dataset.count("/") > 1:
            self._fail("no such folder", "a hub name is NAME or OWNER/NAME; paths are relative to the current folder")
        try:
            import huggingface_hub
            from huggingface_hub import errors
        except ImportError:
            self._fail("huggingface_hub is not installed", _INSTALL)
        token = source.storage_options.get("token")
        try:
            ask = huggingface_hub.HfApi(token=token).repo_info
            info = hub.within(ask, source.dataset, revision=source.revision, repo_type="dataset", files_metadata=True)
        except errors.RevisionNotFoundError:
            self._fail(f"revision {source.revision!r} does not exist", "a branch, tag or commit of the data set")
        except errors.GatedRepoError:
            self._fail("access is gated", "accept its terms on the hub and log in: hf auth login")
        except (errors.RepositoryNotFoundError, errors.HFValidationError):
            self._fail("neither a local folder nor a data set on the hub", "a private one needs: hf auth login")
        except Exception as e:  # offline, no route, a proxy: several libraries' errors, all before any work
            reason = one_line(e, 200)
            self._fail(
                f"no local folder, and the hub cannot be asked ({type(e).__name__}: {reason})",
                _DOWNLOAD,
            )
        prefix = f"hf://datasets/{info.id}@{info.sha}/"
        files = {}
        for sibling in info.siblings:
            name = sibling.rfilename
            if not any(_is_hidden(part) for part in name.split("/")):
                identity = sibling.lfs.sha256 if sibling.lfs else sibling.blob_id
                files[name] = File(prefix + name, name, sibling.size or 0, str(identity or info.sha))
        if "README.md" not in files:
            return files, ""
        with open_raw(files["README.md"].path, source.storage_options) as f:
            return files, f.read().decode("utf-8", "replace")

    # ------------------------------------------------------------------------------- which of them make config and split

    def _splits(self, names: list[str], readme: str) -> dict[str, list[str]]:
        """Files of the chosen configuration by split."""
        source = self.source
        declared = _declared(readme)
        if declared:
            chosen = self._choose(declared)
            root = chosen.get("data_dir") or ""
            below = _below(names, root)
            patterns = chosen.get("data_files")
            return _by_declaration(below, patterns) if patterns else _by_convention(below)
        if source.config in (None, "default"):
            return _by_convention({n: n for n in names})
        below = _below(names, source.config)
        if not below:
            folders = sorted({n.split("/")[0] for n in names if "/" in n})
            self._fail(
                f"config {source.config!r} does not exist (README.md declares none; folders: {', '.join(folders) or 'none'})"
            )
        return _by_convention(below)

    def _choose(self, declared: list[dict[str, Any]]) -> dict[str, Any]:
        names = [str(entry.get("config_name", "default")) for entry in declared]
        wanted = self.source.config
        if wanted is None:
            marked = [n for n, entry in zip(names, declared, strict=True) if entry.get("default")]
            wanted = next(
                iter(marked or [n for n in names if n == "default"] or (names if len(names) == 1 else [])), None
            )
        if wanted is None:
            self._fail(f"config is missing (it has {', '.join(names)})", f"set config: {names[0]}")
        if wanted not in names:
            self._fail(f"config {wanted!r} does not exist (it has {', '.join(names)})")
        return declared[names.index(wanted)]

    def _readable(self, names: list[str]) -> list[str]:
        """Those of the format that most of them have, if we read it."""
        kinds = {"parquet": self._parquet.suffixes, "jsonl": self._jsonl.suffixes}
        by_kind = {
            kind: [
                n for n in names if stem(n).endswith(suffixes) and not (kind == "parquet" and n.endswith(COMPRESSIONS))
            ]
            for kind, suffixes in kinds.items()
        }
        kind = max(by_kind, key=lambda k: len(by_kind[k]))
        if not by_kind[kind]:
            found = Counter(os.path.splitext(n)[1] for n in names)
            self._fail(
                f"split {self.source.split!r} has no Parquet or JSON Lines files (it has {_names(found)})",
                "set streaming: true, or revision: refs/convert/parquet for the hub's own conversion",
            )
        if kind != "parquet" and self.source.row_groups != RowGroups():
            self._fail("row_groups: its files are JSON Lines, which have none", "leave it out; max_documents limits")
        return by_kind[kind]

    # --------------------------------------------------------------------------------------------------------- streaming

    def _shards(self) -> list[File]:
        if self.source.row_groups != RowGroups():
            self._fail("row_groups: a stream has none", "set streaming: false")
        if self.source.content_fingerprint:
            self._fail("content_fingerprint: a stream has no files of its own", "set streaming: false")
        if not os.path.isdir(self.source.dataset) and importlib.util.find_spec("huggingface_hub") is not None:
            why = hub.unreachable(self.source.dataset, "dataset", self.source.storage_options.get("token"))
            if why:  # `datasets` would ask again and again
                self._fail(f"no local folder, and the hub cannot be asked ({why})", _DOWNLOAD)
        stream = self._open()
        columns = stream.column_names
        wanted = dict.fromkeys([self.source.text_column, *self.source.extra_columns])
        missing = [c for c in wanted if columns is not None and c.split(".")[0] not in columns]
        if missing:
            self._fail(f"no column {', '.join(map(repr, missing))} (it has {', '.join(columns)})")
        split_info = (stream.info.splits or {}).get(self.source.split)
        size = split_info.num_bytes if split_info is not None else 0
        version = f"{stream.info.version} {stream.info.download_checksums and sorted(stream.info.download_checksums)}"
        n = stream.num_shards
        path = f"{_STREAM}{self.source.dataset}#"
        return [File(f"{path}{i}/{n}", f"shard-{i:05}-of-{n:05}", size // n, version) for i in range(n)]

    def _open(self) -> Any:
        source = self.source
        try:
            import datasets
        except ImportError:
            self._fail("datasets is not installed", _INSTALL)
        refuse_other_protocols()
        try:
            every = datasets.load_dataset(
                source.dataset, name=source.config, revision=source.revision, streaming=True,
                token=source.storage_options.get("token"),
            )  # fmt: skip
        except Exception as e:  # the library's own, fsspec's, the network's: no such data set, config or connection
            self._fail(f"cannot be opened ({type(e).__name__}: {one_line(e)})")
        if source.split not in every:
            self._fail(f"split {source.split!r} does not exist (it has {_names(every)})")
        return every[source.split]

    def _stream(self, split: Split, skip: int) -> Iterator[Record | Reject | Skip]:
        source = self.source
        index, n = map(int, split.path.rpartition("#")[2].split("/"))
        stream = self._open().shard(num_shards=n, index=index)
        try:
            for row, values in enumerate(stream.skip(skip) if skip else stream, skip):
                text = _dig(values, source.text_column)
                if isinstance(text, str):
                    yield Record(row, text, {name: _dig(values, name) for name in source.extra_columns})
                elif text is None:
                    yield Reject(row, None, f"{source.text_column!r} is null")
                else:
                    yield Reject(row, None, f"{source.text_column!r} is {type(text).__name__}, not a string")
        except OSError as e:  # connection errors are OSErrors; what is damaged the library reports as its own
            raise RetryableError(f"source {source.name}: {source.dataset}, {split.path}: {e}") from e


def _dig(values: Any, name: str) -> Any:
    """A value by name, or through structs by a dotted name."""
    if name in values:
        return values[name]
    for part in name.split("."):
        values = values.get(part) if isinstance(values, dict) else None
    return values


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "__"))


def _names(some: Any) -> str:
    return ", ".join(sorted(map(str, some))) or "none"


def _declared(readme: str) -> list[dict[str, Any]]:
    """The `configs` in the YAML head of README.md; [] if there are none or it is not YAML."""
    head = re.match(r"---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", readme, re.DOTALL)
    if head is None:
        return []
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    reader = YAML(typ="safe", pure=True)
    reader.allow_duplicate_keys = True  # the hub takes them
    try:
        data = reader.load(head.group(1))
    except (YAMLError, ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return []  # dates and tags are converted without a check
    entries = data.get("configs") if isinstance(data, dict) else None
    return [e for e in entries if isinstance(e, dict)] if isinstance(entries, list) else []


def _below(names: list[str], folder: str) -> dict[str, str]:
    """Names below a folder: their name relative to it, and whole."""
    prefix = folder.strip("./")
    prefix = prefix + "/" if prefix else ""
    return {n.removeprefix(prefix): n for n in names if n.startswith(prefix)}


def _by_declaration(below: dict[str, str], patterns: Any) -> dict[str, list[str]]:
    """By the `data_files` of a configuration: a pattern, a list of them, or {split, path} entries."""
    if isinstance(patterns, str):
        patterns = [patterns]
    if isinstance(patterns, dict):
        patterns = [{"split": split, "path": path} for split, path in patterns.items()]
    splits: dict[str, list[str]] = {}
    for entry in patterns:
        entry = entry if isinstance(entry, dict) else {"split": "train", "path": entry}
        paths = entry.get("path", [])
        for pattern in [paths] if isinstance(paths, str) else paths:
            found = splits.setdefault(str(entry.get("split", "train")), [])
            found += [n for n in _match(below, pattern) if n not in found]
    return splits


def _match(below: dict[str, str], pattern: str) -> list[str]:
    from fsspec.utils import glob_translate

    fits = re.compile(glob_translate(pattern.removeprefix("./"))).match
    return [whole for name, whole in below.items() if fits(name)]


def _by_convention(below: dict[str, str]) -> dict[str, list[str]]:
    """By names alone, the first rule that any file fits."""
    data = {n: whole for n, whole in below.items() if n != "README.md"}
    for rule in (_SHARDED.fullmatch, _CONVERTED.fullmatch):
        splits: dict[str, list[str]] = {}
        for name, whole in data.items():
            match = rule(name)
            if match:
                splits.setdefault(match["split"], []).append(whole)
        if splits:
            return splits
    for in_folder in (True, False):
        splits = {}
        for name, whole in data.items():
            folder, _, file = name.rpartition("/")
            for split in _KEYWORDS:
                if _tells(split, folder if in_folder else file, in_folder):
                    splits.setdefault(split, []).append(whole)
        if splits:
            return splits
    return {"train": list(data.values())} if data else {}


def _tells(split: str, name: str, is_folder: bool) -> bool:
    """A word of the split in the name, set off by punctuation, digits or the ends of a folder's name."""
    words = "|".join(_KEYWORDS[split])
    after = r"(?:[-._ 0-9/]|$)" if is_folder else r"[-._ 0-9]"
    return re.search(rf"(?:^|[-._ 0-9/])(?:{words}){after}", name) is not None
