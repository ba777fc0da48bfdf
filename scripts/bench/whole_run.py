#!/usr/bin/env python3
"""The whole run against datatrove, in CPU seconds per MB: usage: whole_run.py CORPUS.parquet TOKENIZER.json [--record]

Ours: `gpu-curate run` with all rules on, two workers, the whole corpus: every process of it, compilation caches warm.
datatrove 0.10.1: its Gopher repetition, Gopher quality, C4 and FineWeb filters, MinHash (four stages, 5-grams, 14 x 8) and
DocumentTokenizer on the first documents of it (all of them would take half an hour), one task, English word splitter.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pyarrow.parquet as pq
import yaml
from common import record

ROOT = Path(__file__).parents[2]
PEER_DOCUMENTS = 800
ROUNDS = 3

PEER = """
import sys
from datatrove.executor.local import LocalPipelineExecutor
from datatrove.pipeline.dedup import MinhashDedupBuckets, MinhashDedupCluster, MinhashDedupFilter, MinhashDedupSignature
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.pipeline.filters import C4QualityFilter, FineWebQualityFilter, GopherQualityFilter, GopherRepetitionFilter
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.tokens import DocumentTokenizer
from datatrove.pipeline.writers import JsonlWriter

import xxhash

for name in ("xxh64_intdigest", "xxh32_intdigest"):  # datatrove 0.10.1 hands over strings, which xxhash 4 refuses
    digest = getattr(xxhash, name)
    setattr(xxhash, name, lambda x, digest=digest: digest(x.encode() if isinstance(x, str) else x))
place, tokenizer = sys.argv[1:]
config = MinhashConfig(n_grams=5, num_buckets=14, hashes_per_bucket=8)

def run(*steps):
    LocalPipelineExecutor(list(steps), tasks=1, workers=1, logging_dir=None, skip_completed=False).run()

if __name__ == "__main__":
    run(JsonlReader(place + "/in"), GopherRepetitionFilter(), GopherQualityFilter(), C4QualityFilter(), FineWebQualityFilter(),
        JsonlWriter(place + "/kept", compression=None))
    # dedup and tokens see all documents, as ours do: ours scores, hashes and tokenises before it decides
    run(JsonlReader(place + "/in"), MinhashDedupSignature(place + "/sig", config=config))
    LocalPipelineExecutor([MinhashDedupBuckets(place + "/sig", place + "/buckets", config=config)], tasks=14,
                          logging_dir=None).run()
    run(MinhashDedupCluster(place + "/buckets", place + "/remove", config=config))
    run(JsonlReader(place + "/in"), MinhashDedupFilter(place + "/remove"),
        DocumentTokenizer(place + "/tokens", tokenizer_name_or_path=tokenizer, eos_token="<|endoftext|>", shuffle_documents=False))
"""


def cpu_seconds(command: list[str], **options: object) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **options)  # type: ignore[call-overload]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("corpus", type=lambda p: Path(p).resolve())
    parser.add_argument("tokenizer", type=lambda p: Path(p).resolve())
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    texts = pq.read_table(options.corpus, columns=["text"])["text"]
    nbytes = sum(len(t.as_py().encode()) for t in texts)
    first = [t.as_py() for t in texts[:PEER_DOCUMENTS]]
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        rules = dict.fromkeys(("gopher_quality", "gopher_repetition", "c4", "fineweb"), True)
        recipe = {
            "sources": [{"name": "corpus", "type": "parquet", "path": str(options.corpus)}],
            "tokenizer": {"path": str(options.tokenizer)},
            "quality": rules,
            "run": {"partition_bytes": 1 << 25},
        }
        (place / "r.yaml").write_text(yaml.safe_dump(recipe))
        ours = []
        for i in range(ROUNDS + 1):
            command = [sys.executable, "-m", "gpu_curate.cli", "run", place / "r.yaml", "--out", place / f"r{i}", "-q"]
            ours.append(cpu_seconds([*map(str, command), "--workers", "2"], cwd=ROOT, stderr=subprocess.DEVNULL))
            shutil.rmtree(place / f"r{i}")
        ours = [nbytes / 1e6 / s for s in ours[1:]]  # the first compiles
        (place / "in").mkdir()
        (place / "in" / "a.jsonl").write_text(
            "\n".join(json.dumps({"text": t, "id": f"d{i}"}) for i, t in enumerate(first))
        )
        (place / "peer.py").write_text(PEER)
        peer_bytes = sum(len(t.encode()) for t in first)
        command = [sys.executable, str(place / "peer.py"), str(place), str(options.tokenizer)]
        peer = [peer_bytes / 1e6 / cpu_seconds(command, cwd=place, stderr=subprocess.DEVNULL)]
    middle = sorted(ours)[len(ours) // 2]
    print(f"gpu_curate  {middle:8.2f} MB per CPU second ({nbytes / 1e6:.1f} MB)")
    print(f"datatrove   {peer[0]:8.3f} MB per CPU second ({peer_bytes / 1e6:.1f} MB)")
    print(f"ratio       {middle / peer[0]:8.1f}")
    if options.record:
        note = f"2 workers; peer on its first {PEER_DOCUMENTS} documents"
        record("whole_run", "all rules, dedup, tokens", "MB/CPU s", ours, "datatrove 0.10.1", middle / peer[0], note)


if __name__ == "__main__":
    main()
