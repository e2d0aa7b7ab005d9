"""Long tail: tasks that took far longer than the others of their prefix, with their sizes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.stragglers.tables import sizes_of_work
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import RunOutcome
from dask_efficiency.show.figures import name_of, shorten
from dask_efficiency.show.finding import Finding
from dask_efficiency.straggler.wording import long_task

#: A task is reported if it took more than this many times the median of its prefix, and this share of the run: guesses.
TIMES_LONGER = 4.0
SHARE_OF_RUN = 0.05
#: Fewest tasks of a prefix of which a median says something: a guess.
MIN_TASKS = 5
#: Characters of a task's key in a finding.
MAX_KEY = 40


@dataclass(frozen=True, slots=True)
class LongTask:
    """The longest of the tasks of a prefix that succeeded; bytes are of its inputs, or of its result without any."""

    prefix: str
    key: str
    worker: str
    count: int
    median_seconds: float
    seconds: float
    median_bytes: float
    nbytes: float

    @property
    def times_longer(self) -> float:
        """Time divided by the median."""
        return self.seconds / self.median_seconds

    @property
    def times_larger(self) -> float:
        """Size divided by the median; 1 if unknown."""
        return self.nbytes / self.median_bytes if self.median_bytes > 0 else 1.0

    def finding(self, alone_seconds: float = 0.0) -> Finding:
        """Make the finding; ``alone_seconds`` is the time in which nothing else ran."""
        who, larger = f"Task {shorten(name_of(self.key), MAX_KEY)}", self.times_larger
        return long_task(who, self.seconds, self.times_longer, times_larger=larger, alone_seconds=alone_seconds)


def long_tail(trace: RunTrace) -> tuple[LongTask, ...]:
    """Find the longest task of each prefix that took far longer than the others and a good part of the run."""
    runs = trace.runs
    ended = (runs.outcome == RunOutcome.SUCCEEDED) & (runs.start != MISSING) & (runs.stop > runs.start)
    rows = np.flatnonzero(ended & (runs.task != MISSING) & (runs.worker != MISSING))
    seconds = (runs.stop[rows] - runs.start[rows]) / 1e9
    prefixes = trace.tasks.prefix[runs.task[rows]]
    nbytes = sizes_of_work(trace)[runs.task[rows]]
    long_tasks = []
    for prefix in np.unique(prefixes[prefixes != MISSING]).tolist():
        own = np.flatnonzero(prefixes == prefix)
        longest = own[np.argmax(seconds[own])]
        row = rows[longest]
        task = LongTask(
            prefix=trace.prefixes[prefix],
            key=trace.keys[int(runs.task[row])],
            worker=trace.workers[int(runs.worker[row])].name,
            count=len(own),
            median_seconds=float(np.median(seconds[own])),
            seconds=float(seconds[longest]),
            median_bytes=float(np.median(nbytes[own])),
            nbytes=float(nbytes[longest]),
        )
        matters = task.seconds >= SHARE_OF_RUN * (trace.stop - trace.start) / 1e9
        if task.count >= MIN_TASKS and matters and task.times_longer > TIMES_LONGER:
            long_tasks.append(task)
    return tuple(sorted(long_tasks, key=lambda task: -task.seconds))
