"""How fast batches come from a folder of shards on this disk: `gpu-curate shards bench`.

Each case reads the same number of batches in every round, cases in turn, so that noise meets all alike. Cold: the pages of the
shards are dropped from the system's cache before (posix_fadvise; files that others hold open may stay). Warm: they were read
just before. Seconds are of the wall, since a cold read is waiting.

# B rows, T tokens of a row
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gpu_curate.errors import ConfigError
from gpu_curate.loader import ShardLoader
from gpu_curate.loader.stream import Stream

BASELINE = "memmap, int64"


class Speed(NamedTuple):
    """One case: batches a second, cold and warm, and warm over the baseline of the same run. Cold is None without a cold round."""

    case: str
    cold: float | None
    warm: float
    ratio: float


def bench(
    directory: str | os.PathLike[str],
    split: str = "train",
    batch_size: int = 16,
    seq_len: int = 1024,
    batches: int = 200,
    rounds: int = 3,
    cold: bool = True,
) -> list[Speed]:
    """Measure loaders of ours beside a bare memory map and nanoGPT's way.

    Raises: ConfigError: fewer batches in the split than asked for; as `ShardLoader`.
    """
    stream = Stream(directory, split)
    if stream.length < batches * batch_size * seq_len + 1:
        most = (stream.length - 1) // (batch_size * seq_len)
        raise ConfigError(
            f"shards bench: split {split} holds {max(most, 0)} batches of {batch_size} x {seq_len}, fewer than {batches}",
            "lower --batches, --batch-size or --seq-len",
        )
    cases = _cases(stream, directory, split, batch_size, seq_len)
    seconds: dict[str, tuple[list[float], list[float]]] = {name: ([], []) for name in cases}
    for case in cases.values():
        case(0)  # compiled
        _run(case, batches)
    for _ in range(rounds):
        for name, case in cases.items():
            if cold:
                _drop(stream)
                seconds[name][0].append(_run(case, batches))
            _run(case, batches)
            seconds[name][1].append(_run(case, batches))
    base = float(np.median(seconds[BASELINE][1]))
    return [
        Speed(
            name,
            batches / float(np.median(of_cold)) if of_cold else None,
            batches / float(np.median(of_warm)),
            base / float(np.median(of_warm)),
        )
        for name, (of_cold, of_warm) in seconds.items()
    ]


def _cases(
    stream: Stream, directory: str | os.PathLike[str], split: str, B: int, T: int
) -> dict[str, Callable[[int], object]]:
    rng = np.random.default_rng(0)

    def copied(i: int) -> Any:
        window = stream.read(i * B * T, (i + 1) * B * T + 1)
        return window[:-1].astype(np.int64).reshape(B, T), window[1:].astype(np.int64).reshape(B, T)

    def random_rows(i: int) -> Any:
        starts = rng.integers(0, stream.length - T, B).tolist()
        x = np.stack([stream.read(s, s + T).astype(np.int64) for s in starts])
        return x, np.stack([stream.read(s + 1, s + 1 + T).astype(np.int64) for s in starts])

    cases: dict[str, Callable[[int], object]] = {BASELINE: copied, "nanoGPT, random rows": random_rows}

    def add(name: str, **options: Any) -> None:
        loader = ShardLoader(directory, split, B, T, 0, 1, as_torch=False, **options)
        cases[name] = lambda i: loader.batch(i % len(loader))

    add("in order")
    add("shuffled rows", shuffle=1)
    if (stream.directory / "documents.parquet").exists():
        add("in order, boundaries", boundaries=True)
        add("aligned rows", align_documents=True)
        with contextlib.suppress(ConfigError):  # documents that fill fewer rows than a batch
            add("best fit", packing="best_fit")
            add("best fit, shuffled, boundaries", packing="best_fit", shuffle=1, boundaries=True)
    return cases


def _run(case: Callable[[int], object], batches: int) -> float:
    begun = time.perf_counter()
    for i in range(batches):
        case(i)  # dropped at once, as a training loop does after the copy to the device
    return time.perf_counter() - begun


def _drop(stream: Stream) -> None:
    """Have the system forget the pages of the shards, as far as it does."""
    for path in stream.paths:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)
