"""The code of the documentation pages, as it stands there."""

import re
import socket
from pathlib import Path

import pytest
from test_loader import documents, make

DOCS = Path(__file__).parents[1] / "docs"


def code(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


@pytest.fixture
def shards(tmp_path):
    folder = tmp_path / "shards"
    make(folder, {"train": documents(4000, longest=80)}, per_shard=9999)
    return folder


def test_the_loaders_page_runs(shards):
    pytest.importorskip("torch")
    first, second, _ = code("loader.md")
    names = {}
    first = first.replace('"runs/quickstart"', repr(str(shards))).replace("seq_len=1024", "seq_len=64")
    exec(first + second, names)
    assert names["x"].shape == (16, 64)


def test_the_training_script_of_the_loaders_page_trains_and_says_where_it_is(shards, monkeypatch):
    torch = pytest.importorskip("torch")
    if not torch.distributed.is_available():
        pytest.skip("this torch has no torch.distributed")
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    for name, value in {"RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}.items():
        monkeypatch.setenv(name, str(value))
    names = {}
    exec(code("loader.md")[2], names)
    state = names["train"](shards)
    assert (state["epoch"], state["row"]) == (0, 3 * 4)
