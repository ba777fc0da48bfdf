"""One training on one shard set, and its loss on the documents of validation sets. Needs torch.

# B rows, T tokens of a row, D documents
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional

from gpu_curate.ablate.model import Gpt, Shape
from gpu_curate.loader import ShardLoader
from gpu_curate.loader.stream import Stream, document_bounds

Array = np.ndarray[Any, np.dtype[Any]]
_WARMUP = 0.05  # of the steps


@dataclass(frozen=True)
class Budget:
    """What every model gets.

    Attributes:
        tokens: seen in training. seq_len, batch_size: rows. learning_rate: highest, decayed to a tenth by a cosine.
    """

    tokens: int
    seq_len: int = 256
    batch_size: int = 16
    learning_rate: float = 3e-3
    device: str = "cpu"

    @property
    def steps(self) -> int:
        return max(1, self.tokens // (self.batch_size * self.seq_len))


class Held(NamedTuple):
    """Documents of a validation set: ids with their end-of-text token, and bytes of text."""

    name: str
    documents: list[Array]
    bytes_D: Array
    eot_id: int


class Trained(NamedTuple):
    """A model, its losses (step, nats a token), and the epochs of its shards that it saw."""

    model: Gpt
    curve: list[tuple[int, float]]
    epochs: float
    seconds: float


def train(
    shards: Any,
    shape: Shape,
    vocab_size: int,
    budget: Budget,
    seed: int,
    options: dict[str, Any],
    tell: Callable[[str], None],
) -> Trained:
    """Train a model of a shape; the same seed gives the same weights to begin with on every shard set."""
    torch.manual_seed(seed)
    device = torch.device(budget.device)
    model = Gpt(shape, vocab_size, budget.seq_len).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=budget.learning_rate, betas=(0.9, 0.95), weight_decay=0.1)
    loader = ShardLoader(shards, "train", budget.batch_size, budget.seq_len, 0, 1, as_torch=True, **options)
    curve, begun = [], time.monotonic()
    for step in range(budget.steps):
        for group in optimizer.param_groups:
            group["lr"] = budget.learning_rate * _schedule(step, budget.steps)
        x, y = loader.batch(step)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = model(x.to(device))
        loss = functional.cross_entropy(logits.float().flatten(0, 1), y.to(device).flatten(), ignore_index=-100)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % max(1, budget.steps // 100) == 0 or step == budget.steps - 1:
            curve.append((step, float(loss.detach())))
            tell(f"step {step + 1} of {budget.steps}, loss {curve[-1][1]:.3f}")
    return Trained(model, curve, budget.steps / len(loader), time.monotonic() - begun)


def _schedule(step: int, steps: int) -> float:
    warm = max(1, round(steps * _WARMUP))
    if step < warm:
        return (step + 1) / warm
    return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def held_documents(name: str, shards: Any, most_tokens: int, decode: Callable[[Array], str]) -> Held:
    """The first documents of the validation split, until they hold `most_tokens`."""
    stream = Stream(shards, "validation")
    bounds = document_bounds(stream)
    count = max(1, int(np.searchsorted(bounds, most_tokens, "right")) - 1)
    documents = [np.array(stream.read(int(a), int(b))) for a, b in itertools.pairwise(bounds[: count + 1])]
    nbytes = [len(decode(ids[:-1]).encode()) for ids in documents]
    assert stream.manifest is not None
    return Held(name, documents, np.array(nbytes, np.int64), int(stream.manifest["eot_id"]))


@torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
def nats(model: Gpt, held: Held, seq_len: int, batch_size: int, device: str) -> Array:
    """float64 of D: the loss of each document, summed over its tokens.

    A document is read by itself, the end-of-text token before it as context; one longer than a row goes on in the next row
    without what stood before.
    """
    rows, of_row = [], []
    for d, ids in enumerate(held.documents):
        whole = np.concatenate([[held.eot_id], ids.astype(np.int64)])
        for start in range(0, len(ids), seq_len):
            rows.append(whole[start : start + seq_len + 1])
            of_row.append(d)
    total = np.zeros(len(held.documents))
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))  # rows of a batch are of about one length
    for at in range(0, len(order), batch_size):
        some = order[at : at + batch_size]
        longest = max(len(rows[i]) for i in some)
        ids_BT = np.full((len(some), longest), -100, np.int64)
        for b, i in enumerate(some):
            ids_BT[b, : len(rows[i])] = rows[i]
        ids = torch.from_numpy(ids_BT).to(device)
        logits = model(ids[:, :-1].clamp(min=0)).float()
        loss = functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], ignore_index=-100, reduction="none")
        np.add.at(total, [of_row[i] for i in some], loss.sum(1).double().cpu().numpy())
    return total


@torch.no_grad()  # type: ignore[untyped-decorator, unused-ignore]
def sample(model: Gpt, eot_id: int, count: int, seq_len: int, seed: int, device: str) -> list[int]:
    """Ids that a model writes after an end-of-text token, up to the next."""
    generator = torch.Generator().manual_seed(seed)
    ids = [eot_id]
    while len(ids) <= min(count, seq_len - 1):
        logits = model(torch.tensor([ids], device=device))[0, -1].float().cpu()
        ids.append(int(torch.multinomial(torch.softmax(logits / 0.8, 0), 1, generator=generator)))
        if ids[-1] == eot_id:
            break
    return ids[1:]
