"""YAML from people and from releases, read within limits: no aliases, no duplicate keys, no tags."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import yaml

from gpate.errors import SchemaError, shown

MAX_TEXT = 2**20
"""Maximal number of characters of a schema file."""

MAX_VALUES = 80_000
"""More signs between values than this are refused: columns, categories and what is said about them."""

_LONGEST_INTEGER = 400


def check_values(text: str, source: str) -> None:
    """Refuses a text with more values than can be parsed in a few seconds, by the signs between them."""
    if sum(text.count(sign) for sign in ",:\n") > MAX_VALUES:
        raise SchemaError(f"The schema {source} has more than {MAX_VALUES:,} entries. Fix: shorten it.")


def from_yaml(text: str, source: str) -> Any:
    """What a text of YAML says; `source` names it in errors."""
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as problem:
        raise SchemaError(f"The schema {source} is not valid YAML: {problem}") from problem


class _Loader(yaml.SafeLoader):
    """Safe YAML loader that refuses duplicate keys, which YAML drops silently, and aliases.

    Nested aliases expand exponentially: nine lines of nine aliases can be a billion entries.
    """

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Like the base class, without aliases."""
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark
            raise yaml.composer.ComposerError(None, None, "aliases (*name) are not allowed: write the value out", mark)
        return super().compose_node(parent, index)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Like the base class, for numbers of a usual length: the time for others grows with its square."""
        _refuse_colons(node)
        if len(node.value) > _LONGEST_INTEGER:
            raise yaml.constructor.ConstructorError(None, None, "a whole number is too long", node.start_mark)
        return int(super().construct_yaml_int(node))

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        """Like the base class, without colons."""
        _refuse_colons(node)
        return float(super().construct_yaml_float(node))

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Like the base class, with a check of the keys."""
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        seen: set[Any] = set()
        for key in keys:
            if not isinstance(key, Hashable):
                raise yaml.constructor.ConstructorError(None, None, "a key must be one value", node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"{shown(key)} is given twice", node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def _refuse_colons(node: yaml.ScalarNode) -> None:
    """YAML reads 12:30:00 as 45000, a number to the base of 60; 09:30:00 is a text."""
    if ":" in node.value:
        raise yaml.constructor.ConstructorError(None, None, "put values with colons in quotes", node.start_mark)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_yaml_float)
