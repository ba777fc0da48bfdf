"""Charts as inline SVG. A chart carries its numbers in tooltips; colours come from the style sheet, for light and dark.

Static pictures on purpose: plotly puts about 4.5 MB of JavaScript into a page that stands alone; all charts of a report
here take about 20 kB, and they print.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from gpu_curate.report.markup import Html, tag

_BAR = 1000.0  # width of a bar in its own units; the page stretches it
_WIDTH, _HEIGHT = 340, 230  # of a plot, in units of about one pixel on a phone and on a desktop, so its text is legible
_LEFT, _RIGHT, _TOP, _BOTTOM = 42, 10, 32, 38


class Segment(NamedTuple):
    """A piece of a bar: its length, the class that colours it, its tooltip."""

    length: float
    class_: str
    title: str


def bar(segments: Sequence[Segment], total: float, class_: str = "bar") -> Html:
    """Segments end to end on a scale of `total`. A segment of more than 0 is always visible.

    Hidden from screen readers: the numbers stand beside it.
    """
    pieces = []
    x = 0.0
    for s in segments:
        width = _BAR * s.length / total if total else 0.0
        if width > 0:
            seen = max(width, 2.0)
            title = tag("title", s.title)
            pieces.append(tag("rect", title, x=_n(min(x, _BAR - seen)), width=_n(seen), height=10, class_=s.class_))
        x += width
    box = f"0 0 {_BAR:.0f} 10"
    return tag("svg", pieces, class_=class_, viewBox=box, preserveAspectRatio="none", aria_hidden="true")


class Mark(NamedTuple):
    """A point on a curve that is pointed out."""

    x: float
    y: float
    label: str
    title: str


class Rule(NamedTuple):
    """A vertical line."""

    x: float
    label: str
    title: str


class _Plot:
    """Axes over x and y ranges that start at 0."""

    def __init__(self, x_max: float, y_max: float):
        self.x_max, self.y_max = x_max, y_max
        self.items: list[Html] = []

    def x(self, value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * value / self.x_max

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / self.y_max

    def add(self, name: str, /, *children: object, **attributes: object) -> None:
        self.items.append(tag(name, *children, **attributes))

    def axes(self, x_ticks: Sequence[tuple[float, str]], y_ticks: Sequence[tuple[float, str]], x_label: str) -> None:
        for value, label in y_ticks:
            y = _n(self.y(value))
            self.add("line", x1=_LEFT, x2=_WIDTH - _RIGHT, y1=y, y2=y, class_="grid")
            self.add("text", label, x=_LEFT - 6, y=_n(self.y(value) + 3.5), class_="end")
        for value, label in x_ticks:
            self.add("text", label, x=_n(self.x(value)), y=_HEIGHT - _BOTTOM + 15, class_="mid")
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        self.add("text", x_label, x=_n(middle), y=_HEIGHT - 7, class_="mid")

    def rule(self, rule: Rule, row: int = 0) -> None:
        x = self.x(rule.x)
        place = "end" if rule.x > 0.75 * self.x_max else "mid" if rule.x > 0.25 * self.x_max else None
        title = tag("title", rule.title)
        self.add("line", title, x1=_n(x), x2=_n(x), y1=_TOP - 4, y2=_HEIGHT - _BOTTOM, class_="rule")
        self.add("text", title, rule.label, x=_n(x), y=_TOP - 8 - 13 * row, class_=place)

    def svg(self, label: str) -> Html:
        return tag("svg", self.items, class_="plot", viewBox=f"0 0 {_WIDTH} {_HEIGHT}", role="img", aria_label=label)


def curve(
    points: Sequence[tuple[float, float]], marks: Sequence[Mark], rules: Sequence[Rule], x_label: str, label: str
) -> Html:
    """A curve of y over x, both 0..1."""
    plot = _Plot(1.0, 1.0)
    tenths = [(i / 5, f"{i / 5:.1f}") for i in range(6)]
    plot.axes(tenths, [(i / 4, f"{25 * i} %") for i in range(5)], x_label)
    for row, rule in enumerate(rules):
        plot.rule(rule, row)
    path = " ".join(f"{_n(plot.x(x))},{_n(plot.y(y))}" for x, y in points)
    plot.add("polyline", points=path, class_="curve")
    for mark in marks:
        x, y = plot.x(mark.x), plot.y(mark.y)
        plot.add("circle", tag("title", mark.title), cx=_n(x), cy=_n(y), r=4, class_="mark")
        left = _label_left(x, 6.2 * len(mark.label), [plot.x(rule.x) for rule in rules])
        plot.add("text", mark.label, x=_n(x - 9 if left else x + 9), y=_n(y + 4), class_="halo end" if left else "halo")
    return plot.svg(label)


def _label_left(x: float, width: float, lines: Sequence[float]) -> bool:
    """Whether a label of about `width` stands better on the left of its point: a rising curve leaves room on both sides, and
    no vertical line should cross it."""
    left, right = (x - 9 - width, x - 9), (x + 9, x + 9 + width)
    crossed = [sum(low - 2 <= line <= high + 2 for line in lines) for low, high in (left, right)]
    return crossed[0] < crossed[1] or (crossed[0] == crossed[1] and right[1] > _WIDTH)


def histogram(
    counts: Sequence[int],
    x_ticks: Sequence[tuple[float, str]],
    titles: Sequence[str],
    x_label: str,
    label: str,
    rules: Sequence[Rule] = (),
    log: bool = False,
    kept: Sequence[int] | None = None,
) -> Html:
    """Columns of equal width from 0 to len(counts); ticks and rules stand at column numbers. `kept`: the part of each count
    that is dark, where the rest is pale.

    With `log` a column of 1 is a tenth of a decade high, so that one giant shows beside a million pairs.
    """
    highest = max(counts, default=0)
    if log:
        decades = max(math.ceil(math.log10(max(highest, 1))), 1)
        ticks = [(d + 0.1, _tick(10**d)) for d in range(decades + 1)]
        plot = _Plot(len(counts), decades + 0.1)
    else:
        top, ticks = _scale(highest)
        plot = _Plot(len(counts), top)
    plot.axes(x_ticks, ticks, x_label)
    for i, n in enumerate(counts):
        if n:
            parts = [(n, "column")] if kept is None else [(n, "quality pale"), (kept[i], "kept")]
            for part, class_ in parts:
                height = max(plot.y(0) - plot.y(math.log10(part) + 0.1 if log else part), 1.0) if part else 0.0
                plot.add(
                    "rect",
                    tag("title", titles[i]),
                    x=_n(plot.x(i) + 0.75),
                    y=_n(plot.y(0) - height),
                    width=_n(plot.x(i + 1) - plot.x(i) - 1.5),
                    height=_n(height),
                    class_=class_,
                )
    for row, rule in enumerate(rules):
        plot.rule(rule, row)
    return plot.svg(label)


def _scale(highest: int) -> tuple[float, list[tuple[float, str]]]:
    """Top of a count axis and its ticks: a round step, at most five of them."""
    step = 1
    while highest > 5 * step:
        step = step * 5 // 2 if str(step).startswith("2") else step * 2  # 1 2 5 10 20 50 ...
    top = max(-(-highest // step) * step, 1)
    return float(top), [(v, _tick(v)) for v in range(0, top + 1, step)]


def _tick(n: int) -> str:
    for unit, size in (("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if n >= size:
            return f"{n / size:g}{unit}"
    return str(n)


def _n(value: float) -> str:
    """A coordinate: two decimals at most."""
    return f"{value:.2f}".rstrip("0").rstrip(".")
