"""Claim: what a simulation predicts of another cluster is within 2 % (median) and 10 % (at most) of the real run there.

``python -m benchmarks.simulation --folder RUNS`` makes real runs of sleeping tasks on local clusters (those that are
in the folder already are not made again, see :mod:`benchmarks.simulation_runs`), predicts from runs on four workers
what those on other clusters and with other settings took, and prints both, with list scheduling and Amdahl's law.
On as many workers as machines have no cores for, a machine slows its runs: 16 are shown and not counted. Programs
that compute are predicted from one worker to two and back.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heappush
from pathlib import Path

import numpy as np

from benchmarks.figures import figure
from benchmarks.simulation_runs import GRAPHS, PROGRAMS, Run, make_all, read_index
from dask_efficiency import ClusterSpec, RunTrace, critical_path, load_trace, simulate
from dask_efficiency.accounts.tables import MISSING, Float64
from dask_efficiency.runs.path.bounds import longest_chain, work_ns
from dask_efficiency.runs.replay.durations import task_times
from dask_efficiency.runs.trace.schema import RunOutcome


def task_seconds(trace: RunTrace) -> Float64:
    """By task: how long it computes on a worker of usual speed; 0 for those that never succeeded."""
    runs = trace.runs
    seconds = np.zeros(len(trace.tasks))
    rows = np.flatnonzero((runs.outcome == RunOutcome.SUCCEEDED) & (runs.start != MISSING))
    times = task_times(trace)
    usual = np.median(times, axis=0)
    prefix, worker = trace.tasks.prefix[runs.task[rows]], runs.worker[rows]
    seconds[runs.task[rows]] = (runs.stop - runs.start)[rows] / 1e9 * usual[prefix] / times[worker, prefix]
    return seconds


def list_schedule(trace: RunTrace, speeds: list[float]) -> float:
    """Makespan in seconds: whenever a slot is free, it takes the task of the first priority that is ready.

    Parameters
    ----------
    trace
        A recorded run. Its graphs run one after the other.
    speeds
        Of each slot; 1 is the usual one. Where several are free, the first one takes the task.
    """
    seconds = task_seconds(trace).tolist()
    tasks, starts = trace.tasks, trace.dependency_starts
    rank = np.empty(len(tasks), np.int64)
    rank[np.lexsort((tasks.priority_order, tasks.priority_graph, tasks.priority_user))] = np.arange(len(tasks))
    needing: list[list[int]] = [[] for _ in range(len(tasks))]
    missing = np.diff(starts).tolist()
    for task in range(len(tasks)):
        for needed in trace.dependencies[starts[task] : starts[task + 1]].tolist():
            needing[needed].append(task)
    now, graphs = 0.0, tasks.graph.tolist()
    for graph in sorted(set(graphs)):
        ready = [(int(rank[task]), task) for task in range(len(tasks)) if graphs[task] == graph and not missing[task]]
        now = _run(ready, now, speeds, seconds, (rank.tolist(), needing, missing, graphs))
    return now


def _run(
    ready: list[tuple[int, int]],
    now: float,
    speeds: list[float],
    seconds: list[float],
    graph: tuple[list[int], list[list[int]], list[int], list[int]],
) -> float:
    """When all that is ready, and what becomes ready of the same graph, has run."""
    rank, needing, missing, graphs = graph
    free = list(range(len(speeds)))
    running: list[tuple[float, int, int]] = []
    heapify(ready)
    while ready or running:
        while ready and free:
            task, slot = heappop(ready)[1], heappop(free)
            heappush(running, (now + seconds[task] / speeds[slot], slot, task))
        now, slot, task = heappop(running)
        heappush(free, slot)
        for after in needing[task]:
            missing[after] -= 1
            if not missing[after] and graphs[after] == graphs[task]:
                heappush(ready, (rank[after], after))
    return now


def amdahl(trace: RunTrace, speeds: list[float]) -> float:
    """Makespan in seconds by Amdahl's law, with the serial share that explains the recorded makespan.

    References
    ----------
    Karp and Flatt, Measuring Parallel Processor Performance, CACM 1990. On one slot that share is unknown; it is then
    the longest chain of tasks.
    """
    path = critical_path(trace)
    recorded, work = path.makespan_seconds, float(task_seconds(trace).sum())
    slots = _recorded_slots(trace)
    if slots > 1:
        serial = max(0.0, (recorded - work / slots) / (1 - 1 / slots))
    else:
        serial = longest_chain(trace, *work_ns(trace, path.scope))[0] / 1e9
        work += recorded - work
    serial = min(serial, work)
    return serial + (work - serial) / sum(speeds)


def _recorded_slots(trace: RunTrace) -> float:
    """Slots of the recorded cluster, each counted by its speed."""
    speeds = worker_speeds(trace)
    return sum(worker.nthreads * speeds[worker.name] for worker in trace.workers)


def worker_speeds(trace: RunTrace) -> dict[str, float]:
    """By worker's name: how many times as fast as the middle one it is."""
    times = task_times(trace)
    prefixes = np.unique(trace.tasks.prefix)
    found = np.exp(np.mean(np.log(times / np.median(times, axis=0))[:, prefixes], axis=1))
    return {worker.name: 1.0 / float(slower) for worker, slower in zip(trace.workers, found, strict=True)}


