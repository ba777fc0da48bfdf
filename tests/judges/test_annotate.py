"""Labels from a language model: asked once, resumed, counted; a local server stands for the endpoint."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gpu_curate.errors import ConfigError, RetryableError
from gpu_curate.tools import annotate as module
from gpu_curate.tools.annotate import Asking, annotate

TEXTS = [f"page {i} about {'proofs' if i % 2 else 'offers'}" for i in range(12)]


class Server:
    """Answers like a chat endpoint: 5 for proofs, 1 for others; `script` gives other answers first."""

    def __init__(self):
        self.asked: list[dict] = []
        self.headers: list[dict] = []
        self.script: list[object] = []
        lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    outer.asked.append(body)
                    outer.headers.append(dict(self.headers))
                    special = outer.script.pop(0) if outer.script else None
                if isinstance(special, int):
                    self.send_response(special)
                    self.send_header("Retry-After", "0")
                    self.end_headers()
                    return
                prompt = body["messages"][0]["content"]
                text = f"It is about {prompt[-30:]}. Score: {5 if 'proofs' in prompt else 1}"
                data = (
                    special
                    if isinstance(special, bytes)
                    else json.dumps(
                        {"choices": [{"message": {"role": "assistant", "content": special or text}}]}
                    ).encode()
                )
                self.send_response(200)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *args):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/v1"


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(module, "WAIT_S", 0.01)
    own = Server()
    yield own
    own.server.shutdown()


@pytest.fixture
def texts(tmp_path) -> list[str]:
    (tmp_path / "t.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in TEXTS))
    return [str(tmp_path / "t.jsonl")]


def asking(server: Server, **changes: object) -> Asking:
    given = {"endpoint": server.url, "model": "m", "prompt": "How good is this?\n{text}", "rate": 10_000.0}
    return Asking(**{**given, **changes})


def rows(out: Path) -> list[dict]:
    return [json.loads(line) for line in out.read_text().splitlines()]


def test_a_sample_is_labelled_and_makes_a_judge(server, texts, tmp_path):
    from gpu_curate.tools.judge_texts import labelled

    facts = annotate(texts, asking(server, key="secret"), tmp_path / "l.jsonl", 8)
    assert (facts["texts"], facts["labelled"], facts["unlabelled"]) == (8, 8, 0)
    made = rows(tmp_path / "l.jsonl")
    assert {r["label"] for r in made} == {1.0, 5.0}
    assert all(r["label"] == (5.0 if "proofs" in r["text"] else 1.0) for r in made)
    assert server.headers[0]["Authorization"] == "Bearer secret"
    assert server.asked[0]["temperature"] == 0
    assert "secret" not in (tmp_path / "l.jsonl").read_text() + repr(asking(server, key="secret"))
    data, reading = labelled([], [], [str(tmp_path / "l.jsonl")], "label")
    assert len(data) == 8
    assert reading.without_label == 0


def test_nothing_is_asked_twice_and_the_sample_is_the_texts_own(server, texts, tmp_path):
    out = tmp_path / "l.jsonl"
    annotate(texts, asking(server), out, 5)
    first = [r["text"] for r in rows(out)]
    with out.open("a") as f:
        f.write('{"text": "cut')  # killed here
    facts = annotate(texts, asking(server), out, 9)
    assert (facts["known"], facts["labelled"]) == (5, 4)
    assert len(server.asked) == 9
    again = annotate(texts, asking(server), tmp_path / "other.jsonl", 9, workers=1)
    assert again["known"] == 0
    assert [r["text"] for r in rows(tmp_path / "other.jsonl")][:5] == first
    with pytest.raises(ConfigError, match="another prompt"):
        annotate(texts, asking(server, prompt="Other: {text}"), out, 9)


def test_rubbish_is_counted_and_asked_again_next_time(server, texts, tmp_path):
    server.script = [b"<html>", b'{"choices": []}', "no number here", "Score: 4", "x" * 9000 + " 3"]
    out = tmp_path / "l.jsonl"
    facts = annotate(texts, asking(server), out, 5, workers=1)
    assert facts["labelled"] == 2
    assert facts["reasons"] == {"an answer that is none of the interface": 2, "no label in the answer": 1}
    assert [r["label"] for r in rows(out)] == [None, None, None, 4.0, 3.0]
    assert annotate(texts, asking(server), out, 5)["labelled"] == 3


def test_a_server_that_is_busy_is_asked_again(server, texts, tmp_path):
    server.script = [429, 503, 500]
    assert annotate(texts, asking(server), tmp_path / "l.jsonl", 2, workers=1)["labelled"] == 2
    assert len(server.asked) == 5
    server.script = [503] * 4
    with pytest.raises(RetryableError, match="failed 4 times, last: HTTP 503"):
        annotate(texts, asking(server), tmp_path / "m.jsonl", 2, workers=1)
    server.script = [401]
    with pytest.raises(ConfigError, match="HTTP 401"):
        annotate(texts, asking(server), tmp_path / "n.jsonl", 2, workers=1)


def test_an_endpoint_that_is_not_there_is_one_error(server, texts, tmp_path):
    with pytest.raises(RetryableError, match="failed 4 times"):
        annotate(texts, asking(server, endpoint="http://127.0.0.1:9/v1"), tmp_path / "l.jsonl", 1)
    for changes, said in (
        ({"prompt": "no place"}, "no {text}"),
        ({"endpoint": "ftp://x"}, "no http"),
        ({"pattern": "("}, "pattern"),
        ({"pattern": "x"}, "no group"),
    ):
        with pytest.raises(ConfigError, match=said):
            annotate(texts, asking(server, **changes), tmp_path / "l.jsonl", 1)


def test_the_rate_is_kept_over_all_threads(server, texts, tmp_path):
    start = time.monotonic()
    annotate(texts, asking(server, rate=50.0), tmp_path / "l.jsonl", 10, workers=8)
    assert time.monotonic() - start > 9 / 50


def test_the_command(server, texts, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    from gpu_curate.cli import app

    (tmp_path / "prompt.txt").write_text("Rate: {text}")
    monkeypatch.setenv("MY_KEY", "k")
    given = [
        "judge",
        "annotate",
        *texts,
        "--endpoint",
        server.url,
        "--model",
        "m",
        "--prompt",
        str(tmp_path / "prompt.txt"),
    ]
    more = ["--sample", "3", "--out", str(tmp_path / "l.jsonl"), "--key-from", "MY_KEY", "--rate", "1000", "--json"]
    made = CliRunner().invoke(app, [*given, *more])
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["labelled"] == 3
    assert server.headers[0]["Authorization"] == "Bearer k"
