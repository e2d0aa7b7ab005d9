"""Claim: 2,500 tasks a second of one core are simulated on 64 workers, and 100,000 tasks take at most 600 MB."""

from __future__ import annotations

import argparse
import resource
import statistics
import sys
import time

from benchmarks.figures import figure
from dask_efficiency.simulation.engine.launch import simulate_jobs
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.ensemble import SeededJob, SimulationJob, Wanted
from tests.simulated_cluster import simulate
from tests.simulated_traces import tree_graph, wide_graph

#: The goals on 64 workers: tasks a second of one core, and bytes of the process that simulates 100,000 tasks.
TASKS_A_SECOND, NBYTES = 2500, 600e6


def _children() -> tuple[float, float]:
    """CPU seconds of all processes that ended, and the most bytes that one of them had."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime, used.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def print_speed(sizes: tuple[int, ...] = (10_000, 100_000), repeats: int = 1, workers: int = 64) -> None:
    """A line for each graph and size, in order of size: memory is the most that any process had until then.

    Both times are of the whole subprocess: it starts, reads the trace, simulates and answers.
    """
    speeds = []
    print(f"{'graph':6} {'tasks':>7} {'seconds':>8} {'CPU s':>7} {'tasks/s':>8} {'MB':>5}")
    for tasks in sizes:
        for name, graph in (("tree", tree_graph(tasks // 2)), ("wide", wide_graph(tasks))):
            trace = simulate(graph, workers=workers, nthreads=1)
            job = SimulationJob(ClusterSpec.from_trace(trace))
            took, used = [], []
            for seed in range(repeats):
                began, before = time.perf_counter(), _children()[0]
                list(simulate_jobs(trace, [SeededJob(job, [seed], Wanted.NOTHING)], processes=1))
                took.append(time.perf_counter() - began)
                used.append(_children()[0] - before)
            seconds, cpu = statistics.median(took), statistics.median(used)
            speeds.append(len(trace.tasks) / cpu)
            print(
                f"{name:6} {len(trace.tasks):7} {seconds:8.2f} {cpu:7.2f} {len(trace.tasks) / cpu:8.0f}"
                f" {_children()[1] / 1e6:5.0f}",
                flush=True,
            )
    figure("the slowest graph", min(speeds), "tasks a second", at_least=TASKS_A_SECOND)
    figure("the fastest graph", max(speeds), "tasks a second")
    figure(f"{max(sizes):,} tasks", _children()[1] / 1e6, "MB", at_most=NBYTES / 1e6)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, nargs="*", default=[10_000, 100_000])
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    print_speed(tuple(options.tasks), options.repeats)
