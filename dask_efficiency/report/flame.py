"""A flame graph as boxes: time by cause, prefix and stack, each box as wide as its time and below what called it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.lines import place_of
from dask_efficiency.accounts.profile import Frame
from dask_efficiency.report.profile import ProfileRow
from dask_efficiency.report.stacks import NO_PREFIX, reason
from dask_efficiency.show.colours import CAUSE_COLOURS, COLOURS, OTHER_COLOUR
from dask_efficiency.show.document import Box
from dask_efficiency.show.figures import format_share, format_thread_time, harmless, name_of, shorten

#: A thinner box is two pixels of a screen at most; neighbours of it are one box, or none where they are thin together.
MIN_SHARE = 0.002

#: About 240 kilobytes of a page, where names are long.
MAX_BOXES = 1_000

#: Frames of a stack that are drawn, from the outermost on.
MAX_DEPTH = 60

#: Characters of a frame's name, with its line.
FRAME_LENGTH = 80


@dataclass(slots=True)
class _Node:
    ns: int = 0
    parts: dict[str | Frame, _Node] = field(default_factory=dict)


def boxes(rows: Sequence[ProfileRow]) -> tuple[Box, ...]:
    """The boxes of some stacks, bounded in number.

    Parameters
    ----------
    rows
        As of :func:`~dask_efficiency.report.stacks.sampled_stacks`.

    Returns
    -------
    tuple
        The whole first, and each box before those in it, the widest first. No more than :data:`MAX_BOXES`, and none
        that is less than :data:`MIN_SHARE` of the whole; empty where there is no time.
    """
    root, colours = _tree(rows)
    if not root.ns:
        return ()
    found = [Box("all tasks", format_thread_time(root.ns), 0, root.ns, 0, OTHER_COLOUR)]
    for name, cause, left in _parts(root, 0, MIN_SHARE * root.ns):
        colour = colours.get(name, OTHER_COLOUR)
        found += _boxes(name, cause, left, root.ns, cause.ns, colour)
    if len(found) > MAX_BOXES:
        # a box is never wider than the one that it is part of, which stands before it
        widest = sorted(range(len(found)), key=lambda i: -found[i].ns)[:MAX_BOXES]
        found = [found[i] for i in sorted(widest)]
    return tuple(found)


def _tree(rows: Iterable[ProfileRow]) -> tuple[_Node, dict[str | Frame, str]]:
    """The time of each stack and of all that begin like it; and colours of the causes by name."""
    root = _Node()
    colours: dict[str | Frame, str] = {}
    for row in rows:
        cause = reason(row.bucket, row.cause)
        colours[cause] = CAUSE_COLOURS[Bucket.THREAD_NONCPU].get(row.cause) or COLOURS[Bucket(row.bucket)]
        root.ns += row.ns
        node = root
        names: list[str | Frame] = [cause, row.prefix or NO_PREFIX, *row.stack[:MAX_DEPTH]]
        for name in names:
            node = node.parts.setdefault(name, _Node())
            node.ns += row.ns
    return root, colours


def _boxes(name: str | Frame, node: _Node, left: int, whole: int, cause: int, colour: str) -> Iterator[Box]:
    """A box, and those in it."""
    waiting = [(name, node, left, 1)]
    while waiting:
        name, node, left, depth = waiting.pop()
        of_whole = f"{format_thread_time(node.ns)}, {format_share(node.ns / whole)} of all"
        said = of_whole if depth == 1 else f"{of_whole}, {format_share(node.ns / cause)} of its cause"
        yield Box(_shown(name), said, left, node.ns, depth, colour)
        inner = [(name, part, at, depth + 1) for name, part, at in _parts(node, left, MIN_SHARE * whole)]
        waiting += reversed(inner)


def _parts(node: _Node, left: int, least: float) -> Iterator[tuple[str | Frame, _Node, int]]:
    """What is wide enough in a box, the widest first, and where it begins; the others together, where they are."""
    ranked = sorted(node.parts.items(), key=lambda item: -item[1].ns)
    wide = [(name, part) for name, part in ranked if part.ns >= least]
    rest = sum(part.ns for _, part in ranked[len(wide) :])
    if rest >= least and rest:
        wide.append((f"({len(ranked) - len(wide)} others)", _Node(rest)))
    for name, part in wide:
        yield name, part, left
        left += part.ns


def _shown(name: str | Frame) -> str:
    if isinstance(name, str):
        return name_of(name)
    text = f"{shorten(name.function, 4 * FRAME_LENGTH)} ({shorten(place_of(name), 4 * FRAME_LENGTH)})"
    return shorten(harmless(text), FRAME_LENGTH)
