"""Which files a source names, and how they are opened: local paths and anything fsspec knows."""

from __future__ import annotations

import contextlib
import fnmatch
import glob
import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import IO, Any

from gpu_curate import lfs
from gpu_curate.errors import ConfigError, RetryableError, UnreachableError, install, one_line
from gpu_curate.privacy import clean, hide, hide_url, located, numbered, opened
from gpu_curate.sources.compression import (
    COMPRESSIONS,
    DEFAULT_MAX_WINDOW_BYTES,
    HEAD,
    compression_by,
    decompressed,
    library,
    named_compression,
    window_problem,
    zstd_window,
)
from gpu_curate.sources.listing import (
    Entry,
    File,
    Listing,
    PassedOver,
    Tree,
    fixed_folder,
    is_hidden,
    local_file,
    once,
    suffix_of,
)

_CLIENTS = ("aiohttp", "azure", "botocore", "gcsfs", "httpcore", "httpx", "huggingface_hub", "requests", "urllib3")
PARQUET = (".parquet", ".pq", ".parq")


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
    path = opened(path)
    return path.partition("?")[0].partition("#")[0] if path.startswith(("http://", "https://")) else clean(path)


def find(
    patterns: list[str],
    suffixes: tuple[str, ...],
    options: dict[str, Any],
    key: str,
    follow_links: bool = False,
    hidden_files: bool = False,
) -> Listing:
    """The files that `patterns` name, in sorted order of their relative path, and what is passed over.

    Args:
        patterns: files, folders (searched to the bottom), globs or URLs. What exists under the very name is taken before
            `*`, `?` and `[` mean anything: a file, a folder, and the folder that a glob begins with.
        suffixes: what `stem` must end with; () takes any. A compressed file whose name says nothing else (RC_2020-01.zst)
            is taken too, and any file named outright whose name says nothing. A file named outright must fit; in folders
            and globs others are passed over, but a pattern that gives nothing is an error.
        key: the config key, for errors.
        follow_links: links that leave the named folder are followed.
        hidden_files: names that begin with "." or "_" are taken. A file named outright is taken always.
    Raises:
        ConfigError: a pattern matches nothing, a file named outright is of another kind, a folder cannot be listed, a
            server does not say how long a file is, or a name is not UTF-8.

    A file that has several names (./a and a, symbolic links) is read once, under the one with the fewest folders.
    """
    if not patterns or patterns == [""]:
        raise ConfigError(f"{key}: missing")
    passed_over = PassedOver()
    entries: dict[str, list[Entry]] = {}  # patterns often share a tree: each folder is listed once
    local: list[File] = []
    remote: list[File] = []
    for pattern in patterns:
        at_server = is_remote(pattern)
        if at_server:
            matches, outright, passed = _remote(pattern, options, key, hidden_files)
        else:
            matches, outright, passed = _local(pattern, key, follow_links, hidden_files, entries)
        fitting = [f for f in matches if fits(f.path, suffixes, outright)]
        passed.unread = dict(Counter(suffix_of(f.path) for f in matches if not fits(f.path, suffixes, outright)))
        passed_over.add(passed)
        if not matches and passed.facts():
            raise ConfigError(f"{key}: {pattern} matches no file that is read", passed.sentence())
        if not matches:
            hint = "no such URL on the server" if at_server else "paths are relative to the current folder"
            raise ConfigError(f"{key}: {pattern} matches no file", hint)
        if not fitting:
            raise ConfigError(
                f"{key}: {matches[0].path} is not of this type (expected {', '.join(suffixes)}, "
                f"compressed by {', '.join(COMPRESSIONS)} or not)",
                passed.sentence() if len(passed.facts()) > 1 else None,
            )
        for file in fitting:
            try:
                file.path.encode("utf-8")
            except UnicodeEncodeError as e:
                raise ConfigError(f"{key}: the name of the file {file.path!r} is not UTF-8", "rename it") from e
        (remote if at_server else local).extend(fitting)
    there: Counter[str] = Counter()
    named = []
    for file in once(remote, passed_over, by_name=True):
        there[file.path] += 1
        named.append(file if there[file.path] == 1 else file._replace(path=numbered(file.path, there[file.path])))
    files = [*once(local, passed_over), *named]
    return Listing(sorted(files, key=lambda f: (f.relative, f.path)), passed_over)


