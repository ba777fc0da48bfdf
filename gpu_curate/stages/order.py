"""The stages of a run, in the order of the data flow."""

from __future__ import annotations

from collections.abc import Callable

from gpu_curate.stages import Stage

BESIDE = ("texts", "rejects")  # folders that the documents stage writes to beside its own, named after it


def all_stages() -> list[Stage]:
    """Every stage, in the order of the data flow."""
    from gpu_curate.stages.contamination import Contamination
    from gpu_curate.stages.decisions import Decisions
    from gpu_curate.stages.documents.stage import Documents
    from gpu_curate.stages.duplicates import Duplicates
    from gpu_curate.stages.reference_sets import References, ReferenceSignatures
    from gpu_curate.stages.scores import Scores
    from gpu_curate.stages.shards import Shards
    from gpu_curate.stages.signatures import Signatures
    from gpu_curate.stages.tokenizer import TrainedTokenizer
    from gpu_curate.stages.tokens import Tokens

    kinds: list[Callable[[], Stage]] = [
        Documents,
        References,
        Signatures,
        ReferenceSignatures,
        Scores,
        Contamination,
        TrainedTokenizer,
        Tokens,
        Duplicates,
        Decisions,
        Shards,
    ]
    return [kind() for kind in kinds]
