"""Strict YAML: numbers as they are written, nothing guessed, every key once.

Plain YAML 1.1 reads ``1e-1`` as text, ``010`` as eight, ``1:30`` as ninety and ``no`` as false, and lets the second of two
equal keys win. Here a number is its decimal text, exactly; what looks like one of the others stays text and is refused
by the field that wanted a number.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Any

import yaml

from dp_dask.errors import ConfigError

__all__ = ["parse"]

MOST_ALIASES = 100
NUMBER = re.compile(r"^[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?$")
INFINITY = re.compile(r"^([-+]?)\.?(inf|Inf|INF|nan|NaN|NAN)$")


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers: Any = {}  # noqa: RUF012  (PyYAML's way; ours are added below)
    aliases = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            self.aliases += 1
            if self.aliases > MOST_ALIASES:
                raise yaml.constructor.ConstructorError(None, None, f"more than {MOST_ALIASES} aliases", self.get_mark())
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002  (PyYAML's signature)
        seen: set[Any] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(None, None, f"the key {key} is not text; quote it", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {key!r} is given twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


def _number(_: Any, node: Any) -> Decimal:
    text = node.value
    special = INFINITY.match(text)
    return Decimal(special.group(1) + special.group(2)) if special else Decimal(text)


_Loader.add_implicit_resolver("!number", NUMBER, list("-+.0123456789"))
_Loader.add_implicit_resolver("!number", INFINITY, list("-+.inIN"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(true|false)$"), list("tf"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(~|null|)$"), ["~", "n", ""])
_Loader.add_constructor("!number", _number)


def parse(text: str, name: str) -> Any:
    """Parse one YAML document; raises ConfigError with line and column of a fault."""
    problem = ""
    try:
        return yaml.load(text, _Loader)  # noqa: S506  (a subclass of SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = f"{place}{error.problem or error.context}"
    except (yaml.YAMLError, ValueError, ArithmeticError, TypeError, RecursionError):
        problem = "holds characters, tags or nesting that a pipeline file has no use for"
    raise ConfigError.of(name, problem)
