"""E-mail addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gpu_curate.text.pii.spans import Candidates

# ------------------------------------------------------------------------------------------------------------- e-mail

_LOCAL = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._%+'-"
_DOMAIN = re.compile(rb"[A-Za-z0-9.\x80-\xff-]{3,255}+")
_TOP_LEVEL = re.compile(r"xn--[A-Za-z0-9-]{1,59}|[A-Za-z]{2,24}|[^\W\d_A-Za-z]{2,24}")
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf]")  # no character, so no part of an address
_IMAGE_SCALE = re.compile(rb"\dx\.")
# The longest run of labels that ends in a top level, and what is right for all others of it.
_ASCII_DOMAIN = re.compile(rb"((?:[A-Za-z0-9-]++\.)+)(?>xn--[A-Za-z0-9-]{1,59}+|[A-Za-z]{2,24}+)(?![A-Za-z0-9])")
_ASCII_LABELS = re.compile(rb"(?:(?!-)[A-Za-z0-9-]{1,63}(?<!-)\.)+")


def find_emails(raw: bytearray, candidates: Candidates) -> Iterator[tuple[int, int]]:
    done = 0
    for _, at, here in candidates:
        domain = _DOMAIN.match(raw, here) if at >= done else None
        if domain is None:
            continue
        start = _local_start(bytes(raw[max(done, here - 66) : here - 1]), here - 1)
        size = domain_size(domain.group()) if start < here - 1 else 0
        if size:
            done = here + size
            yield start, done


def _local_start(before: bytes, at: int) -> int:
    """Where the local part of at most 64 bytes starts; `at` if there is none."""
    if not before.isascii():
        before = before[max((m.end() for m in _SURROGATE.finditer(before)), default=0) :]
    run = before[len(before.rstrip(_LOCAL)) :]
    if not run and before[-1:] >= b"\x80":  # an internationalised one: letters of any script
        letters = before.decode("utf-8", "ignore")
        size = 0
        while size < len(letters) and (letters[-1 - size].isalnum() or letters[-1 - size] in "._+-"):
            size += 1
        run = letters[len(letters) - size :].encode()
    if len(run) > 64 or run.endswith(b"."):
        return at
    run = run[run.rfind(b"..") + 2 :] if b".." in run else run
    return at - len(run.lstrip(b".%+'-"))


def domain_size(run: bytes) -> int:
    """Bytes of the domain that `run` starts with; 0 if it is none."""
    if _IMAGE_SCALE.match(run):
        return 0
    if run.isascii():  # `labels_size` in two patterns
        match = _ASCII_DOMAIN.match(run)
        return match.end() if match and _ASCII_LABELS.fullmatch(match[1]) else 0
    surrogate = _SURROGATE.search(run)
    run = run[: surrogate.start()] if surrogate else run
    domain = run.decode("utf-8", "ignore")
    foreign = re.search(r"[^\w.\-\u0300-\u036f\u0900-\u0dff]", domain)  # quotes, dashes, full stops of other scripts
    return labels_size(domain[: foreign.start()] if foreign else domain)


def labels_size(domain: str) -> int:
    """Bytes of the longest run of labels from the start whose last may be a top level; 0 if there is none or one is bad."""
    labels = domain.split(".")
    if "" in labels:
        labels = labels[: labels.index("")]
    while len(labels) > 1:
        top = _TOP_LEVEL.match(labels[-1])
        # ASCII letters with others after them, or the reverse: text that goes on without a blank, as in Chinese
        if top and (
            top.end() == len(labels[-1])
            or not (labels[-1][top.end()].isascii() and top.group()[-1].isascii())
            or labels[-1][top.end()] == "-"
        ):
            if all(0 < len(label) <= 63 and label[0] != "-" and label[-1] != "-" for label in labels[:-1]):
                return len(".".join([*labels[:-1], top.group()]).encode())
            return 0
        labels.pop()
    return 0
