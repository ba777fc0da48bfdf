"""What a run would do, before it does it: inputs, partitions, memory, disk, what would be reused."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from gpu_curate.config import Config
from gpu_curate.config.own import codes
from gpu_curate.device import backend
from gpu_curate.device.pinned import RING_BYTES
from gpu_curate.own_code import facts as code_facts
from gpu_curate.quality import rules
from gpu_curate.runs.checks import check_run_directory, without_effect
from gpu_curate.runs.fingerprints import active_stages, fingerprints, own_fingerprints, parts_of, pinned
from gpu_curate.runs.places import cache_of, folders
from gpu_curate.runs.plan_files import Planned
from gpu_curate.runs.split import Earlier
from gpu_curate.runs.workers import default_workers
from gpu_curate.stages import Stage
from gpu_curate.stages.columns import check_sources
from gpu_curate.stages.documents.listing import listings
from gpu_curate.stages.documents.tasks import ReadTask, refers
from gpu_curate.stages.forgotten import remembering
from gpu_curate.stages.order import STAGES, OfRecipe, intake_of
from gpu_curate.stages.reference_sets import reference_listings
from gpu_curate.stages.signatures import band_spec, minhash_spec
from gpu_curate.stages.tokens import PROOFS
from gpu_curate.store.artifact import Box
from gpu_curate.tokenizer.loading import recall

# Bytes of memory, measured on the bench corpus: see scripts/bench/LOG.md, "Memory"
WORKER_BASE = 350 << 20  # a process with Arrow, Numba and a tokenizer
WORKER_TEXT_FACTOR = 5  # times the bytes of a partition
GLOBAL_BYTES_PER_DOCUMENT = 250  # the plan of the shards; duplicates take 100
BYTES_PER_DOCUMENT = 2000  # guess of the mean, for counts before anything is read
BYTES_PER_TOKEN = 4.2
_REFUSED = 10  # files named that nothing can be read of
DEVICE_READ_FACTOR = 3  # times the bytes of a partition, while cuDF decodes it: pages, column, rows gathered


def make_plan(
    config: Config, run: Path, fresh: bool = False, stages: Iterable[OfRecipe | Stage] = STAGES
) -> dict[str, Any]:
    """Facts for `gpu-curate plan`. Reads names, footers and headers; writes nothing.

    Args:
        fresh, stages: as for `running`.

    Raises:
        ConfigError: as the run would.
    """
    chosen, stages = backend.choose(config.run.backend), list(stages)
    check_run_directory(run, config)
    cache = cache_of(config, run)
    recall((cache or run).glob(PROOFS))
    found = listings(config.sources)
    files = [listing.files for listing in found]
    passed_over = {f"source {s.name}": l.passed_over for s, l in zip(config.sources, found, strict=True)}
    passed_over |= {f"reference {r.name}": listing.passed_over for r, listing in reference_listings(config.references)}
    seen, lacking = check_sources(config.sources, files)
    intake = intake_of(config)
    corpus = Planned(config, run, cache, fresh, stages).corpus
    tasks = list(corpus.tasks.values())
    per_source = Counter(t.source for t in tasks)
    text_bytes: Counter[int] = Counter()
    referred: Counter[int] = Counter()
    for task in tasks:
        text_bytes[task.source] += task.nbytes
        referred[task.source] += task.nbytes if intake.leaves_texts and refers(intake, task) else 0
    config = remembering(config, run)
    config, fingerprint_of, earlier = pinned(config, run, fingerprints(config, corpus, stages), fresh)
    built = active_stages(config, corpus, stages)
    parts = parts_of(built)
    places = folders(run, own_fingerprints(built, fingerprint_of, parts), cache, parts.shared)
    boxes = []
    wanted = list(corpus.tasks)  # partitions of documents/, then of what follows it
    for stage in built:
        box = Box((cache if cache is not None and stage.name in parts.shared else run) / places[stage.name])
        there, state = _state(box, stage.name, wanted, list(corpus.tasks), stage.name in parts.following)
        if stage.name == "documents":
            wanted = _outputs(box, wanted)
        boxes.append({"name": stage.name, "folder": places[stage.name], "partitions": there, "state": state})
    total = sum(text_bytes.values())
    documents = max(total // BYTES_PER_DOCUMENT, 1)
    needs = _needs(config, total, documents, max((t.nbytes for t in tasks), default=0))
    disk = _disk(config, total, total - sum(referred.values()), documents)
    free = shutil.disk_usage(_existing(run)).free
    warnings = [*without_effect(config), *lacking]
    warnings += [f"{name}: {what}" for name, passed in passed_over.items() if (what := passed.sentence())]
    warnings += [*_refused(tasks), *_too_small(disk, free, needs.memory)]
    return {
        "run": str(run),
        "sources": [
            {
                "name": s.name,
                "files": len(own),
                "bytes": sum(f.size for f in own),
                "tasks": per_source[i],
                "text_bytes": text_bytes[i],
                "by_reference_bytes": referred[i],
                "columns": columns and columns.names,
                "passed_over": found[i].passed_over.facts(),
            }
            for i, (s, own, columns) in enumerate(zip(config.sources, files, seen, strict=True))
        ],
        "code": code_facts(codes(config)),
        "rules": [rule.name for rule in rules(config.quality)],
        "partitions": len(tasks),
        "boxes": boxes,
        "backend": {"choice": chosen.choice, "reason": chosen.reason},
        "workers": needs.workers,
        "peak_memory_bytes": needs.memory,
        "memory_reason": f"{needs.workers} workers of {needs.worker / 1e6:.0f} MB for partitions of "
        f"{needs.partition / 1e6:.1f} MB; {GLOBAL_BYTES_PER_DOCUMENT} bytes a document for the plan of the shards",
        **_device_facts(config, chosen, needs.partition),
        "disk_bytes": disk,
        "disk_free_bytes": free,
        "split": earlier and _facts_of(earlier),
        "warnings": warnings,
    }


def _refused(tasks: list[ReadTask]) -> list[str]:
    """Warnings of files that cannot be read."""
    refused = [s for t in tasks for s, *_ in t.pieces if s.refused is not None]
    more = [f"... and {len(refused) - _REFUSED:,} other files"] if len(refused) > _REFUSED else []
    return [f"{s.path}: {s.refused}" for s in refused[:_REFUSED]] + more


def _facts_of(earlier: Earlier) -> dict[str, Any]:
    return {
        "earlier": str(earlier.folder),
        "bound": earlier.bound,
        "pinned": earlier.pinned,
        "reason": earlier.reason,
    }


def _state(box: Box, name: str, wanted: list[str], tasks: list[str], follows: bool) -> tuple[int, str]:
    """How many partitions of a box are there, and what becomes of it; `follows`: documents/ partition by partition."""
    known = set(tasks)
    there = sum(1 for r in box.receipts() if not follows or r.part.partition("-")[0] in known)
    to_do = len(_unfinished(box, wanted)) if follows else 0
    if not there or (name == "shards" and not box.sealed()):
        return there, "to do"
    return there, f"goes on, {to_do} to do" if to_do else "reused"


class _Needs(NamedTuple):
    """Workers, bytes of memory of one and of all, bytes of text of a partition."""

    workers: int
    worker: int
    memory: int
    partition: int


def _needs(config: Config, text: int, documents: int, largest: int) -> _Needs:
    """Memory, by the measured factors above. `largest`: bytes of text of the largest task."""
    workers = config.run.workers or default_workers()
    partition = min(config.run.partition_bytes, max(largest, 1))
    shard = min(config.shards.tokens_per_shard * 2, int(text / BYTES_PER_TOKEN) * 2)
    worker = WORKER_BASE + max(WORKER_TEXT_FACTOR * partition, 2 * shard)
    return _Needs(workers, worker, workers * worker + GLOBAL_BYTES_PER_DOCUMENT * documents, partition)


def _device_facts(config: Config, chosen: backend.Backend, partition: int) -> dict[str, int]:
    processes = chosen.processes(config.run.gpu.workers)
    return {
        "peak_device_bytes": _device_bytes(config, partition, max(processes.values(), default=0)),
        "pinned_bytes": RING_BYTES * sum(processes.values()),
    }


def _device_bytes(config: Config, partition: int, processes: int) -> int:
    """Memory of one device, for so many processes: a partition's text and what the op that takes most needs beside it.

    For text as English is. One with more words takes more, and is halved where that does not fit.
    """
    from gpu_curate.ops.bands import gpu as bands
    from gpu_curate.ops.minhash import gpu as minhash
    from gpu_curate.ops.ngrams import gpu as ngrams
    from gpu_curate.ops.text_stats import gpu as text_stats

    documents = max(partition // BYTES_PER_DOCUMENT, 1)
    footprints = [text_stats.FOOTPRINT, ngrams.FOOTPRINT]
    if config.dedup.fuzzy is not None:
        signed = minhash.footprint(minhash_spec(config.dedup.fuzzy))
        hashed = bands.footprint(band_spec(config.dedup.fuzzy))
        footprints.append(signed._replace(per_document=signed.per_document + hashed.per_document))
    ops = max(f.of(partition, documents) for f in footprints)
    return processes * (partition + 8 * documents + max(ops, DEVICE_READ_FACTOR * partition))


def _too_small(disk: int, free: int, memory: int) -> list[str]:
    """Warnings where the machine has less than the run needs."""
    found = []
    if disk > free:
        found.append(f"about {disk / 1e9:.1f} GB are needed, {free / 1e9:.1f} GB are free on that disk")
    available = _available_memory()
    if available is not None and memory > available:
        found.append(
            f"about {memory / 1e9:.1f} GB of memory are needed, {available / 1e9:.1f} GB are available: "
            "set a smaller run.partition_bytes or fewer --workers"
        )
    return found


def _unfinished(box: Box, parts: list[str]) -> list[str]:
    """Those partitions that are not whole, with all that their tasks wrote beside them."""
    return [p for p in parts if not _whole(box, p)]


def _whole(box: Box, part: str) -> bool:
    receipt = box.receipt(part)
    return receipt is not None and all(map(box.has, receipt.more))


def _outputs(box: Box, tasks: list[str]) -> list[str]:
    """The partitions that tasks of documents/ made, as far as is known."""
    receipts = [(task, box.receipt(task)) for task in tasks]
    return [p for task, receipt in receipts for p in (task, *(receipt.more if receipt else ()))]


def _disk(config: Config, text: int, copied: int, documents: int) -> int:
    """documents (zstd; of text by reference nothing), scores, signatures, tokens and shards."""
    fuzzy = config.dedup.fuzzy
    per_document = 450 + (8 * fuzzy.num_bands + 40 if fuzzy else 32)
    if fuzzy and fuzzy.verify == "signature":
        per_document += 4 * fuzzy.num_bands * fuzzy.rows_per_band
    return int(copied * 0.5 + documents * per_document + 2 * 2 * text / BYTES_PER_TOKEN)


def _existing(path: Path) -> Path:
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def _available_memory() -> int | None:
    try:
        import psutil
    except ImportError:
        return None
    return int(psutil.virtual_memory().available)
