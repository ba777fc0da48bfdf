"""Which files a source names, and how they are opened: local paths and anything fsspec knows."""

from __future__ import annotations

import contextlib
import glob
import io
import os
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from gpu_curate.errors import ConfigError

COMPRESSIONS = (".gz", ".zst", ".bz2", ".xz", ".lz4")


class File(NamedTuple):
    path: str  # as it is opened
    relative: str  # to the fixed folder of the pattern it came from: what file numbers are sorted by
    size: int
    identity: str  # changes when the content does: mtime, ETag or the like


def is_remote(path: str) -> bool:
    return "://" in path


def stem(path: str) -> str:
    """File name in lower case without a compression suffix."""
    name = os.path.basename(path).lower()
    for suffix in COMPRESSIONS:
        name = name.removesuffix(suffix)
    return name


def find(patterns: list[str], suffixes: tuple[str, ...], options: dict[str, Any], key: str) -> list[File]:
    """The files that `patterns` name, in sorted order of their relative path.

    Args:
        patterns: files, folders (searched to the bottom), globs or URLs.
        suffixes: what `stem` must end with; () takes any. A file named outright must fit; in folders and globs others
            are passed over, but a pattern that gives nothing is an error.
        key: the config key, for errors.
    Raises:
        ConfigError: a pattern matches nothing, or a file named outright is of another kind.
    """
    if not patterns or patterns == [""]:
        raise ConfigError(f"{key}: missing")
    found: dict[str, File] = {}
    for pattern in patterns:
        matches = _remote(pattern, options, key) if is_remote(pattern) else _local(pattern)
        if not matches:
            raise ConfigError(f"{key}: {pattern} matches no file", "paths are relative to the current folder")
        fitting = [f for f in matches if not suffixes or stem(f.path).endswith(suffixes)]
        if not fitting:
            raise ConfigError(
                f"{key}: {matches[0].path} is not of this type (expected {', '.join(suffixes)}, "
                f"compressed by {', '.join(COMPRESSIONS)} or not)"
            )
        found.update((f.path, f) for f in fitting)
    return sorted(found.values(), key=lambda f: (f.relative, f.path))


def _local(pattern: str) -> list[File]:
    if os.path.isdir(pattern):
        root, paths = pattern, [os.path.join(d, n) for d, _, names in os.walk(pattern) for n in names]
    elif os.path.lexists(pattern):
        root, paths = os.path.dirname(pattern), [pattern]
    else:
        root = _fixed_folder(pattern)
        paths = glob.glob(pattern, recursive=True)
    files = []
    for path in paths:
        if os.path.isfile(path):
            stat = os.stat(path)
            files.append(File(path, os.path.relpath(path, root or "."), stat.st_size, str(stat.st_mtime_ns)))
    return files


def _fixed_folder(pattern: str) -> str:
    """The folder before the first wildcard."""
    fixed = []
    for part in pattern.split("/"):
        if glob.has_magic(part):
            break
        fixed.append(part)
    return "/".join(fixed)


def _remote(pattern: str, options: dict[str, Any], key: str) -> list[File]:
    import fsspec

    try:
        fs, path = fsspec.core.url_to_fs(pattern, **options)
        protocol = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
        if glob.has_magic(path):
            names = fs.glob(path)
        elif protocol not in ("http", "https") and fs.isdir(path):
            names = fs.find(path)
        else:
            names = [path]
        files = []
        for name in names:
            info = fs.info(name)
            if info.get("type") != "file" or info.get("size") is None:
                continue
            identity = next(
                (str(info[k]) for k in ("ETag", "etag", "mtime", "LastModified", "created") if k in info), ""
            )
            files.append(File(fs.unstrip_protocol(name), name, int(info["size"]), identity))
        return files
    except FileNotFoundError:
        return []
    except ImportError as e:
        raise ConfigError(f"{key}: {pattern}: {e}", "install the fsspec backend it names") from e
    except ValueError as e:
        raise ConfigError(f"{key}: {pattern}: {e}") from e


def open_raw(path: str, options: dict[str, Any] | None = None) -> IO[bytes]:
    """The bytes of a file, seekable, as they lie there."""
    if not is_remote(path):
        return open(path, "rb")
    import fsspec

    return fsspec.open(path, "rb", **(options or {})).open()


@contextlib.contextmanager
def open_stream(path: str, options: dict[str, Any] | None = None) -> Iterator[IO[bytes]]:
    """The decompressed bytes of a file, by its suffix; members and frames back to back are one stream.

    Reading past damage raises EOFError (cut short), OSError or the codec's own error: see `is_damage`.
    """
    with contextlib.ExitStack() as stack:
        raw = stack.enter_context(open_raw(path, options))
        lower = path.lower()
        if lower.endswith(".gz"):
            import gzip

            stream: IO[bytes] = stack.enter_context(gzip.GzipFile(fileobj=raw))
        elif lower.endswith(".zst"):
            import zstandard

            # a frame cut short reads as an early end, so the reader that counts is told by _Whole
            stream = stack.enter_context(_ZstdStream(raw, zstandard))
        elif lower.endswith(".bz2"):
            import bz2

            stream = stack.enter_context(bz2.BZ2File(raw))
        elif lower.endswith(".xz"):
            import lzma

            stream = stack.enter_context(lzma.LZMAFile(raw))
        elif lower.endswith(".lz4"):
            import lz4.frame

            stream = stack.enter_context(lz4.frame.LZ4FrameFile(raw))
        else:
            stream = raw
        yield stream


class _ZstdStream(io.RawIOBase):
    """Zstandard frames back to back as one stream; a frame cut short raises EOFError (the library's reader does not)."""

    def __init__(self, raw: IO[bytes], zstandard: Any):
        self._raw, self._zstandard = raw, zstandard
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._fed = False  # the open frame has had input
        self._input = b""
        self._ready = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size is None or size < 0:
            return b"".join(iter(lambda: self.read(1 << 20), b""))
        while not self._ready:
            if self._frame.eof:
                self._input = self._frame.unused_data + self._input
                self._frame, self._fed = self._zstandard.ZstdDecompressor().decompressobj(), False
            if not self._input:
                self._input = self._raw.read(1 << 20)
                if not self._input:
                    if self._fed:
                        raise EOFError("the last zstd frame is cut short")
                    return b""
            try:
                self._fed, chunk, self._input = True, self._input, b""
                self._ready = self._frame.decompress(chunk)
            except self._zstandard.ZstdError as e:
                raise OSError(f"zstd: {e}") from e
        out, self._ready = self._ready[:size], self._ready[size:]
        return out


def damage() -> tuple[type[BaseException], ...]:
    """Errors that reading a damaged compressed file raises."""
    import lzma
    import zlib

    return (EOFError, OSError, RuntimeError, zlib.error, lzma.LZMAError)
