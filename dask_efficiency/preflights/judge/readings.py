"""Readings: components that are measured of a worker, what their slowness means, and the measurements themselves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Self

from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.slow_worker import Cause
from dask_efficiency.plugin.guard import MAX_REASON
from dask_efficiency.straggler.causes import BY_MEASUREMENT


class Component(StrEnum):
    """A measured part of a worker; earlier ones explain later ones."""

    #: Head of a column, and name for people.
    head: str
    words: str
    #: Unit of a reading: a rate, of which more is better, or seconds, of which fewer are.
    unit: str
    #: Cause of a worker that is slow in this component and in none that explains it.
    cause: Cause
    #: Least standard deviation among healthy workers that is assumed, as a logarithm. Guesses, wider where more than
    #: the worker takes part.
    spread: float

    def __new__(cls, name: str, head: str = "", words: str = "", unit: str = "", spread: float = 0.04) -> Self:
        """Make a member; the defaults are for mypy, which takes a look-up by value for a new one."""
        self = str.__new__(cls, name)
        self._value_ = name
        self.head, self.words, self.unit, self.spread = head, words, unit, spread
        self.cause = BY_MEASUREMENT.get(name, Cause.UNKNOWN)
        return self

    CPU = "cpu", "CPU", "matrix product, one thread", "FLOP/s"
    CPU_ALL = "cpu_all", "all threads", "matrix product, all threads", "FLOP/s"
    PYTHON = "python", "Python", "Python in its process", "loops/s"
    MEMORY = "memory_bandwidth", "memory", "memory bandwidth", "B/s", 0.06
    GPU = "gpu", "GPU", "GPU matrix product", "FLOP/s"
    GPU_MEMORY = "gpu_memory", "GPU memory", "GPU memory bandwidth", "B/s"
    GPU_COPY = "gpu_copy", "GPU copies", "copies to and from the GPU", "B/s", 0.06
    GPU_PEER = "gpu_peer", "GPU peers", "copies between GPUs of the host", "B/s", 0.06
    SOAK = "soak", "soak", "training step of a transformer", "s"
    DISK = "disk", "disk", "writing where it spills", "B/s", 0.1
    SEND = "send", "send", "sending to other workers", "B/s", 0.08
    RECEIVE = "receive", "receive", "receiving from other workers", "B/s", 0.08
    LATENCY = "latency", "latency", "round trip to other workers", "s", 0.15
    COLLECTIVE = "collective", "all-reduce", "all-reduce with another worker", "s", 0.1
    TRAINING = "training", "training", "training step with another worker", "s", 0.1
    WORKLOAD = "workload", "workload", "the given workload", "s", 0.06

    def seconds(self, reading: float) -> float:
        """Seconds for one unit of work; infinite for a reading of nothing."""
        if self.unit == "s":
            return reading
        return 1 / reading if reading > 0 else math.inf


#: Components measured in pairs; the others are measured of each worker alone.
IN_PAIRS = (Component.SEND, Component.RECEIVE, Component.LATENCY, Component.COLLECTIVE, Component.TRAINING)
ALONE = tuple(component for component in Component if component not in IN_PAIRS)

#: Ratio of its time to the median of the fastest half from which a worker is slow. DLRover's 2 finds no slowdown of
#: 1.5; healthy machines of one kind differ by less than 1.1.
THRESHOLD = 1.3

#: Measurements that agree, and are no chance, as one alone may be: slow pairs, and turns beside a good worker.
TWICE = 2

#: Round trips below this are equal: Dask's own time, which says nothing of the network.
MIN_LATENCY_SECONDS = 2e-3


@dataclass(frozen=True, slots=True)
class Reading:
    """Best measurement of a worker in one component."""

    #: In the unit of the component; infinitely bad (a rate of 0, infinite seconds) if it failed or hung.
    value: float
    #: Share of its time in which the thread computed; NaN if that does not apply.
    share: float = math.nan
    #: CPU seconds a second that other threads of the process used at the time; NaN if unknown.
    others: float = math.nan
    #: Number of repetitions.
    count: int = 1
    #: Ratios of its time to that of a good worker measured right before or after it; empty if it was never suspected.
    beside: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Subject:
    """A worker, and the measurements of it alone."""

    name: str
    address: str
    host: str
    #: Equal for comparable workers.
    group: str = ""
    readings: Mapping[Component, Reading] = field(default_factory=dict)
    #: Reason, by component that was not measured.
    missing: Mapping[Component, str] = field(default_factory=dict)
    #: Reason why nothing was measured; empty if something was.
    not_tested: str = ""
    #: Reason why it cannot work at all: it does not answer, or takes no tasks; else empty.
    broken: str = ""
    #: True if that is because its memory is full.
    paused: bool = False


def read_measurements(answer: object) -> tuple[dict[Component, Reading], dict[Component, str]]:
    """Readings of a worker's answer, and the reasons of those that are missing; RefusedPayload if it is anything else.

    It has, by component, ``value`` with ``share``, ``others`` and ``count`` if known; or ``missing``, the
    reason; or ``failed``, the reason of a failure or a hang, which is infinitely slow.
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
            missing[component] = str(content["missing"])[:MAX_REASON]
            continue
        if "failed" in content:
            missing[component] = str(content["failed"])[:MAX_REASON]
            readings[component] = Reading(math.inf if component.unit == "s" else 0.0)
            continue
        numbers = [content.get(name, math.nan) for name in ("value", "share", "others")]
        numbers = [math.nan if number is None else number for number in numbers]
        count = content.get("count", 1)
        if not all(isinstance(number, int | float) for number in numbers) or not isinstance(count, int):
            raise RefusedPayload(f"{component} is {dict(content)!r:.200}; expected numbers")
        value, share, others = map(float, numbers)
        if not 0 <= value < math.inf:
            raise RefusedPayload(f"{component} is {value!r}; expected a number from 0")
        readings[component] = Reading(value, share, others, count)
    return readings, missing


def better(component: Component, old: Reading | None, new: Reading) -> Reading:
    """Better of two readings, with the repetitions of both."""
    if old is None:
        return new
    best = min(old, new, key=lambda reading: component.seconds(reading.value))
    return Reading(best.value, best.share, best.others, old.count + new.count, old.beside)
