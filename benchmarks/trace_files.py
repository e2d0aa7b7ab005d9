"""Claim: a trace file of a million tasks loads in at most 3 s, and takes at most 300 bytes a task.

``python -m benchmarks.trace_files [TASKS ...]`` saves and loads simulated runs, with keys as long as Dask's own, three
times each, and prints medians. It exits with 1 if the claim does not hold.
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from benchmarks.figures import figure
from dask_efficiency import RunTrace, load_trace
from dask_efficiency.accounts.tables import Texts
from tests.simulated_traces import large

REPEATS = 3
MAX_SECONDS_A_MILLION = 3.0
MAX_BYTES_A_TASK = 300


def with_long_keys(trace: RunTrace) -> RunTrace:
    """A trace whose keys are such as ``('load-0f1d...', 12, 345)``."""
    tokens = {prefix: hashlib.md5(prefix.encode()).hexdigest() for prefix in trace.prefixes}
    names = [trace.prefixes[i] for i in trace.tasks.prefix.tolist()]
    keys = (f"('{name}-{tokens[name]}', {i // 1000}, {i % 1000})" for i, name in enumerate(names))
    return replace(trace, keys=Texts.of(keys))


def seconds(do: Callable[[], object]) -> float:
    started = time.perf_counter()
    do()
    return time.perf_counter() - started


def main() -> int:
    """Print a table, and say whether the claim holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", type=int, metavar="TASKS", default=[10_000, 100_000, 1_000_000])
    holds = True
    print(f"{'tasks':>9}  {'save, s':>8}  {'load, s':>8}  bytes/task")
    for tasks in parser.parse_args().tasks:
        trace = with_long_keys(large(tasks))
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "run.trace"
            times = [(seconds(partial(trace.save, file)), seconds(partial(load_trace, file))) for _ in range(REPEATS)]
            nbytes = file.stat().st_size / len(trace.tasks)
        save, load = (statistics.median(column) for column in zip(*times, strict=True))
        print(f"{len(trace.tasks):9}  {save:8.2f}  {load:8.2f}  {nbytes:10.1f}", flush=True)
        most = max(MAX_SECONDS_A_MILLION * tasks / 1e6, 0.5)
        holds &= figure(f"loading {tasks:,} tasks", [pair[1] for pair in times], "s", at_most=most)
        holds &= figure(f"of each of {tasks:,} tasks", nbytes, "bytes", at_most=MAX_BYTES_A_TASK)
    return int(not holds)


if __name__ == "__main__":
    sys.exit(main())
