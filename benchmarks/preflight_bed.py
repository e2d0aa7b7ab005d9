"""What a preflight's bed has beyond that of the stragglers: a worker that hangs, slow memory, a slow trunk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from benchmarks.namespaces import add_bridge, add_cable, add_host, sh, unlike_others
from benchmarks.stragglers_bed import FAULTS, LINK, Bed, Fault, pin
from dask_efficiency.accounts.slow_worker import Cause

#: How often it is looked whether the victim measures.
LOOK_SECONDS = 0.01

#: A neighbour must slow memory by so much, or the fault cannot be injected on this machine.
MIN_SLOWDOWN = 1.5

_STREAM = """
import numpy as np
source, target = np.ones(2**24), np.empty(2**24)
while True:
    np.copyto(target, source)
"""

_BANDWIDTH = """
from dask_efficiency.preflights.hardware.memory import copies
print(copies(0, 0.3)["value"])
"""


@contextmanager
def _hung(bed: Bed, victim: str) -> Iterator[None]:
    """The process is stopped, and does not answer."""
    pid = bed.member(victim).pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def streaming(cores: set[int]) -> Iterator[list[int]]:
    """Processes that move as many bytes as they can, one on each of these cores, stopped at first."""
    with ExitStack() as stack:
        pids = []
        for core in cores:
            process = subprocess.Popen([sys.executable, "-c", _STREAM])
            stack.callback(process.wait)
            stack.callback(process.kill)
            os.sched_setaffinity(process.pid, {core})
            os.kill(process.pid, signal.SIGSTOP)
            pids.append(process.pid)
        yield pids


def _send(pids: list[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def neighbours_slow_memory() -> float:
    """How many times as long a core takes to move memory while all others do."""
    last, others = _last_core()

    def bandwidth() -> float:
        command = ["taskset", "-c", str(last), sys.executable, "-c", _BANDWIDTH]
        return max(float(sh(*command)) for _ in range(3))

    with streaming(others) as pids:
        alone = bandwidth()
        _send(pids, signal.SIGCONT)
        return alone / bandwidth()


def _last_core() -> tuple[int, set[int]]:
    cores = os.sched_getaffinity(0)
    return max(cores), cores - {max(cores)}


@contextmanager
def _slow_memory(bed: Bed, victim: str) -> Iterator[None]:
    """All other cores stream memory while the victim measures itself, as if they shared a host with it alone.

    It is kept on the last core, where nothing else is put, so that no CPU time is taken from it.
    """
    pid, (last, others) = bed.member(victim).pid, _last_core()
    over = threading.Event()

    def measures() -> bool:
        with suppress(OSError):
            return any(path.read_text().split() for path in Path(f"/proc/{pid}/task").glob("*/children"))
        return False

    with streaming(others) as pids:

        def follow() -> None:
            while not over.wait(LOOK_SECONDS):
                _send(pids, signal.SIGCONT if measures() else signal.SIGSTOP)

        pin(pid, {last})
        thread = threading.Thread(target=follow)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
            pin(pid, others | {last})


#: All faults of a worker.
PREFLIGHT_FAULTS = {
    **FAULTS,
    "hung": Fault(Cause.UNRESPONSIVE, _hung),
    "slow-memory": Fault(Cause.MEMORY_BANDWIDTH, _slow_memory),
}


@contextmanager
def slow_trunk(workers: int) -> Iterator[tuple[str, list[str]]]:
    """Network namespaces on two bridges, half of them on each, with a slow link between the bridges."""
    number = unlike_others()
    bridges = [f"dbed{number}a", f"dbed{number}b"]
    links = [f"dbed{number}-{i}" for i in range(workers)]
    ends = [f"dbed{number}t0", f"dbed{number}t1"]
    with ExitStack() as stack:
        for bridge in bridges:
            add_bridge(stack, bridge)
        sh("ip", "addr", "add", f"10.213.{number}.1/24", "dev", bridges[0])
        add_cable(stack, *ends)
        for end, bridge in zip(ends, bridges, strict=True):
            sh("ip", "link", "set", end, "master", bridge, "up")
            sh("tc", "qdisc", "add", "dev", end, "root", "tbf", "rate", LINK, "burst", "32kb", "latency", "400ms")
        for i, link in enumerate(links):
            add_host(stack, link, bridges[i * 2 // workers], f"10.213.{number}.{i + 2}")
        yield f"10.213.{number}.1", links
