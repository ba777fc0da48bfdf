"""Which source files the output of a stage depends on: those that its module imports, however far, lazy imports too.

The imports are read from the source, so a module that is imported only inside a function counts, and nothing is run. What
only says, checks or dispatches is left out by name (EXCLUDED): otherwise every change would make every box anew.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import os
import re
import sys
from pathlib import Path

_ROOT = "gpu_curate"
_PACKAGE = Path(__file__).parents[1]
DIGITS = 16

# Modules, with all below them, whose change changes no byte of a box.
EXCLUDED = {
    "": "the face: names alone",
    "errors": "what is said when something fails",
    "visible": "how foreign text is shown in messages",
    "config": "composes and checks recipes; what a stage takes from one is in its settings",
    "section": "likewise",
    "jit": "compiles functions that are covered themselves",
    "compiled": "where compiled functions are kept",
    "device": "where arrays are put; both twins give the same integers",
    "ops.catalogue": "a list for tests and tools",
    "store.code": "this graph",
    "store.fingerprint": "fingerprints and versions",
    "store.lock": "who works in a run directory",
    "store.run_directory": "which folder is the latest",
    "store.verified": "which files were checked",
}
_SECTIONS = ("section", "sections")  # modules of these names hold keys of the recipe: their values are in the settings
_TWINS = ("gpu", "plain")  # a GPU twin, and a peer without Numba: the same integers, or wrong
_STATEMENT = re.compile(rb"^([ \t]*)(from[ \t]+[\w.]+[ \t]+import\b|import[ \t]|if (?:typing\.)?TYPE_CHECKING\b)", re.M)


def excluded(name: str) -> bool:
    """True of a module, by its name below the package, that no fingerprint covers."""
    parts = name.split(".")
    above = {".".join(parts[: n + 1]) for n in range(len(parts))}
    return not name or parts[-1] in (*_SECTIONS, *_TWINS) or bool(above & EXCLUDED.keys())


def code_digest(root: str) -> str:
    """Hash of the source of a module ("stages.tokens"), and of all that it imports. Also of a file of the user's (its path)."""
    state = hashlib.sha256()
    for name, file in sorted(files(root).items()):
        state.update(f"{name}\0{_content(file)}\0".encode())
    return state.hexdigest()[:DIGITS]


def files(root: str) -> dict[str, str]:
    """What `code_digest` covers: name → file. Data files that a module names are among them."""
    first = root if root.endswith(".py") else _modules().get(root)
    assert first is not None, f"{root}: no such module"
    found: dict[str, str] = {}
    left = [first]
    while left:
        file = left.pop()
        name = _name(file)
        if name not in found:
            found[name] = file
            left += _edges(file)
    return found


@functools.cache
def _modules() -> dict[str, str]:
    """Name below the package → file, of every module."""
    found = {}
    for folder, folders, names in os.walk(_PACKAGE):
        folders[:] = [f for f in folders if f != "__pycache__"]
        above = folder[len(str(_PACKAGE)) + 1 :].replace("/", ".")
        for name in names:
            if name.endswith(".py"):
                own = [part for part in (above, name[:-3]) if part and part != "__init__"]
                found[".".join(own)] = f"{folder}/{name}"
    return found


@functools.cache
def _names() -> dict[str, str]:
    """File → name below the package, of every module."""
    return {file: name for name, file in _modules().items()}


def _name(file: str) -> str:
    """A file's name in the hash: from the package on, or of a user's file its own, wherever that lies."""
    package = f"{_PACKAGE}/"
    return file.removeprefix(package) if file.startswith(package) else f"/{os.path.basename(file)}"


def _edges(file: str) -> tuple[str, ...]:
    """The files that a file depends on itself. A file of the user's may change while a process lives: it is read anew."""
    return _own_edges(file) if file in _names() else _read_edges(file)


@functools.cache
def _own_edges(file: str) -> tuple[str, ...]:
    return _read_edges(file)


