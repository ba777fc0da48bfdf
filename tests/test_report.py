"""The report: its numbers are those of report.json, its samples are documents of the run, and nothing in it can act."""

from __future__ import annotations

import copy
import dataclasses
import gzip
import json
import random
import re
import shutil
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from corpora import document, edited, recipe, write_corpus
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu_curate import config
from gpu_curate.api import pipeline
from gpu_curate.console import _funnel
from gpu_curate.quality import FAMILIES
from gpu_curate.report import charts, markup, samples
from gpu_curate.report.accounts import _warnings
from gpu_curate.report.duplicates import catch, edited_similarity, similarity_caught, template_similarity
from gpu_curate.report.funnel import folded
from gpu_curate.report.overlaps import PLANTED_FOUND, overlap_notes
from gpu_curate.report.page import page
from gpu_curate.report.reasons import GROUPS, REASONS, group, ordered
from gpu_curate.report.rules import card, looks_like_code
from gpu_curate.stages.documents.counts import DocumentCounts
from gpu_curate.stages.partition_text import host_text, verified_text
from gpu_curate.stages.rule_values import bits_of_run
from gpu_curate.store.files import read_json
from gpu_curate.tokenizer.training import train

HOSTILE = (
    "<script>alert(1)</script></blockquote></details><img src=x onerror=alert(2)> \"quoted\" 'single' &amp; "
    "\u202egnp.exe\u202c \u2066isolated\u2069 \ufffe and \x85 in one text that is long enough to be tokenised and then "
    "dropped as a copy of itself"
)
ITEM = (
    "A ferry crosses the strait nine times a day and carries forty two cars on each crossing, "
    "so how many cars are carried in one week of seven days?"
)
VOID = {"meta", "br", "col"}
TAGS = """
html head meta title style body header nav main footer section aside div article blockquote figure figcaption details
summary h1 h2 h3 p ul li a b i em small span code pre mark time data sup dl dt dd table thead tbody tr th td
svg rect line text polyline circle
"""


