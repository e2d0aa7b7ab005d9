"""Registration: what its halves and accounts share: options, parts, and the open windows with their counts."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Any

from distributed import Scheduler
from distributed.metrics import time
from distributed.scheduler import TaskGroup

from dask_efficiency.accounts.cluster.failures import FailedAs
from dask_efficiency.accounts.cluster.idle import Alone
from dask_efficiency.accounts.cluster.memory_timeline import MemoryRecorder
from dask_efficiency.accounts.cluster.scheduler_loop import LoopTotals
from dask_efficiency.accounts.cluster.timeline import TimelineRecorder
from dask_efficiency.accounts.cluster.windows import ActiveIntervals, ClusterWindow
from dask_efficiency.accounts.lines import SentGraphs
from dask_efficiency.accounts.memory import KeptWindow
from dask_efficiency.accounts.rows import MAX_APART, OTHER
from dask_efficiency.accounts.worker.log import prefix_of
from dask_efficiency.plugin.guard import Guard
from dask_efficiency.plugin.options import Options
from dask_efficiency.plugin.parts import Parts, SchedulerPart

#: Results within tasks whose repeats are counted each; others count as computed twice: about 10 MB when full.
MAX_WITHIN = 100_000


class RepeatCounter:
    """Counts results that were computed again because somebody asked for them again, by prefix."""

    def __init__(self) -> None:
        #: By prefix and hash of the key: number of repeats.
        self._again: dict[str, Counter[int]] = {}
        #: By prefix of what is computed within tasks, and of these: number of tasks, and most repeats of one key; and
        #: repeats by hash of the key.
        self._within: dict[tuple[str, str], tuple[int, int]] = {}
        self._times: Counter[int] = Counter()

    def add(self, number: int, prefix: str) -> None:
        """Count one more run of the key of this hash."""
        prefix = prefix_of(prefix)
        if prefix not in self._again and len(self._again) >= MAX_APART:
            prefix = OTHER
        self._again.setdefault(prefix, Counter())[number] += 1

    def add_within(self, number: int, name: str, prefix: str, tasks: int = 1) -> None:
        """Count tasks of a prefix that compute within them, once more, keys such as that of this hash and ``name``."""
        one = (prefix_of(name), prefix_of(prefix))
        if one in self._within or len(self._within) < MAX_APART:
            before, most = self._within.get(one, (0, 0))
            if number in self._times or len(self._times) < MAX_WITHIN:
                self._times[number] += 1
            self._within[one] = (before + tasks, max(most, self._times.get(number, 1)))

    def by_prefix(self) -> dict[str, tuple[int, int] | tuple[int, int, str, str]]:
        """Repeats, and the largest number of runs of one key, with the first, by prefix.

        Of results within tasks, their prefix and that of the tasks follow.
        """
        own = {prefix: (again.total(), max(again.values()) + 1) for prefix, again in self._again.items()}
        within = self._within.items()
        inner = {f"{name} in {prefix}": (tasks, most + 1, name, prefix) for (name, prefix), (tasks, most) in within}
        return {**inner, **own}


@dataclass(slots=True, eq=False)
class OpenWindow:
    """Window that a client opened, with the values that its report needs."""

    window: ClusterWindow
    timeline: TimelineRecorder
    memory: MemoryRecorder
    client: str
    spans: set[str]
    #: Ids of the spans that others sent tasks to first.
    foreign: set[str]
    only: bool
    #: Number of the window among all, by which results of before it are known.
    number: int
    #: Values of IdleWeights at the opening.
    waited_for: Mapping[str, int]
    alone: Mapping[Hashable, Alone]
    #: Totals of the scheduler's event loop at the opening; None if unknown.
    loop: LoopTotals | None
    #: Instant of its opening by the clock of Dask's spans, seconds since the epoch.
    at: float = field(default_factory=time)
    loop_at_stop: LoopTotals | None = None
    #: Intervals without work in which tasks that had seceded ran.
    seceded: ActiveIntervals = field(default_factory=lambda: ActiveIntervals(at=monotonic_ns(), active=False))
    #: Graphs of its client that were taken in, or failed to be, since it opened; what says so; and their tasks.
    graphs: int = 0
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: Counter[TaskGroup] = field(default_factory=Counter)
    failures: dict[FailedAs, int] = field(default_factory=dict)
    #: Tasks that were outstanding when it closed, as of :func:`~dask_efficiency.plugin.scheduler.endings.unfinished`.
    unfinished: list[dict[str, Any]] = field(default_factory=list)
    #: What stood still then, as plain data.
    stalls: list[list[Any]] = field(default_factory=list)
    #: Results that had been computed before it opened, and were computed again in it.
    computed_before: int = 0
    repeats: RepeatCounter = field(default_factory=RepeatCounter)
    #: Ids of the spans that both this client and others sent tasks to.
    shared: set[str] = field(default_factory=set)
    sent: SentGraphs = field(default_factory=SentGraphs)
    #: Why results were kept.
    kept: KeptWindow = field(default_factory=lambda: KeptWindow(at=monotonic_ns()))
    #: Lines of earlier windows by prefix of the tasks that they sent and that this window's client uses.
    sent_before: dict[str, str] = field(default_factory=dict)


class Registration:
    """One registration on one scheduler, which :class:`~dask_efficiency.plugin.scheduler.meter.ClusterMeter` makes."""

    scheduler: Scheduler
    options: Options
    session: str
    guard: Guard
    parts: Parts[SchedulerPart]
    windows: dict[str, OpenWindow]
