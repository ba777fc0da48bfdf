"""Batches of 16 x 1024 per CPU second from a warm cache, against a bare memory-mapped window.

    scripts/bench/loader.py [--megabytes 200] [--record]

Baselines: the window alone (a view of uint16), the window copied to int64 as x and as y (what a loader has to do at least),
and nanoGPT's random rows, stacked one by one; litdata and mosaicml-streaming, where they are installed: rows of T + 1 tokens in order,
by index, stacked to batches. Ours: rows in order, shuffled rows, rows aligned with documents.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path[:0] = [str(Path(__file__).resolve().parents[2]), str(Path(__file__).parent)]
from common import interleaved, quantiles, record  # noqa: E402

from gpu_curate.formats import FORMATS  # noqa: E402
from gpu_curate.loader import ShardLoader  # noqa: E402

B, T = 16, 1024
EOT = 50256


def shards(folder: Path, count: int, number: int = 4) -> None:
    """A shards folder of `count` random tokens in `number` files, documents of 1,000 tokens."""
    rng = np.random.default_rng(0)
    entries = []
    for i in range(number):
        tokens = rng.integers(0, EOT, count // number, np.uint16)
        tokens[999 - len(tokens) * i % 1000 :: 1000] = EOT
        path = folder / f"train_{i:06d}.bin"
        digest = FORMATS["llmc"].write(path, tokens)
        entries.append({"file": path.name, "tokens": len(tokens), "bytes": path.stat().st_size, "sha256": digest})
    total = count // number * number
    position = np.arange(0, total, 1000)
    lens = np.diff(position, append=total)  # whole thousands, as the end-of-text tokens are
    table = pa.table({"split": ["train"] * len(position), "position": position, "tokens": lens})
    pq.write_table(table, folder / "documents.parquet")
    split = {"tokens": total, "documents": len(position), "shards": entries}
    manifest = {"version": 1, "format": "llmc", "dtype": "uint16", "eot_id": EOT, "vocab_size": EOT + 1}
    (folder / "manifest.json").write_text(json.dumps({**manifest, "splits": {"train": split}}))


def others(folder: Path, flat: np.ndarray, count: int) -> dict[str, Callable[[int], object]]:
    """Batches by other programs' data sets of `count` rows, in files of their own below `folder`; those that are installed."""
    cases: dict[str, Callable[[int], object]] = {}

    def stacked(row: Callable[[int], np.ndarray]) -> Callable[[int], object]:
        def batch(i: int) -> object:
            rows = np.stack([row((i * B + k) % count) for k in range(B)]).astype(np.int64)
            return rows[:, :-1], rows[:, 1:]

        return batch

    if find_spec("litdata"):
        import litdata

        from gpu_curate.adapters.writers import convert

        convert(folder, folder / "litdata", "litgpt")
        data = litdata.StreamingDataset(str(folder / "litdata" / "train"), item_loader=litdata.TokensLoader(T + 1))
        cases[f"litdata {version('litdata')}"] = stacked(lambda i: data[i].numpy())
    if find_spec("streaming"):
        from streaming import MDSWriter, StreamingDataset

        place = str(folder / "mds")
        with MDSWriter(out=place, columns={"ids": f"ndarray:uint16:{T + 1}"}) as out:
            for i in range(count):
                out.write({"ids": np.array(flat[i * T : i * T + T + 1])})
        mds = StreamingDataset(local=place, batch_size=B)
        cases[f"mosaicml-streaming {version('mosaicml-streaming')}"] = stacked(lambda i: mds[i]["ids"])
    return cases


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--batches", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shards(folder, options.megabytes * 500_000)
        flat = np.memmap(folder / "train_000000.bin", np.uint16, "r", 1024)
        whole = (len(flat) - 1) // (B * T)
        rng = np.random.default_rng(1)
        loaders = {
            "ours, in order": ShardLoader(folder, "train", B, T, as_torch=False),
            "ours, shuffled rows": ShardLoader(folder, "train", B, T, as_torch=False, shuffle=1),
            "ours, aligned rows": ShardLoader(folder, "train", B, T, as_torch=False, align_documents=True),
            "in order, boundaries": ShardLoader(folder, "train", B, T, as_torch=False, boundaries=True),
            "shuffled, boundaries": ShardLoader(folder, "train", B, T, as_torch=False, shuffle=1, boundaries=True),
            "best fit": ShardLoader(folder, "train", B, T, as_torch=False, packing="best_fit"),
            "best fit, boundaries": ShardLoader(
                folder, "train", B, T, as_torch=False, packing="best_fit", boundaries=True
            ),
        }

        def window(i: int) -> np.ndarray:
            start = i % whole * B * T
            return flat[start : start + B * T + 1]

        def copied(i: int) -> tuple[np.ndarray, np.ndarray]:
            w = window(i)
            return w[:-1].astype(np.int64).reshape(B, T), w[1:].astype(np.int64).reshape(B, T)

        def nanogpt(i: int) -> tuple[np.ndarray, np.ndarray]:
            starts = rng.integers(0, len(flat) - T - 1, B)
            x = np.stack([flat[s : s + T].astype(np.int64) for s in starts])
            return x, np.stack([flat[s + 1 : s + 1 + T].astype(np.int64) for s in starts])

        cases = {"window alone, uint16": window, "window + int64 copies": copied, "nanoGPT random rows": nanogpt}
        cases.update(others(folder, flat, min((len(flat) - 1) // T, 4096)))
        cases.update({name: loader.batch for name, loader in loaders.items()})
        bounded = loaders["in order, boundaries"]
        cases["in order, every position"] = lambda i: bounded.batch(i).position_ids
        count, slow = options.batches, 20  # other programs get a part of the batches: they take as long for those

        counts = {name: count // slow if name.startswith(("litdata", "mosaicml")) else count for name in cases}

        def run(name: str) -> None:
            case = cases[name]
            for i in range(counts[name]):
                case(i)  # dropped at once, as a training loop does after the copy to the device

        seconds = interleaved({name: functools.partial(run, name) for name in cases}, options.rounds)
        for name, loader in loaders.items():  # what was measured is what it should be
            digest = hashlib.sha256(next(iter(loader.batch(3))).tobytes()).hexdigest()[:8]
            print(f"{name}: {len(loader)} batches an epoch, batch 3 is {digest}")
        baseline = "window + int64 copies"
        base = count / quantiles(seconds[baseline])[1]
        print(f"\n{'case':<28} {'batches/s p20':>13} {'p50':>8} {'p80':>8} {'ratio':>6}")
        for name, values in seconds.items():
            rates = [counts[name] / s for s in values]
            p20, p50, p80 = quantiles(rates)
            print(f"{name:<28} {p20:>13.0f} {p50:>8.0f} {p80:>8.0f} {p50 / base:>6.2f}")
            if options.record:
                record(
                    "loader", f"{name}, {B} x {T}", "batches per CPU second", rates, baseline, p50 / base, "warm cache"
                )


if __name__ == "__main__":
    main()
