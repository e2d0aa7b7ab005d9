"""Components: what is measured of a worker before a job starts, and what its slowness means."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from dask_efficiency.accounts.checks import RefusedPayload
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


@dataclass(frozen=True, slots=True)
class Reading:
    """The best that a worker showed in one component.

    Parameters
    ----------
    value
        In the unit of the component; infinitely bad (nothing of a rate, infinite seconds) where it failed or hung.
    share
        Share of that time in which the thread computed, or NaN where that does not tell anything.
    others
        CPU seconds a second that other threads of the process used meanwhile; NaN where that is not known.
    count
        How often it was measured.
    range
        Logarithm of the largest of these over the least; NaN where it was measured once.
    beside
        How many times as long it took as a good worker that was measured right before or after it, each time that it
        was; empty where nobody doubted it.
    """

    value: float
    share: float = math.nan
    others: float = math.nan
    count: int = 1
    range: float = math.nan
    beside: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Subject:
    """A worker, and what was measured of it alone.

    Parameters
    ----------
    name, address, host
        Of the worker.
    group
        Equal for workers that were made alike, which are compared.
    readings
        By component.
    missing
        By component that was not measured, why.
    not_tested
        Why nothing was measured of it; empty if something was.
    broken
        Why it cannot work at all, of a worker that does not answer or takes no tasks; empty for any other.
    paused
        Whether that is because its memory is full.
    """

    name: str
    address: str
    host: str
    group: str = ""
    readings: Mapping[Component, Reading] = field(default_factory=dict)
    missing: Mapping[Component, str] = field(default_factory=dict)
    not_tested: str = ""
    broken: str = ""
    paused: bool = False


def read_measurements(answer: object) -> tuple[dict[Component, Reading], dict[Component, str]]:
    """What a worker measured of itself, and what it could not measure and why.

    Parameters
    ----------
    answer
        By component, ``value`` with ``share``, ``others``, ``count`` and ``range`` where they are known; or
        ``missing``, the reason; or ``failed``, the reason of what failed or hung, which is infinitely slow.

    Raises
    ------
    RefusedPayload
        If it is something else.
    """
    if not isinstance(answer, Mapping):
        raise RefusedPayload(f"measurements are {answer!r:.80}; expected them by component")
    readings: dict[Component, Reading] = {}
    missing: dict[Component, str] = {}
    for name, content in answer.items():
        try:
            component = Component(name)
        except ValueError:
            raise RefusedPayload(f"unknown component {name!r:.80}; expected one of {', '.join(Component)}") from None
        if not isinstance(content, Mapping):
            raise RefusedPayload(f"{component} is {content!r:.80}; expected a reading")
        if "missing" in content:
            missing[component] = str(content["missing"])[:500]
        elif "failed" in content:
            missing[component] = str(content["failed"])[:500]
            readings[component] = Reading(worst(component))
        else:
            readings[component] = _reading(component, content)
    return readings, missing


def _reading(component: Component, content: Mapping[str, Any]) -> Reading:
    numbers = [content.get(name, math.nan) for name in ("value", "share", "others", "range")]
    numbers = [math.nan if number is None else number for number in numbers]
    count = content.get("count", 1)
    if not all(isinstance(number, int | float) for number in numbers) or not isinstance(count, int):
        raise RefusedPayload(f"{component} is {dict(content)!r:.200}; expected numbers")
    value, share, others, extent = map(float, numbers)
    if not 0 <= value < math.inf:
        raise RefusedPayload(f"{component} is {value!r}; expected a number from 0")
    return Reading(value, share, others, count, extent)


def better(component: Component, one: Reading | None, other: Reading) -> Reading:
    """The better of two readings, with how often both were measured."""
    if one is None:
        return other
    best = min(one, other, key=lambda reading: seconds_of(component, reading.value))
    extent = max((each.range for each in (one, other) if each.range >= 0), default=math.nan)
    return Reading(best.value, best.share, best.others, one.count + other.count, extent, one.beside)
