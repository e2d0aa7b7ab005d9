"""Causes of slow workers while a run goes on, from the pattern of their signals."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dask_efficiency.accounts.slow_worker import Cause

#: A share of CPU time is the same as the peers' unless it is lower by this part of it.
FLAT_SHARE = 0.08

#: Tasks that compute for a smaller share of their time wait for something else than the CPU.
COMPUTING_SHARE = 0.5

#: How much more than its peers' threads those of a worker must wait for a core, as a share of the time in which they
#: want one.
MUCH_WAIT = 0.1

#: How many CPU seconds a second more than its peers a process must use beside its tasks.
MUCH_BESIDE = 0.1

#: The event loop lags if its turns take so many times as long as the peers'.
LAGGING = 1.25


@dataclass(frozen=True, slots=True)
class WithPeers:
    """A number of a worker, and the median of its peers'; NaN where it is not known."""

    own: float = math.nan
    peers: float = math.nan


@dataclass(frozen=True, slots=True)
class Symptoms:
    """Figures of a worker whose tasks take longer.

    Parameters
    ----------
    share
        Share of the time of its tasks on the CPU.
    lag
        Seconds between two turns of its event loop.
    core_wait
        Share of the time in which its threads want a core that they wait for it, less that of its peers; NaN where that
        is not known.
    beside_tasks
        CPU seconds a second that its process uses beside its tasks, less those of its peers; NaN where that is not
        known.
    disk, network
        Whether its disk, or its transfers, stand out too.
    """

    share: WithPeers = WithPeers()
    lag: WithPeers = WithPeers()
    core_wait: float = math.nan
    beside_tasks: float = math.nan
    disk: bool = False
    network: bool = False


def cause_of_slow_tasks(symptoms: Symptoms) -> Cause:
    """Find the cause of a worker's slow tasks.

    Tasks that take longer and compute for as much of their time as the peers' have a slow CPU. Otherwise the CPU is
    taken from them: from inside, if something else in the process computes; from outside, if its threads wait for a
    core or the whole process stands still.
    """
    share = symptoms.share
    lower = share.peers - share.own > FLAT_SHARE * share.peers
    if not lower and share.peers >= COMPUTING_SHARE:
        return Cause.SLOW_CPU
    taken = who_takes_the_cpu(symptoms)
    if taken is not None:
        return taken
    if lower and symptoms.lag.own >= LAGGING * symptoms.lag.peers:
        return Cause.CONTENTION
    return _of_waiting(symptoms)


def who_takes_the_cpu(symptoms: Symptoms) -> Cause | None:
    """Find what takes the CPU from the tasks of a process, however little they compute; None if nothing does."""
    if symptoms.beside_tasks >= MUCH_BESIDE:
        return Cause.GIL
    return Cause.CONTENTION if symptoms.core_wait >= MUCH_WAIT else None


def _of_waiting(symptoms: Symptoms) -> Cause:
    if symptoms.disk:
        return Cause.DISK
    return Cause.NETWORK if symptoms.network else Cause.UNKNOWN
