"""Claim: sampling why threads wait takes at most 0.3 % of a core on a worker of 8 busy threads.

``python -m benchmarks.waiting_cost`` prints the sampler's CPU time, as its own thread and the worker's event loop
measure it, as a share of one core: while eight threads sleep, compute without the GIL, compete for it, and for a lock,
with a report open and without; and while no task runs.
"""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from dask.utils import SerializableLock
from distributed import Client, LocalCluster, Worker

from benchmarks.figures import figure
from dask_efficiency import EfficiencyPlugin, efficiency_report
from dask_efficiency.plugin.names import WORKER_PLUGIN

NTHREADS = 8

#: What the claim allows, in per cent of one core.
CLAIM = 0.3


def sleeping(_: int) -> None:
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


def locking(_: int) -> None:
    """Sleep with a lock that all want: who holds it is looked for at each look."""
    with SerializableLock("waiting-cost"):
        time.sleep(0.02)


def spent(dask_worker: Worker) -> float:
    meter: Any = dask_worker.plugins[WORKER_PLUGIN].meter  # type: ignore[attr-defined]
    return float(meter._causes.spent / 1e9)


def share(client: Client, task: Callable[[int], None] | None, seconds: float, *, report: bool) -> float:
    """Per cent of one core that sampling takes while tasks of one kind keep all threads busy."""
    with efficiency_report(client) if report else nullcontext():
        futures = client.map(task, range(4_000), pure=False) if task is not None else []
        time.sleep(2)  # it begins with short intervals, until it knows its own cost
        before, began = sum(client.run(spent).values()), time.monotonic()
        time.sleep(seconds)
        used, took = sum(client.run(spent).values()) - before, time.monotonic() - began
        client.cancel(futures, force=True)
        del futures
    time.sleep(1)
    return 100 * used / took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each load (default 20)")
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
            "locking": locking,
            "no task": None,
        }
        found = []
        for name, task in loads.items():
            alone = share(client, task, chosen.seconds, report=False)
            reported = share(client, task, chosen.seconds, report=True)
            print(f"{name:12} {alone:6.3f}   with a report open {reported:6.3f}", flush=True)
            found.append((alone, reported))
        for what, shares in zip(("without a report", "with a report open"), zip(*found, strict=True), strict=True):
            figure(f"most of a core, {what}", max(shares), "%", at_most=CLAIM)


if __name__ == "__main__":
    main()
