"""YAML in sections whose keys are known, with the line of everything that can be wrong."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import yaml

from dask_efficiency.files.text_files import TextFileError, known_names

Value = TypeVar("Value")
Default = TypeVar("Default")


def composed(text: str, path: str | os.PathLike[str]) -> yaml.Node | None:
    """The root of a YAML file; the path is for errors."""
    # Nodes know their lines; values that SafeLoader makes of them do not.
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = 0 if error.problem_mark is None else error.problem_mark.line + 1
        raise TextFileError(path, line, f"this is not YAML: {error.problem}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise TextFileError(path, 0, f"this is not YAML: {error}") from error


def line_of(node: yaml.Node) -> int:
    """Where something stands, from 1."""
    line: int = node.start_mark.line
    return line + 1


def text_of(node: yaml.Node, path: str | os.PathLike[str]) -> str:
    """A name or a number, as it is written."""
    if not isinstance(node, yaml.ScalarNode):
        raise TextFileError(path, line_of(node), f"expected a name or a number, got a {node.id}")
    text: str = node.value
    return text.strip()


class Section:
    """A mapping of a YAML file whose keys are known."""

    def __init__(self, node: yaml.Node | None, path: str | os.PathLike[str], keys: set[str]) -> None:
        self._path = path
        self._line = line_of(node) if node is not None else 0
        self._keys: dict[str, yaml.Node] = {}
        self._values: dict[str, yaml.Node] = {}
        if node is None or _is_empty(node):
            return
        if not isinstance(node, yaml.MappingNode):
            raise TextFileError(path, self._line, f"expected some of {sorted(keys)}, got a {node.id}")
        for key, value in node.value:
            name = text_of(key, path)
            if name not in keys or name in self._keys:
                known = known_names(name, sorted(keys))
                wrong = "is given twice" if name in self._keys else f"is unknown here; {known}"
                raise TextFileError(path, line_of(key), f"{name[:80]!r} {wrong}")
            self._keys[name], self._values[name] = key, value

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def line(self, name: str = "") -> int:
        """Where a key stands, or the section."""
        return line_of(self._keys[name]) if name in self._keys else self._line

    def error(self, name: str, wrong: str) -> TextFileError:
        """An error at a key."""
        return TextFileError(self._path, self.line(name), wrong)

    def node(self, name: str) -> yaml.Node | None:
        """What a key has."""
        return self._values.get(name)

    def get(self, name: str, read: Callable[[str], Value], default: Default) -> Value | Default:
        """What a key has, as what it means."""
        node = self._values.get(name)
        if node is None:
            return default
        try:
            return read(text_of(node, self._path))
        except TextFileError:
            raise
        except ValueError as error:
            raise TextFileError(self._path, line_of(node), f"{name}: {error}") from error

    def items(self, name: str) -> Iterator[yaml.Node]:
        """The items of a list; none where it is missing or empty."""
        return self._each(name, yaml.SequenceNode, "a list")

    def pairs(self, name: str) -> Iterator[tuple[yaml.Node, yaml.Node]]:
        """The pairs of a mapping whose keys are names; none where it is missing or empty."""
        return self._each(name, yaml.MappingNode, "names with settings")

    def _each(self, name: str, kind: type[yaml.CollectionNode], expected: str) -> Iterator[Any]:
        node = self._values.get(name)
        if node is None or _is_empty(node):
            return
        if not isinstance(node, kind):
            raise self.error(name, f"expected {expected} below {name!r}, got a {node.id}")
        yield from node.value


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"
