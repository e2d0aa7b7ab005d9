"""TabView: the last minutes of a cluster as values, with the timeline in bins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.cluster.account import ACTIVITIES
from dask_efficiency.accounts.cluster.time_left import TimeLeft
from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.accounts.stalls import StalledWork
from dask_efficiency.live.last_seconds import Details, LastSeconds, window_of

if TYPE_CHECKING:
    from dask_efficiency.plugin.scheduler.accounts import ClusterAccounts, Moment

#: Nanoseconds of a bin at least, and between updates of figures of the last minutes: sixty bins can be sent to a page
#: every other second. A guess.
MIN_BIN_NS = 5_000_000_000
#: Heartbeats of each worker per bin; with fewer, single heartbeats are visible as spikes. By eye.
HEARTBEATS_PER_BIN = 3


@dataclass(frozen=True, slots=True)
class Bins:
    """Threads by activity in bins; in each bin they add up to nthreads."""

    #: Monotonic nanoseconds, shape (bins,). A bin starts where the one before it stops.
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    nthreads: NDArray[np.float64]
    #: Mean number of threads, shape (bins, activities).
    threads: NDArray[np.float64]


def binned(polls: Sequence[Moment], *, width: int) -> Bins:
    """Threads by activity between polls, in bins of at least two thirds of ``width`` on a fixed grid, if any reported.

    Workers report one after the other, each for the time since its own last report, so the gain between two polls does
    not add up to nthreads. A bin therefore spans several reports of each worker, and the reported shares are scaled to
    the threads present. A bin without a report is joined to its neighbour.
    """
    at = np.maximum.accumulate(np.array([poll.at for poll in polls], dtype=np.int64))
    cuts = _cuts(at.tolist(), width)
    if not cuts:
        nowhen = np.zeros(0, dtype=np.int64)
        return Bins(nowhen, nowhen, np.zeros(0), np.zeros((0, len(ACTIVITIES))))
    threads = np.array([poll.nthreads for poll in polls], dtype=np.float64)
    available = np.concatenate([[0.0], np.cumsum(np.diff(at) * threads[1:])])
    base = polls[0].activity
    # Subtract first: on a big cluster the nanoseconds of a year do not fit into 64 bits.
    done = np.array(
        [[polls[i].activity.get(name, 0) - base.get(name, 0) for name in ACTIVITIES] for i in cuts], dtype=np.float64
    )
    done = np.maximum.accumulate(done)
    kept = _with_reports(done.sum(axis=1).tolist(), available[cuts].tolist())
    edges = [cuts[i] for i in kept]
    start, stop = at[edges[:-1]], at[edges[1:]]
    nthreads = np.diff(available[edges]) / (stop - start)
    ns = np.diff(done[kept], axis=0)
    whole = ns.sum(axis=1)
    scale = np.divide(nthreads, whole, out=np.zeros_like(whole), where=whole > 0)
    return Bins(start, stop, nthreads, ns * scale[:, None])


def _cuts(at: Sequence[int], width: int) -> list[int]:
    """Indices of the polls at the edges of the bins: where time passes a multiple of the width."""
    if not at or at[-1] == at[0]:
        return []
    cuts = [0]
    for i, now in enumerate(at):
        last = at[cuts[-1]]
        if now // width > last // width and 3 * (now - last) >= 2 * width:
            cuts.append(i)
    if cuts[-1] != len(at) - 1:
        if len(cuts) > 1 and 3 * (at[-1] - at[cuts[-1]]) < 2 * width:
            cuts.pop()
        cuts.append(len(at) - 1)
    return cuts


def _with_reports(done: Sequence[float], available: Sequence[float]) -> list[int]:
    """Edges that remain when bins with threads but without a report are joined to a neighbour."""
    kept = [0]
    for i in range(1, len(done)):
        if done[i] > done[kept[-1]] or available[i] == available[kept[-1]]:
            kept.append(i)
    if kept[-1] != len(done) - 1:
        if len(kept) > 1:
            kept.pop()
        kept.append(len(done) - 1)
    while len(kept) > 1 and done[kept[-1]] == done[kept[-2]] and available[kept[-1]] > available[kept[-2]]:
        kept.pop(-2)
    return kept


# -- the view --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TabView:
    """Last minutes of a cluster: totals, timeline and stragglers."""

    last: LastSeconds
    polls: Sequence[Moment]
    #: Nanoseconds of a bin of the timeline.
    bin_ns: int
    #: Offset from the polls' clock to the epoch, in seconds.
    clock_offset: float
    stragglers: Sequence[SlowWorker]
    now: float
    #: Work that stands still.
    stalls: Sequence[StalledWork] = ()
    #: Time until all that is outstanding is done; None where it cannot be said.
    time_left: TimeLeft | None = None
    #: What the view was narrowed to, in words; empty if it is of all.
    part_of: str = ""

    @property
    def at(self) -> int:
        """Time of the last poll, monotonic nanoseconds."""
        return self.polls[-1].at

    @property
    def seconds_by_part(self) -> float:
        """Seconds that the times by worker, GPU and prefix go back."""
        return (self.last.now.at - self.last.then.at) / 1e9

    @cached_property
    def bins(self) -> Bins:
        """Threads by activity over time."""
        return binned(self.polls, width=self.bin_ns)


def tab_view(source: ClusterAccounts, then: Details, *, now: float, heartbeat_seconds: float) -> TabView:
    """View of a cluster's last minutes; times by worker, GPU and prefix begin at ``then``."""
    bin_ns = max(MIN_BIN_NS, round(HEARTBEATS_PER_BIN * heartbeat_seconds * 1e9))
    window = window_of(source.recent, width=bin_ns)
    return TabView(
        last=LastSeconds.of(source.cluster, window, then=then),
        polls=window,
        bin_ns=bin_ns,
        clock_offset=source.since - source.cluster.started / 1e9,
        stragglers=source.findings,
        now=now,
        stalls=source.stalled,
        time_left=source.left,
    )
