"""The one place that reads a recipe's YAML and `--set`, and says what is wrong with it."""

from __future__ import annotations

import datetime
import os
import re
import typing
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from gpu_curate.config.own import resolve
from gpu_curate.config.recipe import OWN, SOURCES, Config
from gpu_curate.errors import ConfigError, did_you_mean
from gpu_curate.own_code import READERS, entry_points
from gpu_curate.privacy import hide
from gpu_curate.section import SWITCHES, Section, Stored
from gpu_curate.sources.own import OwnSource
from gpu_curate.stages.sections import Reference

SectionT = TypeVar("SectionT", bound=Section)


TRUST_ENGINE = "GPU_CURATE_TRUST_ENGINE"  # in the environment: 1 stands for --trust-engine


def load(
    path: str | os.PathLike[str],
    overrides: list[str] | None = None,
    trust_engine: bool | None = None,
    trust_code: bool | None = None,
) -> Config:
    """Read a recipe.

    Args:
        path: YAML file.
        overrides: "key.path=value" strings, value in YAML ("sources.0.max_documents=100").
        trust_engine: the recipe may name a scheduler, which is sent code to run; None: if the environment says so. What
            `overrides` name is the caller's own.
        trust_code: the recipe may name files of Python, which are run; None: if the environment says so.
    Warns:
        FutureWarning: a value is given by its earlier name; it is read.
    Raises:
        ConfigError: the file is missing or not YAML, or a key or value is wrong; names file, key, value and remedy.
    """
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError as e:
        raise ConfigError(f"config {file}: no such file", "gpu-curate init writes a recipe for your files") from e
    except IsADirectoryError as e:
        raise ConfigError(f"config {file}: a folder, not a recipe", _recipe_hint(file)) from e
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"config {file}: {e}") from e
    from gpu_curate.config.yaml import read_yaml  # a config from plain data needs no YAML

    data = read_yaml(text, f"config {file}")
    if not isinstance(data, dict):
        raise ConfigError(f"config {file}: expected a mapping of keys, got {type(data).__name__}")
    run = data.get("run")
    named = run.get("engine") if isinstance(run, dict) else None
    for override in overrides or []:
        apply_override(data, override)
    hints: list[str] = []
    config = parse(data, str(file), hints)
    for hint in hints:
        warnings.warn(f"{file}: {hint}", FutureWarning, stacklevel=2)
    config = resolve(config, file.parent, trust_code, str(file))
    trusted = os.environ.get(TRUST_ENGINE) == "1" if trust_engine is None else trust_engine
    own = any(text.partition("=")[0] in ("run.engine", "run") for text in overrides or [])
    if "://" in config.run.engine and config.run.engine == named and not trusted and not own:
        raise ConfigError(
            f"{file}: run.engine: {named}: a scheduler named by a recipe is sent Python objects, and whoever answers there "
            "sends others back",
            f"if you know that host: --trust-engine, {TRUST_ENGINE}=1, or --set run.engine={named}",
        )
    return config


def _recipe_hint(folder: Path) -> str:
    """What was meant by a folder that was given as a recipe."""
    if (folder / "run.json").exists():
        return f"it is a run directory: gpu-curate status {folder}"
    try:
        recipes = sorted(p.name for p in folder.iterdir() if p.suffix in (".yaml", ".yml"))
    except OSError:
        recipes = []
    if recipes:
        return f"name one of its files: {', '.join(recipes[:8])}{', ...' if len(recipes) > 8 else ''}"
    return f"gpu-curate init {folder} writes a recipe for the files in it"


def parse(data: dict[str, Any], origin: str = "config", hints: list[str] | None = None) -> Config:
    """A Config from plain data; `origin` names it in errors. `hints` takes what was read by an earlier name.

    Code that it names is not run: see `config.own.resolve`.
    """
    sources = data.get("sources")
    for source in sources if isinstance(sources, list) else []:
        hide(source.get("storage_options") if isinstance(source, dict) else None)  # before an error can tell a value
    if isinstance(hints, Stored) and isinstance(sources, list):
        data = {**data, "sources": [_stored(source, f"{origin}: sources.{i}") for i, source in enumerate(sources)]}
    try:
        return Config.model_validate(data, context=hints)
    except ValidationError as e:
        raise ConfigError("\n".join(f"{origin}: {text}" for text in _explain_all(e.errors(), data))) from e


