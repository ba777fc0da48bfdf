"""What a run read, dropped and kept, and what it cost: report.json for programs, index.html for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpu_curate.runs.pipeline import Outcome


def write_report(outcome: Outcome) -> dict[str, Any]:
    """Publish report.json and index.html of a finished run, or of one that kept nothing, in the folder of its own.

    Returns: report.json.

    Raises:
        FatalError: the accounts do not add up.
    """
    from gpu_curate.report.accounts import accounts
    from gpu_curate.report.page import page
    from gpu_curate.store.files import publish, write_json

    folder = outcome.context.run / outcome.report
    facts = accounts(outcome)
    write_json(folder / "report.json", facts)
    with publish(folder / "index.html") as temp:
        temp.write_text(page(facts, outcome.context), encoding="utf-8")
    return facts