class Page(HTMLParser):
    """A page taken apart: elements, text, tables; fails on what is not balanced."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.stack: list[str] = []
        self.texts: list[tuple[str, str]] = []  # innermost element, text
        self.sections: dict[str, list[list[list[str]]]] = {}  # id → tables → rows → cells
        self._section = ""
        self.feed(text)
        self.close()
        assert self.stack == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag == "section":
            self._section = dict(attrs)["id"] or ""
            self.sections[self._section] = []
        if tag == "table":
            self.sections[self._section].append([])
        if tag == "tr":
            self.sections[self._section][-1].append([])
        if tag in ("th", "td"):
            self.sections[self._section][-1][-1].append("")
        if tag not in VOID:
            self.stack.append(tag)

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.stack[-1] if self.stack else "", data))
        in_cell = "th" in self.stack or "td" in self.stack
        if in_cell and "title" not in self.stack:
            last = self.sections[self._section][-1][-1]
            last[-1] += f"\t{data}" if last[-1] else data

    def error(self, message):
        raise AssertionError(message)

    def text(self) -> str:
        return " ".join(data for _, data in self.texts)

    def rows(self, section: str, table: int = 0) -> dict[str, list[str]]:
        """First text of the first cell → first text of the other cells; without the rows that hold samples."""
        body = [row for row in self.sections[section][table][1:] if len(row) > 1]
        return {row[0].split("\t")[0]: [cell.split("\t")[0] for cell in row[1:]] for row in body}


def number(cell: str) -> int:
    return int(cell.replace(",", ""))


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    rng = random.Random(1)
    train([document(rng) for _ in range(20)], 500, "<|endoftext|>", folder / "tokenizer.json")
    return folder / "tokenizer.json"


def execute(run: Path, data: dict):
    outcome = pipeline.execute(config.parse(data), run)
    return read_json(run / "report" / "report.json"), outcome.context


@pytest.fixture(scope="module")
def full(tmp_path_factory, tokenizer):
    """A run with everything in it: rejects, copies, reference sets, rules, a mixture, a cut file, hostile text."""
    folder = tmp_path_factory.mktemp("full")
    write_corpus(folder / "c", documents=150)
    rng = random.Random(5)
    lines = [HOSTILE] * 3 + [document(rng, 3) + " " + ITEM + " " + document(rng, 2) for _ in range(4)]
    base = document(rng, 30)
    lines += [edited(base, rng, 0.01) for _ in range(6)]
    (folder / "<i>bad & worse.jsonl").write_text(
        "\n".join(json.dumps({"text": t}) for t in lines) + '\n{"text": "cut\n'
    )
    (folder / "older.jsonl").write_text(json.dumps({"text": base}) + "\n")
    whole = gzip.compress("\n".join(json.dumps({"text": document(rng)}) for _ in range(40)).encode())
    (folder / "cut.jsonl.gz").write_bytes(whole[:-40])
    (folder / "bench.jsonl").write_text(
        json.dumps({"question": ITEM}) + "\n" + json.dumps({"question": "too short"}) + "\n"
    )
    data = recipe(
        folder / "c",
        tokenizer,
        quality={"gopher_quality": {"min_stop_words": None}, "fineweb": {"min_terminal_line_fraction": None}},
        references=[
            {
                "name": "quiz",
                "path": str(folder / "bench.jsonl"),
                "text_fields": ["question"],
                "action": "decontaminate",
            },
            {"name": "older", "path": str(folder / "older.jsonl"), "action": "dedup_against"},
        ],
        shards={"tokens_per_shard": 5000, "validation": {"tokens": 3000}, "mixture_tokens": 8000},
    )
    data["sources"] += [
        {"name": "hostile", "type": "jsonl", "path": str(folder / "<i>bad & worse.jsonl"), "weight": 1.0},
        {"name": "cut", "type": "jsonl", "path": str(folder / "cut.jsonl.gz"), "weight": 1.0},
    ]
    facts, context = execute(folder / "run", data)
    return facts, context, Page((context.run / "report" / "index.html").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def bare(tmp_path_factory, tokenizer):
    """A run of one document with everything off."""
    folder = tmp_path_factory.mktemp("bare")
    (folder / "one.txt").write_text("One document with a handful of words in it.")
    data = {
        "sources": [{"name": "one", "type": "text", "path": str(folder / "one.txt")}],
        "tokenizer": {"path": str(tokenizer)},
        "dedup": {"exact": False, "fuzzy": None},
        "min_tokens": 0,
        "run": {"engine": "inline"},
    }
    facts, context = execute(folder / "run", data)
    return facts, context, Page((context.run / "report" / "index.html").read_text(encoding="utf-8"))


# ------------------------------------------------------------------------------------------------------ inert, alone


@pytest.mark.parametrize("run", ["full", "bare"])
def test_page_is_balanced_and_loads_nothing(run, request):
    _, context, parsed = request.getfixturevalue(run)
    names = {tag for tag, _ in parsed.elements}
    assert names <= set(TAGS.split())
    assert [tag for tag, _ in parsed.elements].count("h1") == 1
    ids = [a["id"] for _, a in parsed.elements if "id" in a]
    assert len(ids) == len(set(ids))
    for tag, attributes in parsed.elements:
        for key, value in attributes.items():
            assert not key.startswith("on"), (tag, key)
            assert key not in ("src", "srcset", "action", "style", "xlink:href")
            if key == "href":
                assert tag == "a"
                assert value[1:] in ids
    css = " ".join(data for tag, data in parsed.texts if tag == "style")
    assert "url(" not in css
    assert "@import" not in css
    policy = [a["content"] for t, a in parsed.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy == ["default-src 'none'; style-src 'unsafe-inline'"]
    text = (context.run / "report" / "index.html").read_text(encoding="utf-8")
    assert "<script" not in text.lower()


def test_hostile_text_is_shown_as_text(full):
    _, context, parsed = full
    text = (context.run / "report" / "index.html").read_text(encoding="utf-8")
    assert "<script>alert(1)</script></blockquote></details><img src=x onerror=alert(2)>" in parsed.text()
    assert "⟨U+202E⟩gnp.exe⟨U+202C⟩" in parsed.text()
    assert "<i>bad & worse.jsonl" in parsed.text()
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff]", text)


@settings(max_examples=100, deadline=None)
@given(st.text(st.characters(exclude_categories=())))
def test_escaped_text_comes_back_as_text(text):
    element = markup.tag("p", text, title=text)
    element.encode("utf-8")
    parser = HTMLParser(convert_charrefs=True)
    seen, attributes = [], []
    parser.handle_data = seen.append
    parser.handle_starttag = lambda name, attrs: attributes.append((name, attrs))
    parser.feed(element)
    parser.close()
    shown = samples_of_odd(text)
    assert "".join(seen) == shown
    assert [name for name, _ in attributes] == ["p"]
    assert attributes[0][1] == [("title", shown)]


def samples_of_odd(text: str) -> str:
    """What `escape` is to show, character by character, from the definition in the HTML standard."""
    out = []
    for c in text:
        code = ord(c)
        bidi = code in (0x61C, 0x200E, 0x200F) or 0x202A <= code <= 0x202E or 0x2066 <= code <= 0x2069
        unseen = code in (0x2028, 0x2029, 0xFEFF, 0xFFF9, 0xFFFA, 0xFFFB) or 0xE0000 <= code <= 0xE007F
        noncharacter = 0xFDD0 <= code <= 0xFDEF or code & 0xFFFE == 0xFFFE
        if code < 0x20 and c not in "\t\n\r":
            out.append(chr(0x2400 + code))
        elif c == "\r":
            out.append("␍")
        elif code == 0x7F:
            out.append("␡")
        elif 0x80 <= code <= 0x9F or bidi or noncharacter or unseen or 0xD800 <= code <= 0xDFFF:
            out.append(f"⟨U+{code:04X}⟩")
        else:
            out.append(c)
    return "".join(out)


# ----------------------------------------------------------------------------------------------------- equal numbers


def test_funnel_gives_the_numbers_of_report_json(full):
    facts, context, parsed = full
    rows = parsed.rows("funnel")
    dropped = facts["documents"]["dropped"]
    assert list(dropped) == ordered(
        dropped, context.config
    )  # in the order the rules are tried, here and in what a run fingerprint_of
    assert list(rows) == ["read", "rejected", *folded(dropped), "kept"]
    printed = [name.removeprefix("  dropped: ") for name in _funnel(facts).columns[0].cells if "dropped" in name]
    assert printed == list(dropped)
    assert {"exact_duplicate", "fuzzy_duplicate", "reference_duplicate", "contaminated", "empty"} <= set(dropped)
    assert {"mixture:not_drawn", "gopher_quality:too_few_words"} <= set(dropped)
    for name in ("read", "kept"):
        assert [number(c) for c in rows[name][:2]] == [facts["documents"][name], facts["tokens"][name]]
    assert number(rows["rejected"][0]) == facts["documents"]["rejected"]
    for name, reasons in folded(dropped).items():
        assert [number(c) for c in rows[name][:2]] == [
            sum(facts[unit]["dropped"][r] for r in reasons) for unit in ("documents", "tokens")
        ]
    splits = parsed.rows("funnel", 1)
    assert {k: [number(c) for c in v] for k, v in splits.items()} == {
        name: [s["documents"], s["tokens"]] for name, s in facts["splits"].items()
    }


def test_sources_rules_and_contamination_give_the_numbers_of_report_json(full):
    facts, _, parsed = full
    rows = parsed.rows("sources")
    assert list(rows) == list(facts["sources"])
    for source, unit in facts["sources"].items():
        cells = [number(c) for c in rows[source][:-2]]
        assert cells[0] == unit["read"]
        assert cells[1] == unit["rejected"]
        assert cells[-1] == unit["kept"]
        assert sum(cells[1:]) == unit["read"]
        assert number(rows[source][-1]) == facts["text"][source]["tokens_kept"]
    rules = {}
    for table in range(len(parsed.sections["rules"])):
        rules |= parsed.rows("rules", table)
    assert {r: number(v[0]) for r, v in rules.items()} == facts["failing"]
    assert {r: number(v[1]) for r, v in rules.items()} == {r: facts["only"].get(r, 0) for r in facts["failing"]}
    first = facts["documents"]["dropped"]
    assert {r: number(v[2]) for r, v in rules.items()} == {r: first.get(r, 0) for r in facts["failing"]}
    by_reason = parsed.rows("sources", 1)
    for place, unit in enumerate(facts["sources"].values()):
        shown = {r: number(cells[place]) for r, cells in by_reason.items() if cells[place]}
        assert shown == {**unit["dropped"], "rejected": unit["rejected"], "kept": unit["kept"]}
    assert number(parsed.rows("contamination")["quiz"][1]) == facts["contamination"]["quiz"]["matches"] == 4
    text = parsed.rows("text")
    assert [number(text["all"][i]) for i in (0, 2, 3)] == [
        sum(t[k] for t in facts["text"].values()) for k in ("documents", "chars", "tokens")
    ]
    assert [s["name"] for s in facts["steps"]] == list(parsed.rows("throughput"))


def test_characters_and_tokens_per_source_are_those_of_the_texts(full):
    facts, context, _ = full
    box = context.box("documents")
    table = pa.concat_tables([box.read_table(p, ["source"]) for p in box.parts()])
    texts = pa.chunked_array([host_text(verified_text(box, p)).to_arrow() for p in box.parts()])
    table = table.append_column("text", texts)
    for source, t in facts["text"].items():
        own = table.filter(pc.equal(table["source"].cast(pa.string()), source))["text"]
        assert t["documents"] == len(own)
        assert t["chars"] == sum(len(x) for x in own.to_pylist())
        assert t["bytes"] == sum(len(x.encode()) for x in own.to_pylist())
    assert sum(t["tokens"] + t["documents"] for t in facts["text"].values()) == facts["tokens"]["read"]
    in_documents = facts["tokens"]["kept"] + facts["tokens"]["dropped"].get("mixture:not_drawn", 0)
    assert sum(t["tokens_kept"] for t in facts["text"].values()) == in_documents


def test_what_only_one_rule_takes_is_what_would_be_kept_without_it(full):
    facts, context, _ = full
    box = context.box("decisions")
    failing = np.concatenate([box.columns(part, "failing")[0] for part in box.parts()]).tolist()
    of_run = bits_of_run(context)
    for name, bit in of_run.items():
        without = sum(1 for bits in failing if bits and bits & ~(1 << bit) == 0)
        assert facts["only"].get(name, 0) == without
    for family in FAMILIES:
        own = sum(1 << bit for name, bit in of_run.items() if name.startswith(f"{family}:"))
        assert facts["only"].get(family, 0) == sum(1 for bits in failing if bits and bits & ~own == 0)
    assert facts["only"]["exact_duplicate"] > 0
    assert facts["only"]["gopher_quality"] > 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_and_groups_stand_out_from_paper_and_wash(theme):
    style = files("gpu_curate.report").joinpath("style.css").read_text()
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", blocks[["light", "dark"].index(theme)]))

    def luminance(colour):  # WCAG 2.2, relative luminance
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    text = set(colours) - {"paper", "line", "wash", "pale-kept", "mark", "warn-wash"}
    assert {"ink", "soft", "warn", "plain", *GROUPS} <= text
    for name in sorted(text):
        for ground in ["paper", "wash", *(["warn-wash"] if name in ("warn", "ink") else [])]:
            low, high = sorted((luminance(colours[name]), luminance(colours[ground])))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (name, ground)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("def f(x):\n    return x\n\nprint(f(1))\n", True),
        ("| a | b |\n| 1 | 2 |\n| 3 | 4 |", True),
        ("for (;;) {\n\tn++;\n}\n", True),
        ("A sentence.\nAnother one, longer.\nA third.\n", False),
        ("x = 1", False),
        ("", False),
    ],
)
def test_code_and_tables_are_shown_in_letters_of_one_width(text, code):
    assert looks_like_code(text) == code


@pytest.mark.parametrize(
    ("x", "lines", "left"),
    [(0.5, [0.6], True), (0.5, [0.4], False), (0.95, [], True), (0.3, [], False), (0.5, [0.4, 0.6], False)],
)
def test_labels_of_a_curve_keep_clear_of_its_lines(x, lines, left):
    assert charts._label_left(300 * x, 60, [300 * v for v in lines]) == left


def test_a_set_without_hits_whose_planted_copy_is_found_is_no_warning(full):
    facts, context, _ = full
    contamination = {
        "quiz": {"matches": 0, "items": 9, "items_too_short": 0, "self_test": PLANTED_FOUND},
        "odd": {"matches": 0, "items": 9, "items_too_short": 0, "self_test": "not found"},
    }
    manifest = read_json(context.box("shards").folder / "manifest.json")
    units = {"documents": facts["documents"]}
    assert [n for n in overlap_notes(units, contamination) if "quiz" in n]
    assert not [n for n in overlap_notes(units, contamination) if "odd" in n]
    found = _warnings(context, units, {}, manifest, {}, contamination)
    assert [w for w in found if w.startswith("reference ")] == [
        f"reference odd: 0 hits over {facts['documents']['read'] - facts['documents']['rejected']} documents; not found"
    ]


def test_shards_are_listed_with_their_hashes(full):
    _, context, parsed = full
    manifest = read_json(context.box("shards").folder / "manifest.json")
    listed = {}
    for table in range(len(parsed.sections["shards"])):
        listed |= parsed.rows("shards", table)
    files = {f["file"]: (s, f) for s, split in manifest["splits"].items() for f in split["shards"]}
    assert set(listed) == set(files)
    for name, (split, f) in files.items():
        assert (listed[name][0], number(listed[name][1]), listed[name][3]) == (split, f["tokens"], f["sha256"])


# -------------------------------------------------------------------------------------------------- sections, bounds


def headings(parsed: Page) -> list[str]:
    return [data for tag, data in parsed.texts if tag in ("h2", "h3")]


def test_sections_are_there_when_there_is_something_to_say(full, bare):
    there, absent = headings(full[2]), headings(bare[2])
    for title in ("Contamination", "Mixture", "Incomplete files", "Largest clusters", "What is caught"):
        assert title in there
        assert title not in absent
    for title in ("Funnel", "Sources", "Rules", "Duplicates", "Text", "Throughput", "Shards", "Config"):
        assert title in there
        assert title in absent
    assert "Duplicate removal was off" in bare[2].text()
    assert "No document failed a rule" in bare[2].text()
    assert any("cut.jsonl.gz" in f for f in full[0]["incomplete"])
    assert "Languages" not in there
    assert "Personal data" not in there
    assert "Skipped records" not in there


def test_the_result_of_an_ablation_is_taken_in(full):
    value = {"mean": 2.5, "low": 2.25, "high": 2.75, "seeds": [2.4, 2.6]}
    result = {
        "model": {"parameters": 660_000, "layers": 2, "width": 64},
        "budget": {"tokens": 600_000, "seeds": 2},
        "arms": {"clean": {"tokens": 1_234_567, "epochs": 0.5}, "<raw>": {"tokens": 7_654_321, "epochs": 0.25}},
        "validation": {"clean": {"documents": 5, "bytes": 9}},
        "bits_per_byte": {"clean": {"clean": value}, "<raw>": {"clean": {**value, "mean": 3.0}}},
        "differences": {"clean": {"<raw>": {"mean": 0.5, "low": 0.25, "high": 0.75, "seeds": [0.4, 0.6]}}},
    }
    facts, context, without = full
    assert "Ablation" not in headings(without)
    path = context.run / "ablate" / "ablate.json"
    path.parent.mkdir()
    try:
        path.write_text(json.dumps(result))
        parsed = Page(page(facts, context))
        assert parsed.rows("ablation", 0) == {
            "clean": ["1,234,567", "0.50", "2.5000 (2.2500 to 2.7500)"],
            "<raw>": ["7,654,321", "0.25", "3.0000 (2.2500 to 2.7500)"],
        }
        assert parsed.rows("ablation", 1)["<raw> on clean"] == ["+0.5000 (+0.2500 to +0.7500)", "+0.4000, +0.6000"]
        for odd in ("{", "[]", '{"model": 3}', json.dumps({**result, "bits_per_byte": {}})):
            path.write_text(odd)
            assert "is no result of ablate" in Page(page(facts, context)).text()
    finally:
        shutil.rmtree(path.parent)


def test_optional_facts_get_their_sections(full):
    facts = copy.deepcopy(full[0])
    facts["languages"] = {"en": 90, "<b>": 10}
    facts["skipped"] = {"pq:redirect": 7, "pq:namespace": 5}
    facts["pii"] = {"counts": {"email": 3}, "samples": {"email": ["xx<xx@xx.xx"]}}
    scanned = full[1].config.model_copy(update={"pii": config.Pii(email="replace")})
    context = dataclasses.replace(full[1], config=scanned)
    parsed = Page(page(facts, context))
    assert {"Languages", "Skipped records", "Personal data"} <= set(headings(parsed))
    assert parsed.rows("text", 1) == {"en": ["90", "90.0 %"], "<b>": ["10", "10.0 %"]}
    assert parsed.rows("text", 2)["email"] == ["replace", "3", "xx<xx@xx.xx"]
    assert "redirect 7" in parsed.text()


def test_bytes_passed_over_and_what_told_an_encoding_are_counted(tmp_path, tokenizer):
    block = "HTTP/1.1 200 OK\r\nContent-Type: text/html{}\r\n\r\n<html><body><p>{}</p></body></html>"
    pages = [
        block.format("; charset=windows-1251", "Паром отходит в девять часов.").encode("cp1251"),
        block.format("", "The ferry leaves the north pier at nine.").encode(),
        block.format("", "Die Fähre legt um neun am Nordpier ab.").encode(),
    ]
    data = b"".join(b"http://e.org/ 1.2.3.4 20140216050221 text/html %d\n%s\n" % (len(p), p) for p in pages)
    (tmp_path / "a.arc").write_bytes(data + b"<p>junk</p>\n" * 10 + data)
    facts, context = execute(
        tmp_path / "run",
        {
            "sources": [{"name": "cc", "type": "warc", "path": str(tmp_path / "a.arc"), "timeout_s": None}],
            "tokenizer": {"path": str(tokenizer)},
            "dedup": {"exact": False, "fuzzy": None},
            "min_tokens": 0,
            "run": {"engine": "inline"},
        },
    )
    assert facts["documents"] == {"read": 7, "rejected": 1, "dropped": {}, "kept": 6}
    assert facts["passed_bytes"] == {"cc": 120}
    assert facts["charset_evidence"] == {"cc": {"bytes": 4, "header": 2}}
    (receipt,) = context.receipts("documents", DocumentCounts)
    assert receipt.counts.charset_evidence == {"cc": {str(tmp_path / "a.arc"): {"header": 2, "bytes": 4}}}
    (row,) = map(json.loads, (next((tmp_path / "run").rglob("*rejects*/*.jsonl"))).read_text().splitlines())
    assert (row["reason"], row["passed_bytes"]) == ("no record header where one is due", 120)
    parsed = Page((tmp_path / "run" / "report" / "index.html").read_text(encoding="utf-8"))
    assert {"Encodings", "Bytes passed over"} <= set(headings(parsed))
    assert ["cc", "4", "2"] in [row for table in parsed.sections["sources"] for row in table]


def test_warnings_stand_before_everything_else(full):
    facts = {**full[0], "warnings": ["first <warning>", "second"]}
    parsed = Page(page(facts, full[1]))
    text = parsed.text()
    assert text.index("first <warning>") < text.index("records read")
    assert "2 warnings" in text


def test_page_of_many_sources_huge_counts_and_every_reason_stays_small(full):
    facts, context, _ = full
    facts = copy.deepcopy(facts)
    big = 2_497_000_000_123
    every = {r: big for r in REASONS if r != "kept"}
    unit = {"read": big * (len(every) + 2), "rejected": big, "dropped": every, "kept": big}
    names = [f"source-number-{i:03d}" for i in range(400)]
    facts["sources"] = {n: unit for n in names}
    facts["text"] = {
        n: {"documents": big, "bytes": big, "chars": big, "tokens": big, "tokens_kept": big} for n in names
    }
    facts["mixture"]["sources"] = [
        {"source": n, "available_tokens": big, "asked_tokens": big, "drawn_tokens": big, "epochs": 1.0} for n in names
    ]
    facts["documents"] = facts["tokens"] = facts["bytes"] = unit
    facts["failing"] = {r: big for r in every if r != "mixture:not_drawn"}
    facts["languages"] = {f"l{i}": big for i in range(176)}
    facts["incomplete"] = [f"/data/a/long/path/of/a/file-{i}.warc.gz" for i in range(1000)]
    facts["warnings"] = [f"source {n}: 93 % of its documents are duplicates" for n in names]
    html = page(facts, context)
    parsed = Page(html)
    assert len(html.encode()) < 240_000
    assert len(parsed.rows("sources")) == 12
    assert len(parsed.rows("sources", 1)) == 88
    assert "300 smaller sources" in parsed.text()
    assert number(parsed.rows("funnel")["empty"][0]) == big


def test_a_sample_is_small_whatever_it_holds():
    for character in "&", "\U0001f600", "\u202e":
        worst = samples.Document(1 << 62, "s" * 40, "p" * 200, 1 << 36, character * 5000, 5000)
        assert len(card(worst, [(samples.excerpt(worst.text), False)], "12 tokens").encode()) < 4500
    plain = samples.Document(1 << 62, "s" * 40, "p" * 200, 1 << 36, "word " * 1000, 5000)
    assert len(card(plain, [(samples.excerpt(plain.text), False)], "12 tokens").encode()) < 1000


def test_same_run_gives_the_same_page(full):
    facts, context, _ = full
    assert page(facts, context) == page(facts, context) == (context.run / "report" / "index.html").read_text()


def test_storage_options_are_not_shown(full):
    facts, context, _ = full
    source = context.config.sources[0].model_copy(update={"storage_options": {"secret": "hunter2"}})
    hidden = context.config.model_copy(update={"sources": [source, *context.config.sources[1:]]})
    html = page(facts, dataclasses.replace(context, config=hidden))
    assert "hunter2" not in html
    assert "secret" in html


# ------------------------------------------------------------------------------------------------------------ samples


def test_samples_are_documents_that_were_dropped_for_the_reason(full):
    _, context, _ = full
    drawn, parts = samples.draw_samples(context)
    decisions = pa.concat_tables([context.box("decisions").read_table(p) for p in context.box("decisions").parts()])
    rows = {r["doc_id"]: r for r in decisions.cast(plain(decisions.schema)).to_pylist()}
    assert parts == sorted(parts)
    assert set(drawn) == {r["reason"] or "kept" for r in rows.values()}
    for reason, documents in drawn.items():
        total = sum((r["reason"] or "kept") == reason for r in rows.values())
        assert len({d.doc_id for d in documents}) == len(documents) == min(3, total)
        for d in documents:
            row = rows[d.doc_id]
            assert (row["reason"] or "kept", row["partner"], row["tokens"]) == (reason, d.partner, d.tokens)


def plain(schema: pa.Schema) -> pa.Schema:
    return pa.schema([(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type) for f in schema])


def test_fuzzy_samples_span_the_similarities_that_were_measured(full):
    _, context, _ = full
    fuzzy = samples.draw_samples(context)[0]["fuzzy_duplicate"]
    table = pq.read_table(context.box("duplicates").folder / "clusters.parquet")
    measured = dict(zip(table["doc_id"].to_pylist(), table["jaccard"].to_pylist(), strict=True))
    assert [d.jaccard for d in fuzzy] == [measured[d.doc_id] for d in fuzzy]
    assert fuzzy[0].jaccard <= fuzzy[1].jaccard <= fuzzy[2].jaccard
    assert fuzzy[0].jaccard < 1.0


def test_samples_of_the_language_rule_tell_label_and_score(tmp_path, tokenizer, shared_data):
    pytest.importorskip("fasttext", reason="fasttext-predict is not installed")
    german = "Der Zug nach Norden fährt heute wegen der Bauarbeiten erst um neun Uhr von Gleis vier ab."
    english = "The train to the north leaves at nine from platform four today because of the works on the line."
    (tmp_path / "t.jsonl").write_text("\n".join(json.dumps({"text": t}) for t in (german, english)))
    data = {
        "sources": [{"name": "t", "type": "jsonl", "path": str(tmp_path / "t.jsonl")}],
        "tokenizer": {"path": str(tokenizer)},
        "language": {"model": str(shared_data("lid/lid.176.ftz")), "keep": ["en"]},
        "min_tokens": 0,
        "run": {"engine": "inline"},
    }
    facts, context = execute(tmp_path / "run", data)
    assert facts["languages"] == {"de": 1, "en": 1}
    drawn, _ = samples.draw_samples(context)
    assert re.fullmatch(r"de, score [01]\.\d\d", drawn["language"][0].score)
    assert Page(page(facts, context)).rows("text", 1)["de"][0] == "1"


def test_partitions_opened_are_bounded(full, monkeypatch):
    monkeypatch.setattr(samples, "MAX_PARTITIONS", 2)
    drawn, parts = samples.draw_samples(full[1])
    assert len(parts) == 2
    assert "kept" in drawn


def test_library_finds_documents_and_items_anywhere(full):
    _, context, _ = full
    box = context.box("documents")
    table = pa.concat_tables([box.read_table(p, ["doc_id", "source", "path", "row"]) for p in box.parts()])
    texts = pa.chunked_array([host_text(verified_text(box, p)).to_arrow() for p in box.parts()])
    table = table.append_column("text", texts)
    all_ = {r["doc_id"]: r for r in table.cast(plain(table.schema)).to_pylist()}
    items = context.box("references").read_table("000000", ["doc_id", "text"]).to_pylist()
    found = samples.Library(context).read(
        [*all_, *(i["doc_id"] for i in items), 5 << 36 | 999_999, 1 << 62 | 77 << 36, -5]
    )
    assert set(found) == {*all_, *(i["doc_id"] for i in items)}
    for doc_id, row in all_.items():
        d = found[doc_id]
        assert (d.text, d.source, d.path, d.row, d.chars) == (
            row["text"],
            row["source"],
            row["path"],
            row["row"],
            len(row["text"]),
        )
    assert [found[i["doc_id"]].text for i in items] == [i["text"] for i in items]


def test_worst_documents_are_those_of_highest_coverage(full):
    _, context, _ = full
    worst, read, hit = samples.worst_documents(context, "quiz", 3)
    assert read == hit >= 1
    assert [w["coverage"] for w in worst] == [1.0, 1.0, 1.0]
    assert all(w["hits"] == len(ITEM.split()) - 12 for w in worst)
    found = samples.Library(context).read(w["doc_id"] for w in worst)
    assert all(ITEM in d.text for d in found.values())


def test_cluster_facts_are_those_of_the_table(full):
    facts, context, _ = full
    clusters = samples.cluster_facts(context.box("duplicates"), 5)
    table = pq.read_table(context.box("duplicates").folder / "clusters.parquet").to_pylist()
    by_component: dict[int, set[int]] = {}
    for row in table:
        by_component.setdefault(row["cluster"], set()).add(row["doc_id"])
    sizes = sorted((len(m) for m in by_component.values()), reverse=True)
    assert sum(clusters.sizes.values()) == len(by_component) == facts["duplicates"]["components"]
    assert [s for s, n in sorted(clusters.sizes.items(), reverse=True) for _ in range(n)] == sizes
    assert [s for s, _ in clusters.largest] == sizes[:5]
    measured = [r["jaccard"] for r in table if r["kind"] == "fuzzy" and r["jaccard"] is not None]
    assert clusters.measured == clusters.jaccard.sum() == len(measured)
    assert clusters.below_half == sum(v < 0.5 for v in measured)


def test_overlap_shows_what_a_document_shares_with_an_item():
    text = "intro words, " + ITEM.upper() + " and an end"
    pieces, words = samples.overlap(text, ITEM, 13)
    assert words == len(re.findall(r"\w+", ITEM))
    assert [p for p in pieces if p[1]] == [(ITEM.upper().rstrip("?"), True)]
    assert "".join(p for p, _ in pieces) == text
    assert samples.overlap("nothing of it", ITEM, 13) is None
    assert samples.overlap("", ITEM, 13) is None
    assert (
        samples.overlap("a 猫が好きです b", "猫が好きです", 13)[1] == 6
    )  # a character is a word where none are spaced


@pytest.mark.parametrize(
    ("a", "b", "left", "right"),
    [
        ("one two three", "one 2 three", ["two"], ["2"]),
        ("same", "same", [], []),
        ("", "", [], []),
        ("", "new", [], ["new"]),
        ("word " * 200 + "left end", "word " * 200 + "right end", ["left"], ["right"]),
    ],
)
def test_difference_marks_what_differs(a, b, left, right):
    x, y = samples.difference(a, b)
    assert [t.strip() for t, marked in x if marked] == left
    assert [t.strip() for t, marked in y if marked] == right
    assert sum(len(t) for t, _ in x) <= samples.EXCERPT_CHARS + 4


# ------------------------------------------------------------------------------------------------- numbers and charts


def test_two_notices_from_one_template_have_the_similarities_that_users_reported():
    assert [round(template_similarity(n), 2) for n in (1, 2, 5)] == [0.82, 0.43, 0.27]


@pytest.mark.parametrize("words", [25, 50, 400])
@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_one_changed_word_costs_n_shingles(words, n):
    shingles = words - n + 1
    assert edited_similarity(words, n) == pytest.approx((shingles - n) / (shingles + n))


def test_catch_is_undone_by_its_inverse():
    assert catch(0.5, 14, 8) == pytest.approx(1 - (1 - 0.5**8) ** 14)
    for p in (0.1, 0.5, 0.9):
        assert catch(similarity_caught(p, 14, 8), 14, 8) == pytest.approx(p)
    assert (catch(0, 14, 8), catch(1, 14, 8)) == (0, 1)


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [
        (0, 0, ""),
        (0, 10, "0 %"),
        (1, 10**6, "<0.01 %"),
        (5, 1000, "0.50 %"),
        (1, 8, "12.5 %"),
        (9996, 10000, "99.96 %"),
        (10**6 - 1, 10**6, ">99.9 %"),
        (1, 1, "100.0 %"),
    ],
)
def test_a_share_is_neither_nothing_of_something_nor_all_of_less(part, whole, shown):
    assert markup.share(part, whole) == shown


def test_counts_and_sizes_keep_the_exact_number():
    assert markup.short(2_497_123_456) == '<data value="2497123456" title="2,497,123,456">2.50 B</data>'
    assert markup.short(0) == '<data value="0">0</data>'
    assert "1.0 MB" in markup.size(999_960)
    assert "1,000 bytes" in markup.size(1000)


def test_histogram_has_a_column_for_every_bin_that_holds_something():
    counts = [0, 3, 10**7, 0, 1]
    for log in (False, True):
        svg = charts.histogram(counts, [], [str(c) for c in counts], "x", "label", log=log)
        columns = re.findall(r"<rect x=\"[\d.]+\" y=\"([\d.]+)\" width=\"[\d.]+\" height=\"([\d.]+)\"", svg)
        heights = [float(h) for _, h in columns]
        assert len(heights) == 3
        assert heights[1] == max(heights)
        assert all(h >= 1 for h in heights)
        assert all(float(y) >= 14 for y, _ in columns)
    assert "<rect" not in charts.histogram([0, 0], [], ["", ""], "x", "label")


def test_bar_fills_its_scale_and_shows_the_smallest_part():
    parts = [charts.Segment(1, "kept", "a"), charts.Segment(999_999, "short", "b"), charts.Segment(0, "left", "c")]
    widths = [float(w) for w in re.findall(r'width="([\d.]+)"', charts.bar(parts, 1_000_000))]
    assert widths == [2.0, 1000.0]
    assert "<rect" not in charts.bar([charts.Segment(0, "kept", "a")], 0)


def test_every_reason_has_a_group():
    assert {group(r) for r in REASONS} == {
        "language",
        "quality",
        "duplicate",
        "contaminated",
        "short",
        "mixture",
        "kept",
        "rejected",
    }
    recipe = config.parse(
        {"sources": [{"name": "s", "type": "text", "path": "x"}], "tokenizer": {"path": "t"}, "quality": {"c4": "on"}}
    )
    reasons = {"zzz": 1, "exact_duplicate": 1, "c4:lorem_ipsum": 1, "empty": 1}
    assert ordered(reasons, recipe) == ["empty", "c4:lorem_ipsum", "exact_duplicate", "zzz"]
