"""The house's measures: how long a module and a function may be."""

from __future__ import annotations

import ast
import re

from places import ROOT

PACKAGE = ROOT / "gpu_curate"
MAX_LINES, MAX_FUNCTION_LINES = 500, 80
WHY = re.compile(r"One function: \w+")  # how the line in docstring or comment begins that says why one is longer


def long_functions(source: str) -> list[tuple[str, int]]:
    """(name, lines) of the functions that are longer and say no reason."""
    lines = source.splitlines()
    functions = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    spans = [(node.name, node.lineno - 1, node.end_lineno) for node in functions]
    return [
        (name, stop - start)
        for name, start, stop in spans
        if stop - start > MAX_FUNCTION_LINES and not WHY.search("\n".join(lines[start:stop]))
    ]


def test_no_module_and_no_function_is_too_long():
    sources = {str(f.relative_to(PACKAGE)): f.read_text(encoding="utf-8") for f in PACKAGE.rglob("*.py")}
    assert len(sources) > 200
    assert {name: n for name, source in sources.items() if (n := len(source.splitlines())) > MAX_LINES} == {}
    assert {name: found for name, source in sources.items() if (found := long_functions(source))} == {}


def test_a_long_function_needs_its_reason():
    body = "".join(f"    x = {i}\n" for i in range(MAX_FUNCTION_LINES))
    assert long_functions(f"def f():\n{body}") == [("f", MAX_FUNCTION_LINES + 1)]
    assert long_functions(f"def f():\n    # One function: a loop whose state is its locals.\n{body}") == []
    assert long_functions(f"def f():\n    # One function:\n{body}") != []
    assert long_functions("def f():\n" + body.replace("    x = 0\n", "")) == []
