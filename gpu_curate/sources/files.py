"""Which files a source names, and how they are opened: local paths and anything fsspec knows."""

from __future__ import annotations

import contextlib
import glob
import os
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

from gpu_curate.errors import ConfigError, RetryableError, UnreachableError, install, one_line

_CLIENTS = ("aiohttp", "azure", "botocore", "gcsfs", "httpcore", "httpx", "huggingface_hub", "requests", "urllib3")
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
    name = os.path.basename(_without_query(path)).lower()
    for suffix in COMPRESSIONS:
        name = name.removesuffix(suffix)
    return name


def _without_query(path: str) -> str:
    """A URL up to its query: ?download=true, or the signature of a presigned one. Other names may hold a "?"."""
    return path.partition("?")[0] if path.startswith(("http://", "https://")) else path


def find(patterns: list[str], suffixes: tuple[str, ...], options: dict[str, Any], key: str) -> list[File]:
    """The files that `patterns` name, in sorted order of their relative path.

    Args:
        patterns: files, folders (searched to the bottom), globs or URLs. What exists under the very name is taken before
            `*`, `?` and `[` mean anything: a file, a folder, and the folder that a glob begins with.
        suffixes: what `stem` must end with; () takes any. A file named outright must fit; in folders and globs others
            are passed over, but a pattern that gives nothing is an error.
        key: the config key, for errors.
    Raises:
        ConfigError: a pattern matches nothing, a file named outright is of another kind, a folder cannot be listed, a
            server does not say how long a file is, or a name is not UTF-8.

    A file that has several names (./a and a, symbolic links) is read once, under the one with the fewest folders.
    """
    if not patterns or patterns == [""]:
        raise ConfigError(f"{key}: missing")
    found: dict[str, File] = {}
    for pattern in patterns:
        remote = is_remote(pattern)
        matches = _remote(pattern, options, key) if remote else _local(pattern, key)
        if not matches:
            hint = "no such URL on the server" if remote else "paths are relative to the current folder"
            raise ConfigError(f"{key}: {pattern} matches no file", hint)
        fitting = [f for f in matches if not suffixes or stem(f.path).endswith(suffixes)]
        if not fitting:
            raise ConfigError(
                f"{key}: {matches[0].path} is not of this type (expected {', '.join(suffixes)}, "
                f"compressed by {', '.join(COMPRESSIONS)} or not)"
            )
        for file in sorted(fitting, key=lambda f: (f.relative.count("/"), f.relative)):
            try:
                file.path.encode("utf-8")
            except UnicodeEncodeError as e:
                raise ConfigError(f"{key}: the name of the file {file.path!r} is not UTF-8", "rename it") from e
            found.setdefault(file.path if remote else os.path.realpath(file.path), file)
    return sorted(found.values(), key=lambda f: (f.relative, f.path))


def _local(pattern: str, key: str) -> list[File]:
    def unreadable(e: OSError) -> None:
        raise UnreachableError(
            f"{key}: the folder {e.filename} cannot be listed: {e.strerror}",
            "make it readable, or name the folders beside it one by one",
        ) from e

    if os.path.isdir(pattern):
        folders = os.walk(pattern, onerror=unreadable)
        root, paths = pattern, [os.path.join(d, n) for d, _, names in folders for n in names]
    elif os.path.lexists(pattern):
        root, paths = os.path.dirname(pattern), [pattern]
    else:
        root = fixed_folder(pattern)
        wild = pattern[len(root) :].lstrip("/")
        for folder in _listed(root, wild):  # glob passes over what it may not list, its files would be missing unsaid
            try:
                os.scandir(folder).close()
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as e:
                unreadable(e)
        paths = [os.path.join(root, p) for p in glob.iglob(wild, root_dir=root or None, recursive=True)]
    files = []
    for path in paths:
        if os.path.isfile(path):
            stat = os.stat(path)
            files.append(File(path, os.path.relpath(path, root or "."), stat.st_size, str(stat.st_mtime_ns)))
    return files


def _listed(root: str, wild: str) -> Iterator[str]:
    """The folders that `glob` lists for a pattern below `root`."""
    yield root or "."
    parts = wild.split("/")
    for i, part in enumerate(parts):
        if glob.has_magic(part) and parts[i - 1 : i] != ["**"]:  # below `**`: those of the `**`
            folders = "/".join([*parts[: i + (part == "**")], ""])
            yield from (os.path.join(root, f) for f in glob.iglob(folders, root_dir=root or None, recursive=True))


