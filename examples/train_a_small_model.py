"""Make shards of text and train a small model on them: python train_a_small_model.py [FILES OR FOLDER]. Needs torch.

It takes text files, .jsonl with a key `text` or .parquet with a column `text`; without an argument it makes some texts.
"""

import random
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

import gpu_curate as gc

SEQ_LEN, BATCH, STEPS = 64, 16, 20


def made_up(folder: Path) -> Path:
    """Texts of a grammar small enough to be learnt at once."""
    folder.mkdir(exist_ok=True)
    rng = random.Random(0)
    for i in range(150):
        lines = [
            f"{rng.choice(['The cat', 'A dog', 'One bird'])} {rng.choice(['sees', 'follows', 'hears'])} "
            f"{rng.choice(['the moon', 'a river', 'its friend'])} for the {rng.randrange(1000)}th time."
            for _ in range(20)
        ]
        (folder / f"{i:03}.txt").write_text("\n".join(lines))
    return folder


def recipe(path: Path) -> dict[str, Any]:
    kind = {".jsonl": "jsonl", ".parquet": "parquet"}.get(path.suffix, "text")
    return {
        "sources": [{"name": "mine", "type": kind, "path": str(path)}],
        "tokenizer": {"train": {"vocab_size": 512}},
        "min_tokens": 16,
    }


def main() -> None:
    path = Path(sys.argv[1]) if sys.argv[1:] else made_up(Path("made_up"))
    run = gc.run(recipe(path), "run")
    print(run.report["documents"], run.report["splits"])

    loader = gc.ShardLoader(run.folder, "train", BATCH, SEQ_LEN, as_torch=True, shuffle=1)
    vocab = 512
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(vocab, 64), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, vocab))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses: list[float] = []
    for x, y in torch.utils.data.DataLoader(gc.TorchDataset(loader, num_batches=STEPS), batch_size=None):
        loss = nn.functional.cross_entropy(model(x.long()).flatten(0, 1), y.long().flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.item())
    print(f"loss {losses[0]:.2f} -> {losses[-1]:.2f} in {STEPS} steps of {BATCH} x {SEQ_LEN} tokens")


if __name__ == "__main__":  # a run's workers import this file
    main()
