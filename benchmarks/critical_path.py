"""Claim: the critical path of a million tasks, with floor and slack, takes at most 2 s.

``python -m benchmarks.critical_path`` simulates traces of 10 thousand, 100 thousand and a million tasks and prints the
CPU time of each step, as medians of repeated runs, in turn. It exits with 1 if the claim does not hold.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.figures import figure
from dask_efficiency import RunTrace, critical_path
from dask_efficiency.runs.path.bounds import longest_chain, work_ns
from dask_efficiency.runs.replay.replay import replay
from tests.simulated_traces import large

#: Seconds for a million tasks: the path's segments, floor and slack together.
MAX_SECONDS = 2.0

STEPS = ("path", "floor", "slack", "together", "replay")


def seconds(function: Callable[[], Any]) -> tuple[float, Any]:
    """CPU time of this process, which other work on the machine does not lengthen; and the result."""
    gc.collect()
    began = time.process_time()
    result = function()
    return time.process_time() - began, result


def once(trace: RunTrace) -> tuple[float, ...]:
    """Seconds of each step, in the order of :data:`STEPS`."""
    path_seconds, path = seconds(lambda: critical_path(trace))
    floor_seconds, _ = seconds(lambda: longest_chain(path.trace, *work_ns(path.trace, path.scope)))
    slack_seconds, _ = seconds(lambda: path.run_slack_ns)
    replay_seconds, again = seconds(lambda: replay(trace))
    assert critical_path(again).makespan_seconds == path.makespan_seconds
    return path_seconds, floor_seconds, slack_seconds, path_seconds + floor_seconds + slack_seconds, replay_seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(f"CPU seconds\n{'tasks':>9}" + "".join(f" {step:>10}" for step in STEPS))
    together: list[float] = []
    for tasks in options.tasks:
        trace = large(tasks)
        rows = [once(trace) for _ in range(options.repeats)]
        medians = [statistics.median(column) for column in zip(*rows, strict=True)]
        print(f"{len(trace.tasks):9}" + "".join(f" {value:10.3f}" for value in medians), flush=True)
        together = [row[STEPS.index("together")] for row in rows]
    holds = figure("CPU of the largest", together, "s", at_most=MAX_SECONDS * max(1.0, tasks / 1e6))
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main())
