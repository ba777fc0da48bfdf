"""What of a URL may be written down, and what of an error: no user, no password, no signature, no value of storage_options.

`located` gives a source's file its name: the clean URL, a str like any other, which carries the URL that is opened. Whatever
writes, fingerprint_of or compares it has the clean one. Needs the standard library alone.
"""

from __future__ import annotations

import re
from typing import Any

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)([^#]*)(.*)", re.DOTALL)
_IN_TEXT = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>`]+")
_PATHS = ("file", "memory", "stream", "local")  # what follows is a path, in which ? and # are letters
_BUCKETS = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "hf")  # keys may hold ? and #; an @ is no user by itself
_SIGNATURE = re.compile(
    r"x-(amz|goog|oss|ms|cos)-|sig$|signature|token|key|secret|passw|auth|credential|policy|expires?$|^(s[eprtv]|spr|skoid|sktid|st|hmac)$",
    re.IGNORECASE,
)
MIN_CHARS = 6  # of a value that is looked for in messages: a shorter one is a word like any other
HIDDEN = "(hidden)"
_secrets: set[str] = set()


class Location(str):
    """The clean name of a file at a server; `url` is what is opened."""

    url: str


def clean(url: str) -> str:
    """A URL without user, query and fragment; anything else as it is.

    In buckets a `#`, and a `?` that no `=` follows, is part of a name.
    """
    match = _URL.match(url)
    if match is None or match[1].lower() in _PATHS:
        return url
    protocol, host, path, query, fragment = match.groups()
    bucket = protocol.lower() in _BUCKETS
    if "@" in host and (not bucket or ":" in host.rpartition("@")[0]):
        host = host.rpartition("@")[2]
    if bucket:
        rest = "" if "=" in query else query + fragment
    else:
        rest = ""
    return f"{protocol}://{host}{path}{rest}"


def located(url: str) -> str:
    """The name of a file: clean, and what is opened beside it. A local path is a plain str."""
    name = clean(url)
    return url if name == url else _location(name, url)


def _location(name: str, url: str) -> Location:
    location = Location(name)
    location.url = url
    return location


def numbered(path: str, number: int) -> str:
    """The name of the second, third, ... file whose clean name is the same."""
    return _location(f"{path} ({number})", opened(path))


def opened(path: str) -> str:
    """The URL or path that a name stands for."""
    return getattr(path, "url", path)


def identity(url: str) -> str:
    """What tells a URL from others, for a fingerprint: with its query, without user and what looks like a signature, so that
    a URL signed anew stands for the same file."""
    query = opened(url).partition("#")[0].partition("?")[2]
    kept = [part for part in query.split("&") if part and not _SIGNATURE.search(part.partition("=")[0])]
    return clean(url) + ("?" + "&".join(sorted(kept)) if kept and clean(url) != url else "")


def cleaned(value: Any) -> Any:
    """Plain data with every URL in it clean."""
    if isinstance(value, str):
        return clean(value) if "://" in value else value
    if isinstance(value, dict):
        return {k: cleaned(v) for k, v in value.items()}
    return [cleaned(v) for v in value] if isinstance(value, list) else value


def published(path: str) -> str:
    """A path or pattern of a recipe for what others get to read: nothing of an absolute path but what follows its folder."""
    if "://" in path:
        return clean(path)
    if not path.startswith(("/", "~")) and ".." not in path.split("/"):
        return path
    parts = path.split("/")
    at = next((i for i, part in enumerate(parts) if set(part) & set("*?[")), len(parts) - 1)
    return "/".join(parts[at:]) or "."


# ---------------------------------------------------------------------------------------------------------- in messages


def hide(values: Any) -> None:
    """Never say these values (of storage_options, or a URL's), in whatever message of whatever library."""
    if isinstance(values, dict):
        for value in values.values():
            hide(value)
    elif isinstance(values, list | tuple):
        for value in values:
            hide(value)
    elif isinstance(values, str | int) and not isinstance(values, bool) and len(str(values)) >= MIN_CHARS:
        _secrets.add(str(values))


def hide_url(url: str) -> None:
    """As `hide`, of what `clean` takes away: a library may tell it apart from its URL."""
    match = _URL.match(url)
    if match is not None and match[1].lower() not in _PATHS:
        user = match[2].rpartition("@")[0]
        hide([p for p in user.split(":")[1:] if p] if user else [])
        hide([part.partition("=")[2] for part in match[4][1:].split("&") if _SIGNATURE.search(part.partition("=")[0])])


def redacted(text: str) -> str:
    """A message without what is hidden, its URLs clean."""
    if "://" in text:
        text = _IN_TEXT.sub(lambda m: clean(m.group()), text)
    for secret in sorted(_secrets, key=len, reverse=True):
        if secret in text:
            text = text.replace(secret, HIDDEN)
    return text
