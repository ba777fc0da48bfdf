"""The config reference, made from the models: what the README shows and `gpu-curate config` prints."""

from __future__ import annotations

import types
import typing
from typing import Any

from pydantic.fields import FieldInfo

from gpu_curate import config


def sections() -> list[tuple[str, type[config.Section]]]:
    """(key, model) of every section, in the order of a recipe."""
    c = config
    sources = [
        (f"sources: type: {m.model_fields['type'].annotation.__args__[0]}", m) for m in c.SourceBase.__subclasses__()
    ]
    return [
        ("", c.Config),
        ("sources: every type", c.SourceBase),
        *sources,
        ("normalize", c.Normalize),
        ("language", c.Language),
        ("pii", c.Pii),
        ("quality", c.Quality),
        ("quality.gopher_quality", c.GopherQuality),
        ("quality.gopher_repetition", c.GopherRepetition),
        ("quality.c4", c.C4),
        ("quality.fineweb", c.FineWeb),
        ("dedup", c.Dedup),
        ("dedup.fuzzy", c.Fuzzy),
        ("references", c.Reference),
        ("tokenizer", c.Tokenizer),
        ("tokenizer.train", c.TrainTokenizer),
        ("shards", c.Shards),
        ("shards.validation", c.Validation),
        ("run", c.Run),
    ]


def markdown() -> str:
    """The reference as Markdown tables, one a section."""
    lines: list[str] = []
    shared = set(config.SourceBase.model_fields)
    for key, model in sections():
        title = f"`{key}`" if key else "Top level"
        doc = (model.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")
        lines += [f"#### {title}", "", doc, "", "| key | type | default | meaning |", "|---|---|---|---|"]
        for name, field in model.model_fields.items():
            if name == "type" or (
                model is not config.SourceBase and issubclass(model, config.SourceBase) and name in shared
            ):
                continue
            cells = (f"`{name}`", _type(field.annotation), _default(field), field.description or "")
            lines.append("| " + " | ".join(" ".join(c.split()).replace("|", "\\|") for c in cells) + " |")
        lines.append("")
    return "\n".join(lines)


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, config.Section):
        return "see below"
    names = {None: "`null`", True: "`true`", False: "`false`"}
    if value is None or isinstance(value, bool):
        return names[value]
    if isinstance(value, int) and value >= 10_000:
        return f"`{value:_}`"
    return f"`{value}`" if value != "" else ""


def _type(annotation: Any) -> str:
    origin = typing.get_origin(annotation)
    arguments = typing.get_args(annotation)
    if origin is typing.Annotated:
        return _type(arguments[0])
    if origin in (typing.Union, types.UnionType):
        if all(isinstance(a, type) and issubclass(a, config.SourceBase) for a in arguments):
            return "source"
        return " or ".join(dict.fromkeys(_type(a) for a in arguments))
    if origin is typing.Literal:
        return " ".join(f"`{a}`" for a in arguments)
    if origin is list:
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return "mapping"
    if annotation is type(None):
        return "null"
    if isinstance(annotation, type) and issubclass(annotation, config.Section):
        return "section"
    return {str: "text", int: "integer", float: "number", bool: "true or false"}.get(annotation, str(annotation))
