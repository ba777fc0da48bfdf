"""The hub is asked once, with a limit, and what it gave before is found without it."""

from __future__ import annotations

import threading
import time

import pytest

from gpu_curate import hub
from gpu_curate.config import HuggingFaceSource, Tokenizer
from gpu_curate.errors import ConfigError
from gpu_curate.sources.huggingface import HuggingFaceReader
from gpu_curate.tokenizer.reading import read

huggingface_hub = pytest.importorskip("huggingface_hub", reason="needs huggingface_hub (the extra `huggingface`)")


@pytest.fixture(params=["refuses", "hangs"])
def no_network(request, monkeypatch):
    """A hub that cannot be reached: at once, or never an answer; a second question fails the test."""
    over = threading.Event()
    asked = []

    def repo_info(*_, **__):
        asked.append(1)
        if request.param == "refuses":
            raise OSError("no route to host")
        over.wait(60)

    monkeypatch.setattr(hub, "SECONDS", 0.2)
    monkeypatch.setattr(
        huggingface_hub, "HfApi", lambda token=None: type("Api", (), {"repo_info": staticmethod(repo_info)})
    )
    yield "OSError: no route to host" if request.param == "refuses" else "TimeoutError: no answer within 0 s"
    over.set()
    assert len(asked) == 1


def test_a_tokenizer_of_the_hub_without_a_network_is_one_error_at_once(no_network, monkeypatch, tmp_path):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    begun = time.monotonic()
    with pytest.raises(ConfigError, match=f"hub did not give one: {no_network}"):
        read(Tokenizer(path="org/none").path)
    assert time.monotonic() - begun < 10


def test_a_tokenizer_that_was_fetched_before_needs_no_network(no_network, monkeypatch, tmp_path):
    folder = tmp_path / "models--org--name"
    (folder / "snapshots" / "abc").mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc")
    (folder / "snapshots" / "abc" / "tokenizer.json").write_text("{}")
    original = huggingface_hub.hf_hub_download
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *a, **k: original(*a, **k, cache_dir=tmp_path))
    assert read("org/name") == (b"{}", None)


@pytest.mark.parametrize("streaming", [False, True])
def test_a_data_set_of_the_hub_without_a_network_is_one_error_at_once(no_network, streaming):
    source = HuggingFaceSource(name="a", type="huggingface", dataset="org/name", streaming=streaming)
    begun = time.monotonic()
    with pytest.raises(ConfigError) as e:
        HuggingFaceReader(source).files()
    assert "the hub cannot be asked" in e.value.message
    assert no_network.partition(":")[0] in e.value.message
    assert "hf download" in e.value.hint
    assert time.monotonic() - begun < 10


def test_errors_of_a_clients_next_major_version_are_the_networks(monkeypatch):
    import fsspec

    from gpu_curate.errors import UnreachableError
    from gpu_curate.sources import files

    error = type("ConnectError", (Exception,), {"__module__": "httpx2"})
    monkeypatch.setattr(fsspec, "get_filesystem_class", lambda *_, **__: (_ for _ in ()).throw(error("no name")))
    with pytest.raises(UnreachableError, match="cannot be listed: ConnectError: no name"):
        files.find(["hf://datasets/a/b.parquet"], (), {}, "source a: path")
