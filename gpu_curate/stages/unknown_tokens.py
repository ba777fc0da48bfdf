"""How much of what is kept is the tokenizer's unknown token."""

from __future__ import annotations

from gpu_curate.errors import FatalError
from gpu_curate.stages import Boxes
from gpu_curate.stages.decisions import DecisionCounts
from gpu_curate.stages.tokens import TokenCounts

MAX_SHARE, MUCH = 0.5, 0.01  # of the tokens that are kept: an error, a warning


def unknown_share(boxes: Boxes) -> tuple[int, int, float]:
    """(unknown tokens, tokens without the end-of-text ones, the first by the second) of the documents that are kept."""
    unknown = tokens = 0
    for receipt in boxes.box("decisions").receipts(DecisionCounts):
        of = receipt.counts
        unknown += of.unknown_tokens.get("kept", 0)
        tokens += of.by_reason.tokens.get("kept", 0) - of.by_reason.documents.get("kept", 0)
    return unknown, tokens, unknown / max(tokens, 1)


def check_unknown(boxes: Boxes) -> None:
    """Refuse shards most of whose tokens say nothing.

    Raises:
        FatalError: more than half of the tokens that are kept are the unknown one, or most texts have no token at all.
    """
    unknown, tokens, share = unknown_share(boxes)
    of = [receipt.counts for receipt in boxes.box("tokens").receipts(TokenCounts)]
    hint = (
        "take a tokenizer with byte fallback or a byte-level one, train one (tokenizer.train), or keep other languages"
    )
    if share > MAX_SHARE:
        raise FatalError(
            f"tokenizer: {unknown} of the {tokens} tokens that are kept ({share:.0%}) are {of[0].unknown_token!r}, which stands "
            f"for what its vocabulary lacks; above {MAX_SHARE:.0%} no shards are written",
            hint,
        )
    without, documents = sum(c.without_tokens for c in of), sum(c.documents for c in of)
    if without > documents * MAX_SHARE:
        raise FatalError(
            f"tokenizer: it makes no token of {without} of {documents} texts: its vocabulary lacks them", hint
        )
