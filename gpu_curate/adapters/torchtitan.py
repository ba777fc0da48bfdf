"""A data set as torchtitan's trainer takes them (pytorch/torchtitan, torchtitan/hf_datasets/text_datasets.py). Needs torch.

    dataset = TorchtitanDataset("runs/web", seq_len=8192, dp_rank=dp_rank, dp_world_size=dp_world_size, shuffle=0)
    loader = ParallelAwareDataloader(dataset, dp_rank=dp_rank, dp_world_size=dp_world_size, batch_size=local_batch_size)

A sample is ({"input", "positions"}, labels), each int64 of T: positions restart at every document and at the start of a row, and
the last token of a document has no target, as there. Where its own data set keeps buffers of tokens, the state here is a place.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils.data import IterableDataset, get_worker_info

from gpu_curate.errors import ConfigError
from gpu_curate.loader.base import DocumentBatch
from gpu_curate.loader.shard_loader import ShardLoader

Sample = tuple[dict[str, torch.Tensor], torch.Tensor]


class TorchtitanDataset(IterableDataset[Sample]):  # type: ignore[misc, unused-ignore]
    """Samples of one data-parallel rank, without end or for one epoch.

    Args:
        shards, split, seq_len: as for ShardLoader; so are further options (shuffle, packing, sources, ...).
        infinite: False ends after an epoch.
        ignore_index: label of a token without a target; torchtitan's loss leaves out -100.
    Raises:
        ConfigError: as ShardLoader; more than one worker process.
    """

    def __init__(
        self,
        shards: str | os.PathLike[str],
        seq_len: int,
        dp_rank: int = 0,
        dp_world_size: int = 1,
        *,
        split: str = "train",
        infinite: bool = True,
        ignore_index: int = -100,
        **options: Any,
    ):
        self._loader = ShardLoader(
            shards,
            split,
            1,
            seq_len,
            dp_rank,
            dp_world_size,
            boundaries=True,
            labels="document",
            ignore_index=ignore_index,
            as_torch=True,
            **options,
        )
        self._infinite = infinite
        self._place = self._loader.batches().start

    def __iter__(self) -> Iterator[Sample]:
        workers = get_worker_info()
        if workers is not None and workers.num_workers > 1:
            raise ConfigError(
                f"{workers.num_workers} workers: each would read the same samples", "set num_workers to 0 or 1"
            )
        while self._infinite or self._place.epoch == 0:
            batch = self._loader.batch_at(self._place)
            self._place = self._loader.after(self._place, 1)
            assert isinstance(batch, DocumentBatch)
            yield {"input": batch.x[0], "positions": batch.position_ids[0].long()}, batch.y[0]

    def state_dict(self) -> dict[str, Any]:
        """The place behind the samples given so far: the same on every rank."""
        return self._loader.state_at(self._place)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state; of another number of ranks, too. Raises: ConfigError: of other shards or arguments."""
        self._place = self._loader.batches(state=state).start
