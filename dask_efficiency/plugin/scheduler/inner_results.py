"""Inner results: what tasks compute within them, as graphs are fused, and which of it earlier graphs computed, too.

Several computations of one collection share its keys, of which the scheduler would know those that are computed again.
Once their graphs are fused, a task does all the steps of a chunk, up to a reduction that only one of the computations
has: the keys differ, and what is in them does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dask import _task_spec
from dask.utils import key_split

#: Results of which it is kept that they were asked for, as 64-bit hashes: about 25 MB when full.
MAX_KEYS = 250_000
#: Tasks of a graph that are looked into, of more those of some chunks: at most .1 s of the scheduler's event loop.
MAX_TASKS = 10_000
#: Function of fused tasks, which computes a graph of their steps; and what stands before each index in the name of a
#: step that Blockwise fused.
_OF_FUSED = getattr(_task_spec, "_execute_subgraph", object())
_INDEX = "_."


class InnerResult(NamedTuple):
    """Result within a task that earlier graphs asked for, too."""

    #: Hash of its key.
    number: int
    #: Prefix of its key.
    name: str
    #: Number of windows that had opened when it was asked for last.
    opened: int


class InnerResults:
    """Keeps which results graphs asked for within their tasks."""

    def __init__(self) -> None:
        #: By hash of the key of a result, or of a fused task: number of windows that had opened.
        self._asked: dict[int, int] = {}

    def asked(
        self, tasks: Mapping[Any, Any], computed: Mapping[int, int], opened: int
    ) -> Iterator[tuple[Any, int, list[InnerResult]]]:
        """Note the tasks of a graph, by key what each of them computes; list those with results of earlier graphs.

        Each comes with the number of tasks for which it stands.

        Parameters
        ----------
        tasks
            Specification of each task, as Dask's.
        computed
            By hash of a key that was computed in a task of its own: number of windows that had opened before.
        opened
            Number of windows that have opened.
        """
        known, new = self._asked, dict[int, int]()
        fused = [(key, spec) for key, spec in tasks.items() if getattr(spec, "func", None) is _OF_FUSED]
        # The chunks of one graph of so many are among those of another of fewer.
        every = 1 << ((len(fused) - 1) // MAX_TASKS).bit_length() if fused else 1
        for key, spec in fused:
            if (every > 1 and hash(key[1:] if isinstance(key, tuple) else key) % every) or (own := hash(key)) in known:
                continue
            new[own], again = opened, []
            for inner in _steps(spec, ()):
                new[number := hash(inner)] = opened
                if (then := known.get(number, computed.get(number, -1))) >= 0:
                    again.append(InnerResult(number, key_split(inner), then))
            if again:
                yield key, every, again
        if len(new) <= MAX_KEYS - len(known):
            known.update(new)


def _steps(spec: Any, block: tuple[Any, ...]) -> Iterator[Any]:
    """Keys of what a fused task computes, those of a chunk as they would be outside of it."""
    for key, step in spec.args[0].items():
        func = getattr(step, "func", None)
        if func is None:  # data, or another name
            continue
        own = key[1:] if isinstance(key, tuple) else block
        if func is _OF_FUSED:
            yield from _steps(step, own)
        else:
            yield key if isinstance(key, tuple) else _of_block(key, own)


def _of_block(name: Any, block: tuple[Any, ...]) -> Any:
    """Key of a step that is named for the positions of its chunk's indices in those of the task's."""
    if not isinstance(name, str):
        return name
    base, *positions = name.split(_INDEX)
    if all(one.isdigit() and int(one) < len(block) for one in positions):
        return (base, *(block[int(one)] for one in positions))
    return (name, *block)
