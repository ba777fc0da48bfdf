"""HTTP responses as archives keep them: status, media type, and the body with its encodings undone.

Servers, proxies and archivers lie about encodings in every way, and some archives keep the header of what was sent over
the body after decoding. So a header is a claim: where the bytes are not what it says, they are taken as they are.
"""

from __future__ import annotations

import re
import zlib
from typing import NamedTuple

from gpu_curate.errors import InputError
from gpu_curate.sources.compression import library

_STATUS = re.compile(rb"\s{0,8}HTTP/\d(?:\.\d)?[ \t]+(\d{3})\b", re.IGNORECASE)
_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_CHUNK_SIZE = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\n]{0,1024})?\r?\n")


class Head(NamedTuple):
    """The header of a response."""

    status: int
    media_type: str  # lower case, without parameters; "" if there is none
    charset: str | None
    transfer_encodings: list[str]
    content_encodings: list[str]
    size: int  # bytes up to the body


def parse_head(block: bytes) -> Head | None:
    """The header at the start of a response record; None if this is not an HTTP response.

    Lines without a colon and other junk are passed over. A header that does not end leaves no body.
    """
    status = _STATUS.match(block)
    if status is None:
        return None
    ends = [i + len(e) for e in (b"\r\n\r\n", b"\n\n", b"\n\r\n") if (i := block.find(e, status.end())) >= 0]
    size = min(ends, default=len(block))
    fields: dict[str, list[str]] = {}
    name = ""
    for line in block[:size].decode("latin-1").split("\n")[1:]:
        if line[:1] in (" ", "\t") and name:  # folded
            fields[name][-1] += " " + line.strip()
        elif ":" in line:
            name, _, value = line.partition(":")
            name = name.strip().lower()
            fields.setdefault(name, []).append(value.strip())
    content_type = next((v for v in fields.get("content-type", []) if "/" in v), "")
    charset = _CHARSET.search(content_type)
    return Head(
        int(status[1]),
        re.split(r"[;,\s]", content_type, maxsplit=1)[0].lower(),
        charset[1] if charset else None,
        _tokens(fields.get("transfer-encoding", [])),
        _tokens(fields.get("content-encoding", [])),
        size,
    )


def _tokens(values: list[str]) -> list[str]:
    return [t for v in values for part in v.split(",") if (t := part.strip().lower()) and t != "identity"]


def decode_body(body: bytes, head: Head, max_bytes: int) -> bytes:
    """The body as the page's author wrote it.

    Undoes what the headers list, last first: chunked, gzip, deflate (zlib or raw), br, zstd. A body that is not what its
    header says is taken as it is; one that is cut is decoded up to the cut.

    Raises:
        InputError: it is larger than `max_bytes` (nothing beyond is decoded), or in an encoding unknown here.
    """
    for encoding in reversed(head.content_encodings + head.transfer_encodings):
        if encoding == "chunked":
            body = dechunk(body)
            continue
        decoder = _DECODERS.get(encoding)
        if decoder is None:
            if b"<" in body[:1024] and b"\0" not in body[:1024]:
                continue  # the name is nonsense and the body plain
            raise InputError(f"unknown content encoding {encoding[:20]!r}")
        decoded = decoder(body, max_bytes + 1)
        body = body if decoded is None else decoded
        if len(body) > max_bytes:
            break
    if len(body) > max_bytes:
        raise InputError(f"body larger than max_html_bytes={max_bytes}")
    return body


def dechunk(body: bytes) -> bytes:
    """A chunked body put together. A body without a chunk size at its start is plain; what follows a broken size is kept."""
    out: list[bytes] = []
    at = 0
    while at < len(body):
        size = _CHUNK_SIZE.match(body, at)
        if size is None:
            if not out:
                return body
            out.append(body[at:])
            break
        length = int(size[1], 16)
        if length == 0:
            break
        at = size.end()
        if not out and body[at + length : at + length + 1] not in (b"", b"\r", b"\n"):
            return body  # plain text that begins with a number
        out.append(body[at : at + length])
        at += length
        if body[at : at + 1] == b"\r":
            at += 1
        if body[at : at + 1] == b"\n":
            at += 1
    return b"".join(out)


def _gunzip(body: bytes, limit: int) -> bytes | None:
    return _inflate(body, limit, 31) if body.startswith(b"\x1f\x8b") else None


def _deflate(body: bytes, limit: int) -> bytes | None:
    return _inflate(body, limit, 15) or _inflate(body, limit, -15) or _gunzip(body, limit)


def _inflate(body: bytes, limit: int, window: int) -> bytes | None:
    """Up to `limit` bytes; None if the start is not in this format."""
    d = zlib.decompressobj(window)
    out = b""
    for i in range(0, len(body), 64 << 10):  # in pieces: what comes before an error is kept
        try:
            out += d.decompress(body[i : i + (64 << 10)], limit - len(out))
        except zlib.error:
            break
        if len(out) >= limit or d.eof:
            break
    return out or None


def _brotli(body: bytes, limit: int) -> bytes | None:
    import brotli

    d = brotli.Decompressor()
    try:
        return d.process(body, output_buffer_limit=limit) or None  # without a limit a bomb would be inflated whole
    except brotli.error:
        return None  # brotli has no magic number: this is how a plain body shows


def _zstd(body: bytes, limit: int) -> bytes | None:
    if not body.startswith(b"\x28\xb5\x2f\xfd"):
        return None
    zstandard = library(".zst")
    try:
        return zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True).read(limit) or None
    except zstandard.ZstdError:
        return None


_DECODERS = {
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}
