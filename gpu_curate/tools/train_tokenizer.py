"""`gpu-curate tokenizer`: train one on files outside a run; compare several on them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from gpu_curate import guard
from gpu_curate.errors import ConfigError, GpuCurateError, one_line
from gpu_curate.sources import Record, Reject
from gpu_curate.sources.files import find, stem
from gpu_curate.sources.jsonl import JsonlReader, JsonlSource
from gpu_curate.sources.parquet import ParquetReader
from gpu_curate.sources.sections import ParquetSource, SourceBase
from gpu_curate.sources.text import TextSource
from gpu_curate.stages.columns import check_columns
from gpu_curate.stages.documents.listing import make_reader
from gpu_curate.stages.rejects import place_of
from gpu_curate.stages.tokenizer import shortfall
from gpu_curate.store.files import publish
from gpu_curate.text.normalize import well_formed
from gpu_curate.tokenizer.training import train


class Texts:
    """The texts of JSONL, Parquet and text files outside a run, in sorted order of their paths.

    Attributes: rejected: what could not be read, once it was come upon.
    Raises: ConfigError: a path matches nothing, or a file has no such column.
    """

    def __init__(self, paths: list[str], text_column: str, what: str):
        self.rejected: list[str] = []
        sources: list[tuple[tuple[str, ...], SourceBase]] = [
            (tuple(ParquetReader.suffixes), ParquetSource(name="parquet", type="parquet", text_column=text_column)),
            (tuple(JsonlReader.suffixes), JsonlSource(name="jsonl", type="jsonl", text_column=text_column)),
            (("",), TextSource(name="text", type="text")),
        ]
        self._readers = [make_reader(source) for _, source in sources]
        files = find(paths, (), {}, f"{what}: PATH").files
        number_of = [next(n for n, (ends, _) in enumerate(sources) if stem(f.path).endswith(ends)) for f in files]
        of_reader = [[f for f, own in zip(files, number_of, strict=True) if own == n] for n in range(len(sources))]
        check_columns([source for _, source in sources], self._readers, of_reader, {"text_column": "--text-column"})
        self._files = [(file, self._readers[number]) for file, number in zip(files, number_of, strict=True)]

    def of_files(self) -> Iterator[tuple[str, Iterator[str]]]:
        """Path, and its texts: valid Unicode."""
        for file, reader in self._files:
            yield file.path, self._of_file(file, reader)

    def _of_file(self, file: Any, reader: Any) -> Iterator[str]:
        for split in guard.splits(reader, file.path, file.size, 1 << 40):
            for item in guard.read(reader, split):
                if isinstance(item, Reject):
                    self.rejected.append(f"{place_of(file.path, item.row, item.offset)}: {item.reason}")
                if isinstance(item, Record):
                    yield well_formed(item.text)


def train_from_files(
    paths: list[str],
    out: Any,
    vocab_size: int,
    eot: str,
    text_column: str,
    max_bytes: int,
    reserved: list[str] | None = None,
    bytes_per_file: int | None = None,
    documents_per_file: int | None = None,
    sample: Any = None,
) -> dict[str, Any]:
    """Train on files outside a run, in sorted order of their paths, as `gpu-curate tokenizer train` does.

    Args:
        reserved: see `train`. bytes_per_file: read at most so much text of each file, and its first text anyway.
        documents_per_file: and at most so many texts of each.
        sample: a JSONL file to write the texts to that it was trained on, one {"text"} a line; None: none.
    Raises:
        ConfigError: a path matches nothing, or no text was found.
    """
    facts: dict[str, Any] = {"documents": 0, "bytes": 0}
    given = Texts(paths, text_column, "tokenizer train")

    def texts(kept: IO[str] | None) -> Iterator[str]:
        for _, own in given.of_files():
            nbytes = 0
            for number, text in enumerate(own):
                if facts["bytes"] >= max_bytes:
                    return
                full = bytes_per_file is not None and nbytes >= bytes_per_file
                if full or (documents_per_file is not None and number >= documents_per_file):
                    break
                size = len(text.encode("utf-8"))
                nbytes += size
                facts["documents"] += 1
                facts["bytes"] += size
                if kept is not None:
                    kept.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
                yield text

    with contextlib.ExitStack() as stack:
        temp = stack.enter_context(publish(Path(out)))
        kept = None
        if sample is not None:
            kept = stack.enter_context(stack.enter_context(publish(Path(sample))).open("w", encoding="utf-8"))
        facts["vocab_size"] = train(texts(kept), vocab_size, eot, temp, reserved or [])
        facts["warnings"] = shortfall(vocab_size, facts["vocab_size"], facts["bytes"])
        if not facts["bytes"]:
            raise ConfigError(f"no text in {', '.join(paths)}", "check --text-column")
    return {**facts, "rejected": given.rejected}


def compare(paths: list[str], tokenizers: list[str], text_column: str, bytes_per_file: int) -> dict[str, Any]:
    """What tokenizers make of the same texts, file by file: so one file a language gives their fertility by language.

    Args:
        tokenizers: as `tokenizer.path` of a recipe, each once. bytes_per_file: of every file, its first text anyway.
    Returns:
        {"tokenizers": {name: {"entries"}}, "files": {path: {"documents", "bytes", "words", "tokens": {name: count}}}, "rejected"}.
        Words are what white space parts. No special token is added, and text like one is text.
    Raises: ConfigError: no such file or tokenizer, one named twice, no text.
    """
    from tokenizers import Tokenizer

    from gpu_curate.tokenizer.reading import read

    if not tokenizers or len(set(tokenizers)) < len(tokenizers):
        raise ConfigError(f"tokenizer compare: tokenizers {', '.join(tokenizers) or 'none'}", "name each one, and once")
    opened = {}
    for name in tokenizers:
        try:
            opened[name] = Tokenizer.from_str(read(name)[0].decode("utf-8"))
        except GpuCurateError:
            raise
        except Exception as e:  # the library raises nothing narrower
            raise ConfigError(f"tokenizer {name}: not a tokenizer.json ({one_line(e, 200)})") from e
        opened[name].no_truncation()
        opened[name].no_padding()
        opened[name].encode_special_tokens = True  # to that library this means: as ordinary text
    given = Texts(paths, text_column, "tokenizer compare")
    files: dict[str, Any] = {}
    for path, own in given.of_files():
        counts: dict[str, Any] = {"documents": 0, "bytes": 0, "words": 0, "tokens": dict.fromkeys(tokenizers, 0)}
        for text in own:
            counts["documents"] += 1
            counts["bytes"] += len(text.encode("utf-8"))
            counts["words"] += len(text.split())
            for name, tokenizer in opened.items():
                counts["tokens"][name] += len(tokenizer.encode(text, add_special_tokens=False).ids)
            if counts["bytes"] >= bytes_per_file:
                break
        if counts["bytes"]:
            files[path] = counts
    if not files:
        raise ConfigError(f"no text in {', '.join(paths)}", "check --text-column")
    entries = {name: {"entries": tokenizer.get_vocab_size()} for name, tokenizer in opened.items()}
    return {"tokenizers": entries, "files": files, "rejected": given.rejected}