def _read_edges(file: str) -> tuple[str, ...]:
    """Modules that a file imports, and data files of its folder that it names."""
    if not file.endswith(".py"):
        return ()
    source = Path(file).read_bytes()
    own = _names().get(file)
    if own is None:
        beside = [_beside(n, file) for n in _imports(source, own)]
        return tuple(f for f in beside if f is not None)
    modules = [_modules().get(_short(n)) for n in _imports(source, own) if not excluded(_short(n))]
    data = (f for f in _data_files(os.path.dirname(file)) if _named_in(f, source))
    return (*(f for f in modules if f is not None), *data)


def _short(name: str) -> str:
    """The name of a module below the package."""
    return name.removeprefix(_ROOT).removeprefix(".")


def _beside(name: str, importer: str) -> str | None:
    """The file of a module that a user's file imports: of ours, or one that lies beside it."""
    if name == _ROOT or name.startswith(f"{_ROOT}."):
        return None if excluded(_short(name)) else _modules().get(_short(name))
    place = os.path.join(os.path.dirname(importer), name.replace(".", "/"))
    return next((f for f in (f"{place}.py", f"{place}/__init__.py") if os.path.isfile(f)), None)


def _named_in(data: str, source: bytes) -> bool:
    return os.path.basename(data).encode() in source


@functools.cache
def _data_files(folder: str) -> tuple[str, ...]:
    with os.scandir(folder) as entries:
        return tuple(
            sorted(e.path for e in entries if e.is_file() and not e.name.endswith((".py", ".pyc", ".cu", ".so")))
        )


def _content(file: str) -> str:
    return _own_content(file) if file.startswith(f"{_PACKAGE}/") else _read_content(file)


@functools.cache
def _own_content(file: str) -> str:
    return _read_content(file)


def _read_content(file: str) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()


def _imports(source: bytes, own: str | None) -> frozenset[str]:
    """Modules that a file names in an import, wherever the statement stands but under `if TYPE_CHECKING`.

    Only the statements are parsed, not the file: that takes a tenth of the time, at the start of every run.

    Args:
        own: the module's name below the package; None: a user's file.
    """
    found: set[str] = set()
    types_only: int | None = None  # indentation of the `if TYPE_CHECKING` that the statement may stand under
    end = 0
    for match in _STATEMENT.finditer(source):
        indent = len(match[1])
        if types_only is not None and (indent <= types_only or _dedents(source[end : match.start()], types_only)):
            types_only = None
        end = match.end()
        if match[2].startswith(b"if"):
            types_only = indent
        elif types_only is None:
            found |= _of_statement(source, match.start())
    if f"{_ROOT}.ops" in found and own is not None and own.startswith("ops."):
        found.add(f"{_ROOT}.{own}.cpu")  # `ops.twin` imports the Numba twin by its name
    return frozenset(found)


def _dedents(lines: bytes, indent: int) -> bool:
    """True if a line stands no deeper than `indent`."""
    rows = lines.decode("utf-8", "replace").splitlines()[1:]
    return any(row.strip() and len(row) - len(row.lstrip()) <= indent for row in rows)


def _of_statement(source: bytes, start: int) -> set[str]:
    """The modules that the import statement at `start` names; none if it is prose."""
    stop = source.find(b"\n", start)
    text = source[start : None if stop < 0 else stop]
    if b"(" in text and b")" not in text:
        stop = source.find(b")", start)
        text = source[start : None if stop < 0 else stop + 1]
    try:
        (node,) = ast.parse(text.lstrip()).body
    except (SyntaxError, ValueError):
        return set()
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if not isinstance(node, ast.ImportFrom) or node.level or node.module is None:
        return set()
    wholes = [f"{node.module}.{alias.name}" for alias in node.names]
    return {w if _short(w) in _modules() or not w.startswith(f"{_ROOT}.") else node.module for w in wholes} | (
        set() if node.module.startswith(_ROOT) else {node.module}
    )


def file_of(kind: type) -> str:
    """What `code_digest` is asked for a class: its module below the package, or the path of its file.

    Raises: OSError: it stands in no file.
    """
    module = kind.__module__
    if module.startswith(f"{_ROOT}."):
        return module.removeprefix(f"{_ROOT}.")
    path = getattr(sys.modules.get(module), "__file__", None)
    if path is None:
        raise OSError(f"{module}.{kind.__qualname__} stands in no file")
    return os.path.realpath(str(path))
