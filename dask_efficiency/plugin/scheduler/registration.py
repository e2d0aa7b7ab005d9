"""Registration: what its halves and accounts share: options, parts, and the open windows with their counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from distributed import Scheduler

from dask_efficiency.accounts.cluster.idle import Alone
from dask_efficiency.accounts.cluster.scheduler_loop import LoopTotals
from dask_efficiency.accounts.cluster.timeline import TimelineRecorder
from dask_efficiency.accounts.cluster.windows import ClusterWindow
from dask_efficiency.accounts.lines import SentGraphs
from dask_efficiency.accounts.rows import OTHER
from dask_efficiency.accounts.worker.log import MAX_PREFIX_LENGTH
from dask_efficiency.plugin.guard import Guard
from dask_efficiency.plugin.options import Options
from dask_efficiency.plugin.parts import Parts, SchedulerPart

#: Prefixes counted separately; later ones count as :data:`~dask_efficiency.accounts.rows.OTHER`. A guess, to
#: bound memory.
MAX_PREFIXES = 1_000


class RepeatCounter:
    """Counts results that were computed again because somebody asked for them again, by prefix."""

    def __init__(self) -> None:
        #: By prefix and hash of the key: number of repeats.
        self._again: dict[str, Counter[int]] = {}

    def add(self, number: int, prefix: str) -> None:
        """Count one more run of the key of this hash."""
        prefix = prefix[:MAX_PREFIX_LENGTH]
        if prefix not in self._again and len(self._again) >= MAX_PREFIXES:
            prefix = OTHER
        self._again.setdefault(prefix, Counter())[number] += 1

    def by_prefix(self) -> dict[str, tuple[int, int]]:
        """Repeats, and the largest number of runs of one key, with the first, by prefix."""
        return {prefix: (again.total(), max(again.values()) + 1) for prefix, again in self._again.items()}


@dataclass(slots=True, eq=False)
class OpenWindow:
    """Window that a client opened, with the values that its report needs."""

    window: ClusterWindow
    timeline: TimelineRecorder
    client: str
    spans: set[str]
    #: Ids of the spans that others sent tasks to first.
    foreign: set[str]
    only: bool
    #: Values of IdleWeights at the opening.
    waited_for: Mapping[str, int]
    alone: Mapping[Hashable, Alone]
    #: Totals of the scheduler's event loop at the opening; None if unknown.
    loop: LoopTotals | None
    loop_at_stop: LoopTotals | None = None
    repeats: RepeatCounter = field(default_factory=RepeatCounter)
    #: Ids of the spans that both this client and others sent tasks to.
    shared: set[str] = field(default_factory=set)
    sent: SentGraphs = field(default_factory=SentGraphs)


class Registration:
    """One registration on one scheduler, which :class:`~dask_efficiency.plugin.scheduler.meter.ClusterMeter` makes."""

    scheduler: Scheduler
    options: Options
    session: str
    guard: Guard
    parts: Parts[SchedulerPart]
    windows: dict[str, OpenWindow]
