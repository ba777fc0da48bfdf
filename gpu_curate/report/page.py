"""index.html: one self-contained page."""

from __future__ import annotations

import html
import json
from typing import Any

from gpu_curate.stages import Context


def page(facts: dict[str, Any], context: Context) -> str:
    """The report of a run as one HTML page that loads nothing."""
    return f"<!doctype html><meta charset=utf-8><title>gpu_curate</title><pre>{html.escape(json.dumps(facts, indent=1))}</pre>"
