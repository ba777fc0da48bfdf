"""Texts into other texts and into tokens: `gpu_curate.normalize`, `scrub`, `extract_wikitext`, `extract_html`, `tokenize`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, overload

import numpy as np
import pyarrow as pa

from gpu_curate.api.batches import Array, Progress, on_host, telling
from gpu_curate.document import TextColumn
from gpu_curate.errors import InputError

_BATCH_BYTES = 1 << 20  # of text that is made into strings at once
_TOKENS_BYTES = 4 << 20

Action = Literal["off", "count", "replace"]


def normalize(
    texts: Any,
    *,
    form: Literal["NFC", "NFD", "NFKC", "NFKD"] | None = "NFC",
    keep_indentation: bool = False,
    progress: Progress | None = None,
) -> pa.LargeStringArray:
    """One kind of blank, one kind of line end, no control characters, one Unicode form: a recipe's `normalize`.

    Args:
        texts: N texts on the host or the device, as for `deduplicate`.
        form: Unicode normal form; None leaves code points as they are.
        keep_indentation: blanks at the start of a line stay (source code).
    Returns:
        large_string of N, on the host, without nulls: a null is an empty text. Normalising again changes nothing.
    Raises:
        ConfigError: no such form. InputError: no texts, or bytes that are not UTF-8.
    Memory: that of the result, and some MiB.
    """
    from gpu_curate.config.load import parse_section
    from gpu_curate.text.normalize import normalizer
    from gpu_curate.text.sections import Normalize

    section = parse_section(Normalize, "normalize", {"form": form, "keep_indentation": keep_indentation})
    change = normalizer(section)
    return _mapped(texts, lambda some: [change(text) for text in _strings(some)], "normalize", progress)


@dataclass(frozen=True, eq=False)
class Scrubbed:
    """Texts without what was to be replaced.

    Attributes:
        texts: large_string of N.
        counts: table of N rows, an int32 column of findings for each type that is not off; counted and replaced alike.
    """

    texts: pa.LargeStringArray
    counts: pa.Table


def scrub(
    texts: Any,
    *,
    email: Action = "replace",
    ip: Action = "replace",
    phone: Action = "off",
    card: Action = "off",
    iban: Action = "off",
    progress: Progress | None = None,
) -> Scrubbed:
    """Find personal data: count it, or replace it by `<EMAIL>`, `<IP>`, `<PHONE>`, `<CARD>`, `<IBAN>`.

    Args:
        texts: N texts, as for `deduplicate`.
        email, ip, phone, card, iban: "off", "count" or "replace". Addresses of mail and public IP addresses are replaced
            unless told otherwise, as FineWeb did. `phone` needs the extra `pii`.
    Returns:
        Scrubbed. A null is an empty text. Scrubbing again changes nothing.
    Raises:
        ConfigError: no such action, or phonenumbers is missing. InputError: no texts.
    Memory: that of the result, 4 bytes a text and type, and some MiB.
    """
    from gpu_curate.config.load import parse_section
    from gpu_curate.text.pii import PiiScanner
    from gpu_curate.text.pii.spans import PLACEHOLDERS
    from gpu_curate.text.sections import Pii

    actions = {"email": email, "ip": ip, "phone": phone, "card": card, "iban": iban}
    scanner = PiiScanner(parse_section(Pii, "scrub", actions))
    column = TextColumn.of(texts)
    counts = {kind: np.zeros(len(column), np.int32) for kind in PLACEHOLDERS if actions[kind] != "off"}
    done = 0

    def change(some: list[bytes]) -> list[bytes]:
        nonlocal done
        scrubbed = scanner.scrub_all(some)
        for index, spans in scrubbed.spans.items():
            for kind, count in Counter(span.kind for span in spans).items():
                counts[kind][done + index] = count
        done += len(some)
        return scrubbed.texts

    made = _mapped(column, change, "scrub", progress)
    return Scrubbed(made, pa.table(counts))


def _mapped(
    texts: Any, change: Callable[[list[bytes]], list[bytes]], step: str, progress: Progress | None
) -> pa.LargeStringArray:
    """`change` of every text, batch by batch; UTF-8 in, UTF-8 out."""
    column = on_host(TextColumn.of(texts))
    pieces: list[bytes] = []
    lengths = np.zeros(len(column) + 1, np.int64)
    with telling(progress, column.nbytes) as tell:
        done = 0
        for start, stop in column.batches(_BATCH_BYTES):
            made = change([column.raw(i) for i in range(start, stop)])
            lengths[start + 1 : stop + 1] = [len(text) for text in made]
            pieces.append(b"".join(made))
            done += int(column.offsets[stop] - column.offsets[start])
            tell(step, done, column.nbytes)
    array: pa.LargeStringArray = TextColumn(np.frombuffer(b"".join(pieces), np.uint8), np.cumsum(lengths)).to_arrow()
    return array


def _strings(texts: list[bytes]) -> list[str]:
    try:
        return [text.decode("utf-8") for text in texts]
    except UnicodeDecodeError as e:
        raise InputError(f"a text is not UTF-8: {e}", "decode bytes before, or replace what cannot be decoded") from e


# ---------------------------------------------------------------------------------------------------------- extracting


@overload
def extract_wikitext(markup: str, *, title: str = "", language: str = "", keep_tables: bool = False) -> str: ...
@overload
def extract_wikitext(
    markup: Iterable[Any], *, title: str = "", language: str = "", keep_tables: bool = False
) -> pa.LargeStringArray: ...
def extract_wikitext(
    markup: str | Iterable[Any], *, title: str = "", language: str = "", keep_tables: bool = False
) -> str | pa.LargeStringArray:
    """The readable text of MediaWiki pages: templates, tables, files, categories and markup gone, paragraphs and headings kept.

    Args:
        markup: the source of one page, or a column of them.
        title: what `{{PAGENAME}}` shows.
        language: the wiki's code ("de"), for its names of files and categories; "": those of all languages.
        keep_tables: the cells of tables are text.
    Returns:
        str of one page; for a column large_string, a null where there was one.
    Raises:
        InputError: an element is no str.
    Memory and time: linear in the page, whatever it holds.
    """
    from gpu_curate.text.wikitext import extract
    from gpu_curate.text.wikitext.tables import Namespaces

    namespaces = Namespaces.of(language=language)

    def one(page: Any) -> str:
        if not isinstance(page, str):
            raise InputError(f"markup: expected str, got {type(page).__name__}")
        return extract(page, namespaces, title=title, keep_tables=keep_tables).text

    return one(markup) if isinstance(markup, str) else _each(markup, one)


@overload
def extract_html(
    html: str | bytes,
    *,
    extractor: Literal["trafilatura", "resiliparse"] = "trafilatura",
    favor: Literal["precision", "balanced", "recall"] = "precision",
    fallback: bool = True,
) -> str: ...
@overload
def extract_html(
    html: Iterable[Any],
    *,
    extractor: Literal["trafilatura", "resiliparse"] = "trafilatura",
    favor: Literal["precision", "balanced", "recall"] = "precision",
    fallback: bool = True,
) -> pa.LargeStringArray: ...
def extract_html(
    html: str | bytes | Iterable[Any],
    *,
    extractor: Literal["trafilatura", "resiliparse"] = "trafilatura",
    favor: Literal["precision", "balanced", "recall"] = "precision",
    fallback: bool = True,
) -> str | pa.LargeStringArray:
    """The main text of HTML pages, as a WARC source extracts it. Needs the extra `warc`.

    Args:
        html: one page, or a column of them: str, or bytes as sent, whose charset is then found out.
        extractor, favor, fallback: as in a recipe.
    Returns:
        str of one page, "" if nothing was worth keeping; for a column large_string, with a null where there was one and for
        a page that cannot be extracted (`null_count` tells how many).
    Raises:
        InputError: one page: it passes a limit (4 MiB, 250 levels, 30,000 elements), or the library failed on it.
        ConfigError: no such value, or the library is missing.
    """
    import importlib.util

    from gpu_curate.api.batches import one_of
    from gpu_curate.errors import ConfigError, install
    from gpu_curate.text.html import Extraction, check, extract, page_text

    one_of("extractor", extractor, ("trafilatura", "resiliparse"))
    one_of("favor", favor, ("precision", "balanced", "recall"))
    if importlib.util.find_spec(extractor) is None:
        raise ConfigError(f"extractor={extractor!r}: {extractor} is not installed", install("warc"))
    how = Extraction(extractor, favor, fallback)

    def one(page: Any) -> str:
        if isinstance(page, bytes):
            return page_text(page, how=how).text
        if not isinstance(page, str):
            raise TypeError(page)
        check(page, how)
        return extract(page, how)

    def one_or_null(page: Any) -> str | None:
        try:
            return one(page)
        except InputError:
            return None

    try:
        return one(html) if isinstance(html, str | bytes) else _each(html, one_or_null)
    except TypeError as e:
        raise InputError(f"html: expected str or bytes, got {type(e.args[0]).__name__}") from e


def _each(pages: Any, function: Callable[[Any], str | None]) -> pa.LargeStringArray:
    """`function` of every page of a column; a null stays one."""
    if isinstance(pages, dict) or not hasattr(pages, "__iter__"):
        raise InputError(f"expected a page or a column of pages, got {type(pages).__name__}")
    if hasattr(pages, "to_pylist"):
        pages = pages.to_pylist()
    elif hasattr(pages, "to_arrow"):  # polars, cuDF
        pages = pages.to_arrow().to_pylist()
    # a NaN, which differs from itself, is pandas's null
    made = [None if page is None or page != page else function(page) for page in pages]
    return pa.array(made, pa.large_string())


# ------------------------------------------------------------------------------------------------------------- tokens


class Tokenized(NamedTuple):
    """Tokens of N texts, back to back: text i has ids[starts[i] : starts[i] + lengths[i]], starts = cumsum(lengths) - lengths."""

    ids: Array  # uint16, or uint32 where the vocabulary needs it
    lengths: Array  # int64 of N, the end-of-text token included where it was asked for
    eot_id: int
    vocab_size: int


def tokenize(
    texts: Any,
    tokenizer: str | os.PathLike[str],
    *,
    eot: str | int = "<|endoftext|>",
    append_eot: bool = False,
    library: Literal["auto", "gigatoken", "tokenizers", "tiktoken"] = "auto",
    progress: Progress | None = None,
) -> Tokenized:
    """Token ids of every text. The text of a special token inside a text is ordinary text.

    Args:
        texts: N texts, as for `deduplicate`. A null is an empty text and has no token.
        tokenizer: a tokenizer.json or its folder, a hub name, or "tiktoken:NAME".
        eot: the end-of-text token, by text or id.
        append_eot: put it after every text, as shards have it.
        library: "auto": the fastest that is installed and whose ids equal the reference on a set of probe texts.
    Returns:
        Tokenized, on the host.
    Raises:
        ConfigError: no such tokenizer, token or library. InputError: a text that cannot be encoded, by its position.
    Memory: twice the ids. Time: the first call of a process proves the library on the probe texts.
    """
    from gpu_curate.config.load import parse_section
    from gpu_curate.tokenizer.loading import load
    from gpu_curate.tokenizer.section import Tokenizer

    section = parse_section(Tokenizer, "tokenizer", {"path": os.fspath(tokenizer), "eot": eot, "library": library})
    encoder = load(section)
    column = on_host(TextColumn.of(texts))
    lengths = np.zeros(len(column), np.int64)
    pieces: list[Array] = []
    with telling(progress, column.nbytes) as tell:
        done = 0
        for start, stop in column.batches(_TOKENS_BYTES):
            part, refused = column.slice(start, stop), dict[int, str]()
            try:
                ids, sizes = encoder.encode_column(part, refused)
            except UnicodeDecodeError as e:
                raise InputError(f"a text from {start} to {stop - 1} is not UTF-8: {e}") from e
            for number, reason in refused.items():
                raise InputError(f"text {start + number} cannot be encoded: {reason}")
            if append_eot:
                ids = np.insert(ids, np.cumsum(sizes), encoder.eot_id)
                sizes = sizes + 1
            lengths[start:stop] = sizes
            pieces.append(ids)
            done += part.nbytes
            tell("tokens", done, column.nbytes)
    ids = np.concatenate([*pieces, np.zeros(0, encoder.dtype)])
    return Tokenized(ids, lengths, encoder.eot_id, encoder.vocab_size)
