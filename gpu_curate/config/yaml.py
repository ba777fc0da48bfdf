"""Recipes are YAML 1.2, read by ruamel.yaml: `no` is a word, 1e-3 a number. What it reads in silence and should not is told."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from gpu_curate.errors import ConfigError

_MERGE = "tag:yaml.org,2002:merge"


class _Constructor(SafeConstructor):
    """Leaves as text what a number would lose: zeros in front, and digits with an `e` among them (16 hex digits)."""

    def construct_yaml_int(self, node: Any) -> Any:
        return node.value if re.fullmatch(r"[-+]?0[0-9_]+", node.value) else super().construct_yaml_int(node)

    def construct_yaml_float(self, node: Any) -> Any:
        identifier = re.fullmatch(r"[0-9]{11,}[eE][0-9]+|[0-9]+[eE][0-9]{4,}", node.value)
        return node.value if identifier else super().construct_yaml_float(node)


_Constructor.add_default_constructor("int")
_Constructor.add_default_constructor("float")


def read_yaml(text: str, origin: str) -> Any:
    """The data of one YAML document; whatever is wrong with it is a ConfigError that names `origin`."""
    reader = YAML(typ="safe", pure=True)
    reader.Constructor = _Constructor
    try:
        root = reader.compose(text)
        if root is None:
            return None
        _check(reader.constructor, root)
        return reader.constructor.construct_document(root)
    except ConfigError as e:
        raise ConfigError(f"{origin}: {e.message}") from e
    except RecursionError as e:
        raise ConfigError(f"{origin}: not YAML that can be read: nested too deep") from e
    except (YAMLError, ValueError, TypeError, LookupError, OverflowError, AttributeError) as e:
        # tagged and date-like scalars are converted without a check: 2024-99-99, !!int abc, !!timestamp x
        raise ConfigError(f"{origin}: not YAML: {' '.join(str(e).split())}") from e


def _check(constructor: SafeConstructor, root: Node) -> None:
    """Every mapping's own keys, before `<<` merges others in: ruamel.yaml takes one given twice beside a `<<`.

    Raises:
        ConfigError: with the line.
    """
    seen: set[int] = set()
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in seen or isinstance(node, ScalarNode):
            continue
        seen.add(id(node))
        if isinstance(node, MappingNode):
            keys: set[Hashable] = set()
            for key_node, value in node.value:
                waiting.append(value)
                if str(key_node.tag) == _MERGE:
                    merged = value.value if isinstance(value, SequenceNode) else [value]
                    if not all(isinstance(m, MappingNode) for m in merged):
                        line = key_node.start_mark.line + 1
                        raise ConfigError(f"line {line}: `<<` takes a mapping or a list of mappings")
                    continue
                key = constructor.construct_object(key_node, deep=True)
                line = key_node.start_mark.line + 1
                if not isinstance(key, str | int | float | None):
                    raise ConfigError(f"line {line}: {key!r} cannot be a key")
                if key in keys:
                    raise ConfigError(f"line {line}: key {key!r} is given twice")
                keys.add(key)
        else:
            waiting += node.value
