"""What it costs to sample why threads wait: claim, at most 0.3 % of a core on a worker of 8 busy threads.

    python -m benchmarks.waiting_cost [--seconds N] [--repeats N]

Prints the sampler's CPU time, as its own thread and the worker's event loop measure it, as a share of one core: while
eight threads sleep, compute without the GIL, and compete for it, with a report open and without; and while no task
runs. Then the throughput and the worker's CPU time for tasks that do nothing, with sampling and without, in pairs one
after the other: the median of the differences and their spread.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from distributed import Client, LocalCluster, Worker

from dask_efficiency import EfficiencyPlugin, efficiency_report
from dask_efficiency.plugin.names import WORKER_PLUGIN

NTHREADS = 8

#: What the claim allows, in per cent of one core.
CLAIM = 0.3


def sleeping(_: int) -> None:
    """Wait for nothing."""
    time.sleep(0.2)


def computing(_: int) -> None:
    """Compute without the GIL, for 50 ms of CPU time."""
    stop = time.thread_time() + 0.05
    while time.thread_time() < stop:
        hashlib.sha256(b"x" * 2_000_000).digest()


def competing(_: int) -> None:
    """Compute with the GIL, for 20 ms of CPU time."""
    stop = time.thread_time() + 0.02
    while time.thread_time() < stop:
        sum(range(1_000))


def nothing(_: int) -> None:
    """Return."""


def _spent(dask_worker: Worker) -> tuple[float, float]:
    """CPU seconds of the sampler, and of the whole process."""
    meter: Any = dask_worker.plugins[WORKER_PLUGIN].meter  # type: ignore[attr-defined]
    return meter._causes.spent / 1e9, time.process_time()


def spent(client: Client) -> tuple[float, float]:
    """The same of the one worker."""
    [found] = client.run(_spent).values()
    sampler, process = found
    return float(sampler), float(process)


def share(client: Client, task: Callable[[int], None] | None, seconds: float, *, report: bool) -> float:
    """Per cent of one core that sampling takes while tasks of one kind keep all threads busy."""
    with efficiency_report(client) if report else nullcontext():
        futures = client.map(task, range(4_000), pure=False) if task is not None else []
        time.sleep(2)  # it begins with short intervals, until it knows its own cost
        before, began = spent(client)[0], time.monotonic()
        time.sleep(seconds)
        used, took = spent(client)[0] - before, time.monotonic() - began
        client.cancel(futures, force=True)
        del futures
    time.sleep(1)
    return 100 * used / took


def throughput(client: Client, tasks: int) -> tuple[float, float]:
    """Tasks a second, and the worker's CPU microseconds a task."""
    before, began = spent(client)[1], time.monotonic()
    client.gather(client.map(nothing, range(tasks), pure=False))
    took = time.monotonic() - began
    return tasks / took, (spent(client)[1] - before) / tasks * 1e6


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each load (default 20)")
    parser.add_argument("--repeats", type=int, default=10, help="pairs of throughput (default 10)")
    parser.add_argument("--tasks", type=int, default=3_000, help="tasks of each throughput (default 3000)")
    chosen = parser.parse_args()
    with (
        LocalCluster(n_workers=1, threads_per_worker=NTHREADS, processes=True, dashboard_address=":0") as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(EfficiencyPlugin())
        print(f"{NTHREADS} threads       per cent of one core (claim: at most {CLAIM})")
        loads: dict[str, Callable[[int], None] | None] = {
            "sleeping": sleeping,
            "computing": computing,
            "competing": competing,
            "no task": None,
        }
        for name, task in loads.items():
            alone = share(client, task, chosen.seconds, report=False)
            reported = share(client, task, chosen.seconds, report=True)
            print(f"{name:12} {alone:6.3f}   with a report open {reported:6.3f}", flush=True)
        rates: list[float] = []
        cpu: list[float] = []
        for i in range(chosen.repeats):
            pair = {}
            for waiting in (True, False) if i % 2 else (False, True):
                client.register_plugin(EfficiencyPlugin(waiting=waiting))
                throughput(client, chosen.tasks // 4)
                pair[waiting] = throughput(client, chosen.tasks)
            rates.append(100 * (pair[True][0] / pair[False][0] - 1))
            cpu.append(pair[True][1] - pair[False][1])
        for what, unit, values in (("throughput", "%", rates), ("worker CPU a task", "us", cpu)):
            quartiles = statistics.quantiles(values, n=4)
            print(
                f"{what} of tasks that do nothing, with sampling: {statistics.median(values):+.2f} {unit} "
                f"(quartiles {quartiles[0]:+.2f} and {quartiles[2]:+.2f}, {len(values)} pairs)"
            )


if __name__ == "__main__":
    main()
