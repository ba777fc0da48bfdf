"""Two boxes of one partition made from one read of its text: each keeps its receipt, fingerprint and reuse.

The runner gives one task to a worker where both partitions are missing and the CPU makes them; where one is there, or a GPU
works, each is made by itself. The bytes are the same, so neither stage imports this, and no fingerprint covers it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpu_curate.stages import Boxes, Stage
from gpu_curate.stages.contamination import Contamination
from gpu_curate.stages.part import Part
from gpu_curate.stages.shipped import Shipped
from gpu_curate.stages.signatures import Signatures

if TYPE_CHECKING:
    from gpu_curate import lsh
    from gpu_curate.document import TextColumn
    from gpu_curate.ops.ngrams.joint import JointIndex
    from gpu_curate.store.receipts import Counts, Receipt


def run_together(stages: Sequence[Stage | Shipped], boxes: Boxes, name: str) -> list[Receipt[Counts]]:
    """What a worker executes: one partition of signatures/ and one of contamination/, made and published.

    The cost of reading the text and hashing its words stands in the receipt of the signatures.
    """
    signatures, contamination = (s.stage() if isinstance(s, Shipped) else s for s in stages)
    assert isinstance(signatures, Signatures)
    assert isinstance(contamination, Contamination)
    part = Part(signatures, boxes, name)
    text = part.text()
    hashes, hits = hash_and_probe(text, signatures.plain, signatures.one_scope(part), contamination.joint(boxes))
    receipts = [part.publish(signatures.made(part, hashes, "cpu", {}))]
    part = Part(contamination, boxes, name)
    receipts.append(part.publish(contamination.made(part, contamination.matched(text, boxes, hits), "cpu", {})))
    return receipts


def hash_and_probe(
    text: TextColumn, fuzzy: lsh.Fuzzy | None, bands: bool, joint: JointIndex
) -> tuple[dict[str, Any], list[Any]]:
    """What `lsh.hash_documents` and `probe_all` give: from one pass over the words where there are signatures and n-grams with
    anchors."""
    from gpu_curate.lsh import hash_documents
    from gpu_curate.ops.ngrams import probe
    from gpu_curate.ops.ngrams.fused import sign_and_probe
    from gpu_curate.ops.ngrams.joint import apart

    signed, hits = None, []
    for union, _ in joint.groups:
        if fuzzy is not None and signed is None and union.anchors is not None:
            signed, found = sign_and_probe(text, fuzzy.minhash, union, union.anchors)
            hits.append(found)
        else:
            hits.append(probe(text, union))
    return hash_documents(text, fuzzy, bands, signed), apart(joint, hits)
