"""Commands, by subject: their options, their call, what they print."""

from __future__ import annotations

from typing import Any


def register(app: Any) -> None:
    """Put those that ask a finished run, a module each, on the command line."""
    from gpu_curate.commands import (
        ablate,
        budget,
        certificate,
        clusters,
        diff,
        explain,
        forget,
        funnel,
        scurve,
        sql,
        trace,
    )

    for module in (funnel, explain, trace, diff, clusters, scurve, certificate, forget, sql, budget, ablate):
        app.command(epilog=module.EXAMPLES)(getattr(module, module.__name__.rpartition(".")[2]))
