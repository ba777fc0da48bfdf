"""`gpu-curate judge annotate`: labels for a sample of texts from a language model behind an OpenAI-compatible endpoint.

The sample depends on the texts alone. What was answered stands in the output, by content hash, so a run that was stopped goes on
where it was and asks nothing twice. The output is what `judge train --labels` reads.
"""

from __future__ import annotations

import email.utils
import hashlib
import json
import os
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpu_curate.errors import ConfigError, RetryableError
from gpu_curate.tools.judge_texts import Reading, texts_of

TRIES = 4
WAIT_S, LONGEST_WAIT_S = 1.0, 60.0
MAX_ANSWER_BYTES = 4 << 20
NUMBER = r"(-?\d+(?:\.\d+)?)\D*$"  # the last number of the answer
_FATAL = (400, 401, 403, 404, 405, 422)  # asking again would not help


@dataclass(frozen=True)
class Asking:
    """How to ask.

    Args:
        endpoint: base URL; `/chat/completions` is added. model: name there. prompt: with `{text}` where the text goes.
        key: sent as bearer token; "" for none. pattern: whose first group is the label in an answer.
        max_chars: of a text that are shown. rate: requests a second at most, all threads together. timeout_s: of one.
    """

    endpoint: str
    model: str
    prompt: str
    key: str = field(default="", repr=False)
    pattern: str = NUMBER
    max_chars: int = 4000
    rate: float = 5.0
    timeout_s: float = 60.0

    def identity(self) -> str:
        """What answers depend on."""
        told = json.dumps([self.model, self.prompt, self.pattern, self.max_chars])
        return hashlib.sha256(told.encode()).hexdigest()[:16]


class _Pace:
    """No more than `rate` calls a second, over all threads."""

    def __init__(self, rate: float):
        self._every, self._next, self._lock = 1 / rate, 0.0, threading.Lock()

    def wait(self) -> None:
        with self._lock:
            now = time.monotonic()
            at = max(now, self._next)
            self._next = at + self._every
        time.sleep(max(at - now, 0.0))


def content_key(text: str) -> str:
    """By which a text is drawn and its answer found again."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def annotate(
    paths: list[str],
    asking: Asking,
    out: Path,
    sample: int,
    workers: int = 4,
    text_column: str = "text",
    max_bytes: int = 1 << 30,
    told: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Label a sample, and append what is new to `out`: JSON lines of text, label, answer, key, asked.

    Returns:
        texts (of the sample), known (answered before), labelled and unlabelled now, reasons {why: n}.
    Raises:
        ConfigError: the prompt has no `{text}`; the endpoint does not answer or refuses; `out` is of another prompt or model.
    """
    _check(asking)
    known = _known(out, asking.identity())
    reading = Reading()
    texts = {content_key(t): t for t, _ in texts_of(paths, text_column, None, "PATH", reading, max_bytes) if t.strip()}
    drawn = sorted(texts)[:sample]
    asked = [key for key in drawn if key not in known]
    pace, labelled = _Pace(asking.rate), 0
    reasons: dict[str, int] = {}
    with out.open("a", encoding="utf-8") as file, ThreadPoolExecutor(workers) as pool:
        try:
            for number, (key, answer) in enumerate(_answers(pool, asking, pace, texts, asked), 1):
                label = _label(asking, answer)
                why = (
                    None
                    if label is not None
                    else answer
                    if isinstance(answer, _Refused)
                    else _Refused("no label in the answer")
                )
                if why is not None:
                    reasons[why.reason] = reasons.get(why.reason, 0) + 1
                labelled += label is not None
                row = {
                    "text": texts[key],
                    "label": label,
                    "answer": None if isinstance(answer, _Refused) else answer[:2000],
                }
                file.write(json.dumps({**row, "key": key, "asked": asking.identity()}, ensure_ascii=False) + "\n")
                file.flush()
                if told and number % 100 == 0:
                    told(f"{number:,} of {len(asked):,} asked")
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return {
        "out": str(out),
        "texts": len(drawn),
        "known": len(drawn) - len(asked),
        "labelled": labelled,
        "unlabelled": len(asked) - labelled,
        "reasons": dict(sorted(reasons.items())),
    }


