"""Inner results: what tasks compute within them, as graphs are fused, and which of it other tasks have computed, too.

Several computations of one collection share its keys, of which the scheduler would know those that are computed again.
Once their graphs are fused, a task does all the steps of a chunk, up to a reduction that only one of the computations
has: the keys differ, and what is in them does not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dask import _task_spec
from dask.utils import key_split

#: Results within tasks of which it is kept which task had them last, as 64-bit hashes: about 25 MB when full.
MAX_KEYS = 250_000
#: Steps of a graph's tasks that are looked at, of more those of some chunks: some .1 s of the scheduler's event loop.
MAX_STEPS = 10_000
#: Function of fused tasks, which computes a graph of their steps; and what stands before each index in the name of a
#: step that Blockwise fused.
_OF_FUSED = getattr(_task_spec, "_execute_subgraph", object())
_INDEX, _NUMBERS = "_.", frozenset(map(str, range(100)))
#: Steps whose chunk has the indices of its own in another order, as only their functions say.
_TRANSPOSED = frozenset(("transpose", "chunk_einsum"))


class InnerResult(NamedTuple):
    """Result within a task that another task has computed, too."""

    #: Hash of its key.
    number: int
    #: Prefix of its key.
    name: str
    #: Number of windows that had opened before it was computed.
    opened: int


class InnerResults:
    """Keeps which task had which results within it last."""

    def __init__(self) -> None:
        #: By hash of the key of a result, hash of the key of the task; and those of before.
        self._holders: dict[int, int] = {}
        self._earlier: dict[int, int] = {}

    def asked(
        self, tasks: Mapping[Any, Any], computed: Mapping[int, int]
    ) -> Iterator[tuple[Any, int, list[InnerResult]]]:
        """Note the tasks of a graph, by key what each of them computes; list those with results of other tasks.

        Each comes with the number of tasks for which it stands. Results of this graph's own are no repeats.

        Parameters
        ----------
        tasks
            Specification of each task, as Dask's.
        computed
            By hash of a key that was computed: number of windows that had opened before.
        """
        fused = [(key, spec) for key, spec in tasks.items() if getattr(spec, "func", None) is _OF_FUSED]
        # The chunks of one graph of so many are among those of another of fewer.
        steps = sum(1 for _ in _steps(fused[0][1], _block(fused[0][0]))) if fused else 0
        every = 1 << max(0, (len(fused) * steps - 1) // MAX_STEPS).bit_length()
        new: dict[int, int] = {}
        for key, spec in fused:
            block = _block(key)
            if every > 1 and hash(block or key) % every:
                continue
            own, again, others = hash(key), [], set()
            for inner in _steps(spec, block):
                number, name = hash(inner), key_split(inner)
                holder = self._holders.get(number) or self._earlier.get(number, number)
                then = -1 if holder == own else computed.get(holder, -1)
                if then >= 0:
                    again.append(InnerResult(number, name, then))
                else:
                    others.add(name)
                new[number] = own
            # Samples tell steps by their names.
            if again := [one for one in again if one.name not in others]:
                yield key, every, again
            if len(new) >= MAX_KEYS // 2:
                break
        self._holders.update(new)
        if len(self._holders) >= MAX_KEYS // 2:
            self._earlier, self._holders = self._holders, {}


def _block(key: Any) -> tuple[Any, ...]:
    """Indices of a task's chunk; empty if it is of none."""
    return key[1:] if isinstance(key, tuple) else ()


def _steps(spec: Any, block: tuple[Any, ...]) -> Iterator[Any]:
    """Keys of what a fused task computes for a chunk, as they would be outside of it; of those that are known."""
    steps = spec.args[0] if spec.args else None
    if not isinstance(steps, Mapping):
        return
    order = _order([name for name in steps if isinstance(name, str)], len(block))
    for key, step in steps.items():
        func = getattr(step, "func", None)
        if func is None:  # data, or another name
            continue
        if func is _OF_FUSED:
            yield from _steps(step, key[1:] if isinstance(key, tuple) else block)
        elif isinstance(key, tuple):
            yield key
        elif isinstance(key, str):
            base, positions = _positions(key)
            if not positions:  # the last step
                yield (base, *block)
            elif order and max(positions) < len(order):
                yield (base, *(block[order[one]] for one in positions))


def _positions(name: str) -> tuple[str, tuple[int, ...]]:
    """Name of a step that Blockwise fused, and the numbers of its chunk's indices among those of the task."""
    base, *positions = name.split(_INDEX)
    numbered = all(one in _NUMBERS for one in positions)
    return (base, tuple(map(int, positions))) if numbered else (name, ())


def _order(names: list[str], dimensions: int) -> list[int]:
    """Dimension of the task's chunk by the number of an index; empty if unknown.

    Blockwise numbers indices as they are sorted: of a reduction they ascend, of an elementwise operation they descend,
    which the first step with all of them shows.
    """
    found = [_positions(name) for name in names]
    last = next((base for base, positions in found if not positions), "")
    whole = next((positions for _, positions in found if len(positions) == dimensions), ())
    ascending = list(range(dimensions))
    if dimensions == 1 or key_split(last) not in _TRANSPOSED:
        if [*whole] == ascending:
            return ascending
        if [*whole] == ascending[::-1]:
            return ascending[::-1]
    return []
