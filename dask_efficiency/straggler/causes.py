"""Causes: why a worker is slow, by the signals of all sources; what that means, and what to look at.

A row of :data:`MEANINGS` has the signals by which a cause shows itself in each source. What is slow slows other things,
so several signals stand out at once, and the deepest cause is named:

- *Metrics* know no work. The strongest one that has a cause names it; less time on the CPU alone is contention.
- *Measurements* are of one thing each, so it is known which explains which (``preflights/judge/verdict.py``).
- *Tasks*: a full memory, or a lack of the CPU, slows all that a worker does; a disk or a network what uses it. Longer
  tasks that compute for as much of their time as elsewhere have a slow CPU. From those that compute for less it is
  taken: from inside, if the process computes beside its tasks, or from outside. See :func:`cause_by_heartbeats`.
- *Tasks of a run that is over* have no figures of the process: a lagging event loop is all that tells the GIL, and less
  time on the CPU without it is a wait for a core. Seconds on the disk are by task there, so a full memory raises them,
  and comes first; in heartbeats they are by byte, and a slow disk fills the memory. See :func:`cause_of_run`.
- *Waiting* of the threads decides what the signals leave open (:data:`OPEN`), by its largest excess over the peers.

Three rules say whether a slowness is explained by another one. For measurements, and a GPU's kernels, it is
:func:`explains`; for heartbeats :data:`SLOWED_WITH_TASKS`; for runs a third of it, in :func:`cause_of_run`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dask_efficiency.accounts.slow_worker import Cause
from dask_efficiency.show.finding import MOST
from dask_efficiency.straggler.peers import Floats
from dask_efficiency.straggler.signals import (
    BESIDE_TASKS,
    CORE_WAIT,
    CPU_SHARE,
    DISK,
    DURATION,
    GPU_KERNEL,
    LIVE,
    LONGER,
    MEMORY,
    RECEIVE,
    SEND,
    SLOWER,
)


@dataclass(frozen=True, slots=True)
class Meaning:
    """A cause in words, and the signals of each source that show it."""

    words: str
    #: Advice: where to look.
    look: str
    #: Signals of tasks; metrics and sensors; components of a preflight; and causes of waiting.
    tasks: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    measurements: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()


MEANINGS: Mapping[Cause, Meaning] = {
    Cause.SLOW_CPU: Meaning(
        "its CPU is slower",
        "Look at the clock frequency, at CPU time stolen by other virtual machines, and at the model of the CPU.",
        tasks=("duration",),
        metrics=("steal", "cpu_clock", "cpu_throttles"),
        measurements=("cpu", "cpu_all"),
    ),
    Cause.CONTENTION: Meaning(
        "others use its cores",
        "Look for other processes on its host, for CPU limits of its container, and for more threads than cores.",
        tasks=("cpu_share", "non_cpu", "core_wait"),
        metrics=("thread_noncpu", "run_queue", "cpu_pressure"),
        measurements=("python",),
        waiting=("core", "throttled"),
    ),
    Cause.GIL: Meaning(
        "its threads wait for each other",
        "Look for code in that process that keeps the GIL: run fewer threads in each worker, and more workers.",
        tasks=("loop_lag", "beside_tasks"),
        metrics=("loop_interval",),
        waiting=("gil",),
    ),
    Cause.STOPPED: Meaning(
        "its process stands still at times",
        "Look for what stops it: SIGSTOP, a debugger, a batch system, a frozen container, a paused virtual machine.",
        waiting=("stopped",),
    ),
    Cause.SLEEP: Meaning(
        "its tasks sleep longer",
        "Look at what sleeps in its tasks, and why there, such as retries.",
        waiting=("sleep",),
    ),
    Cause.LOCK: Meaning(
        "its tasks wait for locks", "Look at what holds the lock that they wait for.", waiting=("lock",)
    ),
    Cause.DISK: Meaning(
        "its disk is slow",
        "Look at where it spills to: another disk, or a full or shared one.",
        tasks=("disk", "io_wait", "blocked"),
        metrics=("spill", "disk_read", "disk_write", "disk_busy", "disk_wait", "disk_pressure"),
        measurements=("disk",),
        waiting=("file",),
    ),
    Cause.NETWORK: Meaning(
        "its transfers are slow",
        "Look at its network card, its link, and what else its host sends.",
        tasks=("receive", "send"),
        metrics=(
            *("waiting_on_data", "net_read", "net_write", "net_errors", "net_drops", "retransmits"),
            *("rdma_read", "rdma_write", "rdma_ecn", "rdma_cnp", "pfc_sent", "pfc_received"),
        ),
        measurements=("send", "receive", "latency", "collective"),
        waiting=("network",),
    ),
    Cause.MEMORY: Meaning(
        "its memory is nearly full",
        "Look at what it keeps: give it more memory, rebalance, or make its partitions smaller.",
        tasks=("paused", "memory"),
        metrics=("paused", "spilled", "swap_in", "swap_out", "memory_pressure"),
    ),
    Cause.MEMORY_BANDWIDTH: Meaning(
        "its memory is slow",
        "Look for other processes on its host that move much data, and at its memory modules and NUMA settings.",
        measurements=("memory_bandwidth",),
    ),
    Cause.UNRESPONSIVE: Meaning(
        "it does not answer", "Look at its log, and whether its process is stopped or blocked."
    ),
    Cause.GPU: Meaning(
        "its GPU is slow",
        "Look at the clocks, the temperature and the throttle reasons of its GPU.",
        tasks=("gpu_kernel",),
        metrics=(*("gpu", "gpu_clock", "gpu_temperature", "gpu_power", "gpu_throttled", "gpu_pcie", "gpu_nvlink"),),
        measurements=("gpu", "gpu_memory", "gpu_copy", "gpu_peer", "soak"),
    ),
    Cause.UNKNOWN: Meaning(
        "nothing that is measured says why", "Look at what its tasks wait for: files, services, locks."
    ),
}

#: Cause by signal of tasks, by metric, by component of a preflight, and by what threads wait for.
BY_TASKS, BY_METRIC, BY_MEASUREMENT, BY_WAITING = (
    {signal: cause for cause, meaning in MEANINGS.items() for signal in getattr(meaning, source)}
    for source in ("tasks", "metrics", "measurements", "waiting")
)

#: Causes that signals leave open: there the threads' waiting decides.
OPEN = frozenset((Cause.GIL, Cause.CONTENTION, Cause.UNKNOWN))
#: Causes for which only the tasks' duration speaks. The distribution of tasks is not always chance, so such a worker
#: must differ by more than one standard deviation of the tasks of a prefix.
BY_DURATION_ALONE = frozenset((Cause.SLOW_CPU, Cause.UNKNOWN))
#: Causes that lengthen tasks' computing, whose effect a replay can remove.
REPLAYED = frozenset((Cause.SLOW_CPU, Cause.STOPPED, Cause.SLEEP, Cause.LOCK, Cause.GPU, *OPEN))
#: Waiting that has a line in the user's code, by its cause; other causes lie in the machine.
IN_CODE = {cause: MEANINGS[cause].waiting[0] for cause in (Cause.SLEEP, Cause.LOCK)}

#: What is slow explains what it slows with most of the latter's slowness, in logarithms, or with this part if it is a
#: process that waits for a core or for the GIL: it does so each time it wakes, so that reading, writing and messages
#: slow down more than computing. With a thread that holds the GIL for 3 of 4 ms Python took 1.5 times as
#: long and a transfer 3 to 5 times; with a neighbour on the core these were 2.2, and 5 for the disk.
EXPLAINS_AS_IT_WAITS = 0.2


def explains(own: float, other: float, *, waits: bool = False) -> bool:
    """True if what is slow, by so many logarithms, explains another slowness; ``waits`` as for a core or the GIL."""
    return own >= (EXPLAINS_AS_IT_WAITS if waits else MOST) * other


#: Most by which lack of the CPU slows disk and transfers more than tasks, by heartbeats, as a logarithm; a GIL does so
#: without bounds, as each call waits for it again. With a part of the logarithm, as between idle processes, a disk
#: 10 times as slow beside tasks that take twice as long was called contention in 4 of 4 runs, and a GIL that hardly
#: lengthens tasks a slow disk in 10 of 10.
SLOWED_WITH_TASKS = {Cause.CONTENTION: math.log(2.5), Cause.SLOW_CPU: math.log(2.5), Cause.GIL: math.inf}
#: Least drop of the share of time on the CPU below the peers' that counts, as a share of theirs; a guess.
FLAT_SHARE = 0.08
#: Least wait for a core, as a share of the time in which threads want one, and least CPU use outside tasks for which
#: they wait for the GIL, both above the peers'.
MUCH_WAIT, MUCH_BESIDE = (LIVE[signal].min_residual for signal in ("core_wait", "beside_tasks"))

_NAMES = tuple(LIVE)

#: A worker's number, and the median of its peers'; NaN if unknown.
WithPeers = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Symptoms:
    """Figures of a worker whose tasks take longer; NaN if unknown."""

    #: Share of its tasks' time on the CPU; and seconds between two turns of its event loop.
    share: WithPeers = (math.nan, math.nan)
    lag: WithPeers = (math.nan, math.nan)
    #: Beyond the peers: wait for a core as a share of the time in which threads want one, and CPU seconds a second that
    #: its process uses outside its tasks.
    core_wait: float = math.nan
    beside_tasks: float = math.nan
    #: Whether its disk, or its transfers, stand out too.
    disk: bool = False
    network: bool = False


def cause_of_slow_tasks(symptoms: Symptoms) -> Cause:
    """Cause of a worker's slow tasks: a slow CPU if they compute for as much of their time as the peers'.

    Otherwise the CPU is taken from them: from inside, if something else in the process computes; from outside, if
    threads wait for a core or the whole process stands still.
    """
    share, usual = symptoms.share
    lower = usual - share > FLAT_SHARE * usual
    if not lower and usual >= MOST:
        return Cause.SLOW_CPU
    taken = who_takes_the_cpu(symptoms)
    if taken is not None:
        return taken
    if lower and symptoms.lag[0] >= SLOWER * symptoms.lag[1]:
        return Cause.CONTENTION
    if symptoms.disk:
        return Cause.DISK
    return Cause.NETWORK if symptoms.network else Cause.UNKNOWN


def who_takes_the_cpu(symptoms: Symptoms) -> Cause | None:
    """Cause that takes the CPU from a process's tasks, however little they compute; None if nothing does."""
    if symptoms.beside_tasks >= MUCH_BESIDE:
        return Cause.GIL
    return Cause.CONTENTION if symptoms.core_wait >= MUCH_WAIT else None


