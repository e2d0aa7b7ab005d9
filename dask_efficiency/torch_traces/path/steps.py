"""Steps: when each step of a training loop began and ended on a rank, as the profiler marked them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Column, Int32, Int64, Table
from dask_efficiency.torch_traces.kineto.trace import NAMED_BY_PROGRAMS, RankTrace

#: ``torch.profiler`` names each step so, if it was given a schedule. Longer numbers do not fit into 32 bits.
_STEP = re.compile(r"ProfilerStep#(\d{1,9})$")


@dataclass(frozen=True, slots=True, repr=False)
class Steps(Table):
    """A row for each step, in time order, on the rank's clock."""

    #: Counted by the profiler since the program began; the same on all ranks.
    number: Int32
    start: Annotated[Int64, Column(unit="nanoseconds")]
    stop: Annotated[Int64, Column(unit="nanoseconds")]


def steps_of(trace: RankTrace) -> Steps:
    """The profiler's steps on a rank; none if it had no schedule."""
    numbers = {position: int(found[1]) for position, name in enumerate(trace.names) if (found := _STEP.match(name))}
    events = trace.events
    rows = np.flatnonzero(np.isin(events.category, NAMED_BY_PROGRAMS) & np.isin(events.name, list(numbers)))
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    return Steps(
        number=np.array([numbers[int(name)] for name in events.name[rows]], np.int32),
        start=events.start[rows],
        stop=events.stop[rows],
    )


def step_at(steps: Steps, at: Int64) -> Int32:
    """The number of the step that each instant is in; missing outside of all."""
    if not len(steps):
        return np.full(len(at), MISSING, np.int32)
    row = np.searchsorted(steps.start, at, side="right") - 1
    inside = (row >= 0) & (at < steps.stop[row])
    return np.where(inside, steps.number[row], MISSING).astype(np.int32)
