"""Claim: the critical path of a million tasks, with floor and slack, takes at most 2 s.

``python -m benchmarks.critical_path`` simulates traces of 10 thousand, 100 thousand and a million tasks and prints what
each step takes, and beside it what networkx takes for the longest path through the same graph in the same
process, which is the floor alone. Medians of repeated runs, in turn.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import networkx as nx

from benchmarks.simulated_traces import large
from dask_efficiency import CriticalPath, RunTrace, critical_path
from dask_efficiency.runs.path.bounds import longest_chain, work_ns
from dask_efficiency.runs.replay.replay import replay


def seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    """CPU time of this process, which other work on the machine does not lengthen; and the result."""
    gc.collect()
    began = time.process_time()
    result = function()
    return time.process_time() - began, result


def floor_of(path: CriticalPath) -> int:
    """What networkx is asked for too."""
    return longest_chain(path.trace, *work_ns(path.trace, path.scope))[0]


def graph_of(trace: RunTrace, path: CriticalPath) -> nx.DiGraph[int]:
    """The tasks; an edge's weight is the work of the task that it comes from. A last node collects them all."""
    work = work_ns(trace, path.scope)[0].tolist()
    starts, needed = trace.dependency_starts.tolist(), trace.dependencies.tolist()
    graph: nx.DiGraph[int] = nx.DiGraph()
    graph.add_weighted_edges_from((task, -1, work[task]) for task in range(len(work)))
    graph.add_weighted_edges_from(
        (needed[i], task, work[needed[i]]) for task in range(len(work)) for i in range(starts[task], starts[task + 1])
    )
    return graph


def once(trace: RunTrace) -> tuple[float, ...]:
    """Seconds of each step, in the order of :data:`STEPS`."""
    path_seconds, path = seconds(lambda: critical_path(trace))
    floor_seconds, floor = seconds(lambda: floor_of(path))
    slack_seconds, _ = seconds(lambda: path.run_slack_ns)
    replay_seconds, again = seconds(lambda: replay(trace))
    assert critical_path(again).makespan_seconds == path.makespan_seconds
    build_seconds, graph = seconds(lambda: graph_of(trace, path))
    longest_seconds, longest = seconds(lambda: nx.dag_longest_path_length(graph))
    assert longest == floor, f"networkx finds {longest} ns, the package {floor} ns"
    together = path_seconds + floor_seconds + slack_seconds
    return path_seconds, floor_seconds, slack_seconds, together, replay_seconds, build_seconds, longest_seconds


#: What is measured; the path's segments, floor and slack are what the claim is about.
STEPS = ("path", "floor", "slack", "together", "replay", "networkx graph", "networkx floor")


def main() -> None:
    """Print a row for each size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tasks", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print("CPU seconds")
    print(f"{'tasks':>9}" + "".join(f" {step:>14}" for step in STEPS))
    for tasks in options.tasks:
        trace = large(tasks)
        rows = [once(trace) for _ in range(options.repeats)]
        medians = [statistics.median(column) for column in zip(*rows, strict=True)]
        print(f"{len(trace.tasks):9}" + "".join(f" {value:14.3f}" for value in medians), flush=True)


if __name__ == "__main__":
    main()
