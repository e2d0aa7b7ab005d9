"""Files that people write: text, YAML in sections whose keys are known, and errors that name the line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import yaml

#: Bytes of a text file; larger ones are refused. Ten times a cluster's description of 10,000 hosts, one a line.
MAX_BYTES = 10_000_000


class TextFileError(ValueError):
    """A mistake in a file that people wrote; lines count from 1, 0 is the whole file."""

    def __init__(self, path: str | os.PathLike[str], line: int, wrong: str) -> None:
        place = f"{os.fspath(path)}, line {line}" if line else os.fspath(path)
        super().__init__(f"{place}: {wrong}")
        self.path = os.fspath(path)
        self.line = line
        self.wrong = wrong


def read_text(path: str | os.PathLike[str]) -> str:
    """Read the text of a file; TextFileError if it is not text, or far too long."""
    with Path(path).open("rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise TextFileError(path, 0, f"expected at most {MAX_BYTES} bytes")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise TextFileError(path, line, "expected text in UTF-8") from error


#: Most names that are compared with an unknown one, which takes up to 0.1 ms each: more than a Prometheus has metrics.
_MAX_COMPARED = 10_000


def known_names(name: str, known: Iterable[str]) -> str:
    """List the known names for an error message, the most similar first, of those that are compared."""
    names = list(known)
    close = get_close_matches(name, names[:_MAX_COMPARED], n=3)
    shown = [*close, *(other for other in names if other not in close)]
    more = f" and {len(shown) - 10} more" if len(shown) > 10 else ""
    return "there is: " + (", ".join(repr(other[:80]) for other in shown[:10]) or "none") + more


Value = TypeVar("Value")
Default = TypeVar("Default")


def composed(text: str, path: str | os.PathLike[str]) -> yaml.Node | None:
    """Parse YAML to its root node; the path is for errors."""
    # Nodes know their lines; values that SafeLoader makes of them do not.
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = 0 if error.problem_mark is None else error.problem_mark.line + 1
        raise TextFileError(path, line, f"this is not YAML: {error.problem}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise TextFileError(path, 0, f"this is not YAML: {error}") from error


def line_of(node: yaml.Node) -> int:
    """Line of a node, from 1."""
    line: int = node.start_mark.line
    return line + 1


def text_of(node: yaml.Node, path: str | os.PathLike[str]) -> str:
    """Text of a name or a number."""
    if not isinstance(node, yaml.ScalarNode):
        raise TextFileError(path, line_of(node), f"expected a name or a number, got a {node.id}")
    text: str = node.value
    return text.strip()


class YamlSection:
    """A mapping of a YAML file whose keys are known."""

    def __init__(self, node: yaml.Node | None, path: str | os.PathLike[str], keys: set[str]) -> None:
        self._path = path
        self._line = line_of(node) if node is not None else 0
        #: Key and value by name.
        self._pairs: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        if node is None or _is_empty(node):
            return
        if not isinstance(node, yaml.MappingNode):
            raise TextFileError(path, self._line, f"expected some of {sorted(keys)}, got a {node.id}")
        for key, value in node.value:
            name = text_of(key, path)
            if name not in keys or name in self._pairs:
                wrong = "is given twice" if name in keys else f"is unknown here; {known_names(name, sorted(keys))}"
                raise TextFileError(path, line_of(key), f"{name[:80]!r} {wrong}")
            self._pairs[name] = key, value

    def __contains__(self, name: str) -> bool:
        return name in self._pairs

    def line(self, name: str = "") -> int:
        """Line of a key, or of the section."""
        return line_of(self._pairs[name][0]) if name in self._pairs else self._line

    def error(self, name: str, wrong: str) -> TextFileError:
        """An error at a key."""
        return TextFileError(self._path, self.line(name), wrong)

    def node(self, name: str) -> yaml.Node | None:
        """Node of a key, or None."""
        return self._pairs[name][1] if name in self._pairs else None

    def get(self, name: str, read: Callable[[str], Value], default: Default) -> Value | Default:
        """Value of a key, parsed by ``read``, or the default."""
        node = self.node(name)
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
        node = self.node(name)
        if node is None or _is_empty(node):
            return
        if not isinstance(node, kind):
            raise self.error(name, f"expected {expected} below {name!r}, got a {node.id}")
        yield from node.value


def _is_empty(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null"
