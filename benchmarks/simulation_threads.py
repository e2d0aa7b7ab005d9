"""Programs that compute, predicted for other numbers of threads and processes on the same cores, and really run so.

Each of ten programs (:mod:`benchmarks.computing_programs`) is recorded on two workers of two threads, and predicted on
one of two, two of one, four of one, and one of four: on two cores, threads beyond the cores come and go. Rules are
chosen by the first five (``--only choosing``) and judged by the others. Goals: a median error of 8 %, and intervals
that hold in eight of ten programs and are at most 30 % wide. Programs hold if three of their four real runs do.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from benchmarks.computing_programs import CHOOSING, JUDGING
from benchmarks.figures import figure
from benchmarks.simulation_runs import Run, Setup, read_index
from dask_efficiency import ClusterSpec, load_trace, simulate
from dask_efficiency.simulation import Prediction

#: Workers and threads of each: of the recorded runs, and of those that are predicted.
RECORDED, PREDICTED = (2, 2), ((1, 2), (2, 1), (4, 1), (1, 4))
MEDIAN_ERROR, WIDTH = 0.08, 0.30


def make(folder: Path, repeats: int, only: list[str]) -> None:
    """Make the runs that are missing, one cluster after the other, each repeat on all of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for repeat in range(repeats):
        for workers, threads in (RECORDED, *PREDICTED):
            setup = Setup(workers, threads, repeat=repeat)
            known = {run.file for run in read_index(folder)}
            if missing := [name for name in only if setup.file(name) not in known]:
                command = [sys.executable, "-m", "benchmarks.simulation_runs", str(folder), "--only", *missing]
                subprocess.run([*command, "--cluster", json.dumps(asdict(setup))], check=False)


def predicted(folder: Path, run: Run, workers: int, threads: int, seeds: int) -> Prediction:
    """Predict a recorded run with other workers, on the same cores."""
    trace = load_trace(folder / run.file)
    return simulate(trace, ClusterSpec.from_trace(trace).with_workers(workers, threads), seeds=seeds, force=True)


def main() -> None:
    """Make the runs that are missing; print each prediction beside the real runs, and the goals."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=["choosing", "judging"], help="programs, or one of these groups")
    parser.add_argument("--repeats", type=int, default=2, help="real runs of each kind")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--folder", type=Path, help="of real runs; without it, all are made and not kept")
    parser.add_argument("--recorded", action="store_true", help="make no real runs")
    parser.add_argument(
        "--others", type=float, default=0.3, help="cores of other processes, from which runs are left out"
    )
    parser.add_argument("--make", action="store_true", help="predict nothing")
    options = parser.parse_args()
    groups = {"choosing": list(CHOOSING), "judging": list(JUDGING)}
    only = [name for given in options.only for name in groups.get(given, [given])]
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if not options.recorded:
            make(folder, options.repeats, only)
        if not options.make:
            judge(folder, only, options.others, options.seeds)


def judge(folder: Path, only: list[str], others: float, seeds: int) -> None:
    """Print each prediction beside the real runs."""
    runs = [run for run in read_index(folder) if run.others < others]
    errors, widths, holding = [], [], dict[str, list[bool]]()
    print(f"{'program':15} {'on':>4} {'real':>6} {'predicted':>9} {'interval':>13} {'error':>6} holds itself")
    for name in only:
        for workers, threads in PREDICTED:
            before, after = (
                [run for run in runs if (run.workload, run.workers, run.threads) == (name, *setting)]
                for setting in (RECORDED, (workers, threads))
            )
            if not before or not after:
                continue
            found = [predicted(folder, run, workers, threads, seeds) for run in before]
            real = statistics.median(run.makespan_seconds for run in after)
            seconds = statistics.median(one.makespan_seconds for one in found)
            low, high = (statistics.median(ends) for ends in zip(*(one.interval for one in found), strict=True))
            itself = statistics.median(one.self_replay_error for one in found)
            errors.append(seconds / real - 1)
            widths.append((high - low) / seconds)
            holding.setdefault(name, []).append(low <= real <= high)
            print(
                f"{name:15} {workers}x{threads:<2} {real:6.2f} {seconds:9.2f} {low:6.2f}-{high:6.2f}"
                f" {errors[-1]:+6.1%} "
                f"{'yes' if holding[name][-1] else 'no':>5} {itself:+6.1%}",
                flush=True,
            )
    if errors:
        held = sum(sum(held) >= len(held) - 1 for held in holding.values())
        print(
            f"median error {statistics.median(map(abs, errors)):.1%} (goal {MEDIAN_ERROR:.0%}), largest "
            f"{max(map(abs, errors)):.1%}; intervals hold {sum(map(sum, holding.values()))} of {len(errors)} settings, "
            f"{held} of {len(holding)} programs; they are {statistics.median(widths):.0%} wide (goal {WIDTH:.0%})"
        )
        figure("median error", 100 * statistics.median(map(abs, errors)), "%", at_most=100 * MEDIAN_ERROR)
        figure("largest error", 100 * max(map(abs, errors)), "%")
        figure("programs whose intervals hold", held, of=len(holding), at_least=0.8 * len(holding))
        figure("width of the intervals", 100 * statistics.median(widths), "%", at_most=100 * WIDTH)
        figure("predictions", len(errors), of=len(only) * len(PREDICTED))


if __name__ == "__main__":
    main()
