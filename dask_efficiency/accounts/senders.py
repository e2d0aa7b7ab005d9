"""Which of a client's lines sent the tasks of each prefix: it knows its lines, and the scheduler what came of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

#: Graphs of one window that are told apart, prefixes of all of them together, and keys that are compared to name one.
MAX_GRAPHS, MAX_PREFIXES, MAX_WANTED = 1_000, 10_000, 10_000

#: The name of a graph that is not told apart.
NAMELESS = ""

_NOBODY = {"": ""}


def graph_name(wanted: Any) -> str:
    """A name of a graph by the keys that are wanted of it, the same for client and scheduler."""
    if not isinstance(wanted, Collection) or len(wanted) > MAX_WANTED:
        return NAMELESS
    return min(map(str, wanted), default=NAMELESS)


class SentGraphs:
    """The prefixes of the graphs that a window's client sent; those of graphs beyond the bounds are together."""

    def __init__(self) -> None:
        self._found: dict[str, set[str]] = {}
        self._size = 0

    def add(self, wanted: Any, prefixes: Iterable[str]) -> None:
        """A graph was taken in, with tasks of these prefixes."""
        name, new = graph_name(wanted), set(prefixes)
        if name not in self._found and (len(self._found) >= MAX_GRAPHS or self._size + len(new) > MAX_PREFIXES):
            name = NAMELESS
        known = self._found.setdefault(name, set())
        self._size += len(new - known)
        known |= new

    def to_dict(self) -> dict[str, list[str]]:
        """By graph's name, its prefixes."""
        return {name: sorted(prefixes) for name, prefixes in self._found.items()}


def by_prefix(sent: Mapping[str, Iterable[str]], lines: Mapping[str, Mapping[str, str]]) -> dict[str, str]:
    """Where the tasks of each prefix were sent, as people say it.

    Parameters
    ----------
    sent
        What :meth:`SentGraphs.to_dict` gave.
    lines
        By graph's name, the lines that sent it, such as ``"etl.py:42"``, with their source; both are empty where no
        line is known.

    Returns
    -------
    dict
        Without the prefixes some of whose graphs came from nobody knows where.
    """
    found: dict[str, dict[str, str]] = {}
    for name, prefixes in sent.items():
        for prefix in prefixes:
            found.setdefault(prefix, {}).update(lines.get(name, _NOBODY))
    return {prefix: _said(of) for prefix, of in found.items() if "" not in of}


def _said(lines: Mapping[str, str]) -> str:
    (line, source), *more = lines.items()
    said = f"`{source}` in {line}" if source else line
    return f"{said} and {len(more)} more line{'s' * (len(more) > 1)}" if more else said
