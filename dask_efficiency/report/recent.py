"""The last minutes of a cluster: what its threads were doing over time, and in a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.buckets import Breakdown
from dask_efficiency.cluster import ACTIVITIES
from dask_efficiency.report.model import ReportValues
from dask_efficiency.report.verdict import verdict

#: A live view looks back this far.
WINDOW_NS = 300_000_000_000

#: So that there are sixty bins at most, which is what a page can be sent every other second.
NARROWEST_BIN_NS = 5_000_000_000

#: Heartbeats of each worker in one bin: over fewer, what one brings stands out from the rest.
HEARTBEATS_PER_BIN = 3


class Moment(Protocol):
    """What the cluster had done by one instant."""

    @property
    def at(self) -> int:
        """Monotonic nanoseconds."""

    @property
    def activity(self) -> Mapping[str, int]:
        """Nanoseconds by :data:`~dask_efficiency.cluster.ACTIVITIES` since the accounts began."""

    @property
    def nthreads(self) -> int:
        """Threads that were there."""


def bin_width(heartbeat_seconds: float) -> int:
    """Nanoseconds that a bin of the timeline spans, for workers that report this often."""
    return max(NARROWEST_BIN_NS, round(HEARTBEATS_PER_BIN * heartbeat_seconds * 1e9))


def window_of(moments: Iterable[Moment], *, width: int) -> list[Moment]:
    """The moments of the last minutes; the first stands on the grid of the bins if there is one that early."""
    known = list(moments)
    if not known:
        return []
    start = (known[-1].at - WINDOW_NS) // width * width
    return [moment for moment in known if moment.at >= start]


def gained(moments: Sequence[Moment]) -> dict[str, int]:
    """Nanoseconds by activity from the first moment to the last."""
    if not moments:
        return {}
    then, now = moments[0].activity, moments[-1].activity
    return {name: ns for name in ACTIVITIES if (ns := now.get(name, 0) - then.get(name, 0)) > 0}


@dataclass(frozen=True, slots=True)
class Timeline:
    """What the threads were doing, bin by bin; in each bin the threads by activity add up to nthreads."""

    #: Monotonic nanoseconds, shape (bins,). A bin starts where the one before it stops.
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    #: Mean number of threads, shape (bins,).
    nthreads: NDArray[np.float64]
    #: Mean number of threads by :data:`~dask_efficiency.cluster.ACTIVITIES`, shape (bins, activities).
    threads: NDArray[np.float64]


def timeline(moments: Sequence[Moment], *, width: int) -> Timeline:
    """The moments' accounts in bins of at least two thirds of ``width``, on a grid that stands still.

    Workers report one after the other, each for the time since its own last report: over a poll the
    sum is anything but nthreads. So a bin spans several reports of each, and shares of what they
    brought are scaled to the threads that were there. A bin in which none came is joined to its
    neighbour.

    Parameters
    ----------
    moments
        In order of time.
    width
        Nanoseconds of a bin, positive.

    Returns
    -------
    Timeline
        No bins where no report has come yet.
    """
    at = np.maximum.accumulate(np.array([moment.at for moment in moments], dtype=np.int64))
    cuts = _cuts(at.tolist(), width)
    if not cuts:
        nowhen = np.zeros(0, dtype=np.int64)
        return Timeline(nowhen, nowhen, np.zeros(0), np.zeros((0, len(ACTIVITIES))))
    threads = np.array([moment.nthreads for moment in moments], dtype=np.float64)
    available = np.concatenate([[0.0], np.cumsum(np.diff(at) * threads[1:])])
    base = moments[0].activity
    # Less the base first: of a big cluster the nanoseconds of a year do not fit into 64 bits.
    done = np.array(
        [[moments[i].activity.get(name, 0) - base.get(name, 0) for name in ACTIVITIES] for i in cuts], dtype=np.float64
    )
    done = np.maximum.accumulate(done)
    kept = _with_reports(done.sum(axis=1).tolist(), available[cuts].tolist())
    edges = [cuts[i] for i in kept]
    return _binned(at[edges], available[edges], done[kept])


def _cuts(at: Sequence[int], width: int) -> list[int]:
    """Where the bins begin and end, as indices: where the time passes a multiple of the width."""
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
    """The cuts that are left when bins with threads and without a report are joined to a neighbour."""
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


def _binned(edges: NDArray[np.int64], available: NDArray[np.float64], done: NDArray[np.float64]) -> Timeline:
    start, stop = edges[:-1], edges[1:]
    nthreads = np.diff(available) / (stop - start)
    ns = np.diff(done, axis=0)
    whole = ns.sum(axis=1)
    scale = np.divide(nthreads, whole, out=np.zeros_like(whole), where=whole > 0)
    return Timeline(start, stop, nthreads, ns * scale[:, None])


def sentence(nanoseconds: Mapping[str, int], reasons: Mapping[str, str]) -> str:
    """What share of the time was useful and what the largest loss is, with a full stop.

    Parameters
    ----------
    nanoseconds
        By activity, as from :func:`gained`.
    reasons
        Worker name to the reason why its time is not measured.
    """
    recent = ReportValues(
        name="recent",
        started=0.0,
        window_seconds=0.0,
        # Without a length there is no runtime to be said: a live view has no run.
        cluster_seconds=0.0,
        by_worker={"": Breakdown(nanoseconds)},
        not_measured=reasons,
    )
    return f"{verdict(recent)}."


def span_of(seconds: float) -> str:
    """How far back a view looks, in words."""
    return f"{seconds:.0f} s" if seconds < 119.5 else f"{seconds / 60:.0f} min"