def _stored(source: Any, key: str) -> Any:
    """A source that a run reads back: a type that nobody knows any more is of a package that is gone. Raises: ConfigError."""
    kind = source.get("type") if isinstance(source, dict) else None
    return source if not isinstance(kind, str) or kind in SOURCES else parse_section(OwnSource, key, source)


def parse_section(kind: type[SectionT], key: str, data: dict[str, Any]) -> SectionT:
    """A section from plain data; `key` names it in errors."""
    try:
        return kind.model_validate(data)
    except ValidationError as e:
        errors = [{**error, "loc": (key, *error["loc"])} for error in e.errors()]
        raise ConfigError("\n".join(_explain_all(errors, {key: data}))) from e


def apply_override(data: dict[str, Any], text: str) -> None:
    """Put "key.path=value", value in YAML, into a recipe's data. Raises: ConfigError."""
    key, eq, value = text.partition("=")
    if not eq or not key:
        raise ConfigError(f"--set {text}: expected key.path=value")
    from gpu_curate.config.yaml import read_yaml

    if "storage_options" in key:
        hide(value)
    parsed = read_yaml(value, f"--set {text}")
    node: Any = data
    *parents, last = _parts(key)
    for i, part in enumerate(parents):
        if isinstance(node, list):
            inner = node[_index(node, part, text)]
        else:
            inner = node.get(part)
            if inner is None or isinstance(inner, bool) or (isinstance(inner, str) and inner in SWITCHES):
                inner = node[part] = {}
        if not isinstance(inner, dict | list):
            raise ConfigError(f"--set {text}: {'.'.join(parents[: i + 1])} is {inner!r} and has no keys")
        node = inner
    if isinstance(node, list):
        node[_index(node, last, text)] = parsed
    else:
        node[last] = parsed


def _parts(key: str) -> list[str]:
    """The keys of a path of keys; the name of a class in a file holds dots itself: quality.my_rules.py:Digits.max."""
    of_class = re.fullmatch(r"quality\.(.+\.py:\w+)(?:\.(.+))?", key)
    return key.split(".") if of_class is None else ["quality", *(part for part in of_class.groups() if part)]


def _index(node: list[Any], part: str, text: str) -> int:
    names = [entry.get("name") if isinstance(entry, dict) else None for entry in node]
    if part in names:  # sources.edu.path reads better than sources.0.path
        return names.index(part)
    if not re.fullmatch(r"[0-9]{1,9}", part) or int(part) >= len(node):
        known = [n for n in names if isinstance(n, str)]
        what = did_you_mean(part, known) or (f" (it has {', '.join(known)})" if known else "")
        raise ConfigError(f"--set {text}: {part!r} is neither an index below {len(node)} nor a name in the list{what}")
    return int(part)


_TAGS = {*SOURCES, OWN}
# What pydantic calls a member of a union in the place of an error: a type or a model, never a key of ours.
_BRANCH = re.compile(r"str|int|float|bool|none|constrained-\w+|[A-Z]\w*|[\w-]+\[.*\]", re.DOTALL)


def _explain_all(errors: list[Any], data: Any) -> Iterator[str]:
    """One line a wrong value. A value that fits no member of a union is one error for each of them in pydantic."""
    unions: dict[tuple[Any, ...], list[Any]] = {}
    for err in errors:
        unions.setdefault(_split_at_branch(err["loc"], data)[0], []).append(err)
    for own in unions.values():
        keys = [_split_at_branch(e["loc"], data)[1] for e in own]
        deepest = max(map(len, keys))  # the member that was meant is the one whose inside was looked at
        meant = [e for e, k in zip(own, keys, strict=True) if len(k) == deepest]
        whole = len(meant) > 1 and all(e["loc"][:-1] == meant[0]["loc"][:-1] for e in meant) and deepest == 0
        yield from [_explain(meant, data)] if whole else [_explain([e], data) for e in meant]


