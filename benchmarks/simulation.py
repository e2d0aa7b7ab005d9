"""Claim: what a simulation predicts of another cluster is within 2 % (median) and 10 % (at most) of the real run there.

``python -m benchmarks.simulation --folder RUNS`` makes real runs of sleeping tasks on local clusters (those that are
in the folder already are not made again, see :mod:`benchmarks.simulation_runs`), predicts from runs on four workers
what those on other clusters and with other settings took, and prints both, beside list scheduling and Amdahl's law.
On as many workers as machines have no cores for, a machine slows its runs: 16 are shown and not counted. Programs
that compute are predicted from one worker to two and back. ``--speed`` prints tasks a second on 64 workers, and memory.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from benchmarks.simulation_rivals import amdahl, list_schedule, worker_speeds
from benchmarks.simulation_runs import Run, make_all, read_index
from benchmarks.simulation_speed import print_speed
from benchmarks.simulation_work import GRAPHS, PROGRAMS
from dask_efficiency import ClusterSpec, RunTrace, load_trace, simulate

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
    """A change of the cluster."""

    name: str
    before: Setting
    after: Setting
    #: The cluster that the recorded one becomes, given that and the name of the worker that was slow.
    cluster: Callable[[ClusterSpec, str], ClusterSpec]
    #: Whether its error counts.
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
OF_PROGRAMS = (_workers(1, 2), _workers(2, 1))


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
        """Of the real runs."""
        return statistics.median(self.real)

    @property
    def variation(self) -> float:
        """Coefficient of variation of the real runs."""
        return statistics.stdev(self.real) / statistics.mean(self.real) if len(self.real) > 1 else 0.0

    def error(self, predicted: list[float]) -> float:
        """Of a median of predictions, relative and signed."""
        return statistics.median(predicted) / self.median - 1

    @property
    def noise(self) -> float:
        """How far off a prediction of real programs may be: 5 %, or twice the variation of the real runs."""
        return max(PROGRAM_ERROR, 2 * self.variation)

    @property
    def covered(self) -> list[bool]:
        """For each pair of a recorded and a real run, whether the interval from the one covers the other."""
        return [low <= real <= high for low, high in self.intervals for real in self.real]


class Runs:
    """The recorded runs of a folder."""

    def __init__(self, folder: Path, repeats: int) -> None:
        self.folder = folder
        self.found = [run for run in read_index(folder) if run.repeat < repeats]

    def of(self, workload: str, setting: Setting) -> list[Run]:
        """All runs of a workload on one kind of cluster."""
        return [
            run for run in self.found if (run.workload, run.workers, run.threads, run.variant) == (workload, *setting)
        ]

    def trace(self, run: Run) -> RunTrace:
        """What was recorded of a run."""
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
    """One line."""
    low, high = (statistics.median(ends) for ends in zip(*row.intervals, strict=True))
    print(
        f"{workload:10} {change.name:24} {row.median:8.3f} {row.variation:5.1%} {statistics.median(row.predicted):9.3f}"
        f" {low:7.3f}-{high:7.3f} {row.error(row.predicted):+6.1%} {statistics.mean(row.covered):6.0%}"
        f" {statistics.median(row.self_replay):+6.1%} {row.error(row.listed):+7.1%} {row.error(row.amdahl):+7.1%}",
        flush=True,
    )


def print_summary(name: str, rows: list[Row]) -> None:
    """Median and largest errors, and how many real runs the intervals cover."""
    if not rows:
        return
    covered = [covers for row in rows for covers in row.covered]
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
    """One after the other."""
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
    parser.add_argument("--speed", action="store_true", help="print speed and memory, and nothing else")
    options = parser.parse_args()
    if options.speed:
        print_speed()
        return
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
            print_summary("tasks that sleep" if kind is GRAPHS else "programs", rows)
        print(f"goals for tasks that sleep: median {MEDIAN_ERROR:.0%}, largest {MAX_ERROR:.0%}, covered {COVERAGE:.0%}")


if __name__ == "__main__":
    main()
