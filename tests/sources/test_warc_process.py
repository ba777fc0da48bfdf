"""Archives read in a child process: the same records as without it, and what happens when a page takes or kills it."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import ClassVar

import pytest
from places import ROOT
from sources.test_warc import HTML, SENTENCE, page, read, warc

from gpu_curate.config import WarcSource
from gpu_curate.errors import FatalError, RetryableError
from gpu_curate.sources import Reject, Split, warc_process
from gpu_curate.sources.warc import WarcReader

SLOW = page(b"<html><body><article>" + b"<p>Some paragraph of text, of words, here.</p>" * 50_000)  # some 10 s


class Process(warc_process._Process):
    """Remembers every child that was started."""

    started: ClassVar[list[Process]] = []

    def __init__(self):
        super().__init__()
        self.started.append(self)

    @property
    def pid(self):
        return self.child.pid


@pytest.fixture(autouse=True, scope="module")
def _remember():
    with pytest.MonkeyPatch.context() as m:
        m.setattr(warc_process, "_Process", Process)
        m.setattr(warc_process, "_idle", [])
        yield
        warc_process._close_idle()
    assert all(p.child.returncode is not None for p in Process.started)


def reader(path, data, **config):
    path.write_bytes(data)
    source = WarcSource(name="cc", type="warc", path=str(path), **config)
    return WarcReader(source), WarcReader(source).splits(str(path), len(data), 1 << 20)[0]


def test_child_gives_what_the_reader_gives_and_serves_many_files(tmp_path):
    wet = warc("conversion", b"plain text " * 10, extra="Content-Type: text/plain\r\n")
    files = [
        b"",
        page() + warc("request", b"x") + page(),
        wet * 300 + b"junk" + page() * 70,
        page()[:-20],
        b"no archive",
    ]
    for extractor in ("trafilatura", "resiliparse"):
        for n, data in enumerate(files):
            inside = read(tmp_path / f"{n}.warc", data, extractor=extractor)
            assert read(tmp_path / f"{n}.warc", data, extractor=extractor, timeout_s=60) == inside
    assert len(Process.started) == 1


def test_page_that_takes_too_long_is_rejected_and_the_rest_read(tmp_path):
    data = page() + SLOW + warc("request", b"x") + page()
    before = warc_process._idle[:]
    start = time.monotonic()
    records, rejects, skips = read(tmp_path / "a.warc", data, timeout_s=2, max_html_elements=100_000)
    assert time.monotonic() - start < 30
    assert [(r.row, r.text) for r in records] == [(0, SENTENCE), (3, SENTENCE)]
    assert [(r.row, r.offset, r.reason) for r in rejects] == [
        (1, len(page()), "timeout: extraction took more than 2 s")
    ]
    assert rejects[0].head == SLOW[:200].partition(b"HTTP/")[0]
    assert skips == {"warc_request": 1}
    assert [p.child.returncode for p in before] == [-signal.SIGKILL]


def test_page_has_what_is_left_of_its_time(tmp_path, monkeypatch):
    """The parent waits for a page's time from when the page began, not from when it began to wait."""
    waits: list[float] = []
    pages = iter([None, (1, 0.75), (1, 0.75)])

    class Fake:
        clock = type("Clock", (), {"page": lambda self: next(pages)})()

        def request(self, *args):
            pass

        def receive(self, timeout_s):
            waits.append(timeout_s)
            if len(waits) == 2:
                raise InterruptedError

        def close(self):
            return 0

    monkeypatch.setattr(warc_process, "_take", Fake)
    source = WarcSource(name="x", type="warc", path="x", timeout_s=2)
    with pytest.raises(InterruptedError):
        list(warc_process.read(source, Split("x", 0, -1, 0, 0)))
    assert waits == [2, 1.25]


def test_page_that_ends_the_process_is_rejected_and_the_rest_read(tmp_path, monkeypatch):
    r, split = reader(tmp_path / "a.warc", page() + SLOW + page(), timeout_s=60, max_html_elements=100_000)
    take = warc_process._take

    def take_and_kill():
        process = take()

        def kill():
            for _ in range(600):
                page = process.clock.page()
                if page is not None and page[0] == 1 and page[1] > 0.2:
                    os.kill(process.pid, signal.SIGSEGV)
                    return
                time.sleep(0.05)

        threading.Thread(target=kill).start()
        monkeypatch.setattr(warc_process, "_take", take)
        return process

    monkeypatch.setattr(warc_process, "_take", take_and_kill)
    first, rejected, last = r.read(split)
    assert (first.row, first.text) == (0, SENTENCE)
    assert isinstance(rejected, Reject)
    assert (rejected.row, rejected.reason) == (1, "extraction ended its process (SIGSEGV)")
    assert (last.row, last.text) == (2, SENTENCE)


