"""TabView: what the pages on a scheduler's dashboard show of a cluster, as values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.live.bins import Bins, ThreadTotals, bin_width, binned, window_of
from dask_efficiency.live.last_seconds import Details, LastSeconds


@dataclass(frozen=True)
class TabView:
    """What a cluster did in the last minutes, in all and over time, and who is slow now."""

    last: LastSeconds
    #: The polls of the last minutes, one at least.
    polls: Sequence[ThreadTotals]
    #: Nanoseconds of a bin of the timeline.
    bin_ns: int
    #: Seconds since the epoch, less the seconds of the polls' clock.
    clock_offset: float
    #: Who is slow now, the most certain first.
    stragglers: Sequence[SlowWorker]
    #: Seconds since the epoch.
    now: float

    @property
    def at(self) -> int:
        """When the last poll was, in monotonic nanoseconds."""
        return self.polls[-1].at

    @property
    def seconds_by_part(self) -> float:
        """How far the times of each worker, GPU and prefix go back."""
        then = self.last.then
        return 0.0 if then is None else (self.last.now.at - then.at) / 1e9

    @cached_property
    def bins(self) -> Bins:
        """What the threads were doing over time."""
        return binned(self.polls, width=self.bin_ns)


def tab_view(
    cluster: ClusterLedger,
    polls: Iterable[ThreadTotals],
    then: Details,
    *,
    since: float,
    now: float,
    heartbeat_seconds: float,
    stragglers: Sequence[SlowWorker],
) -> TabView:
    """What there is to show of a cluster.

    Parameters
    ----------
    cluster
        Its accounts, as of now.
    polls
        What all threads together had done at the last polls, in order; one at least.
    then
        Where the times of each worker, GPU and prefix begin.
    since, now
        When the accounts began and when this is, in seconds since the epoch.
    heartbeat_seconds
        How often a worker reports.
    stragglers
        Who is slow now.
    """
    bin_ns = bin_width(heartbeat_seconds)
    window = window_of(polls, width=bin_ns)
    return TabView(
        last=LastSeconds.of(cluster, window, then=then),
        polls=window,
        bin_ns=bin_ns,
        clock_offset=since - cluster.started / 1e9,
        stragglers=stragglers,
        now=now,
    )