def _check(asking: Asking) -> None:
    if "{text}" not in asking.prompt:
        raise ConfigError("judge annotate: the prompt has no {text}", "write {text} where the text is to stand")
    if urllib.parse.urlsplit(asking.endpoint).scheme not in ("http", "https"):
        raise ConfigError(
            f"judge annotate: {asking.endpoint!r} is no http(s) address", "--endpoint http://localhost:8000/v1"
        )
    try:
        groups = re.compile(asking.pattern).groups
    except re.error as e:
        raise ConfigError(f"judge annotate: --pattern {asking.pattern!r}: {e}") from e
    if groups < 1:
        raise ConfigError(
            f"judge annotate: --pattern {asking.pattern!r} has no group", "put the label in brackets: label: (\\d)"
        )


def _known(out: Path, identity: str) -> frozenset[str]:
    """Keys that have a label already. Raises: ConfigError: they were asked for otherwise."""
    found = set()
    if out.exists():
        for number, line in enumerate(out.read_bytes().split(b"\n"), 1):
            try:
                row = json.loads(line)
                key, asked, label = row["key"], row["asked"], row["label"]
            except (ValueError, TypeError, KeyError):
                continue  # the line at which a run was killed
            if asked != identity:
                raise ConfigError(
                    f"{out}, line {number}: was asked for with another prompt, model or pattern", "give another --out"
                )
            if label is not None:
                found.add(key)
        if not out.read_bytes().endswith(b"\n") and out.stat().st_size:
            with out.open("ab") as f:
                f.write(b"\n")
    return frozenset(found)


@dataclass(frozen=True)
class _Refused:
    """Why there is no answer for one text."""

    reason: str


def _answers(
    pool: ThreadPoolExecutor, asking: Asking, pace: _Pace, texts: dict[str, str], keys: list[str]
) -> Iterator[tuple[str, str | _Refused]]:
    """Key and answer, in the order of the keys."""
    yield from zip(keys, pool.map(lambda key: _ask(asking, pace, texts[key]), keys), strict=True)


def _ask(asking: Asking, pace: _Pace, text: str) -> str | _Refused:
    """One answer. Raises: ConfigError: the endpoint refuses, or is not there; RetryableError: it failed TRIES times."""
    content = asking.prompt.replace("{text}", text[: asking.max_chars])
    body = {
        "model": asking.model,
        "messages": [{"role": "user", "content": content}],
        "temperature": 0,
        "max_tokens": 256,
    }
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {asking.key}"} if asking.key else {})}
    url = asking.endpoint.rstrip("/") + "/chat/completions"
    said = ""
    for attempt in range(TRIES):
        pace.wait()
        wait = WAIT_S * 2**attempt
        try:
            request = urllib.request.Request(url, json.dumps(body).encode(), headers)
            with urllib.request.urlopen(request, timeout=asking.timeout_s) as response:
                return _content(response.read(MAX_ANSWER_BYTES + 1))
        except urllib.error.HTTPError as e:
            said = f"HTTP {e.code} {e.reason}"
            if e.code in _FATAL:
                raise ConfigError(f"judge annotate: {url}: {said}", "check --endpoint, --model and the key") from e
            wait = _retry_after(e.headers.get("Retry-After"), wait)
        except (urllib.error.URLError, OSError) as e:
            said = str(getattr(e, "reason", e))
        if attempt < TRIES - 1:
            time.sleep(min(wait, LONGEST_WAIT_S))
    raise RetryableError(
        f"judge annotate: {url} failed {TRIES} times, last: {said}", "start the command again: it goes on"
    )


def _retry_after(value: str | None, otherwise: float) -> float:
    """Seconds that a server asks to wait."""
    if value is None:
        return otherwise
    try:
        return float(value)
    except ValueError:
        pass
    try:
        return max(email.utils.parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
    except ValueError:
        return otherwise


def _content(data: bytes) -> str | _Refused:
    """The text of an answer."""
    if len(data) > MAX_ANSWER_BYTES:
        return _Refused("an answer of more than 4 MiB")
    try:
        content = json.loads(data)["choices"][0]["message"]["content"]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return _Refused("an answer that is none of the interface")
    return content if isinstance(content, str) else _Refused("an answer without text")


def _label(asking: Asking, answer: str | _Refused) -> float | None:
    if isinstance(answer, _Refused):
        return None
    found = re.search(asking.pattern, answer.strip()[-4000:])
    try:
        return float(found.group(1)) if found is not None else None
    except (TypeError, ValueError):
        return None


def key_of(variable: str) -> str:
    """The key in an environment variable; "" if it is not set."""
    return os.environ.get(variable, "")
