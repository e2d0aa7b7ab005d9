"""Claim: knowing what slots are idle for costs the scheduler at most 0.5 % of a core with 1000 workers.

``python -m benchmarks.idle_watch`` looks at workers that are there by name only, of four threads each, and prints the
CPU time of a look by the thread's own clock, its part of a core at the interval for that number of workers, and the
cost of splitting one worker's idle time.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from types import SimpleNamespace
from typing import Any

from distributed.core import Status
from distributed.scheduler import WorkerState

from benchmarks.figures import figure
from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.plugin.scheduler.idle_watch import IdleWatch

NTHREADS = 4

#: Tasks of the workers by turns: those beyond the threads wait. ``changing`` are other ones at each look.
SCENES = {"free": (0,), "half free": (2,), "busy": (4,), "waiting": (9, 2), "restricted": (9, 2), "changing": (0,)}


class Task:
    """As much of a task as is looked at."""

    prefix = SimpleNamespace(name="inc")
    loose_restrictions = False
    host_restrictions = resource_restrictions = None

    def __init__(self, number: int, address: str | None = None) -> None:
        self.key = f"inc-{number}"
        self.worker_restrictions = None if address is None else {address}


class Scheduler:
    """As much of a scheduler as is looked at."""

    def __init__(self, workers: int, scene: str) -> None:
        self.queued: list[Any] = []
        self.unrunnable: dict[Any, float] = {}
        self.workers = {f"tcp://w{i}:1": _worker(f"tcp://w{i}:1") for i in range(workers)}
        for i, (address, ws) in enumerate(self.workers.items()):
            turns = SCENES[scene]
            own = address if scene == "restricted" else None
            ws.processing = {Task(number, own) for number in range(turns[i % len(turns)])}  # type: ignore[misc]

    def valid_workers(self, ts: Any) -> set[WorkerState] | None:
        """The workers that may run a task."""
        return None if ts.worker_restrictions is None else {self.workers[a] for a in ts.worker_restrictions}


def _worker(address: str) -> WorkerState:
    return WorkerState(
        address=address,
        status=Status.running,
        pid=0,
        name=address,
        nthreads=NTHREADS,
        memory_limit=0,
        local_directory="",
        nanny=None,
        server_id=address,
    )


def measure(workers: int, scene: str, looks: int) -> float:
    """Share of a core, which is printed."""
    scheduler: Any = Scheduler(workers, scene)
    cluster = ClusterLedger(at=0)
    for address in scheduler.workers:
        cluster.worker_joined(address, address, NTHREADS, at=0)
    cluster.work.set(True, at=0)
    work: Any = SimpleNamespace(changed=None, graphs=False)
    loop: Any = SimpleNamespace(waited=0)
    watch = IdleWatch(scheduler, work, cluster, loop)
    watch._working = True
    tasks = [Task(number) for number in range(NTHREADS)]
    took = []
    for i in range(looks):
        if scene == "changing":
            for ws in scheduler.workers.values():
                ws.processing = set(tasks[: random.randrange(NTHREADS + 1)])
        before = watch.cost_seconds
        watch.sample(at=(i + 1) * 10**6)
        took.append(watch.cost_seconds - before)
    began = time.thread_time()
    for presence in cluster.present.values():
        watch.weights.split(presence, 10**9)
    split = (time.thread_time() - began) / workers
    look = statistics.median(took)
    share = look / (watch._interval() / 1e3)
    print(
        f"{workers:6} {scene:10} look {look * 1e6:8.0f} us, {share:6.3%} of a core; split {split * 1e6:5.1f} us",
        flush=True,
    )
    return share


def main() -> None:
    """Measure what is asked for, and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[10, 100, 1_000, 10_000])
    parser.add_argument("--looks", type=int, default=20)
    options = parser.parse_args()
    shares = {
        (workers, scene): measure(workers, scene, options.looks) for workers in options.workers for scene in SCENES
    }
    if of_thousand := {scene: 100 * share for (workers, scene), share in shares.items() if workers == 1_000}:
        figure("all slots change", of_thousand.pop("changing"), "%", at_most=0.7)
        figure("most of the others", max(of_thousand.values()), "%", at_most=0.5)


if __name__ == "__main__":
    main()
