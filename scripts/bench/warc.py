"""Web archives to text, against the bare library on the same pages.

    python scripts/bench/warc.py [--record] [FILE.warc.gz ...]

`ours` reads the archive: decompression, records, HTTP, charset, limits, and extraction in its process. `bare` calls the
library on the pages already decoded. CPU seconds of this process and its children; the ratio is the median over rounds. Without files: the crawl samples
in the folder that GPU_CURATE_TEST_DATA names, or ../shared/data, each repeated.
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
import time
from pathlib import Path

import psutil
from common import quantiles, record

from gpu_curate.config import WarcSource
from gpu_curate.sources import Record, Split, warc_process
from gpu_curate.sources.warc import WarcReader
from gpu_curate.text import html as html_module

DATA = Path(os.environ.get("GPU_CURATE_TEST_DATA", Path(__file__).resolve().parents[3] / "shared" / "data")) / "warc"
SAMPLES = ["sample-0000.warc.gz", "sample-0001.warc.gz", "warcfile.warc.gz", "whirlwind.warc.gz"]
ROUNDS = 3
REPEAT = 3


def cpu_seconds() -> float:
    """CPU seconds of this process and of the children that read for it."""
    times = [psutil.Process(p.child.pid).cpu_times() for p in warc_process._idle]
    return time.process_time() + sum(t.user + t.system for t in times)


def pages(paths: list[Path]) -> list[str]:
    """The decoded HTML that the reader extracts from, caught on its way."""
    caught: list[str] = []

    def catch(html, how):  # type: ignore[no-untyped-def]
        caught.append(html)
        return html

    original, html_module.extract = html_module.extract, catch
    try:
        read(paths, WarcSource(name="bench", type="warc", timeout_s=None))
    finally:
        html_module.extract = original
    return caught


def read(paths: list[Path], source: WarcSource) -> int:
    reader = WarcReader(source)
    return sum(len(i.text) for p in paths for i in reader.read(Split(str(p), 0, -1, 0, 0)) if isinstance(i, Record))


def bare(html: list[str], source: WarcSource) -> int:
    if source.extractor == "resiliparse":
        from resiliparse.extract.html2text import extract_plain_text

        return sum(len(extract_plain_text(h, main_content=True, alt_texts=False).strip()) for h in html)
    import trafilatura

    return sum(
        len(
            trafilatura.extract(
                h, fast=not source.fallback, favor_precision=source.favor == "precision", include_comments=False
            )
            or ""
        )
        for h in html
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    logging.disable(logging.CRITICAL)
    folder = tempfile.TemporaryDirectory()
    paths = args.files
    if not paths:  # the samples hold 1 to 22 pages, a real file some 40,000: opening it is not to be seen
        for name in SAMPLES:
            paths.append(Path(folder.name) / name)
            paths[-1].write_bytes((DATA / name).read_bytes() * REPEAT)
    html = pages(paths)
    nbytes = sum(len(h.encode()) for h in html)
    print(
        f"{len(html)} pages, {nbytes / 1e6:.1f} MB of HTML, {sum(p.stat().st_size for p in paths) / 1e6:.2f} MB of archives"
    )
    cases = {
        "trafilatura": {},
        "trafilatura, no fallback": {"fallback": False},
        "resiliparse": {"extractor": "resiliparse"},
    }
    print(f"{'':26}{'ms/page':>9}{'bare':>9}{'speed, ours : bare':>20}{'chars':>10}{'bare':>10}")
    for name, options in cases.items():
        source = WarcSource(name="bench", type="warc", **options)
        ours: list[float] = []
        theirs: list[float] = []
        chars = read(paths, source), bare(html, source)
        per_file = [(p, pages([p])) for p in paths]
        for _ in range(ROUNDS):
            spent = [0.0, 0.0]
            for path, own in per_file:  # file by file, so that what else the machine does hits both alike
                start = cpu_seconds()
                read([path], source)
                middle = cpu_seconds()
                bare(own, source)
                spent = [spent[0] + middle - start, spent[1] + cpu_seconds() - middle]
            ours.append(spent[0] / len(html))
            theirs.append(spent[1] / len(html))
        ratio = quantiles([t / o for t, o in zip(theirs, ours, strict=True)])[1]
        print(
            f"{name:26}{quantiles(ours)[1] * 1e3:9.2f}{quantiles(theirs)[1] * 1e3:9.2f}{ratio:20.3f}{chars[0]:10}{chars[1]:10}"
        )
        if args.record:
            notes = f"{len(html)} pages; {chars[0]} characters, bare {chars[1]}"
            record("warc", name, "s/page", ours, "the library alone", ratio, notes)


if __name__ == "__main__":
    main()
