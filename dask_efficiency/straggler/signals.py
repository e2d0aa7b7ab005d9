"""Tables of signals: name, unit, and by how much healthy workers differ."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

#: Transfers of fewer bytes show the latency of the network rather than its bandwidth; a guess.
MIN_TRANSFER_BYTES = 65_536

#: Times the usual from which a task says more about itself than about its worker: its time counts for no more, and one
#: whose size is beyond, a giant, is not compared, as its expected time is unknown. A guess.
FAR_MORE = 4.0
GIANT = math.log(FAR_MORE)


class Unit(StrEnum):
    """Unit of a signal's number."""

    #: How many times as long the work takes; levels are its logarithms.
    TIMES_AS_LONG = "times as long"
    #: How many times as much there is of something other than duration; levels are its logarithms.
    TIMES_AS_MUCH = "times as much"
    #: Share of time, or CPU seconds a second; levels are differences.
    SHARE = "share"


@dataclass(frozen=True, slots=True)
class Live:
    """A signal while a run goes on."""

    words: str
    #: Least spread among healthy workers that is assumed; and least residual of a slow worker.
    floor: float
    min_residual: float
    unit: Unit = Unit.SHARE
    #: Variance of the residual of one interval, for a signal with one number per worker; NaN if it is measured.
    variance: float = math.nan
    #: Whether the signal means slowness only if the tasks take longer too: a worker that computes for less of a shorter
    #: time is not slow, and kernels take longer on larger inputs.
    only_with_duration: bool = False
    #: Whether all workers of a host can be slow in it together.
    of_hosts: bool = False


@dataclass(frozen=True, slots=True)
class Finished:
    """A signal of a run that is over."""

    words: str
    #: Least spread among healthy workers that is assumed, as a logarithm; measured on FlowBench.
    floor: float
    unit: Unit = Unit.TIMES_AS_LONG
    #: Whether it only explains why a worker is slow, and is no slowness itself.
    only_evidence: bool = False
    #: Whether it is compared with earlier runs, as the peers wait for the same disk.
    against_usual: bool = False
    #: Whether it rises on a worker that waits for a disk which another worker keeps busy.
    rises_with_disk: bool = False


FINISHED: Mapping[str, Finished] = {
    "duration": Finished("time in the thread", 0.03, rises_with_disk=True),
    "cpu_share": Finished("seconds for each CPU second", 0.02, rises_with_disk=True),
    "receive": Finished("receiving data, for each byte", 0.05),
    "send": Finished("sending data, for each byte", 0.05),
    "disk": Finished("moving data to and from disk", 0.05, rises_with_disk=True),
    "non_cpu": Finished("seconds off the CPU for each on it", 0.03, Unit.TIMES_AS_MUCH, rises_with_disk=True),
    "io_wait": Finished("waiting for the disk", 0.10, Unit.TIMES_AS_MUCH),
    "blocked": Finished("blocked, moving data included", 0.16, Unit.TIMES_AS_MUCH, against_usual=True),
    "staging": Finished("moving data, compared with usual", 0.05, against_usual=True),
    "whole": Finished("time of a task with its data", 0.03, against_usual=True),
    "loop_lag": Finished("turn of the event loop", 0.15, only_evidence=True),
    "paused": Finished("time for each second not paused", 0.05),
}

#: Least logarithm of a ratio of times that counts as slow: a tenth longer.
LONGER = math.log(1.1)
_MUCH_LONGER = math.log(1.5)
#: Multiple of the usual time from which a host's disk, or an event loop, is why tasks take longer; a guess. With 1.1,
#: contention of a host that moves data 1.15 times as long is called a slow disk in 12 of 12 runs.
SLOWER = 1.2

#: Signals measured while a run goes on, in the order of the rows of arrays.
LIVE: Mapping[str, Live] = {
    "duration": Live("time for the same work", 0.03, LONGER, Unit.TIMES_AS_LONG, of_hosts=True),
    "cpu_share": Live("share of it on the CPU", 0.02, 0.05, only_with_duration=True, of_hosts=True),
    "receive": Live("time to receive a byte", 0.10, _MUCH_LONGER, Unit.TIMES_AS_LONG, of_hosts=True),
    "send": Live("time to send a byte", 0.10, _MUCH_LONGER, Unit.TIMES_AS_LONG, of_hosts=True),
    "disk": Live("time on the disk", 0.10, _MUCH_LONGER, Unit.TIMES_AS_LONG, 0.02),
    "memory": Live("threads paused or spilling", 0.03, 0.1, variance=0.0025),
    "core_wait": Live("waiting for a core, beyond the peers", 0.03, 0.1, variance=0.0025, only_with_duration=True),
    "beside_tasks": Live(
        "CPU outside its tasks, beyond the peers", 0.03, 0.1, variance=0.0025, only_with_duration=True
    ),
    "gpu_kernel": Live("time of the same GPU kernels", 0.03, LONGER, Unit.TIMES_AS_LONG, only_with_duration=True),
}

#: Rows of these signals.
DURATION, CPU_SHARE, RECEIVE, SEND, DISK, MEMORY, CORE_WAIT, BESIDE_TASKS, GPU_KERNEL = range(len(LIVE))
