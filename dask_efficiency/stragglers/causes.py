"""Causes: what slows a worker, from which of its signals stand out."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dask_efficiency.stragglers.finding import Cause

#: A share of CPU time that is lower than the peers' by less is the same.
FLAT_SHARE = 0.08

#: Tasks that compute for less of their time wait for something else than the CPU.
COMPUTING_SHARE = 0.5

#: Waiting for a core: so many times as long as the peers, and so many seconds a second more.
MORE_WAIT = 1.5
MUCH_WAIT = 0.15

#: A process that uses this part of what the peers' use has the CPU; its tasks do not.
SAME_CPU = 0.85

#: The event loop turns so many times as slowly.
LAGGING = 1.25


@dataclass(frozen=True, slots=True)
class Beside:
    """A number of a worker beside the median of its peers; NaN where it is not known."""

    own: float = math.nan
    peers: float = math.nan


@dataclass(frozen=True, slots=True)
class Symptoms:
    """What is known of a worker whose tasks take longer.

    Parameters
    ----------
    share
        Of its tasks' time, the share on the CPU.
    core_wait, cpu
        Seconds a second that its threads waited for a core, and that its process used one.
    lag
        Seconds between two turns of its event loop.
    disk, network
        Whether its disk, or its transfers, stand out too.
    """

    share: Beside = Beside()
    core_wait: Beside = Beside()
    cpu: Beside = Beside()
    lag: Beside = Beside()
    disk: bool = False
    network: bool = False


def cause_of_slow_tasks(symptoms: Symptoms) -> Cause:
    """What slows the tasks of a worker.

    Tasks that compute as much of their time as the peers' and take longer have a slow CPU. Else the CPU is taken from
    them: from outside, if its threads wait for a core or the whole process stands still; from inside, if the process
    uses as much CPU as those of the peers.
    """
    share = symptoms.share
    if not share.peers - share.own > FLAT_SHARE * share.peers:
        return Cause.SLOW_CPU if share.peers >= COMPUTING_SHARE else _of_waiting(symptoms)
    wait = symptoms.core_wait
    if wait.own > MORE_WAIT * wait.peers and wait.own > wait.peers + MUCH_WAIT:
        return Cause.CONTENTION
    if share.peers >= COMPUTING_SHARE and symptoms.cpu.own >= SAME_CPU * symptoms.cpu.peers:
        return Cause.GIL
    if symptoms.lag.own >= LAGGING * symptoms.lag.peers:
        return Cause.CONTENTION
    return _of_waiting(symptoms)


def _of_waiting(symptoms: Symptoms) -> Cause:
    if symptoms.disk:
        return Cause.DISK
    return Cause.NETWORK if symptoms.network else Cause.UNKNOWN