def cause_by_heartbeats(above: Floats, level: Floats, symptoms: Symptoms, *, ease: float) -> tuple[int, Cause]:
    """Signal to report of a worker, by its row, and its cause.

    ``above`` are multiples of what flags a worker, from ``ease`` on a signal counts beside another, and levels are
    logarithms of ratios.
    """
    of_tasks = max(above[[DURATION, CPU_SHARE, CORE_WAIT, BESIDE_TASKS, GPU_KERNEL]])
    if above[GPU_KERNEL] >= ease and explains(level[GPU_KERNEL], level[DURATION]):
        return DURATION, Cause.GPU
    of_cpu = cause_of_slow_tasks(symptoms) if of_tasks >= ease else who_takes_the_cpu(symptoms)
    expected = max(level[DURATION], 0.0) + SLOWED_WITH_TASKS[of_cpu] if of_cpu in SLOWED_WITH_TASKS else 0.0
    network = RECEIVE if above[RECEIVE] >= above[SEND] else SEND
    if above[DISK] >= 1 and level[DISK] >= expected:
        return DISK, Cause.DISK
    if above[MEMORY] >= 1:
        return MEMORY, Cause.MEMORY
    if above[network] >= 1 and of_tasks < 1 and level[network] >= expected:
        return network, Cause.NETWORK
    if of_cpu is not None and max(of_tasks, above[DISK], above[network]) > -math.inf:
        return DURATION, of_cpu
    row = max(DISK, MEMORY, network, DURATION, key=above.__getitem__)
    return row, Cause.UNKNOWN if row == DURATION else BY_TASKS[_NAMES[row]]


def cause_of_run(high: Mapping[str, float], levels: Mapping[str, float], *, lagging: bool) -> Cause:
    """Cause of a slow worker of a run that is over, by the z of the signals that stand out and its levels."""
    strongest = max(high, key=high.__getitem__)
    if "paused" in high:
        return Cause.MEMORY
    cause = BY_TASKS.get(strongest, Cause.UNKNOWN)
    if cause in (Cause.NETWORK, Cause.DISK):
        return cause
    if {"io_wait", "blocked"} & high.keys():
        return Cause.DISK
    if "cpu_share" not in levels:
        return Cause.DISK if "disk" in high else Cause.UNKNOWN
    # A lag is all that tells the GIL here, and less time on the CPU without one a wait for a core. It explains a
    # slowness of which it is a third: with a fifth, slow CPUs that take 3 times as long are called contention.
    if levels["cpu_share"] > max(LONGER / 2, levels.get("duration", 0.0) / 3):
        return Cause.GIL if lagging else Cause.CONTENTION
    return Cause.SLOW_CPU
