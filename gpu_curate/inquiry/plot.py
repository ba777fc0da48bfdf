"""A picture of numbers that are printed too. matplotlib is an extra."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpu_curate.errors import ConfigError, install
from gpu_curate.store.files import publish

FORMATS = (".svg", ".png", ".pdf")


@contextlib.contextmanager
def figure(path: Path) -> Iterator[Any]:
    """Axes to draw on; the file is there once all is drawn. The same numbers give the same bytes.

    Raises:
        ConfigError: matplotlib is missing, or the file's name has another ending.
    """
    if path.suffix not in FORMATS:
        raise ConfigError(f"--plot {path}: expected a name that ends in {', '.join(FORMATS)}")
    try:
        import matplotlib
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as e:
        raise ConfigError(f"--plot {path}: matplotlib is not installed", install("plot")) from e
    matplotlib.rcdefaults()  # the matplotlibrc of the current folder may be anybody's
    matplotlib.rcParams["svg.hashsalt"] = "gpu_curate"
    drawn = Figure(figsize=(7, 4.5), layout="constrained")
    FigureCanvasAgg(drawn)
    yield drawn.add_subplot()
    metadata = {".svg": {"Date": None}, ".png": {"Software": None}, ".pdf": {"CreationDate": None}}[path.suffix]
    with publish(path) as temp:
        drawn.savefig(temp, format=path.suffix[1:], dpi=130, metadata=metadata)
