"""Plain text files: one file, one document."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_curate.config import TextSource
from gpu_curate.sources import Record, Reject, Skip, Split
from gpu_curate.sources.compression import damage
from gpu_curate.sources.files import compression_of, open_stream

HEAD_BYTES = 200


class TextReader:
    """Reads whole files, decompressed by suffix. A file that does not decode, or is too large, is rejected."""

    suffixes: tuple[str, ...] = ()

    def __init__(self, source: TextSource):
        self.source = source

    def splits(self, path: str, size: int, max_bytes: int) -> list[Split]:
        return [Split(path, 0, -1, 0, size * 4 if compression_of(path) else size, False)]

    def columns(self, path: str) -> tuple[list[str], None]:
        return [], None

    def read(self, split: Split, skip: int = 0) -> Iterator[Record | Reject | Skip]:
        if skip:  # there is one
            return
        limit = self.source.max_file_bytes
        try:
            with open_stream(split.path, self.source.storage_options, self.source.max_window_bytes) as f:
                data = f.read(limit + 1)
                while len(data) <= limit and (more := f.read(limit + 1 - len(data))):  # a short read: the end or damage
                    data += more
        except damage() as e:
            yield Reject(0, None, f"unreadable: {e}", cut=True)
            return
        if len(data) > limit:
            yield Reject(0, None, f"larger than max_file_bytes ({limit})", data[:HEAD_BYTES])
            return
        if not data:
            yield Skip("empty_file")
            return
        body = data.removeprefix(b"\xef\xbb\xbf")
        try:
            yield Record(0, body.decode(self.source.encoding))
        except UnicodeDecodeError as e:
            at = len(data) - len(body) + e.start
            yield Reject(0, at, f"not {self.source.encoding}: {e.reason} at byte {at}", data[:HEAD_BYTES])
