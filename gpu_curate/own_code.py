"""Classes of the user's own: found in a file that a recipe names, or by an entry point of an installed package.

A file is read once, by whoever starts the run. Its source travels with the config, so that every worker, on whatever machine,
runs the very bytes that the fingerprint covers, whatever becomes of the file meanwhile. It runs as a module of a name of its
own; its folder is no place of modules, so it imports what is installed and no file beside it.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import linecache
import os
import re
import stat
import sys
import threading
import traceback
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_curate.errors import ConfigError, did_you_mean, one_line

SCORES, READERS = "gpu_curate.scores", "gpu_curate.readers"  # groups of entry points
TRUST_CODE = "GPU_CURATE_TRUST_CODE"  # in the environment: 1 stands for --trust-code
MAX_BYTES = 1 << 20  # of a file
OWN_CLASS = r"^.+\.py:[A-Za-z_][A-Za-z0-9_]*$"  # what names a class in a file
_FILE = re.compile(r"(?P<path>.+\.py):(?P<name>[A-Za-z_][A-Za-z0-9_]*)")
_lock = threading.RLock()


@dataclass(frozen=True)
class Code:
    """A class, and the source that it is made of. Small and picklable: it travels with the config.

    Attributes:
        reference: as the recipe names it: my_rules.py:Digits, or the name of an entry point.
        name: of the class in its module.
        origin: path of the file; of an entry point, the module's name.
        source: of the file, or of the entry point's module.
        distribution: name and version of the package that has the entry point; None for a file.
    """

    reference: str
    name: str
    origin: str
    source: bytes
    distribution: tuple[str, str] | None = None

    @property
    def digest(self) -> str:
        """sha256 of the source."""
        return hashlib.sha256(self.source).hexdigest()

    def identity(self) -> dict[str, Any]:
        """What tells this class from any other, for a fingerprint: not where the file lies."""
        return {"class": self.name, "source": self.digest, "distribution": self.distribution}

    def facts(self) -> dict[str, Any]:
        """The same for people."""
        package = self.distribution and " ".join(self.distribution)
        return {"name": self.reference, "origin": self.origin, "package": package, "sha256": self.digest}


def names_file(reference: str) -> bool:
    """Whether a name in a recipe is that of a class in a file: PATH.py:CLASS."""
    return _FILE.fullmatch(reference) is not None


@functools.cache
def entry_points(group: str) -> dict[str, importlib.metadata.EntryPoint]:
    """The entry points of a group by name."""
    found: dict[str, importlib.metadata.EntryPoint] = {}
    for entry in importlib.metadata.entry_points(group=group):
        found.setdefault(entry.name, entry)
    return found


def find(reference: str, group: str, folder: Path, trusted: bool, key: str) -> Code:
    """Where a class is, and its source; a file's is not run yet.

    Args:
        folder: of the recipe; a file's path is relative to it.
        trusted: the user lets the recipe run files.
        key: of the recipe, for messages.
    Raises:
        ConfigError: no such file or entry point, no regular file, a large one, or not trusted.
    """
    match = _FILE.fullmatch(reference)
    if match is None:
        return _installed(reference, group, key)
    path = Path(os.path.normpath(folder / match["path"]))
    if not trusted:
        raise ConfigError(
            f"{key}: the recipe runs code of {path}",
            f"if you know what that file does: --trust-code, {TRUST_CODE}=1, or trust_code=True in gpu_curate.run",
        )
    return Code(reference, match["name"], str(path), _read(path, key))


def _read(path: Path, key: str) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for its writer
    except OSError as e:
        hint = "the path is relative to the recipe's folder" if isinstance(e, FileNotFoundError) else None
        raise ConfigError(f"{key}: {path}: {e.strerror}", hint) from e
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise ConfigError(f"{key}: {path} is no regular file")
    with os.fdopen(handle, "rb") as f:
        source = f.read(MAX_BYTES + 1)
    if len(source) > MAX_BYTES:
        raise ConfigError(
            f"{key}: {path} is larger than {MAX_BYTES} bytes", "make a package of it, with an entry point"
        )
    return source


def _installed(reference: str, group: str, key: str) -> Code:
    known = entry_points(group)
    entry = known.get(reference)
    if entry is None:
        raise ConfigError(
            f"{key}: no installed package has an entry point {reference!r} in {group}{did_you_mean(reference, known)}",
            f"there are {', '.join(known) or 'none'}; a class in a file is PATH.py:CLASS",
        )
    module, _, name = entry.value.replace(" ", "").partition(":")
    distribution = ("", "") if entry.dist is None else (entry.dist.name, entry.dist.version)
    return Code(reference, name, module, _source_of(module, key), distribution)


def _source_of(module: str, key: str) -> bytes:
    import importlib.util

    try:
        spec = importlib.util.find_spec(module)
    except Exception as e:
        raise ConfigError(f"{key}: {module} cannot be imported: {type(e).__name__}: {one_line(e)}") from e
    if spec is None or spec.origin is None:
        raise ConfigError(
            f"{key}: there is no module {module}, which the entry point names", "install its package again"
        )
    return Path(spec.origin).read_bytes()


def load(code: Code, key: str) -> Any:
    """The class. Its module runs once a process.

    Raises:
        ConfigError: the module fails, or has no such class; names file, line and error.
    """
    module = _file_module(code, key) if code.distribution is None else _package_module(code, key)
    try:
        return functools.reduce(getattr, code.name.split("."), module)
    except AttributeError as e:
        there = [n for n, v in vars(module).items() if isinstance(v, type) and v.__module__ == module.__name__]
        near = did_you_mean(code.name, there)
        hint = f"it has {', '.join(there) or 'no class'}"
        raise ConfigError(f"{key}: {code.origin} has no class {code.name}{near}", hint) from e


def _file_module(code: Code, key: str) -> types.ModuleType:
    name = f"_gpu_curate_own_{code.digest[:16]}"  # by content: a file that changed is another module
    with _lock:
        if name in sys.modules:
            return sys.modules[name]
        module = types.ModuleType(name)
        module.__file__ = code.origin
        sys.modules[name] = module  # pydantic and dataclasses look names up in it
        try:
            text = code.source.decode("utf-8-sig")
            linecache.cache[code.origin] = (len(text), None, text.splitlines(keepends=True), code.origin)
            exec(compile(code.source, code.origin, "exec", dont_inherit=True), vars(module))
        except (Exception, SystemExit) as e:
            del sys.modules[name]
            raise ConfigError(f"{key}: {_where(e, code.origin)}", _remedy(e, code.origin)) from e
        return module


def _package_module(code: Code, key: str) -> types.ModuleType:
    import importlib

    try:
        return importlib.import_module(code.origin)
    except (Exception, SystemExit) as e:
        raise ConfigError(f"{key}: {code.origin} cannot be imported: {type(e).__name__}: {one_line(e)}") from e


def _where(e: BaseException, origin: str) -> str:
    """File, line and what was raised there."""
    lines = [f.lineno for f in traceback.extract_tb(e.__traceback__) if f.filename == origin]
    line = e.lineno if isinstance(e, SyntaxError) else (lines or [None])[-1]
    what = e.msg if isinstance(e, SyntaxError) else one_line(e)
    return f"{origin}{f', line {line}' if line else ''}: {type(e).__name__}: {what}"


def _remedy(e: BaseException, origin: str) -> str | None:
    if isinstance(e, ModuleNotFoundError) and e.name is not None:
        if (Path(origin).parent / f"{e.name.partition('.')[0]}.py").exists():
            return "a file imports what is installed, and no file beside it: put both in one, or make a package with an entry point"
        return f"install {e.name.partition('.')[0]}, or leave the import out"
    return None


def failure(e: BaseException, code: Code | None) -> str:
    """What a method of a class raised, with the line of its file."""
    return f"{type(e).__name__}: {one_line(e)}" if code is None else _where(e, code.origin)


def wrong_values(e: Any, key: str) -> Iterator[str]:
    """A line for every value that pydantic refused; `key` is that of the section."""
    for error in e.errors():
        where = ".".join(map(str, (key, *error["loc"])))
        message = error["msg"].removeprefix("Value error, ")
        shown = "" if error["type"] == "missing" else f", got {error['input']!r}"
        yield (
            f"{where}: missing" if error["type"] == "missing" else f"{where}: {message[0].lower()}{message[1:]}{shown}"
        )


def facts(codes: Iterable[Code]) -> list[dict[str, Any]]:
    """Of every class that a run uses, each once."""
    return [code.facts() for code in dict.fromkeys(codes)]