# suffixes that say what a file is; others (RC_2020-01.part.zst) say nothing
_TELLING = """
jsonl ndjson json parquet pq parq txt text md csv tsv xml html htm warc wet wat arc arrow feather orc avro zip tar 7z rar
pdf doc docx epub tex rst log yaml yml toml ini py js ts c h cc cpp java go rs rb php sql sh db sqlite pkl pickle npy npz
pt bin safetensors h5 hdf5 png jpg jpeg gif webp mp3 mp4 wav sha256 md5 idx index crc
""".strip()


def fits(path: str, suffixes: tuple[str, ...], outright: bool) -> bool:
    """True if a file of this name is taken for one of a type; `outright`: a pattern names it."""
    name = stem(path)
    if not suffixes or name.endswith(suffixes):
        return True
    suffix = os.path.splitext(name)[1].removeprefix(".")
    if named_compression(_without_query(path)):
        return suffix not in _TELLING.split() and (outright or suffixes != PARQUET)
    return outright and not suffix


def _local(
    pattern: str, key: str, follow_links: bool, hidden_files: bool, entries: dict[str, list[Entry]]
) -> tuple[list[File], bool, PassedOver]:
    """The files a pattern matches, whether it names one outright, and what is passed over."""

    def unreadable(e: OSError) -> None:
        raise UnreachableError(
            f"{key}: the folder {e.filename} cannot be listed: {e.strerror}",
            "make it readable, or name the folders beside it one by one",
        ) from e

    is_folder = os.path.isdir(pattern)
    if not is_folder and os.path.lexists(pattern):
        paths = [pattern] if os.path.isfile(pattern) else []
        return [local_file(path, os.path.dirname(pattern)) for path in paths], True, PassedOver()
    root = pattern if is_folder else fixed_folder(pattern)
    tree = Tree(root, follow_links, unreadable, (lambda name: False) if hidden_files else is_hidden, entries)
    found = tree.files() if is_folder else tree.matches(pattern[len(root) :].lstrip("/"))
    return [local_file(path, root) for path in dict.fromkeys(found)], False, tree.passed_over


def _remote(pattern: str, options: dict[str, Any], key: str, hidden_files: bool) -> tuple[list[File], bool, PassedOver]:
    """As `_local`, on a server."""
    passed = PassedOver()
    outright = False
    check_protocol(pattern, key)

    try:
        fs, path = _filesystem(pattern, options)
        protocol = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
        http = protocol in ("http", "https")
        if glob.has_magic(_without_query(path)) and (http or not fs.exists(path)):  # some servers have any URL
            names = fs.glob(path)
        elif not http and fs.isdir(path):
            names = fs.find(path)
        else:
            names, outright = [path], True
        if not outright and not hidden_files:
            hidden = {name: _hidden_part(path, name) for name in names}
            passed.hidden |= {clean(fs.unstrip_protocol(part)) for part in hidden.values() if part}
            names = [name for name, part in hidden.items() if not part]
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
            full = fs.unstrip_protocol(name)
            relative = clean(full) if full == name else clean(full).partition("://")[2]
            hide_url(full)
            files.append(File(located(full), relative, int(info["size"]), identity))
        return files, outright, passed
    except ImportError as e:
        raise ConfigError(f"{key}: {pattern}: {one_line(e)}", _install(pattern)) from e
    except Exception as e:
        if failure := _network_failure(e):
            raise UnreachableError(f"{key}: {pattern} cannot be listed: {_describe(failure)}") from e
        if isinstance(e, ValueError):
            raise ConfigError(f"{key}: {pattern}: {e}") from e
        if _is_absent(e):
            return [], outright, passed
        raise


