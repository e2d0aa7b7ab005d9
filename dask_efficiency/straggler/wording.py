"""Findings of slow workers and long tasks: causes, advice and costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.show.figures import format_count, format_number, format_seconds, format_times, name_of
from dask_efficiency.show.finding import Basis, Finding
from dask_efficiency.straggler.observations import SIZES_DIFFER

#: Meaning and advice, by cause.
MEANINGS: dict[Cause, tuple[str, str]] = {
    Cause.SLOW_CPU: (
        "its CPU is slower",
        "Look at the clock frequency, at CPU time stolen by other virtual machines, and at the model of the CPU.",
    ),
    Cause.CONTENTION: (
        "others use its cores",
        "Look for other processes on its host, for CPU limits of its container, and for more threads than cores.",
    ),
    Cause.GIL: (
        "its threads wait for each other",
        "Look for code in that process that keeps the GIL: run fewer threads in each worker, and more workers.",
    ),
    Cause.STOPPED: (
        "its process stands still at times",
        "Look for what stops it: SIGSTOP, a debugger, a batch system, a frozen container, a paused virtual machine.",
    ),
    Cause.SLEEP: ("its tasks sleep longer", "Look at what sleeps in its tasks, and why there, such as retries."),
    Cause.LOCK: ("its tasks wait for locks", "Look at what holds the lock that they wait for."),
    Cause.DISK: ("its disk is slow", "Look at where it spills to: another disk, or a full or shared one."),
    Cause.NETWORK: ("its transfers are slow", "Look at its network card, its link, and what else its host sends."),
    Cause.MEMORY: (
        "its memory is nearly full",
        "Look at what it keeps: give it more memory, rebalance, or make its partitions smaller.",
    ),
    Cause.MEMORY_BANDWIDTH: (
        "its memory is slow",
        "Look for other processes on its host that move much data, and at its memory modules and NUMA settings.",
    ),
    Cause.UNRESPONSIVE: ("it does not answer", "Look at its log, and whether its process is stopped or blocked."),
    Cause.GPU: ("its GPU is slow", "Look at the clocks, the temperature and the throttle reasons of its GPU."),
    Cause.UNKNOWN: ("nothing that is measured says why", "Look at what its tasks wait for: files, services, locks."),
}

#: Title and advice of a long task.
LONG_TASK = (
    "One task takes far longer than its like",
    "Split it, or split or salt its key where its input is larger than the others'.",
)

#: Least share of a task's time during which nothing else ran that its finding mentions.
ALONE = 0.05


def as_finding(slow: SlowWorker) -> Finding:
    """Finding of a slow worker, or of a host all of whose workers are slow."""
    means, look = MEANINGS[slow.cause]
    what = "worker" if slow.worker else "host"
    times = "" if slow.effect is None else f", {format_times(slow.effect)} as long for the same work"
    line = f", in {name_of(slow.line)}" if slow.line else ""
    return Finding(
        kind=f"slow-{what}",
        title=f"Slow {what}, {means}",
        where=f"{what.capitalize()} {name_of(slow.subject)}{times}{line}",
        saves_seconds=slow.seconds_lost or None,
        basis=Basis.REPLAYED if slow.seconds_lost else Basis.UNKNOWN,
        advice=look,
        page="docs/buckets.md#slow-worker",
        evidence=_finite({"score": slow.score, **{item.signal: item.value for item in slow.evidence}}),
        confidence=slow.confidence,
    )


def _finite(evidence: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in evidence.items() if math.isfinite(value)}


def long_task(
    who: str, seconds: float, times_longer: float, *, times_larger: float = math.nan, alone_seconds: float = 0.0
) -> Finding:
    """Finding of a task, named harmlessly, that took far longer than the others of its prefix, by their medians."""
    title, todo = LONG_TASK
    size = f", its input is {format_number(times_larger)} times as large" if times_larger >= SIZES_DIFFER else ""
    alone = f"; for {format_seconds(alone_seconds)} nothing else ran" if alone_seconds > ALONE * seconds else ""
    return Finding(
        kind="long-task",
        title=title,
        where=f"{who} took {format_seconds(seconds)}, {format_number(times_longer)} times the median{size}{alone}",
        saves_seconds=seconds,
        basis=Basis.BOUNDED,
        advice=todo,
        page="docs/stragglers.md",
        evidence=_finite({"seconds": seconds, "times_longer": times_longer, "times_larger": times_larger}),
    )


def how_many(slow: Sequence[SlowWorker], workers: int) -> str:
    """Number of slow workers for a headline: ``"2 of 8 workers are slow"``."""
    of = f"of {format_count(workers, 'worker')}"
    hosts = sum(not finding.worker for finding in slow)
    counts = [format_count(hosts, "host")] if hosts else []
    counts += [str(len(slow) - hosts)] if len(slow) > hosts else []
    return f"{' and '.join(counts) or 'None'} {of} {'are' if len(slow) > 1 else 'is'} slow"
