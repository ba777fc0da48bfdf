"""The config reference, made from the models: docs/config.md, and what `gpu-curate config` prints."""

from __future__ import annotations

import re
import types
import typing
from typing import Any

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from gpu_curate import config
from gpu_curate.config.recipe import SOURCES
from gpu_curate.own_code import OWN_CLASS, READERS, SCORES, entry_points


def sections() -> list[tuple[str, type[config.Section]]]:
    """(key, model) of every section, in the order of a recipe."""
    c = config
    sources = [(f"sources: type: {name}", model) for name, model in SOURCES.items()]
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
        ("quality.columns.NAME", c.ColumnBounds),
        ("quality.judges.NAME", c.Judge),
        ("quality.judges.NAME.bands", c.Band),
        ("dedup", c.Dedup),
        ("dedup.fuzzy", c.Fuzzy),
        ("references", c.Reference),
        ("annotations", c.Annotation),
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
        lines += [f"## {title}", "", doc, "", "| key | type | default | meaning |", "|---|---|---|---|"]
        for name, field in model.model_fields.items():
            if name == "type" or (
                model is not config.SourceBase and issubclass(model, config.SourceBase) and name in shared
            ):
                continue
            cells = (f"`{field.alias or name}`", _type(field.annotation), _default(field), field.description or "")
            lines.append("| " + " | ".join(" ".join(c.split()).replace("|", "\\|") for c in cells) + " |")
        lines.append("")
    return "\n".join(lines)


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a recipe.

    What the models take beside their types (on, off, null) is found by asking them, so that the schema takes it too. An
    integer may be text with underscores: YAML 1.2, which editors read, has no 100_000_000.
    """
    schema = config.Config.model_json_schema(mode="validation")
    _allow_classes(schema["$defs"])
    models = {m.__name__: m for _, m in sections()} | {"RowGroups": config.RowGroups}
    for name, definition in (("Config", schema), *schema["$defs"].items()):
        for key, own in definition.get("properties", {}).items():
            _allow_underscores(own)
            if name in models and ("$ref" in str(own) or "enum" in own or "boolean" in str(own)):
                words = [w for w in (None, True, False, "on", "off", "yes", "no") if _takes(models[name], key, w)]
                if words and key != "sources":
                    kept = {k: own.pop(k) for k in ("title", "description", "default") if k in own}
                    definition["properties"][key] = {**kept, "anyOf": [*own.pop("anyOf", [own]), {"enum": words}]}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "gpu_curate recipe"}


def _allow_classes(definitions: dict[str, Any]) -> None:
    """Where a class of the user's own is named: PATH.py:CLASS, or an entry point that is installed here."""
    of_type = definitions["OwnSource"]["properties"]["type"]
    of_type["anyOf"] = [{"pattern": OWN_CLASS}, {"enum": list(entry_points(READERS))}]
    quality = definitions["Quality"]
    quality["additionalProperties"] = False
    own = {"anyOf": [{"type": "object"}, {"enum": [None, True, False, "on", "off", "yes", "no"]}]}
    quality["patternProperties"] = {OWN_CLASS: own, **{f"^{re.escape(name)}$": own for name in entry_points(SCORES)}}
    definitions.pop("Own", None)


def _allow_underscores(schema: Any) -> None:
    """Where an integer is wanted, take 1_000 as text, too."""
    for place in schema.get("anyOf", [])[:]:
        if place.get("type") == "integer":
            schema["anyOf"].append(_UNDERSCORES)
    if schema.get("type") == "integer":
        bounds = {k: schema.pop(k) for k in list(schema) if k not in ("title", "description", "default")}
        schema["anyOf"] = [bounds, _UNDERSCORES]


_UNDERSCORES = {"type": "string", "pattern": "^[0-9]+(_[0-9]+)+$"}


def _takes(model: type[config.Section], key: str, value: Any) -> bool:
    """True if a model has nothing against this value of a key."""
    try:
        model.model_validate({key: value})
    except ValidationError as e:
        return not any(err["loc"][:1] == (key,) for err in e.errors())
    return True


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
        bare = [typing.get_args(a)[0] if typing.get_origin(a) is typing.Annotated else a for a in arguments]
        if all(isinstance(a, type) and issubclass(a, config.SourceBase) for a in bare):
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