def test_process_that_ends_between_pages_is_worth_another_try(tmp_path, monkeypatch):
    r, split = reader(tmp_path / "a.warc", page())
    assert len(list(r.read(split))) == 1
    send = warc_process.send

    def kill_first(pipe, message):
        os.kill(Process.started[-1].pid, signal.SIGKILL)
        os.waitid(os.P_PID, Process.started[-1].pid, os.WEXITED | os.WNOWAIT)
        send(pipe, message)

    monkeypatch.setattr(warc_process, "send", kill_first)
    with pytest.raises(RetryableError, match=r"a\.warc: the process that reads it ended \(SIGKILL\)"):
        list(r.read(split))


def test_idle_process_that_has_died_is_replaced(tmp_path):
    r, split = reader(tmp_path / "a.warc", page())
    assert len(list(r.read(split))) == 1
    (idle,) = warc_process._idle
    os.kill(idle.pid, signal.SIGKILL)
    os.waitid(os.P_PID, idle.pid, os.WEXITED | os.WNOWAIT)
    assert len(list(r.read(split))) == 1
    assert warc_process._idle != [idle]


def test_reading_can_stop_anywhere(tmp_path):
    r, split = reader(tmp_path / "a.warc", page() * 200)
    first, second = r.read(split), r.read(split)  # two at once: two children
    assert [(a.row, b.row) for a, b in zip(first, second, strict=True)] == [(n, n) for n in range(200)]
    one, two = warc_process._idle
    items = r.read(split)
    assert next(items).row == 0
    items.close()
    assert warc_process._idle == [one]
    assert two.child.returncode is not None


def test_error_in_the_child_is_raised_in_the_parent(tmp_path):
    r, split = reader(tmp_path / "a.warc", page())
    with pytest.raises(FileNotFoundError, match=r"nowhere\.warc"):
        list(r.read(split._replace(path=str(tmp_path / "nowhere.warc"))))


def test_process_that_does_not_start_says_why(tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho No module named lxml >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    warc_process._close_idle()
    r, split = reader(tmp_path / "a.warc", page())
    with pytest.raises(FatalError, match="does not start: No module named lxml"):
        list(r.read(split))


def test_process_is_replaced_now_and_then(tmp_path, monkeypatch):
    r, split = reader(tmp_path / "a.warc", page(), extractor="resiliparse")
    list(r.read(split))
    (process,) = warc_process._idle
    monkeypatch.setattr(warc_process, "_FILES", process.files + 1)
    list(r.read(split))
    assert warc_process._idle == []
    assert process.child.returncode is not None


def test_process_ends_with_its_worker(tmp_path):
    path = tmp_path / "a.warc"
    path.write_bytes(page(HTML) * 200)
    code = (
        "import os, signal, sys\n"
        "from gpu_curate.config import WarcSource\n"
        "from gpu_curate.sources import Split, warc_process\n"
        "took = []\n"
        "take = warc_process._take\n"
        "warc_process._take = lambda: took.append(take()) or took[-1]\n"
        "next(warc_process.read(WarcSource(name='x', type='warc'), Split(sys.argv[1], 0, -1, 0, 0)))\n"
        "print(took[0].child.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    worker = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, env=environment)
    assert worker.returncode == -signal.SIGKILL, worker.stderr
    stat = Path(f"/proc/{int(worker.stdout)}/stat")
    for _ in range(200):
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return
        time.sleep(0.05)
    pytest.fail("the extraction process outlives its worker")


PARENT = """
import sys
from gpu_curate.config import WarcSource
from gpu_curate.sources import Split, warc_process

if __name__ == "__main__":
    source = WarcSource(name="s", type="warc", path=sys.argv[1])
    process = warc_process._take()
    process.request(source, Split(sys.argv[1], 0, -1, 0, 0), 0, {}, 0)
    print(process.child.pid, flush=True)
    sys.stdin.read()
"""


def test_a_killed_worker_leaves_no_process_that_reads_on(tmp_path):
    """A gigabyte of header lines without a record: nothing is said for a minute, so the pipe tells the child nothing."""
    block = b"A: b\r\n" * ((16 << 20) // 6)
    with (tmp_path / "a.warc.gz").open("wb") as f:
        f.write(gzip.compress(b"WARC/1.0\r\n", 1))
        packed = gzip.compress(block, 1)
        for _ in range(64):
            f.write(packed)
    (tmp_path / "parent.py").write_text(PARENT)
    parent = subprocess.Popen(
        [sys.executable, str(tmp_path / "parent.py"), str(tmp_path / "a.warc.gz")],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    child = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and _runs(child):
        time.sleep(0.1)
    assert not _runs(child)


def _runs(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
