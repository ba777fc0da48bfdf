"""Damaged archives, read by us and by warcio and FastWARC: nothing is lost that one of them reads."""

from __future__ import annotations

import collections
import contextlib
import gzip
import hashlib
import io
import random
import resource
import time

import fastwarc.warc
import lz4.frame
import pytest
import warcio.archiveiterator
import zstandard
from places import SHARED
from sources.test_warc import ARC_HEAD, HTML, http, page, warc

from gpu_curate.sources.archive.records import Broken, records

REAL = [
    "sample-0000.warc.gz",
    "sample-0001.warc.gz",
    "warcfile.warc.gz",
    "warcfile.warc.lz4",
    "whirlwind.warc.gz",
    "whirlwind.warc.wet.gz",
    "whirlwind.warc.wat.gz",
    "warcio/example.warc.gz",
    "warcio/example.arc.gz",
    "warcio/example-iana.org-chunked.warc",
    "warcio/example-resource.warc.gz",
]


def _arc_record(n: int) -> bytes:
    block = http(HTML + b"<!-- %s -->" % random.Random(n).randbytes(30 * n).hex().encode())
    return b"http://e.org/%d 1.2.3.4 20140216050221 text/html %d\n" % (n, len(block)) + block + b"\n"


def _warc_records() -> list[bytes]:
    noise = [random.Random(n).randbytes(40 * n).hex().encode() for n in range(8)]
    bodies = [page(HTML + b"<!-- %s -->" % n) for n in noise]
    info = warc("warcinfo", b"isPartOf: CC-MAIN-2024-22\r\n")
    return [info, *(r for n, b in enumerate(bodies) for r in (warc("request", b"GET /%d HTTP/1.1\r\n\r\n" % n), b))]


MADE = {"made.warc": _warc_records(), "made.arc": [ARC_HEAD, *map(_arc_record, range(12))]}


def split(data: bytes) -> list[bytes]:
    """The records of a whole archive, as bytes."""
    starts, f = [], io.BytesIO(data)
    for record in records(f):
        assert not isinstance(record, Broken)
        starts.append(record.offset)
        assert record.finish() is None
    plain = data
    if data.startswith(b"\x1f\x8b"):
        plain = gzip.decompress(data)
    elif data.startswith(b"\x04\x22\x4d\x18"):
        plain = lz4.frame.open(io.BytesIO(data)).read()
    return [plain[a:b] for a, b in zip(starts, [*starts[1:], len(plain)], strict=True)]


PACKED = {
    "plain": lambda members: b"".join(members),
    "gzip": lambda members: b"".join(gzip.compress(m, 6, mtime=0) for m in members),
    "one gzip": lambda members: gzip.compress(b"".join(members), 6, mtime=0),
    "lz4": lambda members: b"".join(lz4.frame.compress(m) for m in members),
    "zstd": lambda members: b"".join(zstandard.ZstdCompressor().compress(m) for m in members),
}

# --------------------------------------------------------------------------------------------------------- mutations

VALUES = [
    b"",
    b"-",
    b"-1",
    b"0",
    b"1",
    b"17",
    b"many",
    b"1e3",
    b"99999999",
    b"9" * 25,
    b" ",
    b"\xff\xfe",
    b"a b c",
    b"+5",
]
JUNK = [
    b"\r\n",
    b"\n",
    b"\0" * 40,
    b"WARC/1.0\r\n",
    b"\r\n\r\n",
    b"<p>junk</p>",
    b"HTTP/1.1 200 OK\r\n",
    b"\x1f\x8b\x08",
]


