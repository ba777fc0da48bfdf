"""Batches read ahead and moved to a device: 2 bytes a token over the bus, int64 made there. Needs torch.

    for x, y in Prefetcher(loader.batches(state=state), "cuda"): ...

A thread reads the next batches as they are stored (uint16, or uint32). On a CUDA device it pins them and copies them on a
stream of its own while the model computes; what positions and documents tokens have is spread on the device. On a CPU the same
code runs without pins and streams.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from gpu_curate.errors import ConfigError
from gpu_curate.loader.base import Batch, Batches, DocumentBatch, Raw

_WAIT_S = 0.1  # between looks at whether anybody still wants batches


class Prefetcher:
    """The batches of a stream on a device, in order.

    Args:
        stream: what `loader.batches(...)` gives. It goes on here, so take no batch of it elsewhere.
        device: where tensors are to be.
        depth: batches ahead.
    Raises:
        ConfigError: depth below 1. What the thread meets is raised by the next batch asked for.
    Memory: depth + 2 batches on the host and on the device.
    """

    def __init__(self, stream: Batches, device: str | torch.device = "cuda", depth: int = 2):
        if depth < 1:
            raise ConfigError(f"depth {depth}: expected a batch or more")
        self.device = torch.device(device)
        self._loader, self._start, self._taken = stream._loader, stream.place(), 0
        self._side = torch.cuda.Stream(self.device) if self.device.type == "cuda" else None
        self._ready: queue.Queue[Any] = queue.Queue(depth)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._read_ahead, name="prefetch", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self._closed.is_set():
            raise ConfigError("the prefetcher was closed")
        found = self._ready.get()
        if isinstance(found, BaseException):
            self.close()
            raise found
        batch, tensors = found
        if self._side is not None:
            current = torch.cuda.current_stream(self.device)
            current.wait_stream(self._side)
            for tensor in tensors:  # their memory is not given to the side stream while this one uses them
                tensor.record_stream(current)
        self._taken += 1
        result: Batch = batch
        return result

    def state_dict(self) -> dict[str, Any]:
        """The state behind the batches that were handed out; those read ahead do not count."""
        return self._loader.state_at(self._loader.after(self._start, self._taken))

    def close(self) -> None:
        """Stop reading. Called when the object goes, too."""
        self._closed.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def __enter__(self) -> Prefetcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_closed"):
            self._closed.set()

    def _read_ahead(self) -> None:
        number = 0
        while not self._closed.is_set():
            found: Any
            try:
                raw = self._loader.raw(self._loader.after(self._start, number), narrow=True)
                found = self._move(raw)
            except BaseException as e:
                found = e
            while not self._closed.is_set():
                try:
                    self._ready.put(found, timeout=_WAIT_S)
                    break
                except queue.Full:
                    continue
            if isinstance(found, BaseException):
                return
            number += 1

    def _move(self, raw: Raw) -> tuple[Batch, list[torch.Tensor]]:
        if self._side is None:
            return self._made(raw)
        with torch.cuda.stream(self._side):
            return self._made(raw)

    def _made(self, raw: Raw) -> tuple[Batch, list[torch.Tensor]]:
        x, y, segments = raw
        ids, targets = self._wide(x), self._wide(y)
        if segments is None:
            return (ids, targets), [ids, targets]
        if len(segments.untargeted):
            targets.view(-1)[self._there(segments.untargeted).long()] = self._loader.ignore_index
        if not self._loader.boundaries:
            return (ids, targets), [ids, targets]
        cu, documents = self._there(segments.cu_seqlens), self._there(segments.document_G)
        of_token = torch.repeat_interleave(
            torch.arange(len(documents), device=self.device), torch.diff(cu).long(), output_size=ids.numel()
        )
        position = (torch.arange(ids.numel(), device=self.device, dtype=torch.int32) - cu[of_token]).view(ids.shape)
        document = documents[of_token].view(ids.shape)
        batch = DocumentBatch(ids, targets, cu, documents, segments.longest, _no_wrap)
        batch.spread_as(position, document)
        return batch, [ids, targets, cu, documents, position, document]

    def _there(self, array: np.ndarray[Any, np.dtype[Any]]) -> torch.Tensor:
        """An array as a tensor on the device. The host's pages are free when this returns, or held by the pinned copy."""
        tensor = torch.from_numpy(array)
        if self._side is not None:
            tensor = tensor.pin_memory()
        return tensor.to(self.device, non_blocking=True)

    def _wide(self, ids: np.ndarray[Any, np.dtype[Any]]) -> torch.Tensor:
        """int64 on the device, of uint16 or uint32: few operations of torch know these, so they travel as signed ones."""
        signed, mask = (np.int16, 0xFFFF) if ids.dtype.itemsize == 2 else (np.int32, 0xFFFFFFFF)
        return self._there(ids.view(signed)).long() & mask


def _no_wrap(array: Any) -> Any:
    return array
