"""What cleaning bought: the result of `gpu-curate ablate --out RUN/ablate`, bits per byte beside tokens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpu_curate.errors import GpuCurateError
from gpu_curate.report.markup import Html, count, section, table, tag
from gpu_curate.store.files import read_json

RESULT = "ablate/ablate.json"  # of a run directory


def ablation(run: Path) -> Html | None:
    """None where no result lies in the run directory. One that cannot be read is said to be so: a report does not fail for it."""
    path = run / RESULT
    if not path.is_file():
        return None
    try:
        return _section(read_json(path))
    except (GpuCurateError, OSError, KeyError, TypeError, ValueError, AttributeError) as e:
        return section("ablation", "Ablation", ["Not shown: ", tag("code", path), f" is no result of ablate ({e})."])


def _section(facts: dict[str, Any]) -> Html:
    model, budget, arms = facts["model"], facts["budget"], facts["arms"]
    sets = list(facts["validation"])
    first = next(iter(arms))
    rows = [
        [arm, own.get("tokens"), f"{own['epochs']:.2f}", *(_value(facts["bits_per_byte"][arm][s]) for s in sets)]
        for arm, own in arms.items()
    ]
    differences = [
        [f"{arm} on {name}", _value(v, "+"), ", ".join(f"{s:+.4f}" for s in v["seeds"])]
        for name, of_arm in facts["differences"].items()
        for arm, v in of_arm.items()
    ]
    lead = (
        f"Models of {model['parameters'] / 1e6:.2f} M parameters, each trained on {count(budget['tokens'])} tokens, "
        f"{budget['seeds']} seeds: bits per byte of held-out text, fewer are better; intervals of 95 % over documents."
    )
    return section(
        "ablation",
        "Ablation",
        lead,
        table(["trained on", "tokens it has", "epochs seen", *(f"on {name}" for name in sets)], rows),
        tag("h3", f"More than {first}"),
        table(["trained on, judged on", "bits per byte more", "by seed"], differences),
    )


def _value(found: dict[str, Any], sign: str = "") -> str:
    return f"{found['mean']:{sign}.4f} ({found['low']:{sign}.4f} to {found['high']:{sign}.4f})"