def damage(data: bytes, rng: random.Random) -> bytes:
    """Bytes changed, lost, doubled or put in anywhere."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(out) or 1)
        end = at + rng.choice((1, 1, 3, 40, 400, 4000))
        match rng.randrange(7):
            case 0:
                out[at:end] = bytes(b ^ rng.randrange(256) for b in out[at:end])
            case 1:
                del out[at:end]
            case 2:
                out[at:at] = rng.choice(JUNK)
            case 3:
                out[at:at] = out[at:end]
            case 4:
                out[at:end] = bytes(len(out[at:end]))
            case 5:
                out[at : at + 1] = bytes([rng.randrange(256)])
            case 6:
                if rng.random() < 0.3:
                    del out[at:]
    return bytes(out)


def odd_header(record: bytes, rng: random.Random) -> bytes:
    """A record with something odd in its header; its block is as it was."""
    if not record.startswith(b"WARC/"):
        line, _, block = record.partition(b"\n")
        words = line.split(b" ")
        k = rng.randrange(len(words))
        match rng.randrange(5):
            case 0:
                words[k] = rng.choice(VALUES)
            case 1:
                del words[k]
            case 2:
                words.insert(k, rng.choice(VALUES))
            case 3:
                words[k] = bytes(rng.sample(words[k], len(words[k])))
            case 4:
                words[-1] += b"\r"
        return b" ".join(words) + b"\n" + block
    head, _, block = record.partition(b"\r\n\r\n")
    lines = head.split(b"\r\n")
    k = rng.randrange(len(lines))
    name, _, value = lines[k].partition(b":")
    match rng.randrange(8):
        case 0:
            lines[k] = name + b": " + rng.choice(VALUES)
        case 1:
            lines[k] = name.lower() + b":" + value
        case 2:
            del lines[k]
        case 3:
            lines.insert(k, rng.choice((b"no colon", lines[k], b" folded", b"X: y")))
        case 4:
            lines[k] = name + b":\r\n\t" + value
        case 5:
            return b"\n".join(lines) + b"\n\n" + block
        case 6:
            lines[k] = bytes(rng.sample(lines[k], len(lines[k])))
        case 7:
            lines[0] = rng.choice((b"WARC/0.17", b"warc/1.1", b"WARC/1.0 x", b"WARC/2.0", b"WARC/1", b"XARC/1.0", b""))
    return b"\r\n".join(lines) + b"\r\n\r\n" + block


def mutant(name: str, members: list[bytes], rng: random.Random) -> bytes:
    members = list(members)
    if len(members) > 12:
        at = rng.randrange(len(members) - 12)
        members = members[at : at + 12] if rng.random() < 0.7 else members[:1] + members[at : at + 11]
    pack = PACKED[rng.choice(list(PACKED))]
    kind = rng.randrange(4)
    if kind in (0, 3):
        for _ in range(rng.choice((1, 1, 2, 3))):
            k = rng.randrange(len(members))
            members[k] = odd_header(members[k], rng)
    if kind == 1:
        k = rng.randrange(len(members))
        members[k] = damage(members[k], rng)
    data = pack(members)
    return damage(data, rng) if kind in (2, 3) else data


# ------------------------------------------------------------------------------------------------------------ readers


EMPTY = hashlib.sha1(b"").digest()


def _key(uri: str | None, block: bytes) -> tuple[str, bytes]:
    return (uri or "").strip("<> ").replace(" ", "%20"), hashlib.sha1(block).digest()


def ours(data: bytes) -> tuple[list[tuple[str, bytes]], list[Broken], list[bytes]]:
    """What we read, what we reject, and the blocks of which the length was wrong."""
    found, broken, stretched = [], [], []
    for record in records(io.BytesIO(data)):
        if isinstance(record, Broken):
            broken.append(record)
            continue
        block = record.read(1 << 30)
        wrong = record.finish()
        if wrong is not None:
            broken.append(wrong)
            if wrong.block is None:
                continue
            block = wrong.block
            stretched.append(block)
        found.append(_key(record.fields.get("warc-target-uri"), block))
    return found, broken, stretched


def by_warcio(data: bytes) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    if data.startswith((b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18")):  # it takes these for headers of ARC
        return found
    with contextlib.redirect_stderr(io.StringIO()), contextlib.suppress(Exception):
        for record in warcio.archiveiterator.ArchiveIterator(io.BytesIO(data), no_record_parse=True):
            headers = record.rec_headers
            uri = headers.get_header("WARC-Target-URI" if record.format == "warc" else "uri")
            found.append(_key(uri, record.raw_stream.read()))
    return found


def by_fastwarc(data: bytes, quirks: bool) -> list[tuple[str, bytes]]:
    found = []
    with contextlib.suppress(Exception):
        for record in fastwarc.warc.ArchiveIterator(io.BytesIO(data), parse_http=False, quirks_mode=quirks):
            found.append(_key(record.headers.get("WARC-Target-URI"), record.reader.read()))
    return found


PEERS = {
    "warcio": by_warcio,
    "FastWARC": lambda data: by_fastwarc(data, False),
    "FastWARC, lenient": lambda data: by_fastwarc(data, True),
}


def compare(data: bytes, true: dict[bytes, int], counts: collections.Counter[str]) -> None:
    """Fail if a peer reads a record that we do not.

    Deviates, and counted in `counts`:
    - a block that the peer hands over otherwise than it was written (cut, too long, damaged): ours may be another, or a reject;
    - a record of wrong length, with bytes behind it that are no record: ours goes up to the next record;
    - a record at which the file is cut or its compressed bytes are damaged: ours is a reject, though it may be whole, unless
      the digest in its header says so.

    Args:
        true: digest → length of the blocks that were written.
    """
    began = time.process_time()
    found, broken, stretched = ours(data)
    assert time.process_time() - began < 5 + len(data) / 1e6
    have = collections.Counter(found)
    blocks = {digest for _, digest in found}
    cut = sum(b.reason.startswith(("truncated", "damaged")) for b in broken)
    counts["records, ours"] += len(found)
    counts["rejects, ours"] += len(broken)
    for peer, read in PEERS.items():
        theirs = collections.Counter(read(data))
        counts[f"records, {peer}"] += theirs.total()
        altered = lost = 0
        for (_, digest), n in (theirs - have).items():
            if digest not in true:
                counts[f"block altered, {peer}"] += n
                altered += n * (digest != EMPTY)
            elif digest in blocks:
                counts[f"URI otherwise, {peer}"] += n
            elif any(hashlib.sha1(b[: true[digest]]).digest() == digest for b in stretched):
                counts[f"block shorter, {peer}"] += n
            else:
                counts[f"cut record, {peer}"] += n
                lost += n
        assert lost <= cut, (peer, theirs - have, broken)
        # each of them is another record of ours or a reject
        assert altered <= len(broken) + (have - theirs).total(), (peer, theirs - have, broken)


def written(members: list[bytes]) -> dict[bytes, int]:
    """The blocks of an archive's records: digest → length."""
    found = {}
    for record in records(io.BytesIO(b"".join(members))):
        block = record.read(1 << 30)
        found[hashlib.sha1(block).digest()] = len(block)
        assert record.finish() is None
    return found


@pytest.fixture(scope="module")
def archives() -> dict[str, list[bytes]]:
    found = dict(MADE)
    for name in REAL:
        if (SHARED / "warc" / name).exists():
            found[name] = split((SHARED / "warc" / name).read_bytes())
    return found


@pytest.mark.soak
def test_nothing_is_lost_that_a_peer_reads(archives, soak_cases):
    counts: collections.Counter[str] = collections.Counter()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    names = list(archives)
    for seed in range(soak_cases(100, 3000)):
        rng = random.Random(seed)
        name = names[seed % len(names)]
        members = archives[name]
        true = written(members)
        try:
            compare(mutant(name, members, rng), true, counts)
        except AssertionError as e:
            raise AssertionError(f"seed {seed} of {name}: {e}") from e
    print("\n" + "\n".join(f"{what:32}{n:9,}" for what, n in sorted(counts.items())))
    assert counts["records, ours"] >= max(n for what, n in counts.items() if what.startswith("records, "))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10  # KiB
