"""Read token shards back: batches for a training loop.

    loader = ShardLoader("runs/NAME", "train", batch_size=16, seq_len=1024)   # rank and world size: of torchrun
    stream = loader.batches(state=checkpoint.get("loader"))
    for x, y in stream: ...; checkpoint["loader"] = stream.state_dict()

Modules:

    folder.py         where shards are, and their manifest.json
    stream.py         the tokens of a split as one stream; its documents
    rows.py           rows and segments, gathered by compiled code
    packing.py        rows made of pieces of documents; what each way of making them wastes
    order.py          permutations, random offsets, rows aligned with documents
    split_rows.py     the rows of one split in the order of an epoch
    base.py           ranks, numbered batches, places and states: what every loader is
    shard_loader.py   ShardLoader, one split
"""

from gpu_curate.loader.base import Batch, Batches, DocumentBatch, Loader, Position
from gpu_curate.loader.folder import PREFIX, SPLITS, read_manifest, shard_paths, shards_folder
from gpu_curate.loader.shard_loader import ShardLoader
from gpu_curate.loader.stream import Stream, documents

__all__ = [
    "PREFIX",
    "SPLITS",
    "Batch",
    "Batches",
    "DocumentBatch",
    "Loader",
    "Position",
    "ShardLoader",
    "Stream",
    "documents",
    "read_manifest",
    "shard_paths",
    "shards_folder",
]
