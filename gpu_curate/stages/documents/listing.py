"""The files of every source, and the readers of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from gpu_curate import guard
from gpu_curate.document import MAX_FILES
from gpu_curate.errors import ConfigError
from gpu_curate.sources import Reader
from gpu_curate.sources.files import find
from gpu_curate.sources.listing import File, Listing
from gpu_curate.sources.own import OwnSource
from gpu_curate.sources.sections import SourceBase


def make_reader(source: SourceBase) -> Reader:
    """The reader of a source's type. Raises: ConfigError: a class of the user's that nobody has loaded."""
    if isinstance(source, OwnSource):
        return source.reader()
    kind: Callable[[Any], Reader]
    match source.type:  # type: ignore[attr-defined]  # every source has one of its own
        case "parquet":
            from gpu_curate.sources.parquet import ParquetReader as kind
        case "jsonl":
            from gpu_curate.sources.jsonl import JsonlReader as kind
        case "text":
            from gpu_curate.sources.text import TextReader as kind
        case "wikipedia":
            from gpu_curate.sources.wikipedia import WikipediaReader as kind
        case "warc":
            from gpu_curate.sources.warc import WarcReader as kind
        case _:
            from gpu_curate.sources.huggingface import HuggingFaceReader as kind
    return kind(source)


def source_settings(source: SourceBase, aside: Collection[str]) -> dict[str, Any]:
    """What its documents depend on of a source's section, as plain data; of a reader of the user's own its code and keys.

    Args:
        aside: keys that are left out.
    """
    settings = source.model_dump(include=set(type(source).model_fields) - set(aside))
    return settings | source.identity() if isinstance(source, OwnSource) else settings


def find_files(source: SourceBase, reader: Reader) -> Listing:
    """The files of a source in order, and what is passed over. Raises: ConfigError."""
    try:
        return _find_files(source, reader)
    except BaseException as e:
        reason = guard.refusal(e)
        raise ConfigError(f"source {source.name}: its files cannot be listed: {reason}") from e


def _find_files(source: SourceBase, reader: Reader) -> Listing:
    own = getattr(reader, "files", None)  # a data set by name knows its files itself
    if own is not None:
        listing: Listing = own()
        return listing
    key, suffixes = f"source {source.name}: path", reader.suffixes  # type: ignore[attr-defined]  # every reader of files has them
    return find(source.paths, suffixes, source.storage_options, key, source.follow_links, source.hidden_files)


def inventory(sources: Sequence[SourceBase]) -> list[list[File]]:
    """The files of every source. Raises: ConfigError: one is missing, or there are too many."""
    return [listing.files for listing in listings(sources)]


def listings(sources: Sequence[SourceBase]) -> list[Listing]:
    """As `inventory`, with what every source passes over."""
    found = [find_files(s, make_reader(s)) for s in sources]
    files = [listing.files for listing in found]
    if sum(map(len, files)) > MAX_FILES:
        raise ConfigError(
            f"{sum(map(len, files))} input files; a doc_id holds {MAX_FILES}", "pack them into fewer files"
        )
    return found
