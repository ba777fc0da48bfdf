"""HTML as text that cannot be forgotten to be escaped: a `str` is content, an `Html` is markup.

Documents hold hostile text: tags, control characters, bidirectional overrides that reverse what follows them. `escape`
makes all of it visible and inert.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpu_curate.visible import visible

_VOID = frozenset({"meta", "br", "col"})


class Html(str):
    """Markup, inserted as it is. Made by `tag`, never from the text of a document."""

    __slots__ = ()


def escape(value: object) -> Html:
    """`value` as text of an element or of a double-quoted attribute; an Html comes back as it is.

    Control characters are shown as their Unicode pictures, what else HTML has no place for as ⟨U+202E⟩.
    """
    if isinstance(value, Html):
        return value
    text = visible(value)
    return Html(text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;"))


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """An element. Children that are None are left out; lists are flattened; attributes of None are left out.

    `class_` gives class, `stroke_width` gives stroke-width, True gives an attribute without a value.
    """
    opening = [name]
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-")
        if value is True:
            opening.append(key)
        elif value is not None and value is not False:
            opening.append(f'{key}="{escape(value)}"')
    inside = join(children)
    start = f"<{' '.join(opening)}>"
    return Html(start if name in _VOID else f"{start}{inside}</{name}>")


def join(children: Iterable[object]) -> Html:
    """The children one after the other, escaped unless they are Html."""
    parts: list[str] = []
    for child in children:
        if isinstance(child, list | tuple):
            parts.append(join(child))
        elif child is not None:
            parts.append(escape(child))
    return Html("".join(parts))


# ---------------------------------------------------------------------------------------------------------- numbers


def count(n: float) -> str:
    """12,345"""
    return f"{n:,.0f}"


def short(n: float) -> Html:
    """A large count in four digits, the whole number in the tooltip: 2.497 B."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if n >= size:
            digits = f"{n / size:.2f}" if n < 100 * size else f"{n / size:.1f}"
            return tag("data", f"{digits} {unit}", value=n, title=count(n))
    return tag("data", count(n), value=n)


def size(nbytes: float) -> Html:
    """Bytes in decimal units, the whole number in the tooltip: 194.3 kB."""
    value = float(nbytes)
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if value < 999.95 or unit == "PB":
            shown = f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
            return tag("data", shown, value=nbytes, title=f"{count(nbytes)} bytes")
        value /= 1000
    raise AssertionError


def share(part: float, whole: float) -> str:
    """12.3 %; never 0 % of something and never 100 % of less than all. Empty where there is no whole."""
    if not whole:
        return ""
    percent = 100 * part / whole
    if part and percent < 0.01:
        return "<0.01 %"
    if percent < 1:
        return f"{percent:.2f} %" if part else "0 %"
    if part < whole and percent >= 99.95:
        return ">99.9 %" if percent >= 99.995 else f"{percent:.2f} %"
    return f"{percent:.1f} %"


def seconds(s: float) -> str:
    """0.29 s, 14.1 s, 3 min 20 s, 5 h 02 min."""
    if s < 99.95:
        return f"{s:.2f} s" if s < 9.995 else f"{s:.1f} s"
    minutes, rest = divmod(round(s), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def rate(nbytes: float, s: float) -> str:
    """MB/s in three digits; empty where nothing was measured."""
    if not nbytes or not s:
        return ""
    value = nbytes / s / 1e6
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def plural(n: int, noun: str) -> str:
    """1 document, 2 documents, 2 copies."""
    many = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{count(n)} {noun if n == 1 else many}"


# ----------------------------------------------------------------------------------------------------------- pieces


def section(key: str, title: str, lead: object, *body: object) -> Html:
    """A section with its one-line explanation."""
    return tag("section", tag("h2", title), tag("p", lead, class_="lead"), body, id=key)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[object] | Html], text: Sequence[int] = (), class_: str | None = None
) -> Html:
    """A table in a box that scrolls sideways where the screen is narrow.

    Args:
        columns: headings. The first column names the row.
        rows: cells; an int is written with thousands separators, None is an empty cell. Html is what belongs to the row
            before it, and takes a whole line.
        text: numbers of the columns that hold text; the others (but the first) are aligned to the right.
    """

    def cell(i: int, value: object) -> Html:
        shown = "" if value is None else count(value) if type(value) is int else value
        if i == 0:
            return tag("th", shown, scope="row")
        return tag("td", shown, class_="t" if i in text else None)

    head = tag(
        "tr", [tag("th", c, scope="col", class_="t" if i in text or i == 0 else None) for i, c in enumerate(columns)]
    )

    def line(row: Sequence[object] | Html) -> Html:
        if isinstance(row, Html):
            return tag("tr", tag("td", row, colspan=len(columns), class_="t"), class_="more")
        return tag("tr", [cell(i, v) for i, v in enumerate(row)])

    body = [line(row) for row in rows]
    return tag("div", tag("table", tag("thead", head), tag("tbody", body), class_=class_), class_="scroll", tabindex=0)


def details(summary: object, *body: object, open_: bool = False) -> Html:
    return tag("details", tag("summary", summary), body, open=open_)


def pairs(rows: Iterable[tuple[object, object]]) -> Html:
    """A list of terms and what they are; terms without a value are left out."""
    return tag("dl", [tag("div", tag("dt", t), tag("dd", v)) for t, v in rows if v not in (None, "")])


def strip(figures: Iterable[tuple[object, object, object]]) -> Html:
    """A few large figures side by side: value, what it is, a note."""
    items = [tag("li", tag("b", value), tag("span", name), tag("small", note)) for value, name, note in figures]
    return tag("ul", items, class_="strip")