#: Predictions of sleeping tasks: the goals for the median and the largest error, and for the share of real runs that
#: intervals cover.
MEDIAN_ERROR, MAX_ERROR, COVERAGE = 0.02, 0.10, 0.90

#: Predictions of programs that compute: the goal for each error, unless the real runs themselves vary by half of it.
PROGRAM_ERROR = 0.05

#: What a cluster was and is: workers, threads of each, variant.
Setting = tuple[int, int, str]
PLAIN4: Setting = (4, 1, "plain")


@dataclass(frozen=True)
class Change:
    name: str
    before: Setting
    after: Setting
    #: The cluster that the recorded one becomes, given that and the name of the worker that was slow.
    cluster: Callable[[ClusterSpec, str], ClusterSpec]
    #: True if its error counts.
    counts: bool = True


def _workers(before: int, after: int, *, counts: bool = True) -> Change:
    def changed(cluster: ClusterSpec, slow: str) -> ClusterSpec:
        return cluster.with_workers(after)

    return Change(f"{before} -> {after} workers", (before, 1, "plain"), (after, 1, "plain"), changed, counts)


def _setting(name: str, variant: str, key: str, value: object) -> Change:
    return Change(
        name,
        PLAIN4,
        (4, 1, variant),
        lambda cluster, slow: cluster.with_config({f"distributed.scheduler.{key}": value}),
    )


OF_GRAPHS = (
    Change("4 workers as they were", PLAIN4, PLAIN4, lambda cluster, slow: cluster, counts=False),
    *(_workers(4, after) for after in (1, 2, 3, 8)),
    _workers(4, 16, counts=False),
    Change(
        "2 workers of 2 threads", PLAIN4, (2, 2, "plain"), lambda cluster, slow: cluster.with_workers(2, nthreads=2)
    ),
    Change("slow worker repaired", (4, 1, "slow"), PLAIN4, lambda cluster, slow: cluster.with_speeds({slow: 1.0})),
    Change(
        "slow worker removed",
        (4, 1, "slow"),
        (3, 1, "plain"),
        lambda cluster, slow: cluster.without_workers(slow),
    ),
    _setting("worker-saturation 1", "saturation1", "worker-saturation", 1.0),
    _setting("worker-saturation inf", "saturationinf", "worker-saturation", float("inf")),
    _setting("no work stealing", "nosteal", "work-stealing", False),
    Change(
        "the same, one is slow",
        (4, 1, "slow"),
        (4, 1, "slow-nosteal"),
        lambda cluster, slow: cluster.with_config({"distributed.scheduler.work-stealing": False}),
    ),
)
OF_PROGRAMS = (
    *(
        Change(
            f"{n} workers as they were", (n, 1, "plain"), (n, 1, "plain"), lambda cluster, slow: cluster, counts=False
        )
        for n in (1, 2)
    ),
    _workers(1, 2),
    _workers(2, 1),
)


@dataclass(frozen=True)
class Row:
    """A change of a workload, really made and predicted; seconds."""

    real: list[float]
    predicted: list[float]
    intervals: list[tuple[float, float]]
    self_replay: list[float]
    listed: list[float]
    amdahl: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.real)

    @property
    def variation(self) -> float:
        """Coefficient of variation of the real runs."""
        return statistics.stdev(self.real) / statistics.mean(self.real) if len(self.real) > 1 else 0.0

    def error(self, predicted: list[float]) -> float:
        return statistics.median(predicted) / self.median - 1

    @property
    def noise(self) -> float:
        """Allowed error of a prediction of real programs: 5 %, or twice the variation of the real runs."""
        return max(PROGRAM_ERROR, 2 * self.variation)

    @property
    def covered(self) -> list[bool]:
        """For each pair of a recorded and a real run, whether the interval from the one covers the other."""
        return [low <= real <= high for low, high in self.intervals for real in self.real]


class Runs:
    def __init__(self, folder: Path, repeats: int) -> None:
        self.folder = folder
        self.found = [run for run in read_index(folder) if run.repeat < repeats]

    def of(self, workload: str, setting: Setting) -> list[Run]:
        """All runs of a workload on one kind of cluster."""
        return [
            run for run in self.found if (run.workload, run.workers, run.threads, run.variant) == (workload, *setting)
        ]

    def trace(self, run: Run) -> RunTrace:
        return _loaded(self.folder / run.file)


@lru_cache(maxsize=8)
def _loaded(path: Path) -> RunTrace:
    return load_trace(path)