def fixed_folder(pattern: str) -> str:
    """The folder before the first wildcard; a folder of that very name has none. "" is the current one."""
    fixed: list[str] = []
    for part in pattern.split("/"):
        if glob.has_magic(part) and not os.path.isdir("/".join([*fixed, part])):
            break
        fixed.append(part)
    return "/".join(fixed) or "/" * pattern.startswith("/")


def _remote(pattern: str, options: dict[str, Any], key: str) -> list[File]:
    import fsspec

    try:
        fs, path = fsspec.core.url_to_fs(pattern, **options)
        protocol = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
        http = protocol in ("http", "https")
        if glob.has_magic(_without_query(path)) and (http or not fs.exists(path)):  # some servers have any URL
            names = fs.glob(path)
        elif not http and fs.isdir(path):
            names = fs.find(path)
        else:
            names = [path]
        files = []
        for name in names:
            info = fs.info(name)
            if info.get("type") != "file":
                continue
            if info.get("size") is None:
                raise ConfigError(
                    f"{key}: {fs.unstrip_protocol(name)}: the server does not say how long it is "
                    "(no Content-Length, or of other bytes: a Content-Encoding)",
                    "download the file and name the copy",
                )
            identity = next(
                (str(info[k]) for k in ("ETag", "etag", "mtime", "LastModified", "created") if k in info), ""
            )
            files.append(File(fs.unstrip_protocol(name), name, int(info["size"]), identity))
        return files
    except ImportError as e:
        raise ConfigError(f"{key}: {pattern}: {one_line(e)}", _install(pattern)) from e
    except Exception as e:
        if failure := _network_failure(e):
            raise UnreachableError(f"{key}: {pattern} cannot be listed: {_describe(failure)}") from e
        if isinstance(e, ValueError):
            raise ConfigError(f"{key}: {pattern}: {e}") from e
        if _is_absent(e):
            return []
        raise


