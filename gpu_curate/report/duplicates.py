"""Duplicates: what the chosen bands and rows catch, what was found, the largest clusters."""

from __future__ import annotations

from typing import Any

from gpu_curate.config import Fuzzy
from gpu_curate.report.charts import Mark, Rule, curve, histogram
from gpu_curate.report.markup import Html, count, plural, section, share, short, strip, table, tag
from gpu_curate.report.rules import card
from gpu_curate.report.samples import JACCARD_BINS, Clusters, Library, cluster_facts, excerpt
from gpu_curate.stages import Context

_LARGEST = 5  # clusters shown with a text
# Two notices from one template, which differ in one number that stands twice in 11 words.
_NOTICE = "Route {0} exit {0} is closed for resurfacing until next Friday"
_EDITED_WORDS = (25, 50, 100, 400)  # lengths for which one changed word is worked out


def catch(s: float, bands: int, rows: int) -> float:
    """Probability that two documents of Jaccard similarity s share a bucket.

    Source: Leskovec, Rajaraman, Ullman, Mining of Massive Datasets, section 3.4.
    """
    return 1.0 - (1.0 - s**rows) ** bands


def similarity_caught(p: float, bands: int, rows: int) -> float:
    """The similarity at which the probability is p: the inverse of `catch`."""
    return float((1.0 - (1.0 - p) ** (1.0 / bands)) ** (1.0 / rows))


def template_similarity(n: int) -> float:
    """Jaccard similarity of the two notices over shingles of n words; a text of fewer words is one shingle."""
    a, b = (_shingles(_NOTICE.format(number).split(), n) for number in (12, 47))
    return len(a & b) / len(a | b)


