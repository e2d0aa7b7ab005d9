"""Advice with numbers, done: programs are run as they are, with what was advised, and in a grid of the same knobs.

Four steps: ``record`` runs twelve programs (:mod:`benchmarks.advice_programs`) on two workers of two threads;
``promise`` writes down what ``advise`` says of each, before anything else is run; ``run`` makes the real runs;
``judge`` compares. All points of the grid are run once; then the program as it was, as advised, and the two best
points of the grid again, and a third and a fourth time where runs of a point differ by more than 5 %. Goals: the real
saving is within its interval in ten programs, no setting is worse than before in any, and in nine it is within 15 %
of the best of the grid.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
from distributed import Client, LocalCluster

from benchmarks.advice_programs import PROGRAMS as TWELVE
from benchmarks.advice_programs_more import MORE
from benchmarks.figures import figure
from dask_efficiency import EfficiencyPlugin, advise, efficiency_report, load_trace
from dask_efficiency.show.figures import format_count
from dask_efficiency.simulation.engine.launch import SimulationError
from dask_efficiency.simulation.model.advice import AS_IT_WAS, FASTEST, SATURATION

#: By name: what is run by default, and on request.
PROGRAMS = TWELVE | MORE
#: Workers, threads and bytes of each, and saturation (None is Dask's own), of a cluster.
Shape = tuple[int, int, int, float | None]
#: Memory of the grid in all; and its clusters, of which the first is that of the recorded runs.
MEMORY = 4 << 30
SHAPES: tuple[Shape, ...] = tuple(
    (n, threads, MEMORY // n, None) for n, threads in ((2, 2), (1, 2), (2, 1), (4, 1), (1, 4))
)
#: Sizes of partitions in the grid, and seconds that a program may take.
TIMES, SLOWEST = (1, 5, 20), 30
#: Program, the shape of its cluster, and the size of its partitions.
Point = tuple[str, Shape, int]
#: Share by which runs of one setting differ, and by which a setting may be behind the best of the grid.
DIFFER, BEHIND = 0.05, 0.15


@contextmanager
def cluster(shape: Shape) -> Iterator[Client]:
    """Client of a cluster of a shape."""
    workers, nthreads, memory, saturation = shape
    sizes = {"n_workers": workers, "threads_per_worker": nthreads, "memory_limit": memory}
    with (
        dask.config.set({} if saturation is None else {SATURATION: saturation}),
        LocalCluster(**sizes, dashboard_address=":0") as own,
        Client(own) as client,
    ):
        client.wait_for_workers(workers)
        yield client


def record(folder: Path, names: list[str]) -> None:
    """Record each program as it is."""
    with cluster(SHAPES[0]) as client:
        client.register_plugin(EfficiencyPlugin())
        for name in names:
            PROGRAMS[name](client, 1)
            time.sleep(0.5)
            with efficiency_report(client, trace=True, savings=0) as report:
                PROGRAMS[name](client, 1)
            assert report.trace is not None
            report.trace.save(folder / f"{name}.trace")
            first = report.findings[0] if report.findings else None
            print(f"{name:8} {report.wall_clock_seconds:.2f} s: {first.in_a_line if first else '-'}", flush=True)


def promise(folder: Path, names: list[str]) -> None:
    """Write down what is advised for each program, and what it is to save."""
    promises: dict[str, Any] = {}
    for name in names:
        began = time.perf_counter()
        try:
            advice = advise(load_trace(folder / f"{name}.trace"), force=True)
        except SimulationError as error:
            print(f"{name:8} {error}", flush=True)
            promises[name] = {"shape": SHAPES[0], "times": 1, "saves": [0.0, 0.0, 0.0]}
            continue
        searched = time.perf_counter() - began
        chosen = FASTEST if FASTEST in advice.settings else AS_IT_WAS
        setting, (seconds, low, high) = advice.fastest, advice.saved(chosen)
        took = advice.own.recorded.makespan_seconds
        promises[name] = {
            "shape": [setting.workers, setting.nthreads, setting.memory_limit, setting.saturation],
            "times": setting.chunks,
            "saves": [each / took for each in (low, seconds, high)],
        }
        tasks = format_count(sum(one.count for one in advice.tasks.by_prefix.values()), "task")
        print(f"{name:8} {searched:.0f} s for {tasks}, {advice.tried} tried: {json.dumps(promises[name])}", flush=True)
    (folder / "promises.json").write_text(json.dumps(promises))


def shape_of(given: Sequence[Any]) -> Shape:
    """Shape of its JSON."""
    workers, nthreads, memory, saturation = given
    return workers, nthreads, memory, saturation


def advised(promises: dict[str, Any], name: str) -> Point:
    """Point that was advised for a program."""
    return name, shape_of(promises[name]["shape"]), promises[name]["times"]


def measured(folder: Path) -> dict[Point, list[float]]:
    """Seconds of all runs so far, by point; nothing where a run failed."""
    took: dict[Point, list[float]] = {}
    lines = folder / "runs.jsonl"
    for line in lines.read_text().splitlines() if lines.exists() else ():
        one = json.loads(line)
        took.setdefault((one["name"], shape_of(one["shape"]), one["times"]), []).append(one["seconds"])
    return took


def undecided(promises: dict[str, Any], names: list[str], took: dict[Point, list[float]]) -> list[Point]:
    """Points of which a verdict depends, and whose runs are one, or differ."""
    found: list[Point] = []
    for name in names:
        best = sorted((point for point in took if point[0] == name), key=lambda point: statistics.median(took[point]))
        for point in dict.fromkeys([(name, SHAPES[0], 1), advised(promises, name), *best[:2]]):
            seconds = took.get(point, [])
            if len(seconds) < 2 or max(seconds) > (1 + DIFFER) * min(seconds):
                found.append(point)
    return found


def run(folder: Path, names: list[str], repeats: int) -> None:
    """Make all real runs, a process and cluster for each shape, the shapes in turn."""
    promises = json.loads((folder / "promises.json").read_text())
    grid = [(name, shape, times) for name in names for shape in SHAPES for times in TIMES]
    due = list(dict.fromkeys([*grid, *(advised(promises, name) for name in names)]))
    for _ in range(repeats):
        for shape in dict.fromkeys(point[1] for point in due):
            points = [(name, times) for name, on, times in due if on == shape]
            command = [sys.executable, "-m", "benchmarks.advice", "shape", "--folder", str(folder)]
            command += ["--shape", json.dumps(shape), "--points", json.dumps(points)]
            try:
                subprocess.run(command, check=True, timeout=60 + SLOWEST * len(points))
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
                print(f"{shape}: {error}", flush=True)
        due = undecided(promises, names, measured(folder))


def run_shape(folder: Path, shape: Shape, points: list[tuple[str, int]]) -> None:
    """Run programs with partitions of some sizes, each once before; a line for each in ``runs.jsonl``."""
    with cluster(shape) as client, (folder / "runs.jsonl").open("a") as lines:
        for name in dict.fromkeys(name for name, _ in points):
            PROGRAMS[name](client, 20)
            for times in (times for of, times in points if of == name):
                began = time.perf_counter()
                PROGRAMS[name](client, times)
                found = {"name": name, "shape": shape, "times": times, "seconds": time.perf_counter() - began}
                lines.write(json.dumps(found) + "\n")
                lines.flush()


def judge(folder: Path, names: list[str]) -> None:
    """Print each promise beside what was saved, and the best of the grid."""
    promises = json.loads((folder / "promises.json").read_text())
    took = measured(folder)
    median = {point: statistics.median(seconds) for point, seconds in took.items()}
    kept = worse = near = 0
    print(
        f"{'program':8} {'before':>6} {'advised':>16} {'after':>6} {'saved':>6} {'promised':>16} {'best of grid':>22}"
        f" {'differ':>7} {'runs':>4}"
    )
    for name in names:
        point, was, one = advised(promises, name), (name, SHAPES[0], 1), promises[name]
        before, after = median.get(was, math.nan), median.get(point, math.inf)
        low, seconds, high = one["saves"]
        saved = 1 - after / before
        best = min((key for key in median if key[0] == name), key=median.__getitem__)
        kept += low <= saved <= high
        worse += after > (1 + DIFFER) * before
        near += after <= (1 + BEHIND) * median[best]
        differ = max(max(each) / min(each) - 1 for each in (took.get(was, [1.0]), took.get(point, [1.0])))
        print(
            f"{name:8} {before:6.2f} {point[1][0]}x{point[1][1]}, {one['times']:3} times {after:6.2f}"
            f" {saved:6.0%} {seconds:5.0%} ({low:4.0%} to {high:4.0%})"
            f" {median[best]:6.2f} {best[1][0]}x{best[1][1]}, {best[2]} times"
            f" {differ:7.0%} {len(took.get(point, [])):4}"
        )
    wide = statistics.median(high - low for low, _, high in (promises[name]["saves"] for name in names))
    print(
        f"within the interval: {kept} of {len(names)}, in the median {wide:.0%} of the run wide;"
        f" worse than before: {worse}; within 15 % of the best: {near}"
    )
    of = len(names)
    figure("savings within their interval", kept, of=of, at_least=10 / 12 * of)
    figure("worse than before", worse, of=of, at_most=0)
    figure("within 15 % of the best", near, of=of, at_least=9 / 12 * of)
    figure("width of the intervals", 100 * wide, "% of the run")
    pairs = [(math.log(a / b) ** 2 / 2, (a + b) / 2) for a, b, *_ in (each for each in took.values() if len(each) > 1)]
    if pairs:
        spread = math.sqrt(statistics.fmean(variance for variance, _ in pairs))
        of_a_second = math.sqrt(statistics.fmean(variance * seconds for variance, seconds in pairs))
        print(f"standard deviation of {len(pairs)} points: {spread:.1%}, {of_a_second:.3f} of a run of a second")


def main() -> None:
    """One step, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["record", "promise", "run", "judge", "all", "shape"])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=list(TWELVE), help=f"programs; also {', '.join(MORE)}")
    parser.add_argument("--repeats", type=int, default=4, help="most runs of a point")
    parser.add_argument("--shape", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--points", type=json.loads, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.step == "shape":
        run_shape(options.folder, shape_of(options.shape), [*map(tuple, options.points)])
        return
    if options.step in ("record", "all"):
        record(options.folder, options.only)
    if options.step in ("promise", "all"):
        promise(options.folder, options.only)
    if options.step in ("run", "all"):
        run(options.folder, options.only, options.repeats)
    if options.step in ("judge", "all"):
        judge(options.folder, options.only)


if __name__ == "__main__":
    main()
