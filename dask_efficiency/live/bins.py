"""Bins: what the threads of a cluster were doing over the last minutes, bin by bin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.cluster.account import ACTIVITIES

#: A live view looks back this far.
WINDOW_NS = 300_000_000_000

#: So that there are sixty bins at most, which is what a page can be sent every other second.
MIN_BIN_NS = 5_000_000_000

#: Heartbeats of each worker in one bin: over fewer, what one brings stands out from the rest.
HEARTBEATS_PER_BIN = 3


class ThreadTotals(Protocol):
    """What all threads of a cluster together had done by one instant."""

    @property
    def at(self) -> int:
        """Monotonic nanoseconds."""

    @property
    def activity(self) -> Mapping[str, int]:
        """Nanoseconds by :data:`~dask_efficiency.accounts.cluster.presence.ACTIVITIES` since the accounts began."""

    @property
    def nthreads(self) -> int:
        """Threads that were there."""

    @property
    def causes(self) -> Mapping[str, int]:
        """The nanoseconds by :data:`~dask_efficiency.accounts.causes.NAMES`, as far as causes are known."""

    @property
    def prefixes(self) -> Mapping[str, Sequence[int]] | None:
        """What tasks of each prefix had settled by :data:`~dask_efficiency.accounts.worker.balance.TASK_BUCKETS`."""


def bin_width(heartbeat_seconds: float) -> int:
    """Nanoseconds that a bin of the timeline spans, for workers that report this often."""
    return max(MIN_BIN_NS, round(HEARTBEATS_PER_BIN * heartbeat_seconds * 1e9))


def window_of(polls: Iterable[ThreadTotals], *, width: int) -> list[ThreadTotals]:
    """The polls of the last minutes; the first stands on the grid of the bins if there is one that early."""
    known = list(polls)
    if not known:
        return []
    start = (known[-1].at - WINDOW_NS) // width * width
    return [poll for poll in known if poll.at >= start]


@dataclass(frozen=True, slots=True)
class Bins:
    """What the threads were doing, bin by bin; in each bin the threads by activity add up to nthreads."""

    #: Monotonic nanoseconds, shape (bins,). A bin starts where the one before it stops.
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    #: Mean number of threads, shape (bins,).
    nthreads: NDArray[np.float64]
    #: Mean number of threads by :data:`~dask_efficiency.accounts.cluster.presence.ACTIVITIES`, shape (bins,
    #: activities).
    threads: NDArray[np.float64]


def binned(polls: Sequence[ThreadTotals], *, width: int) -> Bins:
    """What the threads did between polls, in bins of at least two thirds of ``width``, on a grid that stands still.

    Workers report one after the other, each for the time since its own last report, so what comes between
    two polls does not add up to nthreads. A bin therefore spans several reports of each worker, and shares of
    what they brought are scaled to the threads that were there. A bin without a report is joined to its neighbour.

    Parameters
    ----------
    polls
        In order of time.
    width
        Nanoseconds of a bin, positive.

    Returns
    -------
    Bins
        No bins where no report has come yet.
    """
    at = np.maximum.accumulate(np.array([poll.at for poll in polls], dtype=np.int64))
    cuts = _cuts(at.tolist(), width)
    if not cuts:
        nowhen = np.zeros(0, dtype=np.int64)
        return Bins(nowhen, nowhen, np.zeros(0), np.zeros((0, len(ACTIVITIES))))
    threads = np.array([poll.nthreads for poll in polls], dtype=np.float64)
    available = np.concatenate([[0.0], np.cumsum(np.diff(at) * threads[1:])])
    base = polls[0].activity
    # Subtract the base first: of a big cluster the nanoseconds of a year do not fit into 64 bits.
    done = np.array(
        [[polls[i].activity.get(name, 0) - base.get(name, 0) for name in ACTIVITIES] for i in cuts], dtype=np.float64
    )
    done = np.maximum.accumulate(done)
    kept = _with_reports(done.sum(axis=1).tolist(), available[cuts].tolist())
    edges = [cuts[i] for i in kept]
    return _bins(at[edges], available[edges], done[kept])


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


def _bins(edges: NDArray[np.int64], available: NDArray[np.float64], done: NDArray[np.float64]) -> Bins:
    start, stop = edges[:-1], edges[1:]
    nthreads = np.diff(available) / (stop - start)
    ns = np.diff(done, axis=0)
    whole = ns.sum(axis=1)
    scale = np.divide(nthreads, whole, out=np.zeros_like(whole), where=whole > 0)
    return Bins(start, stop, nthreads, ns * scale[:, None])
