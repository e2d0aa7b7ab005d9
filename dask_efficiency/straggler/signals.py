"""Table of signals: name, unit, and by how much healthy workers differ."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

#: Transfers of fewer bytes show the latency of the network rather than its bandwidth; a guess.
MIN_TRANSFER_BYTES = 65_536


class Unit(StrEnum):
    """Unit of a signal's number."""

    #: How many times as long the work takes; levels are its logarithms.
    TIMES_AS_LONG = "times as long"
    #: How many times as much there is of something other than duration; levels are its logarithms.
    TIMES_AS_MUCH = "times as much"
    #: Share of time, or CPU seconds a second; levels are differences.
    SHARE = "share"


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """Properties of a signal while a run goes on.

    Parameters
    ----------
    words
        Its name for people.
    floor
        Least spread among healthy workers that is assumed.
    min_residual
        Least residual of a slow worker.
    unit
        Its unit.
    variance
        Variance of the residual of one interval, for a signal with one number per worker; NaN if it is measured.
    only_with_duration
        Whether the signal means slowness only if the tasks take longer too: a worker that computes for less of a
        shorter time is not slow, and kernels take longer on larger inputs.
    of_hosts
        Whether all workers of a host can be slow in it together.
    """

    words: str
    floor: float
    min_residual: float
    unit: Unit = Unit.SHARE
    variance: float = math.nan
    only_with_duration: bool = False
    of_hosts: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """Properties of a signal in a run that is over.

    Parameters
    ----------
    words
        Its name for people.
    floor
        Least spread among healthy workers that is assumed, as a logarithm; measured on FlowBench.
    unit
        Its unit.
    only_evidence
        Whether it only explains why a worker is slow, and is no slowness itself.
    against_usual
        Whether it is compared with earlier runs, as the peers wait for the same disk.
    rises_with_disk
        Whether it rises on a worker that waits for a disk which another worker keeps busy.
    """

    words: str
    floor: float
    unit: Unit = Unit.TIMES_AS_LONG
    only_evidence: bool = False
    against_usual: bool = False
    rises_with_disk: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """A signal as measured in a run that is over and while a run goes on; None if it is not."""

    finished: Finished | None = None
    live: Live | None = None

    @property
    def words(self) -> str:
        """Name for people; that of a run that is over where there are two."""
        measured = self.finished or self.live
        return measured.words if measured is not None else ""


SIGNALS: Mapping[str, Signal] = {
    "duration": Signal(
        finished=Finished(words="time in the thread", floor=0.03, rises_with_disk=True),
        live=Live(
            words="time for the same work",
            floor=0.03,
            min_residual=math.log(1.1),
            unit=Unit.TIMES_AS_LONG,
            of_hosts=True,
        ),
    ),
    "cpu_share": Signal(
        finished=Finished(words="seconds for each CPU second", floor=0.02, rises_with_disk=True),
        live=Live(
            words="share of it on the CPU", floor=0.02, min_residual=0.05, only_with_duration=True, of_hosts=True
        ),
    ),
    "receive": Signal(
        finished=Finished(words="receiving data, for each byte", floor=0.05),
        live=Live(
            words="time to receive a byte",
            floor=0.10,
            min_residual=math.log(1.5),
            unit=Unit.TIMES_AS_LONG,
            of_hosts=True,
        ),
    ),
    "send": Signal(
        finished=Finished(words="sending data, for each byte", floor=0.05),
        live=Live(
            words="time to send a byte", floor=0.10, min_residual=math.log(1.5), unit=Unit.TIMES_AS_LONG, of_hosts=True
        ),
    ),
    "disk": Signal(
        finished=Finished(words="moving data to and from disk", floor=0.05, rises_with_disk=True),
        live=Live(
            words="time on the disk", floor=0.10, min_residual=math.log(1.5), unit=Unit.TIMES_AS_LONG, variance=0.02
        ),
    ),
    "memory": Signal(live=Live(words="threads paused or spilling", floor=0.03, min_residual=0.1, variance=0.0025)),
    "core_wait": Signal(
        live=Live(
            words="waiting for a core, beyond the peers",
            floor=0.03,
            min_residual=0.1,
            variance=0.0025,
            only_with_duration=True,
        )
    ),
    "beside_tasks": Signal(
        live=Live(
            words="CPU outside its tasks, beyond the peers",
            floor=0.03,
            min_residual=0.1,
            variance=0.0025,
            only_with_duration=True,
        )
    ),
    "gpu_kernel": Signal(
        live=Live(
            words="time of the same GPU kernels",
            floor=0.03,
            min_residual=math.log(1.1),
            unit=Unit.TIMES_AS_LONG,
            only_with_duration=True,
        )
    ),
    "non_cpu": Signal(
        finished=Finished(
            words="seconds off the CPU for each on it", floor=0.03, unit=Unit.TIMES_AS_MUCH, rises_with_disk=True
        )
    ),
    "io_wait": Signal(finished=Finished(words="waiting for the disk", floor=0.10, unit=Unit.TIMES_AS_MUCH)),
    "blocked": Signal(
        finished=Finished(
            words="blocked, moving data included", floor=0.16, unit=Unit.TIMES_AS_MUCH, against_usual=True
        )
    ),
    "staging": Signal(finished=Finished(words="moving data, compared with usual", floor=0.05, against_usual=True)),
    "whole": Signal(finished=Finished(words="time of a task with its data", floor=0.03, against_usual=True)),
    "loop_lag": Signal(finished=Finished(words="turn of the event loop", floor=0.15, only_evidence=True)),
    "paused": Signal(finished=Finished(words="time for each second not paused", floor=0.05)),
}

#: Signals of a run that is over.
FINISHED: Mapping[str, Finished] = {
    name: signal.finished for name, signal in SIGNALS.items() if signal.finished is not None
}

#: Signals measured while a run goes on, in the order of the rows of arrays.
LIVE: Mapping[str, Live] = {name: signal.live for name, signal in SIGNALS.items() if signal.live is not None}

#: Rows of these signals.
DURATION, CPU_SHARE, RECEIVE, SEND, DISK, MEMORY, CORE_WAIT, BESIDE_TASKS, GPU_KERNEL = range(len(LIVE))