# Those of files and of the object stores in use. Not those that run what a file says (reference), hold pickles (filecache),
# or reach further than the recipe's reader thinks (github, sftp, smb, dask, jupyter, and all that are chained by "::").
PROTOCOLS = ("file", "http", "https", "s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "hf", "memory")


def check_protocol(url: str, key: str = "") -> None:
    """Raises: ConfigError: a URL of a protocol that is not among PROTOCOLS, or a chain of them."""
    url = opened(url)
    protocol, _, rest = url.partition("://")
    where = f"{key}: " if key else ""
    if protocol not in PROTOCOLS:
        raise ConfigError(
            f"{where}{url}: the protocol {protocol!r} is not taken",
            f"one of {', '.join(PROTOCOLS[:-1])}, in small letters; or download the file and name the copy",
        )
    if "::" in url and "://" in rest:
        raise ConfigError(f"{where}{url}: protocols are not chained (::)", "name the file itself, or a local copy")


def _filesystem(url: str, options: dict[str, Any]) -> tuple[Any, str]:
    """The fsspec file system of a URL, and its path there. One protocol: fsspec's own call would follow chains of them."""
    import fsspec

    check_protocol(url)
    url = opened(url)
    hide(options)
    hide_url(url)
    protocol = url.partition("://")[0]
    kind = fsspec.get_filesystem_class(protocol)
    if protocol == "hf" and "endpoint" in options:  # the login of this machine is not for another server
        options = {"token": False, **options}
    if protocol in ("gs", "gcs") and "endpoint_url" in options:
        options = {"token": "anon", **options}
    return kind(**{**kind._get_kwargs_from_urls(url), **options}), kind._strip_protocol(url)


def refuse_other_protocols() -> None:
    """Have fsspec refuse, in this process, what a data set's own README could name beyond PROTOCOLS and archives."""
    import fsspec
    from fsspec.registry import known_implementations

    class Refused(fsspec.AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
        def __init__(self, *_: Any, **__: Any):
            raise ValueError("a data set names a protocol that is not taken")

    for name in known_implementations:
        if name not in (*PROTOCOLS, "local", "zip", "tar"):
            fsspec.register_implementation(name, Refused, clobber=True)


def _install(url: str) -> str:
    """What brings the fsspec backend of a URL."""
    extras = {"s3": "s3", "s3a": "s3", "http": "http", "https": "http", "hf": "huggingface"}
    others = {"gs": "gcsfs", "gcs": "gcsfs", "abfs": "adlfs", "abfss": "adlfs", "az": "adlfs"}
    protocol = url.partition("://")[0]
    if protocol in extras:
        return install(extras[protocol])
    return f"pip install {others[protocol]}" if protocol in others else "install the fsspec backend it names"


def _hidden_part(pattern: str, name: str) -> str:
    """A name that a server lists up to its first hidden part that the pattern does not write; "" if it has none."""
    written = _without_query(pattern).split("/")
    parts = _without_query(name).split("/")
    for i, part in enumerate(parts):
        if is_hidden(part) and not any(p[:1] == part[0] and fnmatch.fnmatchcase(part, p) for p in written):
            return "/".join(parts[: i + 1])
    return ""


def _status(e: BaseException) -> int | None:
    """The HTTP status in an error of any client library."""
    response = getattr(e, "response", None)
    if isinstance(response, dict):  # botocore
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        status = getattr(e, "status", None) or getattr(response, "status_code", None)
    return status if isinstance(status, int) else None


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
    """An fsspec file whose reads tell a failing network from a damaged file.

    Args:
        whole: opens the file to be read once from its start, for a server that knows no ranges.
    """

    def __init__(self, file: Any, path: str, whole: Callable[[], Any] | None):
        self._file, self._path, self._whole = file, path, whole
        self._at = 0

    def read(self, size: int = -1) -> bytes:
        with _over_network(self._path):
            try:
                data: bytes = self._file.read(size)
            except ValueError as e:
                if "range" not in str(e):
                    raise
                data = self._read_whole(size)
        self._at += len(data)
        announced = getattr(self._file, "size", None)
        if not data and size and announced is not None and self._at < announced:
            raise RetryableError(f"{self._path}: the server gave {self._at} of the {announced} bytes that it announced")
        return data

    def _read_whole(self, size: int) -> bytes:
        if self._whole is None:
            raise _no_ranges(self._path)
        self._file, self._whole = self._whole(), None
        left = self._at
        while left and (passed := self._file.read(min(left, 1 << 20))):
            left -= len(passed)
        rest: bytes = self._file.read(size)
        return rest

    def seek(self, offset: int, whence: int = 0) -> int:
        try:
            self._at = self._file.seek(offset, whence)
        except ValueError as e:
            if "streaming" in str(e) and (offset, whence) != (0, 0):
                raise _no_ranges(self._path) from e
            raise
        return self._at

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
    fs, name = _filesystem(path, options or {})
    http = path.startswith(("http://", "https://"))
    with _over_network(path):
        file = fs.open(name, "rb", **({"cache_type": "none"} if random else {}))
        return _Remote(file, path, (lambda: fs.open(name, "rb", block_size=0)) if http and not random else None)  # type: ignore[return-value]  # a file by what it offers


def _no_ranges(path: str) -> ConfigError:
    return ConfigError(
        f"{path}: the server sends a file from its start only (no range requests), and this format is not read in order",
        "download the file and name the copy",
    )


_PAGES = (b"<!doctype html", b"<html")


def refuse_stand_in(file: File, key: str, options: dict[str, Any], max_window_bytes: int | None) -> None:
    """Look at the first bytes of a file that must not be text of any kind.

    Raises:
        ConfigError: it is a Git LFS pointer, a page that a server sends in place of the file, or it is compressed with a
            window larger than `max_window_bytes` or in a format whose library is not installed.
        RetryableError: the network failed.
    """
    http = file.path.startswith(("http://", "https://"))
    if is_remote(file.path) and not http and (file.size > lfs.MAX_BYTES or file.path.startswith("stream://")):
        return  # no request for this alone
    head = read_head(file.path, options, size=64) if file.size else b""
    if lfs.is_pointer(head):
        raise ConfigError(f"{key}: {file.path} is a Git LFS pointer, not the file itself", lfs.remedy(file.path))
    if http and head.lstrip().lower().startswith(_PAGES):
        raise ConfigError(
            f"{key}: {file.path}: the server answers with an HTML page in place of the file: a login, an error, or a page "
            "about the file",
            "open the URL in a browser; name the URL of the file itself, give what it asks for in storage_options, or "
            "download the file and name the copy",
        )
    try:
        library(compression_by(head, _without_query(file.path)))
    except ConfigError as e:
        raise ConfigError(f"{key}: {file.path}: {e.message}", e.hint) from e
    if max_window_bytes is not None and (problem := window_problem(head, max_window_bytes)):
        raise ConfigError(
            f"{key}: {file.path}: {problem}",
            f"set max_window_bytes: {zstd_window(head)}; each worker that reads such a file takes so much more memory",
        )


@contextlib.contextmanager
def open_stream(
    path: str, options: dict[str, Any] | None = None, max_window_bytes: int = DEFAULT_MAX_WINDOW_BYTES
) -> Iterator[IO[bytes]]:
    """The decompressed bytes of a file, as `decompressed` gives them.

    Reading into damage raises EOFError (cut short) or OSError, after everything before it was given.
    """
    with open_raw(path, options) as raw:
        yield decompressed(raw, _without_query(path), max_window_bytes)


def read_head(path: str, options: dict[str, Any] | None = None, size: int = HEAD) -> bytes:
    """The first bytes of a file as it lies there; b"" if it cannot be read. Raises: RetryableError."""
    try:
        with open_raw(path, options, random=True) as f:
            return f.read(size)
    except OSError:
        return b""


def compression_of(path: str) -> str:
    """The suffix of the format a file is compressed in, "" if in none; of a remote file what its name says."""
    head = b"" if is_remote(path) else read_head(path)
    return compression_by(head, _without_query(path)) if head else named_compression(_without_query(path))
