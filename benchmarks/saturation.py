"""Claim: where slots are idle for round trips, the value of ``worker-saturation`` that the finding names ends that.

``python -m benchmarks.saturation`` runs many short tasks that sleep, at ``distributed.scheduler.worker-saturation`` 1.0
and at the value that the report of that run names, by turns, on a cluster of its own each, and prints the medians over
the pairs of wall clock and of the idle thread time for round trips, and their ratios. With ``--way`` each worker tells
its results only once in so many seconds, as if the way to the scheduler were long.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

import dask
from distributed import Client, LocalCluster, wait

from dask_efficiency import EfficiencyPlugin, EfficiencyReport, efficiency_report
from dask_efficiency.report.facts import facts_of


def nap(_: int, seconds: float) -> None:
    """Sleep: a task that needs no core."""
    time.sleep(seconds)


def tell_every(dask_worker: Any, seconds: float) -> None:
    """The worker sends its results so rarely."""
    dask_worker.batched_stream.interval = seconds


def measure(saturation: float, options: argparse.Namespace) -> EfficiencyReport:
    """The report of a run at a saturation."""
    with (
        dask.config.set({"distributed.scheduler.worker-saturation": saturation}),
        LocalCluster(n_workers=options.workers, threads_per_worker=options.threads, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(EfficiencyPlugin())
        wait(client.map(nap, range(100), seconds=options.seconds, pure=False))
        if options.way:
            client.run(tell_every, seconds=options.way)
        with efficiency_report(client=client) as found:
            wait(client.map(nap, range(options.tasks), seconds=options.seconds, pure=False))
        return found.report


def main() -> None:
    """Measure by turns, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tasks", type=int, default=600)
    parser.add_argument("--seconds", type=float, default=0.01, help="length of a task")
    parser.add_argument("--way", type=float, default=0.0, help="seconds between a worker's messages; 0: as Dask has it")
    parser.add_argument("--pairs", type=int, default=5)
    options = parser.parse_args()
    walls, waits = [], []
    for pair in range(options.pairs):
        before = measure(1.0, options)
        needed = facts_of(before).saturation_needed
        after = measure(needed, options)
        both = before, after
        walls.append([report.cluster_seconds for report in both])
        waits.append([report.idle_causes.get("round-trips", 0.0) for report in both])
        print(f"pair {pair}: 1.0 and {needed:.1f}: wall clock {walls[-1]}, round trips {waits[-1]}", flush=True)
    for name, rows in (("wall clock", walls), ("idle for round trips, thread-seconds", waits)):
        medians = [statistics.median(column) for column in zip(*rows, strict=True)]
        ratio = statistics.median(before / after if after else float("inf") for before, after in rows)
        print(f"{name}: {medians[0]:.3g} and {medians[1]:.3g}; median ratio {ratio:.3g}")


if __name__ == "__main__":
    main()
