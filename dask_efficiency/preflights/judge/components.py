"""Components: what is measured of a worker before a job starts, and what its slowness means."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from dask_efficiency.accounts.slow_worker import Cause


class Component(StrEnum):
    """A part of a worker that has a measurement of its own; in the order in which one explains those after it."""

    CPU = "cpu"
    CPU_ALL = "cpu_all"
    PYTHON = "python"
    MEMORY = "memory_bandwidth"
    GPU = "gpu"
    GPU_MEMORY = "gpu_memory"
    GPU_COPY = "gpu_copy"
    GPU_PEER = "gpu_peer"
    SOAK = "soak"
    DISK = "disk"
    SEND = "send"
    RECEIVE = "receive"
    LATENCY = "latency"
    COLLECTIVE = "collective"
    WORKLOAD = "workload"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """How a component is read.

    Parameters
    ----------
    words
        Its name for people.
    unit
        What a reading counts: a rate, of which more is better, or seconds, of which fewer are.
    cause
        What slows a worker that is slow in this component and in none that explains it.
    spread
        Standard deviation among healthy workers that is assumed at least, as a logarithm.
    """

    words: str
    unit: str
    cause: Cause
    spread: float = 0.04

    @property
    def is_time(self) -> bool:
        """Whether fewer are better."""
        return self.unit == "s"


#: The spreads are assumed: wider where more than the worker takes part. Where readings scatter more, that counts too.
MEANINGS: Mapping[Component, Meaning] = {
    Component.CPU: Meaning(words="matrix product, one thread", unit="FLOP/s", cause=Cause.SLOW_CPU),
    Component.CPU_ALL: Meaning(words="matrix product, all threads", unit="FLOP/s", cause=Cause.SLOW_CPU),
    Component.PYTHON: Meaning(words="Python in its process", unit="loops/s", cause=Cause.CONTENTION),
    Component.MEMORY: Meaning(words="memory bandwidth", unit="B/s", cause=Cause.MEMORY_BANDWIDTH, spread=0.06),
    Component.GPU: Meaning(words="GPU matrix product", unit="FLOP/s", cause=Cause.GPU),
    Component.GPU_MEMORY: Meaning(words="GPU memory bandwidth", unit="B/s", cause=Cause.GPU),
    Component.GPU_COPY: Meaning(words="copies to and from the GPU", unit="B/s", cause=Cause.GPU, spread=0.06),
    Component.GPU_PEER: Meaning(words="copies between GPUs of the host", unit="B/s", cause=Cause.GPU, spread=0.06),
    Component.SOAK: Meaning(words="training step of a transformer", unit="s", cause=Cause.GPU),
    Component.DISK: Meaning(words="writing where it spills", unit="B/s", cause=Cause.DISK, spread=0.1),
    Component.SEND: Meaning(words="sending to other workers", unit="B/s", cause=Cause.NETWORK, spread=0.08),
    Component.RECEIVE: Meaning(words="receiving from other workers", unit="B/s", cause=Cause.NETWORK, spread=0.08),
    Component.LATENCY: Meaning(words="round trip to other workers", unit="s", cause=Cause.NETWORK, spread=0.15),
    Component.COLLECTIVE: Meaning(words="all-reduce with another worker", unit="s", cause=Cause.NETWORK, spread=0.1),
    Component.WORKLOAD: Meaning(words="the given workload", unit="s", cause=Cause.UNKNOWN, spread=0.06),
}

#: What is measured of each worker alone; the others are measured in pairs.
ALONE = tuple(one for one in Component if MEANINGS[one].cause is not Cause.NETWORK)

#: A worker is slow that takes so many times as long as the median of the fastest half. DLRover's 2 finds no slowdown of
#: 1.5; healthy machines of one kind differ by less than 1.1.
THRESHOLD = 1.3

#: A worker is slow that is so many spreads of the fastest half from their median: where healthy workers differ much, it
#: takes more than the threshold. One normal value in 700 is so far out on this side.
MIN_Z = 3.0

#: Round trips below this are all alike: what Dask itself takes for one, which says nothing of the network.
MIN_LATENCY_SECONDS = 2e-3


def seconds_of(component: Component, reading: float) -> float:
    """How long a worker takes for one unit of work; less is better, infinite for a reading of nothing."""
    if MEANINGS[component].is_time:
        return reading
    return 1 / reading if reading > 0 else math.inf


def worst(component: Component) -> float:
    """The reading of a worker that failed: nothing of a rate, infinite seconds."""
    return math.inf if MEANINGS[component].is_time else 0.0
