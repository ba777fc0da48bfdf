"""Text to uint16 ids on disk, one core, against the fastest exact library called directly.

    scripts/bench/tokenizing.py [--corpus corpus.parquet] [--tokenizer tokenizer.json] [--megabytes 30] [--record]

Every case runs in a process of its own, since what a library remembers of a text makes the second pass two to four times
as fast as the first. A case encodes the same documents and writes the ids; CPU seconds count neither opening the tokenizer
nor reading the corpus. The direct cases do the least that can be done: one call, one conversion, one write. Each case gets
the documents in the form that suits it, made beforehand: a list of strings, or a column (bytes and offsets).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from gpu_curate.document import TextColumn

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]
DATA = Path(os.environ.get("GPU_CURATE_TEST_DATA", ROOT.parent / "shared" / "data"))
BATCH_BYTES = 4 << 20  # as the tokens stage does
INSIDE: list[float] = []  # CPU seconds that `ours` spent in the library it chose


def documents(corpus: Path, nbytes: int) -> TextColumn:
    """Every k-th document, so that all parts of the corpus are in it."""
    import pyarrow.parquet as pq

    from gpu_curate.document import TextColumn

    column = pq.read_table(corpus, columns=["text"])["text"]
    step = max(1, round(sum(chunk.nbytes for chunk in column.chunks) / nbytes))
    return TextColumn.from_arrow(column.take(np.arange(0, len(column), step)))


def inert(path: Path) -> str:
    """The tokenizer.json without special tokens, as PEERS must be given it to be exact."""
    return json.dumps({**json.loads(path.read_bytes()), "added_tokens": [], "post_processor": None})


def direct_gigatoken(path: Path):
    import gigatoken

    tokenizer = gigatoken.Tokenizer.from_json(inert(path))
    return lambda texts, f: f.write(
        np.asarray(tokenizer.encode_batch(texts, parallel=False).layout.content.data).astype(np.uint16)
    )


def direct_gigatoken_column(path: Path):
    """gigatoken over a string array of awkward, the form that it calls zero-copy."""
    import awkward as ak

    write = direct_gigatoken(path)
    return lambda column, f: write(ak.from_arrow(column.to_arrow()), f)


def direct_snaptokens(path: Path):
    import snaptokens

    tokenizer = snaptokens.Tokenizer.from_json_str(inert(path))
    return lambda texts, f: f.write(np.frombuffer(tokenizer.encode_batch_flat(texts)[0], np.uint32).astype(np.uint16))


def direct_tiktoken(path: Path):
    from gpu_curate.config import Tokenizer
    from gpu_curate.tokenizer.loading import load

    encoder = load(Tokenizer(path=str(path), library="tiktoken"))
    return lambda texts, f: f.write(encoder.encode_batch(texts)[0])


def direct_tokenizers(path: Path):
    import tokenizers

    tokenizer = tokenizers.Tokenizer.from_str(inert(path))
    return lambda texts, f: [f.write(np.array(e.ids, np.uint16)) for e in tokenizer.encode_batch_fast(texts)]


def ours(path: Path):
    """What the tokens stage does with a batch: look for special texts, encode, check, narrow, write."""
    from gpu_curate.config import Tokenizer
    from gpu_curate.tokenizer.backends import open_backend
    from gpu_curate.tokenizer.loading import load

    encoder = load(Tokenizer(path=str(path)))
    backend = open_backend(encoder)
    library_call = backend._run

    def timed(texts):
        start = time.process_time()
        result = library_call(texts)
        INSIDE.append(time.process_time() - start)
        return result

    backend._run = timed

    def write(column, f):
        encoder.count_special_in(column)
        ids, _ = encoder.encode_column(column)
        f.write(ids)

    return write


CASES = {
    "gigatoken": direct_gigatoken,
    "gigatoken, column": direct_gigatoken_column,
    "snaptokens": direct_snaptokens,
    "ours": ours,
    "tiktoken": direct_tiktoken,
    "tokenizers": direct_tokenizers,
}
TAKE_COLUMNS = ("gigatoken, column", "ours")


def child(case: str, corpus: Path, tokenizer: Path, nbytes: int) -> None:
    os.environ.update(RAYON_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
    import hashlib

    from gpu_curate.document import TextColumn

    column = documents(corpus, nbytes)
    batches = [column.slice(*batch) for batch in column.batches(BATCH_BYTES)]
    warm = TextColumn.from_texts(["warm"])
    if case not in TAKE_COLUMNS:
        warm, *batches = ([text.raw(i).decode() for i in range(len(text))] for text in (warm, *batches))
    write = CASES[case](tokenizer)
    with tempfile.NamedTemporaryFile() as f:
        write(warm, f)
        f.seek(0)
        INSIDE.clear()
        start = time.process_time()
        for batch in batches:
            write(batch, f)
        f.flush()
        seconds = time.process_time() - start
        digest = hashlib.sha256(Path(f.name).read_bytes()).hexdigest()
    print(json.dumps({"seconds": seconds, "inside": sum(INSIDE), "bytes": column.nbytes, "sha256": digest}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", type=Path, default=DATA / "bench" / "corpus.parquet")
    parser.add_argument("--tokenizer", type=Path, default=DATA / "tok" / "gpt2" / "tokenizer.json")
    parser.add_argument("--megabytes", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--child", choices=CASES)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.corpus, options.tokenizer, options.megabytes * 1_000_000)
        return
    from common import quantiles, record

    rates: dict[str, list[float]] = {case: [] for case in CASES}
    digests: dict[str, str] = {}
    shares: list[float] = []
    for number in range(options.rounds):
        for case in CASES:
            megabytes = options.megabytes
            if case in ("tiktoken", "tokenizers"):  # slow: once, on a part
                if number:
                    continue
                megabytes = 3
            command = [sys.executable, __file__, "--child", case, "--megabytes", str(megabytes)]
            command += ["--corpus", str(options.corpus), "--tokenizer", str(options.tokenizer)]
            result = json.loads(subprocess.check_output(command, text=True).splitlines()[-1])
            rates[case].append(result["bytes"] / 1e6 / result["seconds"])
            if case == "ours":
                shares.append(result["inside"] / result["seconds"])
            if megabytes == options.megabytes:
                digests[case] = result["sha256"]
    if len(set(digests.values())) != 1:
        raise SystemExit(f"the ids differ: {digests}")
    fastest = max(("gigatoken", "gigatoken, column", "snaptokens"), key=lambda c: quantiles(rates[c])[1])
    base = quantiles(rates[fastest])[1]
    print(f"{'case':<18} {'MB/s p20':>9} {'p50':>7} {'p80':>7} {'ratio':>6}   (ratio to {fastest}; same ids)")
    for case, values in rates.items():
        p20, p50, p80 = quantiles(values)
        print(f"{case:<18} {p20:>9.1f} {p50:>7.1f} {p80:>7.1f} {p50 / base:>6.2f}")
        if options.record:
            record(
                "tokenizing", f"{case}, encode and write", "MB/s per core", values, fastest, p50 / base, "first pass"
            )
    share = quantiles(shares)[1]
    print(
        f"ours spends {share:.0%} of its CPU time inside the library it chose; the rest counts, checks, narrows, writes"
    )
    if options.record:
        record(
            "tokenizing", "ours, share inside the library", "of CPU time", shares, "the library", share, "same process"
        )


if __name__ == "__main__":
    main()
