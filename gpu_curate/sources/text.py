"""Plain text files: one file, one document."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import Literal

from pydantic import Field, field_validator

from gpu_curate import lfs
from gpu_curate.errors import ConfigError, install
from gpu_curate.sources import Record, Reject, Skip, Split
from gpu_curate.sources.compression import damage
from gpu_curate.sources.files import compression_of, open_stream
from gpu_curate.sources.sections import CompressedSource

AUTO_ENCODING = "auto"
HEAD_BYTES = 200
_SAMPLE_BYTES = 4096
_WIDE_MARKS = (
    (b"\xff\xfe\0\0", "utf-32-le"),  # before UTF-16, whose mark begins alike
    (b"\0\0\xfe\xff", "utf-32-be"),
    (b"\xff\xfe", "utf-16-le"),
    (b"\xfe\xff", "utf-16-be"),
)


class TextSource(CompressedSource):
    """Plain text files: one file, one document."""

    type: Literal["text"]
    encoding: str = Field(
        "utf-8",
        description="of the files; a file that does not decode is rejected; auto: told of each file by its bytes. A byte "
        "order mark of UTF-16 or UTF-32 is believed always",
    )
    max_file_bytes: int = Field(64 << 20, gt=0, description="a larger file is rejected")

    @field_validator("encoding")
    @classmethod
    def _is_text_encoding(cls, encoding: str) -> str:
        if encoding == AUTO_ENCODING:
            return encoding
        try:
            known = codecs.lookup(
                encoding
            )._is_text_encoding  # what bytes.decode asks: base64 is a codec, not an encoding
        except (LookupError, ValueError, UnicodeError):
            known = False
        if not known:
            raise ValueError("not a text encoding of Python (utf-8, latin-1, shift_jis, ...)")
        return encoding


class TextReader:
    """Reads whole files, decompressed, of at most `max_file_bytes` after that. What does not decode is rejected.

    A byte order mark of UTF-8, UTF-16 or UTF-32 tells the encoding, whatever the config says. UTF-16 and UTF-32 without
    one are read with `encoding: auto` and named otherwise.
    """

    suffixes: tuple[str, ...] = ()

    def __init__(self, source: TextSource):
        self.source = source
        if source.encoding == AUTO_ENCODING:
            try:
                import chardetng_py  # noqa: F401
            except ImportError as e:
                raise ConfigError(
                    f"source {source.name}: encoding: auto: chardetng-py is not installed", install("warc")
                ) from e

    def splits(self, path: str, size: int, max_bytes: int) -> list[Split]:
        return [Split(path, 0, -1, 0, size * 4 if compression_of(path) else size, False)]

    def columns(self, path: str) -> tuple[list[str], None]:
        return [], None

    def read(self, split: Split, skip: int = 0) -> Iterator[Record | Reject | Skip]:
        if not skip:  # a file is one item
            yield self._read(split)

    def _read(self, split: Split) -> Record | Reject | Skip:
        limit = self.source.max_file_bytes
        pieces, size = [], 0
        try:
            with open_stream(split.path, self.source.storage_options, self.source.max_window_bytes) as f:
                while size <= limit and (piece := f.read(min(limit + 1 - size, 1 << 20))):
                    pieces.append(piece)
                    size += len(piece)
        except damage() as e:
            return Reject(0, None, f"unreadable: {e}", cut=True)
        data = b"".join(pieces)
        if size > limit:
            return Reject(0, None, f"larger than max_file_bytes ({limit})", data[:HEAD_BYTES])
        if not data:
            return Skip("empty_file")
        if size <= lfs.MAX_BYTES and lfs.is_pointer(data):
            what = f"a Git LFS pointer, not the file itself: {lfs.remedy(split.path)}"
            return Reject(0, None, what, data[:HEAD_BYTES])
        return self._decoded(data)

    def _decoded(self, data: bytes) -> Record | Reject:
        declared = self.source.encoding
        auto = declared == AUTO_ENCODING
        encoding, start, evidence = ("utf-8" if auto else declared), 0, None
        if data.startswith(b"\xef\xbb\xbf"):
            start, evidence = 3, "bom"
        elif marked := next((m for m in _WIDE_MARKS if data.startswith(m[0])), None):
            start, encoding, evidence = len(marked[0]), marked[1], "bom"
        elif wide := unmarked_wide(data[:_SAMPLE_BYTES]):
            encoding, evidence = (wide, "bytes") if auto else (declared, None)
            if not auto and not any(n in declared.lower() for n in ("16", "32", "ucs")):
                what = f"{wide} without a byte order mark, not {declared}: set encoding: {wide}, or auto"
                return Reject(0, 0, what, data[:HEAD_BYTES])
        elif auto:
            if b"\0" in data[:_SAMPLE_BYTES]:
                return Reject(0, data.index(b"\0"), "holds zero bytes: no text", data[:HEAD_BYTES])
            from gpu_curate.text.html import decoded

            text, _, evidence = decoded(data, html=False)
            return Record(0, text, charset_evidence=evidence)
        try:
            return Record(0, data[start:].decode(encoding), charset_evidence=evidence if auto else None)
        except UnicodeDecodeError as e:
            at = start + e.start
            return Reject(0, at, f"not {encoding}: {e.reason} at byte {at}", data[:HEAD_BYTES])


def unmarked_wide(head: bytes) -> str | None:
    """UTF-16 or UTF-32 without a byte order mark, told by where zeros stand: half of Latin text is zeros, and line ends
    and spaces of any text have some. None if it does not look like either."""
    head = head[: len(head) // 4 * 4]
    if len(head) < 8 or b"\0" not in head:
        return None
    quarter = len(head) // 4
    zeros = [head[i::4].count(0) for i in range(4)]
    if zeros[3] == quarter and zeros[2] > quarter * 3 // 4:
        return _decodes(head, "utf-32-le")
    if zeros[0] == quarter and zeros[1] > quarter * 3 // 4:
        return _decodes(head, "utf-32-be")
    even, odd = zeros[0] + zeros[2], zeros[1] + zeros[3]
    if odd > 8 * even and odd * 16 > quarter:
        return _decodes(head, "utf-16-le")
    if even > 8 * odd and even * 16 > quarter:
        return _decodes(head, "utf-16-be")
    return None


def _decodes(head: bytes, encoding: str) -> str | None:
    """The encoding if the head, whose last character may be cut, is text in it."""
    text = head.decode(encoding, "replace")
    return (
        encoding if text[:-1].count("\ufffd") == 0 and not any(c < " " and c not in "\t\n\r\f" for c in text) else None
    )