def compare(runs: Runs, workload: str, change: Change, *, seeds: int, traces: int, cores: int) -> Row | None:
    """Predict and compare; None where there are no runs. With 0 cores, the machine has enough of them."""
    before, after = runs.of(workload, change.before)[:traces], runs.of(workload, change.after)
    if not before or not after:
        return None
    row = Row([run.makespan_seconds for run in after], [], [], [], [], [])
    for run in before:
        trace = runs.trace(run)
        cluster = change.cluster(ClusterSpec.from_trace(trace), run.slow)
        if cores:
            cluster = cluster.with_cores({worker.host: cores for worker in cluster.workers})
        prediction = simulate(trace, cluster, seeds=seeds, force=True)
        row.predicted.append(prediction.makespan_seconds)
        row.intervals.append(prediction.interval)
        row.self_replay.append(prediction.self_replay_error)
        known = worker_speeds(trace) | dict(cluster.speeds)
        speeds = [known.get(worker.name, 1.0) for worker in cluster.workers for _ in range(worker.nthreads)]
        row.listed.append(list_schedule(trace, speeds))
        row.amdahl.append(amdahl(trace, speeds))
    return row


COLUMNS = f"{'real':>8} {'cv':>5} {'predicted':>9} {'interval':>15} {'error':>6} {'covers':>6} {'itself':>6}"


def print_row(workload: str, change: Change, row: Row) -> None:
    low, high = (statistics.median(ends) for ends in zip(*row.intervals, strict=True))
    print(
        f"{workload:10} {change.name:24} {row.median:8.3f} {row.variation:5.1%} {statistics.median(row.predicted):9.3f}"
        f" {low:7.3f}-{high:7.3f} {row.error(row.predicted):+6.1%} {statistics.mean(row.covered):6.0%}"
        f" {statistics.median(row.self_replay):+6.1%} {row.error(row.listed):+7.1%} {row.error(row.amdahl):+7.1%}",
        flush=True,
    )


#: Workloads that the goals are about.
SLEEPING = "tasks that sleep"


def print_summary(name: str, rows: list[Row]) -> None:
    """Median and largest errors, and how many real runs the intervals cover."""
    if not rows:
        return
    covered = [covers for row in rows for covers in row.covered]
    errors = [100 * abs(row.error(row.predicted)) for row in rows]
    goals = name == SLEEPING
    figure(f"median error, {name}", statistics.median(errors), "%", at_most=100 * MEDIAN_ERROR if goals else None)
    figure(f"largest error, {name}", max(errors), "%", at_most=100 * MAX_ERROR if goals else None)
    figure(
        f"runs within the interval, {name}",
        sum(covered),
        of=len(covered),
        at_least=COVERAGE * len(covered) if goals else None,
    )
    print(f"\n{name}: {len(rows)} changes, intervals cover {statistics.mean(covered):.0%} of the real runs")
    for rival, values in (
        ("simulation", [row.predicted for row in rows]),
        ("list scheduling", [row.listed for row in rows]),
        ("Amdahl's law", [row.amdahl for row in rows]),
    ):
        errors = [abs(row.error(value)) for row, value in zip(rows, values, strict=True)]
        within = sum(error <= row.noise for error, row in zip(errors, rows, strict=True))
        print(
            f"  {rival:16} median error {statistics.median(errors):5.1%}, largest {max(errors):5.1%};"
            f" {within} are within {PROGRAM_ERROR:.0%} or twice the variation of the real runs"
        )


def predictions(
    runs: Runs, workloads: list[str], changes: tuple[Change, ...], *, seeds: int, traces: int, cores: int
) -> Iterator[tuple[str, Change, Row]]:
    for workload in workloads:
        for change in changes:
            row = compare(runs, workload, change, seeds=seeds, traces=traces, cores=cores)
            if row is not None:
                yield workload, change, row


def main() -> None:
    """Make the runs that are missing; print a row for each change, and the goals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[*GRAPHS, *PROGRAMS], help="workloads")
    parser.add_argument("--change", default="", help="only changes with this in their names")
    parser.add_argument("--repeats", type=int, default=4, help="real runs of each kind")
    parser.add_argument("--traces", type=int, default=2, help="how many of the recorded runs are predicted from")
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument(
        "--cores", type=int, default=os.cpu_count() or 0, help="of the machine of the real runs; 0: enough"
    )
    parser.add_argument("--folder", type=Path, help="of real runs; without it, all are made and not kept")
    parser.add_argument("--recorded", action="store_true", help="make no real runs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if not options.recorded:
            make_all(folder, options.repeats, options.only)
        runs = Runs(folder, options.repeats)
        print(f"{'workload':10} {'change':24} {COLUMNS} {'list':>7} {'Amdahl':>7}")
        for kind, changes in ((GRAPHS, OF_GRAPHS), (PROGRAMS, OF_PROGRAMS)):
            workloads = [name for name in options.only if name in kind]
            changes = tuple(change for change in changes if options.change in change.name)
            rows = []
            for workload, change, row in predictions(
                runs, workloads, changes, seeds=options.seeds, traces=options.traces, cores=options.cores
            ):
                print_row(workload, change, row)
                if change.counts:
                    rows.append(row)
            print_summary(SLEEPING if kind is GRAPHS else "programs", rows)
        print(f"goals for tasks that sleep: median {MEDIAN_ERROR:.0%}, largest {MAX_ERROR:.0%}, covered {COVERAGE:.0%}")


if __name__ == "__main__":
    main()
