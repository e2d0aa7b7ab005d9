"""Advice with numbers, done: programs are run as they are, with what was advised, and in a grid of the same knobs.

Four steps: ``record`` runs twelve programs (:mod:`benchmarks.advice_programs`) on two workers of two threads;
``promise`` writes down what ``advise`` says of each, before anything else is run; ``run`` makes the real runs, each
setting twice; ``judge`` compares. Goals: the real saving is within its interval in ten programs, no setting is worse
than before in any, and in nine it is within 15 % of the best of the grid.
"""

from __future__ import annotations

import argparse
import json
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

from benchmarks.advice_programs import PROGRAMS
from dask_efficiency import EfficiencyPlugin, advise, efficiency_report, load_trace
from dask_efficiency.simulation.model.advice import AS_IT_WAS, FASTEST, SATURATION

#: Workers, threads and bytes of each, and saturation (None is Dask's own), of a cluster.
Shape = tuple[int, int, int, float | None]
#: Memory of the grid in all; and its clusters, of which the first is that of the recorded runs.
MEMORY = 4 << 30
SHAPES: tuple[Shape, ...] = tuple(
    (n, threads, MEMORY // n, None) for n, threads in ((2, 2), (1, 2), (2, 1), (4, 1), (1, 4))
)
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
        advice = advise(load_trace(folder / f"{name}.trace"), force=True)
        chosen = FASTEST if FASTEST in advice.settings else AS_IT_WAS
        setting, (seconds, low, high) = advice.fastest, advice.saved(chosen)
        took = advice.own.recorded.makespan_seconds
        promises[name] = {
            "shape": [setting.workers, setting.nthreads, setting.memory_limit, setting.saturation],
            "times": setting.chunks,
            "recorded": took,
            "saves": [each / took for each in (low, seconds, high)],
        }
        print(f"{name:8} {json.dumps(promises[name])}", flush=True)
        (folder / "promises.json").write_text(json.dumps(promises))


def times_of(promises: dict[str, Any], name: str) -> list[int]:
    """Sizes of partitions in the grid."""
    return sorted({1, 5, 20, promises[name]["times"]})


def shape_of(given: Sequence[Any]) -> Shape:
    """Shape of its JSON."""
    workers, nthreads, memory, saturation = given
    return workers, nthreads, memory, saturation


def shapes_of(promises: dict[str, Any]) -> list[Shape]:
    """Shapes of the grid, and those that were advised."""
    return list(dict.fromkeys([*SHAPES, *(shape_of(one["shape"]) for one in promises.values())]))


def run(folder: Path, names: list[str], repeats: int) -> None:
    """Make all real runs, a process and cluster for each shape, the shapes in turn."""
    promises = json.loads((folder / "promises.json").read_text())
    for repeat in range(repeats):
        for shape in shapes_of(promises):
            command = [sys.executable, "-m", "benchmarks.advice", "shape", "--folder", str(folder), "--only", *names]
            subprocess.run([*command, "--shape", json.dumps(shape), "--repeat", str(repeat)], check=True)


def run_shape(folder: Path, names: list[str], shape: Shape, repeat: int) -> None:
    """Run programs with partitions of each size; a line for each in ``runs.jsonl``."""
    promises = json.loads((folder / "promises.json").read_text())
    with cluster(shape) as client, (folder / "runs.jsonl").open("a") as lines:
        for name in names:
            PROGRAMS[name](client, 20)
            for times in times_of(promises, name):
                began = time.perf_counter()
                PROGRAMS[name](client, times)
                took = time.perf_counter() - began
                found = {"name": name, "shape": shape, "times": times, "repeat": repeat}
                lines.write(json.dumps(found | {"seconds": took}) + "\n")
                lines.flush()


def judge(folder: Path, names: list[str]) -> None:
    """Print each promise beside what was saved, and the best of the grid."""
    promises = json.loads((folder / "promises.json").read_text())
    took: dict[tuple[str, Shape, int], list[float]] = {}
    for line in (folder / "runs.jsonl").read_text().splitlines():
        one = json.loads(line)
        took.setdefault((one["name"], shape_of(one["shape"]), one["times"]), []).append(one["seconds"])
    median = {setting: statistics.median(seconds) for setting, seconds in took.items()}
    kept = worse = near = 0
    print(
        f"{'program':8} {'before':>6} {'advised':>16} {'after':>6} {'saved':>6} {'promised':>16} {'best of grid':>22}"
    )
    for name in names:
        one = promises[name]
        advised = shape_of(one["shape"])
        before, after = median[name, SHAPES[0], 1], median[name, advised, one["times"]]
        low, seconds, high = one["saves"]
        saved = 1 - after / before
        best = min((key for key in median if key[0] == name), key=median.__getitem__)
        kept += low <= saved <= high
        worse += after > (1 + DIFFER) * before
        near += after <= (1 + BEHIND) * median[best]
        print(
            f"{name:8} {before:6.2f} {advised[0]}x{advised[1]}, {one['times']:3} times {after:6.2f}"
            f" {saved:6.0%} {seconds:5.0%} ({low:4.0%} to {high:4.0%})"
            f" {median[best]:6.2f} {best[1][0]}x{best[1][1]}, {best[2]} times"
        )
    print(f"within the interval: {kept} of {len(names)}; worse than before: {worse}; within 15 % of the best: {near}")


def main() -> None:
    """One step, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["record", "promise", "run", "judge", "all", "shape"])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=list(PROGRAMS), help="programs")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--shape", type=json.loads, help=argparse.SUPPRESS)
    parser.add_argument("--repeat", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.step == "shape":
        run_shape(options.folder, options.only, shape_of(options.shape), options.repeat)
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
