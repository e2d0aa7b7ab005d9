"""P2P shuffles of a recorded run: which tasks take part in them, and how many bytes they move."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dask_efficiency.runs.trace.run_trace import RunTrace

#: How the keys of barriers begin: of shuffles of tables, and of arrays that are chunked anew.
BARRIERS = ("shuffle-barrier", "rechunk-barrier", "p2p-barrier")

#: Beginnings of the prefixes of tasks that hand their inputs to a shuffle.
TRANSFERS = ("shuffle-transfer", "rechunk-transfer", "p2p-transfer")


@dataclass(frozen=True, slots=True)
class Shuffle:
    """A shuffle, by numbers of tasks."""

    barrier: int
    #: By task that hands over an input: the bytes of that.
    inputs: Mapping[int, int]
    #: Tasks that take what was moved, in the order of their numbers in the shuffle.
    outputs: tuple[int, ...]


def shuffles(trace: RunTrace) -> tuple[Shuffle, ...]:
    """The P2P shuffles of a run."""
    prefixes = trace.prefixes
    barriers = [i for i, name in enumerate(prefixes) if name.startswith(BARRIERS)]
    transfers = {i for i, name in enumerate(prefixes) if name.startswith(TRANSFERS)}
    found = []
    for barrier in np.flatnonzero(np.isin(trace.tasks.prefix, barriers)).tolist():
        needed = [task for task in _needs(trace, barrier) if int(trace.tasks.prefix[task]) in transfers]
        owners = np.searchsorted(trace.dependency_starts, np.flatnonzero(trace.dependencies == barrier), "right") - 1
        outputs = sorted(map(int, owners), key=lambda task: (_numbers(trace.keys[task]), task))
        inputs = {task: sum(max(int(trace.tasks.nbytes[other]), 0) for other in _needs(trace, task)) for task in needed}
        found.append(Shuffle(barrier, inputs, tuple(outputs)))
    return tuple(found)


def _needs(trace: RunTrace, task: int) -> list[int]:
    found: list[int] = trace.dependencies[trace.dependency_starts[task] : trace.dependency_starts[task + 1]].tolist()
    return found


def _numbers(key: str) -> tuple[int, ...]:
    """The numbers at the end of a key: of a partition, or of a chunk."""
    return tuple(map(int, re.findall(r"(?<=, )\d+(?=[,)])", key)))