def edited_similarity(words: int, n: int) -> float:
    """Jaccard similarity of a text of `words` different words and itself with the middle one changed."""
    text = list(range(words))
    changed = [*text[: words // 2], -1, *text[words // 2 + 1 :]]
    a, b = _shingles(text, n), _shingles(changed, n)
    return len(a & b) / len(a | b)


def _shingles(words: list[Any], n: int) -> set[tuple[Any, ...]]:
    n = min(n, len(words))
    return {tuple(words[i : i + n]) for i in range(len(words) - n + 1)}


def duplicates(facts: dict[str, Any], context: Context, library: Library) -> Html:
    fuzzy = context.config.dedup.fuzzy
    if not facts["duplicates"]:
        return section("duplicates", "Duplicates", "Duplicate removal was off (dedup.exact: false, dedup.fuzzy: null).")
    clusters = cluster_facts(context.box("duplicates"), _LARGEST)
    found = facts["duplicates"]
    lost = found["lost_clusters"]
    body: list[object] = [
        strip(
            [
                (short(found["exact"]), "exact duplicates", ""),
                (short(found["fuzzy"]) if fuzzy else "off", "fuzzy duplicates", ""),
                (short(found["candidate_pairs"]) if fuzzy else "off", "candidate pairs", "equal in a band"),
                (short(found["components"]), "clusters", "of two or more"),
                (short(lost), "clusters lost", "with their survivor"),
            ]
        )
    ]
    if lost:
        body.append(
            tag(
                "p",
                f"{plural(lost, 'cluster')} went whole: the survivor is chosen before any threshold is applied "
                "and failed another rule, while a removed copy failed nothing else.",
            )
        )
    figures = [_curve(fuzzy)] if fuzzy else []
    if clusters.measured:
        figures.append(_similarities(clusters, found["fuzzy"], fuzzy))
    if clusters.sizes:
        figures.append(_sizes(clusters))
    body.append(tag("div", figures, class_="figures"))
    if fuzzy:
        body.append(_short_texts(fuzzy))
    body.append(_largest(clusters, library))
    kinds = [k for k, on in (("the same text", context.config.dedup.exact), ("nearly the same text", fuzzy)) if on]
    keep = fuzzy.keep if fuzzy else "random"
    lead = f"Documents with {' or '.join(kinds)} form a cluster, and one of each cluster survives ({keep})."
    return section("duplicates", "Duplicates", lead, *body)


def _curve(fuzzy: Fuzzy) -> Html:
    bands, rows = fuzzy.num_bands, fuzzy.rows_per_band
    points = [(i / 200, catch(i / 200, bands, rows)) for i in range(201)]
    marks = []
    for percent in (10, 50, 90):
        s = similarity_caught(percent / 100, bands, rows)
        marks.append(
            Mark(s, percent / 100, f"{percent} % at {s:.2f}", f"pairs of similarity {s:.3f}: {percent} % caught")
        )
    threshold = (1 / bands) ** (1 / rows)
    lines = [Rule(threshold, f"steepest at {threshold:.2f}", f"about (1/{bands})^(1/{rows}) = {threshold:.4f}")]
    note = ""
    if fuzzy.verify != "none":
        lines.append(
            Rule(fuzzy.threshold, f"verify ≥ {fuzzy.threshold:g}", f"pairs below {fuzzy.threshold:g} are parted again")
        )
        how = "the signatures" if fuzzy.verify == "signature" else "the texts"
        note = (
            f" A caught pair is then checked on {how} and kept together only from {fuzzy.threshold:g} on."
            if fuzzy.verify_against == "pair"
            else f" Of what is caught, a document is removed only if it reaches {fuzzy.threshold:g}, by {how}, with the one "
            "that is kept for it."
        )
    formula = tag("span", "1 − (1 − s", tag("sup", rows), ")", tag("sup", bands), class_="formula")
    caption = [
        "Chance that a pair of similarity s shares a bucket: ",
        formula,
        f", for {bands} bands of {rows} rows over {fuzzy.shingle_words}-word shingles.{note}",
    ]
    label = f"S-curve of {bands} bands of {rows} rows"
    return _figure("What is caught", curve(points, marks, lines, "Jaccard similarity s of a pair", label), caption)


def _similarities(clusters: Clusters, fuzzy_total: int, fuzzy: Fuzzy | None) -> Html:
    width = 1 / JACCARD_BINS
    counts = [int(n) for n in clusters.jaccard]
    titles = [f"{i * width:.2f} to {(i + 1) * width:.2f}: {plural(n, 'document')}" for i, n in enumerate(counts)]
    ticks = [(i * JACCARD_BINS / 5, f"{i / 5:.1f}") for i in range(6)]
    lines = []
    if fuzzy:
        half = similarity_caught(0.5, fuzzy.num_bands, fuzzy.rows_per_band)
        lines = [Rule(half * JACCARD_BINS, "50 % caught", f"half of the pairs of similarity {half:.3f} are caught")]
    of = (
        "all" if clusters.measured == fuzzy_total else f"a sample of {count(clusters.measured)} of {count(fuzzy_total)}"
    )
    low = ""
    if clusters.below_half:
        part = share(clusters.below_half, clusters.measured)
        low = f" {part} lie below 0.5: linked to their survivor through others, or caught by chance."
        if fuzzy and fuzzy.verify == "none":
            low += " dedup.fuzzy.verify would check every link."
    caption = f"Exact Jaccard similarity of removed fuzzy duplicates to their survivor ({of}).{low}"
    chart = histogram(counts, ticks, titles, "Jaccard similarity to the survivor", "histogram of similarities", lines)
    return _figure("What was removed", chart, caption)


def _sizes(clusters: Clusters) -> Html:
    """Components by size, in octaves from 2."""
    octaves: list[int] = []
    for n, components in clusters.sizes.items():
        place = n.bit_length() - 2  # 2..3 → 0, 4..7 → 1, ...
        octaves += [0] * (place + 1 - len(octaves))
        octaves[place] += components
    octaves += [0] * (6 - len(octaves))
    every = -(-len(octaves) // 7)
    ticks = [(i, _power(2 << i)) for i in range(0, len(octaves) + 1, every)]
    titles = [f"{2 << i} to {(4 << i) - 1} documents: {plural(n, 'cluster')}" for i, n in enumerate(octaves)]
    chart = histogram(octaves, ticks, titles, "documents in the cluster", "histogram of cluster sizes", log=True)
    largest = clusters.largest[0][0]
    return _figure(
        "Cluster sizes",
        chart,
        f"Clusters by how many documents they hold, both on logarithmic scales; the largest holds {count(largest)}.",
    )


def _power(n: int) -> str:
    for unit, size in (("M", 1 << 20), ("k", 1 << 10)):
        if n >= size:
            return f"{n // size}{unit}"
    return str(n)


def _figure(title: str, chart: Html, caption: object) -> Html:
    return tag("figure", tag("h3", title), chart, tag("figcaption", caption))


def _short_texts(fuzzy: Fuzzy) -> Html:
    bands, rows = fuzzy.num_bands, fuzzy.rows_per_band

    def cell(s: float) -> list[object]:
        p = catch(s, bands, rows)
        chance = (
            "never"
            if s == 0
            else "always"
            if s == 1
            else f"{100 * p:.0f} %"
            if 0.005 <= p < 0.995
            else ("<1 %" if p < 0.5 else ">99 %")
        )
        return [f"{s:.2f}" if s < 0.995 or s == 1 else f"{s:.3f}", tag("small", chance)]

    widths = sorted({1, 2, 3, 5, fuzzy.shingle_words})
    lines = [
        [
            f"n = {n}{' (this run)' if n == fuzzy.shingle_words else ''}",
            cell(template_similarity(n)),
            *(cell(edited_similarity(words, n)) for words in _EDITED_WORDS),
        ]
        for n in widths
    ]
    own, edited = template_similarity(fuzzy.shingle_words), edited_similarity(50, fuzzy.shingle_words)
    fate = "both notices are likely to stay" if catch(own, bands, rows) < 0.5 else "one notice is likely to go"
    verdict = (
        f"With n = {fuzzy.shingle_words}, {fate}; "
        f"a text of 50 words with one of them changed is caught with probability {catch(edited, bands, rows):.2f}."
    )
    return tag(
        "div",
        tag("h3", "Short texts and the shingle size"),
        tag(
            "p",
            "One changed word touches n shingles of n words, so the same edit costs a short text more similarity than a "
            f"long one. Two notices of 11 words from one template, “{_NOTICE.format(12)}” and the same with 47, against "
            "texts of 25 to 400 words with one word changed in the middle: similarity, and the chance of being caught. ",
            verdict,
        ),
        table(
            ("shingle words", "two notices", *(f"{words} words, 1 changed" for words in _EDITED_WORDS)),
            lines,
            class_="grid",
        ),
    )


def _largest(clusters: Clusters, library: Library) -> Html | None:
    if not clusters.largest:
        return None
    documents = library.read(survivor for _, survivor in clusters.largest)
    cards = [
        card(
            documents[survivor],
            [(excerpt(documents[survivor].text), False)],
            tag("b", f"{count(size)} documents"),
            "survivor",
        )
        for size, survivor in clusters.largest
        if survivor in documents
    ]
    return tag("div", tag("h3", "Largest clusters"), tag("div", cards, class_="cards"))
