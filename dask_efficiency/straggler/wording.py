"""Findings in words, for a log, a table and a page."""

from __future__ import annotations

from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.show.figures import format_times, name_of
from dask_efficiency.show.finding import Basis, Finding

#: By cause: what it means, and what to look at.
MEANINGS: dict[Cause, tuple[str, str]] = {
    Cause.SLOW_CPU: (
        "its CPU is slower",
        "look at the clock frequency, at CPU time stolen by other virtual machines, and at the model of the CPU",
    ),
    Cause.CONTENTION: (
        "others use its cores",
        "look for other processes on its host, for CPU limits of its container, and for more threads than cores",
    ),
    Cause.GIL: (
        "its threads wait for each other",
        "look for code in that process that keeps the GIL: run fewer threads in each worker, and more workers",
    ),
    Cause.STOPPED: (
        "its process stands still at times",
        "look for what stops it: SIGSTOP, a debugger, a batch system, a frozen container, a paused virtual machine",
    ),
    Cause.SLEEP: (
        "its tasks sleep longer",
        "look at what sleeps in its tasks, and why there, such as retries",
    ),
    Cause.LOCK: ("its tasks wait for locks", "look at what holds the lock that they wait for"),
    Cause.DISK: ("its disk is slow", "look at where it spills to: another disk, or a full or shared one"),
    Cause.NETWORK: ("its transfers are slow", "look at its network card, its link, and what else its host sends"),
    Cause.MEMORY: (
        "its memory is nearly full",
        "look at what it keeps: give it more memory, rebalance, or make its partitions smaller",
    ),
    Cause.MEMORY_BANDWIDTH: (
        "its memory is slow",
        "look for other processes on its host that move much data, and at its memory modules and NUMA settings",
    ),
    Cause.UNRESPONSIVE: ("it does not answer", "look at its log, and whether its process is stopped or blocked"),
    Cause.GPU: ("its GPU is slow", "look at the clocks, the temperature and the throttle reasons of its GPU"),
    Cause.UNKNOWN: ("nothing that is measured says why", "look at what its tasks wait for: files, services, locks"),
}


def as_finding(slow: SlowWorker) -> Finding:
    """What a slow worker costs the run, as a finding."""
    means, look = MEANINGS[slow.cause]
    who = f"Worker {name_of(slow.worker)}" if slow.worker else f"Host {name_of(slow.host)}"
    times = "" if slow.effect is None else f", {format_times(slow.effect)} as long for the same work"
    line = f", in {name_of(slow.line)}" if slow.line else ""
    return Finding(
        kind="slow-worker",
        title=f"Slow worker, {means}",
        where=f"{who}{times}{line}",
        saves_seconds=slow.seconds_lost or None,
        basis=Basis.REPLAYED if slow.seconds_lost else Basis.UNKNOWN,
        advice=f"{look[:1].upper()}{look[1:]}.",
        page="docs/stragglers.md",
        evidence={"score": slow.score},
        confidence=slow.confidence,
    )


def meaning(finding: SlowWorker) -> str:
    """What slows a worker, with the line where that is known."""
    said, _ = MEANINGS[finding.cause]
    return f"{said}, in {finding.line[:200]}" if finding.line else said


def describe(finding: SlowWorker) -> str:
    """A finding in one sentence."""
    who = f"worker {finding.worker[:200]!r}" if finding.worker else "all workers"
    where = f" on host {finding.host[:200]!r}" if finding.host else ""
    _, look = MEANINGS[finding.cause]
    times = "longer" if finding.effect is None else f"{finding.effect:.2g} times as long as its peers"
    return f"{who}{where} takes {times} for the same work ({finding.cause}: {meaning(finding)}); {look}"