def _split_at_branch(loc: tuple[Any, ...], data: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """The place of a union and what lies below its member; the whole place and () where there is no union."""
    node = data
    for i, part in enumerate(loc):
        if _is_branch(part, node):
            return loc[:i], loc[i + 1 :]
        node = _inside(node, part)
    return loc, ()


def _is_branch(part: Any, node: Any) -> bool:
    there = isinstance(node, dict) and part in node
    return isinstance(part, str) and not there and _BRANCH.fullmatch(part) is not None


def _inside(node: Any, part: Any) -> Any:
    if part in _TAGS and not (isinstance(node, dict) and part in node):
        return node  # the type of a source, which pydantic puts in
    try:
        return node[part]
    except (KeyError, IndexError, TypeError):
        return None


def _explain(errors: list[Any], data: Any) -> str:
    """`key: what, got value`, of the errors that the members of a union gave for one value, or of one error."""
    err = errors[0]
    where = ".".join(_named(err["loc"], data))
    if err["type"] == "extra_forbidden":
        return f"{where}: unknown key{_near(err)}"
    if err["type"] == "missing":
        return f"{where}: missing"
    if err["type"] == "union_tag_invalid":
        got = err["ctx"]["tag"]
        known = [*SOURCES, *entry_points(READERS)]
        return f"{where}: type {got!r} is not one of {', '.join(known)}{did_you_mean(got, known)}, nor PATH.py:CLASS"
    if err["type"] == "union_tag_not_found":
        return f"{where}: type is missing (one of {', '.join(sorted(SOURCES))})"
    got = err["input"]
    shown = "" if isinstance(got, dict | list | BaseModel) else f", got {got!r}{_remedy(errors)}"
    if err["type"] in ("model_type", "dict_type") and len(errors) == 1:
        return f"{where}: expected a mapping of keys, got {got!r}{_remedy(errors)}"
    messages = [e["msg"].removeprefix("Value error, ") for e in errors]
    message = messages[0] + "".join(f" or {m.removeprefix('Input should be ')}" for m in messages[1:])
    return f"{where + ': ' if where else ''}{message[0].lower() + message[1:]}{shown}"


def _remedy(errors: list[Any]) -> str:
    """What would do: the word that was misspelt, or quotes where YAML took a word for something else."""
    got, kinds = errors[0]["input"], {e["type"] for e in errors}
    known = [w for e in errors if e["type"] == "literal_error" for w in re.findall(r"'([^']*)'", e["ctx"]["expected"])]
    if isinstance(got, bool) and "string_type" in kinds:
        word = str(got).lower()
        return f" (YAML reads {word} as this: write a word in quotes, '{word}')"
    if isinstance(got, int | float | datetime.date) and "string_type" in kinds:
        kind = "a date" if isinstance(got, datetime.date) else "a number"
        return f" ({kind} to YAML: write text in quotes, '{got}')"
    if isinstance(got, str) and kinds & {"int_type", "float_type"} and _is_number(got):
        return f" (text: write the number without quotes, {_plain(got)})"
    if "string_pattern_mismatch" in kinds:
        known += re.findall(r"[a-z_]{3,}", errors[0]["ctx"]["pattern"])
    if kinds & {"model_type", "dict_type"}:
        known += ["on", "off", "null"]
    return did_you_mean(got, known)


def _plain(number: str) -> str:
    """A number without the zeros in front, for which YAML leaves it as text."""
    return re.sub(r"^([-+]?)0+(?=[0-9])", r"\1", number)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _named(loc: tuple[Any, ...], data: Any) -> Iterator[str]:
    """The keys down to a value; an entry of a list by its name, as `--set` takes it."""
    node = data
    for part in loc:
        if _is_branch(part, node):
            continue
        inside = _inside(node, part)
        if inside is node and part in _TAGS:
            continue
        node = inside
        name = node.get("name") if isinstance(part, int) and isinstance(node, dict) else None
        yield name if isinstance(name, str) and name else str(part)


def _near(err: Any) -> str:
    """A suggestion for a misspelt key, from the fields of the section it stands in."""
    section: Any = Config
    for part in err["loc"][:-1]:
        section = _child(section, part)
        if section is None:
            return ""
    known = [field.alias or name for name, field in section.model_fields.items()]
    return did_you_mean(err["loc"][-1], known) or f" (known: {', '.join(known)})"


def _child(section: Any, part: Any) -> Any:
    if isinstance(section, _Each):
        return section.section
    by_tag = {**SOURCES, OWN: OwnSource}
    if isinstance(part, int):
        return section
    if part in by_tag:
        return by_tag[part]
    if section is None or part not in getattr(section, "model_fields", {}):
        return None
    if part == "sources":
        return Config
    if part == "references":
        return Reference
    annotation = section.model_fields[part].annotation
    options = [annotation, *getattr(annotation, "__args__", ())]
    found = next((o for o in options if isinstance(o, type) and issubclass(o, Section)), None)
    return _Each(found) if typing.get_origin(annotation) is dict and found is not None else found


class _Each:
    """A mapping of any names to sections of one kind."""

    def __init__(self, section: type[Section]):
        self.section = section
