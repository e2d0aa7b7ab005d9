"""Plan and Candidate: the options of a test, and each worker during it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dask_efficiency.accounts.checks import RefusedPayload, flag, mapping, seconds, short, text
from dask_efficiency.accounts.intake import fitting
from dask_efficiency.plugin import names
from dask_efficiency.plugin.guard import MAX_REASON
from dask_efficiency.plugin.scheduler.joining import check_registration
from dask_efficiency.plugin.scheduler.straggler_watch import comparable
from dask_efficiency.preflights.judge.readings import Component, Subject

if TYPE_CHECKING:
    from distributed.scheduler import WorkerState

#: Seconds of a repetition: a period of a container's CPU limit, by default 100 ms.
REPETITION_SECONDS = 0.1
#: Components measured of every worker, and of those with a GPU.
ON_CPU = (Component.CPU, Component.CPU_ALL, Component.MEMORY, Component.DISK, Component.PYTHON)
ON_GPU = (Component.GPU, Component.GPU_MEMORY, Component.GPU_COPY, Component.GPU_PEER)
#: Beginning of the note of a test that was stopped.
STOPPED = "stopped while"

#: Asks the worker at an address, for so many seconds at most. None if it does not know the request; raises OSError or
#: TimeoutError if it does not answer.
Ask = Callable[[str, dict[str, Any], float], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Plan:
    """Options of a test: those of :func:`~dask_efficiency.preflight`, and its name."""

    test: str
    #: Most time it may take.
    seconds: float = 60.0
    device: str = "auto"
    force: bool = False
    soak: bool = False
    collective: str = ""
    training: str = ""
    #: Kind and bytes of a workload.
    workload: str = ""
    payload: bytes = b""
    #: Seconds of each repetition, of which the best counts.
    repetition: float = field(default_factory=lambda: REPETITION_SECONDS)

    def components(self, *, gpu: bool) -> list[Component]:
        """Components that are measured of a worker alone; ``gpu``: whether it has NVIDIA's driver."""
        components = list(ON_CPU)
        if self.device == "gpu" or (self.device == "auto" and gpu):
            components += [*ON_GPU, *([Component.SOAK] if self.soak else [])]
        return [*components, *([Component.WORKLOAD] if self.workload else [])]


def _bytes(name: str, value: object) -> bytes:
    if isinstance(value, np.ndarray):
        return value.tobytes()
    if not isinstance(value, bytes):
        raise RefusedPayload(f"{name} is {short(value)}; expected bytes")
    return value


#: Checks of a plan's fields by their types.
_CHECKS: Mapping[str, Callable[[str, object], Any]] = MappingProxyType(
    {"str": text, "float": seconds, "bool": flag, "bytes": _bytes}
)


def plan_of(asked: object) -> Plan:
    """Plan that a client sent; RefusedPayload names a field that is none, missing, or not of its type."""
    given = mapping("plan", asked)
    known = {field.name: str(field.type) for field in fields(Plan)}
    if odd := [name for name in given if name not in known]:
        raise RefusedPayload(f"plan has {short(odd)}; expected only {', '.join(known)}")
    text("test", given.get("test"))
    return Plan(**{name: _CHECKS[known[name]](name, value) for name, value in given.items()})


@dataclass(slots=True)
class Candidate:
    """A worker during a test."""

    subject: Subject
    machine: str = ""
    gpu: bool = False
    #: Port at which it can listen for a process group of torch.
    port: int = 0

    @classmethod
    def of(cls, ws: WorkerState) -> Self:
        """Worker to be tested, if it is metered."""
        metric = ws.metrics.get(names.METRIC)
        off = metric.get("off") if isinstance(metric, Mapping) else None
        why = f"it is not metered: {fitting(off, MAX_REASON)}" if off else ""
        try:
            check_registration(ws)
        except RefusedPayload as refusal:
            return cls(Subject(fitting(ws.name), ws.address, "", not_tested=f"it registered oddly: {refusal}"))
        return cls(Subject(fitting(ws.name), ws.address, ws.host, group=repr(comparable(ws)), not_tested=why))

    @property
    def can_be_tested(self) -> bool:
        """True if it can be tested, as far as known."""
        return not (self.subject.not_tested or self.subject.broken)

    def note(self, **changes: Any) -> None:
        """Set fields of the subject."""
        self.subject = replace(self.subject, **changes)
