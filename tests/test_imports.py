"""The import graph of the package, lazy imports too: no circle, and every module imports from its own layer or below."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

from places import ROOT

PACKAGE = ROOT / "gpu_curate"


def name_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {name_of(file): file for file in PACKAGE.rglob("*.py")}


def only_for_types(tree: ast.Module) -> set[ast.AST]:
    """What stands under `if TYPE_CHECKING:`, which no run imports."""
    tests = [n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test)]
    return {inner for test in tests for line in test.body for inner in ast.walk(line)}


@cache
def imports() -> dict[str, frozenset[str]]:
    """Module → modules of the package that it names in an import, wherever the statement stands.

    `from package import module` names the module. A parent package, which Python runs first, is named by nothing else.
    """
    graph = {}
    for name, file in FILES.items():
        tree = ast.parse(file.read_text(encoding="utf-8"))
        named: set[str] = set()
        for node in set(ast.walk(tree)) - only_for_types(tree):
            if isinstance(node, ast.Import):
                named |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{name}: relative import"
                whole = {f"{node.module}.{alias.name}" for alias in node.names}
                named |= {w if w in FILES else str(node.module) for w in whole}
        graph[name] = frozenset(n for n in named if n in FILES and n != name)
    return graph


def circles(graph) -> list[list[str]]:
    """Strongly connected components of more than one module (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(v: str) -> None:
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in sorted(graph[v]):
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            component = stack[stack.index(v) :]
            del stack[stack.index(v) :]
            if len(component) > 1:
                found.append(sorted(component))

    for v in sorted(graph):
        if v not in index:
            visit(v)
    return found


# A room imports from itself and from those before it. A module beside the rooms that is not named here lies as low as
# what it imports allows.
LAYERS = (
    {"errors", "section", "document", "lfs", "jit"},
    {
        "guard",
        "hub",
        "text",
        "store",
        "device",
        "tokenizer",
        "formats",
        "loader",
        "torch_dataset",
        "shards_check",
    },
    {"ops", "sources", "quality", "judges", "lsh", "dedup", "adapters"},
    {"config"},
    {"stages"},
    {"runs"},
    {"report", "tools", "inquiry", "ablate"},
    {"api", "cli", "commands", "console", "terminal", "__main__"},
)

ALLOWED_CIRCLES = {
    # a column that lies on the device is taken where it lies, by one name for all columns
    frozenset({"device.cudf_columns", "device.runtime", "document"}),
    # an op's package holds its index, and its twins build and probe it
    frozenset({"ops.ngrams", "ops.ngrams.cpu"}),
    # the reader's child process runs the reader
    frozenset({"sources.warc", "sources.warc_process"}),
    # the guard asks a child process for footers, and that asks the guard what an error means
    frozenset({"guard", "sources.footers"}),
}
ALLOWED_UPWARD = {
    ("document", "device.cudf_columns"),  # see the circles
    ("guard", "sources.footers"),
}


def short(module: str) -> str:
    return module.removeprefix("gpu_curate").removeprefix(".")


def layer(module: str) -> int:
    """Its place in LAYERS. A section is at the bottom wherever it stands, and so is what readers yield."""
    room, _, rest = short(module).partition(".")
    if rest in ("section", "sections") or module in ("gpu_curate", "gpu_curate.sources"):
        return 0
    named = next((i for i, rooms in enumerate(LAYERS) if room in rooms), None)
    return max((layer(m) for m in imports()[module]), default=0) if named is None else named


def test_no_circle_but_those_with_a_reason():
    assert {frozenset(map(short, circle)) for circle in circles(imports())} == ALLOWED_CIRCLES


def test_a_module_imports_from_its_own_layer_or_below():
    upward = {(short(a), short(b)) for a, named in imports().items() for b in named if layer(b) > layer(a)}
    assert upward == ALLOWED_UPWARD


def test_what_the_config_puts_together_imports_no_config():
    rooms = ("sources", "text", "quality", "ops", "store", "device", "tokenizer", "section")
    inside = [m for m in FILES if short(m).partition(".")[0] in rooms or layer(m) == 0]
    assert len(inside) > 60
    asking = [(m, named) for m in inside for named in imports()[m] if short(named).partition(".")[0] == "config"]
    assert not asking


def test_reading_a_recipe_loads_nothing_heavy():
    code = "import sys, gpu_curate.config\nprint(*{'numpy', 'pyarrow', 'numba', 'fsspec', 'tokenizers'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_a_circle_of_lazy_imports_is_found():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"e1"}, "e1": {"e"}}
    assert circles(graph) == [["b", "c"], ["e", "e1"]]
