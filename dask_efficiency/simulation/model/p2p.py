"""P2P shuffles of a recorded run: which tasks take part in them, and how many bytes they move."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dask_efficiency.accounts.metered import BARRIERS
from dask_efficiency.runs.trace.run_trace import RunTrace


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
    barriers = [i for i, name in enumerate(trace.prefixes) if name.startswith(BARRIERS)]
    found = []
    for barrier in np.flatnonzero(np.isin(trace.tasks.prefix, barriers)).tolist():
        owners = np.searchsorted(trace.dependency_starts, np.flatnonzero(trace.dependencies == barrier), "right") - 1
        outputs = sorted(map(int, owners), key=lambda task: (_numbers(trace.keys[task]), task))
        inputs = {
            task: sum(max(int(trace.tasks.nbytes[other]), 0) for other in _needs(trace, task))
            for task in _needs(trace, barrier)
        }
        found.append(Shuffle(barrier, _as_sent(trace, barrier, inputs), tuple(outputs)))
    return tuple(found)


def _as_sent(trace: RunTrace, barrier: int, inputs: dict[int, int]) -> dict[int, int]:
    """Bytes by task as the shuffle's messages had them, where they were recorded: not all of an input may be sent."""
    sent, whole = int(trace.shuffled.nbytes[trace.shuffled.task == barrier].sum()), sum(inputs.values())
    if not sent or not whole:
        return inputs
    return {task: nbytes * sent // whole for task, nbytes in inputs.items()}


def _needs(trace: RunTrace, task: int) -> list[int]:
    found: list[int] = trace.dependencies[trace.dependency_starts[task] : trace.dependency_starts[task + 1]].tolist()
    return found


def _numbers(key: str) -> tuple[int, ...]:
    """The numbers at the end of a key: of a partition, or of a chunk."""
    return tuple(map(int, re.findall(r"(?<=, )\d+(?=[,)])", key)))