def _install(url: str) -> str:
    """What brings the fsspec backend of a URL."""
    extras = {"s3": "s3", "s3a": "s3", "http": "http", "https": "http", "hf": "huggingface"}
    others = {"gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "abfss": "adlfs", "az": "adlfs", "sftp": "paramiko"}
    protocol = url.partition("://")[0]
    if protocol in extras:
        return install(extras[protocol])
    return f"pip install {others[protocol]}" if protocol in others else "install the fsspec backend it names"


def _status(e: BaseException) -> int | None:
    """The HTTP status in an error of any client library."""
    response = getattr(e, "response", None)
    if isinstance(response, dict):  # botocore
        return response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return getattr(e, "status", None) or getattr(response, "status_code", None)


def _is_absent(e: BaseException) -> bool:
    return isinstance(e, FileNotFoundError) or _status(e) in (404, 410)


def _network_failure(e: BaseException) -> BaseException | None:
    """What failed on the way to a file; None if the file is not there or the error is of another kind."""
    if isinstance(e, FileNotFoundError) and e.__cause__ is not None:
        e = e.__cause__  # fsspec says "not found" of a refused connection too
    if _is_absent(e):
        return None
    library = type(e).__module__.partition(".")[0].rstrip("0123456789")  # httpx, httpx2
    return e if isinstance(e, OSError) or library in _CLIENTS else None


def _describe(e: BaseException) -> str:
    root = e
    while root.__cause__ is not None:
        root = root.__cause__
    refused = "connection refused: " if isinstance(root, ConnectionRefusedError) else ""
    return f"{refused}{type(e).__name__}: {one_line(e)}"


@contextlib.contextmanager
def _over_network(path: str) -> Iterator[None]:
    """Raises: RetryableError: the network failed; FileNotFoundError: the file is not there."""
    try:
        yield
    except Exception as e:
        if failure := _network_failure(e):
            raise RetryableError(f"{path}: {_describe(failure)}") from e
        if _is_absent(e):
            raise FileNotFoundError(f"{path}: no such file") from e
        raise


class _Remote:
    """An fsspec file whose reads tell a failing network from a damaged file."""

    def __init__(self, file: Any, path: str):
        self._file, self._path = file, path

    def read(self, size: int = -1) -> bytes:
        with _over_network(self._path):
            return self._file.read(size)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _Remote:
        return self

    def __exit__(self, *_: Any) -> None:
        self._file.close()


def open_raw(path: str, options: dict[str, Any] | None = None, random: bool = False) -> IO[bytes]:
    """The bytes of a file, seekable, as they lie there.

    Args:
        random: over a network, fetch exactly the ranges that are read; False reads ahead in blocks.
    Raises:
        OSError: it is not there or cannot be read.
        RetryableError: the network failed, here or while reading.
    """
    if not is_remote(path):
        return open(path, "rb")
    import fsspec

    fs, name = fsspec.core.url_to_fs(path, **(options or {}))
    with _over_network(path):
        return _Remote(fs.open(name, "rb", **({"cache_type": "none"} if random else {})), path)  # type: ignore[return-value]


@contextlib.contextmanager
def open_stream(path: str, options: dict[str, Any] | None = None) -> Iterator[IO[bytes]]:
    """The decompressed bytes of a file, by its suffix; members and frames back to back are one stream.

    Reading into damage raises EOFError (cut short) or OSError, after everything before it was given.
    """
    with open_raw(path, options) as raw:
        yield decompressed(raw, path)


def decompressed(raw: IO[bytes], name: str) -> IO[bytes]:
    """`open_stream` of a file that is open; `name` tells how it is compressed."""
    suffix = next((c for c in COMPRESSIONS if _without_query(name).lower().endswith(c)), None)
    return raw if suffix is None else _Frames(raw, suffix)  # type: ignore[return-value]


def _decompressor(suffix: str) -> Any:
    """An object with decompress(), eof and unused_data for one frame (member, stream) of a format."""
    match suffix:
        case ".gz":
            import zlib

            return zlib.decompressobj(31)
        case ".zst":
            import zstandard

            return zstandard.ZstdDecompressor().decompressobj()
        case ".bz2":
            import bz2

            return bz2.BZ2Decompressor()
        case ".xz":
            import lzma

            return lzma.LZMADecompressor()
        case _:
            try:
                import lz4.frame
            except ImportError as e:
                raise ConfigError(".lz4: lz4 is not installed", install("warc")) from e
            return lz4.frame.LZ4FrameDecompressor()


class _Frames:
    """Frames back to back as one stream that gives all it decoded before it says that the last frame is cut short.

    The libraries' own file objects lose up to a buffer of good data there, or (zstandard) take the cut for an end.
    """

    _INPUT_BYTES = 1 << 16  # a thousandfold expansion then stays at 64 MiB

    def __init__(self, raw: IO[bytes], suffix: str):
        self._raw, self._suffix = raw, suffix
        self._frame: Any = None
        self._input = self._ready = b""
        self._error: BaseException | None = None  # met while there was something to give first

    def read(self, size: int = -1) -> bytes:
        """`size` bytes; fewer before the end and before damage, which the next call raises; b"" at the end.

        Raises: EOFError: cut short; OSError: damaged.
        """
        if size < 0:
            return b"".join(iter(lambda: self.read(1 << 20), b""))
        pieces: list[bytes] = []
        missing = size
        while missing:
            if not self._ready:
                try:
                    self._ready = self._decode()
                except (EOFError, OSError) as e:
                    self._error = e
                    if not pieces:
                        raise
                    break
                if not self._ready:
                    break
            pieces.append(self._ready[:missing])
            self._ready = self._ready[missing:]
            missing -= len(pieces[-1])
        return b"".join(pieces)

    def _decode(self) -> bytes:
        """What the next of the input decodes to, b"" at the end."""
        if self._error is not None:
            raise self._error
        while True:
            if not self._input:
                self._input = self._raw.read(self._INPUT_BYTES)
                if not self._input:
                    if self._frame is not None:
                        raise EOFError("the compressed file is cut short")
                    return b""
            if self._frame is None:
                if self._suffix == ".gz":
                    self._input = self._input.lstrip(b"\0")  # padding of tape days
                    if not self._input:
                        continue
                self._frame = _decompressor(self._suffix)
            try:
                chunk, self._input = self._input, b""
                ready = self._frame.decompress(chunk)
            except damage() as e:
                raise OSError(f"damaged {self._suffix} data: {e}") from e
            if self._frame.eof:
                self._input, self._frame = self._frame.unused_data or b"", None
            if ready:
                return ready


def damage() -> tuple[type[BaseException], ...]:
    """Errors that reading a damaged file raises."""
    import lzma
    import zlib

    import zstandard

    return (EOFError, OSError, RuntimeError, zlib.error, lzma.LZMAError, zstandard.ZstdError)
