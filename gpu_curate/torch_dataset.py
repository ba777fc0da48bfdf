"""The batch stream of a ShardLoader as a torch data set. Importing this module needs torch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.utils.data import IterableDataset, get_worker_info

from gpu_curate.loader import Batch, Loader, Position
from gpu_curate.loader.arguments import integer


def torch_dataset(
    loader: Loader,
    step: int = 0,
    accum: int = 1,
    num_batches: int | None = None,
    *,
    state: dict[str, Any] | None = None,
) -> TorchDataset:
    """An IterableDataset over `loader.batches(step, accum, state=state)` for DataLoader(..., batch_size=None, num_workers=n).

    Worker w of n gives every n-th micro-batch from the w-th on, and DataLoader asks its workers in turn: the stream is the
    same for any number of workers, and no batch comes twice over ranks and workers.

    Args:
        num_batches: end after so many micro-batches; None goes on for ever.
    Returns:
        a TorchDataset; its state_after(n) is for a checkpoint: workers read ahead, so only the training loop knows n.
    """
    if num_batches is not None:
        num_batches = integer("num_batches", num_batches)
    return TorchDataset(loader, loader.batches(step, accum, state=state).start, num_batches)


class TorchDataset(IterableDataset[Batch]):  # type: ignore[misc]  # torch counts as Any: [test] does not bring it
    """An endless or bounded stream of the micro-batches of one rank; `torch_dataset` makes one that goes on from a step or a state.

    Attributes:
        loader: its ShardLoader or MixtureLoader.
        start: where all ranks together begin; None: at the start.
        num_batches: micro-batches of this rank; None: without end.
    """

    def __init__(self, loader: Loader, start: Position | None = None, num_batches: int | None = None):
        self.loader, self.num_batches = loader, num_batches
        self.start = loader.batches().start if start is None else start

    def __iter__(self) -> Iterator[Batch]:
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        i = worker
        while self.num_batches is None or i < self.num_batches:
            yield self.loader.batch_at(self.loader.after(self.start, i))
            i += workers

    def state_after(self, batches: int) -> dict[str, Any]:
        """The state once every rank has taken so many micro-batches of this stream."""
        return self.loader.state_at(self.loader.after(self.start, integer("batches", batches)))
