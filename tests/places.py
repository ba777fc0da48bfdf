"""Where things are."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHARED = Path(os.environ.get("GPU_CURATE_TEST_DATA", ROOT.parent / "shared" / "data"))  # real inputs, may be absent
