"""Claim: with ``dask-efficiency run`` a program takes at most 3 % longer than with ``python``, in the median of ten.

``python -m benchmarks.run_cost [NAME ...]`` runs ten programs after public reports (``benchmarks/public_reports``), as
people had them, on two cores: each again and again for a minute, as a script of its own, by ``python`` and by
``dask-efficiency run`` in turns; every other turn begins with the second. The first run says how often a program is
run, and all others do as much. Wall clock is that of the whole process, with its start, its cluster and, where there is
one, its report; the time from the first to the last result is printed apart. ``--repeats N`` takes N pairs of each,
``--seconds`` another length. ``--json FILE`` writes all figures.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import dask

from benchmarks.figures import figure
from benchmarks.public_reports.programs import FOLDER_VARIABLE, Program, program_of
from benchmarks.workload_runs import cluster, cores, write

NAMES = (
    "daily_maps",
    "day_of_year",
    "generations_from_the_start",
    "groupby_apply",
    "many_small_matrices",
    "merge_shuffles",
    "models_travel",
    "one_result_at_a_time",
    "row_by_row",
    "text_in_threads",
)
SECONDS = 60.0
CLAIMED_PERCENT = 3.0

PLAIN = (sys.executable,)
METERED = (str(Path(sys.executable).with_name("dask-efficiency")), "run", "--no-progress")


def script(program: Program, seconds: float, times: int) -> None:
    """Run a program so often, or until so many seconds have passed if it is 0 times; prints how often, and seconds."""
    dask.config.set(program.config)
    program.prepare()
    names = {"n_workers": "workers", "threads_per_worker": "threads"}
    with cluster(**{names.get(name, name): value for name, value in program.cluster.items()}) as client:
        client.run(import_module, program.module)
        began, done = time.perf_counter(), 0
        while done < times or (not times and time.perf_counter() - began < seconds):
            program.bad(client)
            done += 1
        print(done, time.perf_counter() - began, flush=True)


def timed(how: Sequence[str], name: str, seconds: float, times: int) -> tuple[float, float, int]:
    """Seconds of the whole process and of its work, and how often that was done."""
    command = [*how, "-m", "benchmarks.run_cost", name, "--script", "--seconds", str(seconds), "--times", str(times)]
    with tempfile.TemporaryDirectory(prefix="run-cost-") as place:
        began = time.perf_counter()
        ran = subprocess.run(
            command, env={**os.environ, FOLDER_VARIABLE: place}, capture_output=True, text=True, check=False
        )
        took = time.perf_counter() - began
    if ran.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{ran.stderr[-2000:]}")
    done, of_work = ran.stdout.split()[-2:]
    return took, float(of_work), int(done)


def main() -> int:
    """Run all, print each and the median, and say whether the claim holds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", default=NAMES)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each run (default: 60)")
    parser.add_argument("--repeats", type=int, default=1, help="pairs of each program (default: 1)")
    parser.add_argument("--json", metavar="FILE", help="where to write all figures")
    parser.add_argument("--script", action="store_true", help="be the program")
    parser.add_argument("--times", type=int, default=0, help="how often the program is run, with --script")
    args = parser.parse_args()
    os.sched_setaffinity(0, cores())
    ratios: dict[str, list[tuple[float, float]]] = {}
    for name in args.names:
        program = program_of("known", name)
        if isinstance(program, str):
            print(f"{name:28} {program}")
            continue
        if args.script:
            script(program, args.seconds, args.times)
            return 0
        times = 0
        for pair in range(args.repeats):
            found = {}
            for how in (PLAIN, METERED) if pair % 2 == 0 else (METERED, PLAIN):
                found[how] = timed(how, name, args.seconds, times)
                times = found[how][2]
            (whole, work, _), (metered, metered_work, _) = found[PLAIN], found[METERED]
            ratios.setdefault(name, []).append((metered / whole, metered_work / work))
            print(
                f"{name:28} {times:4} x {whole:6.1f} s -> {metered:6.1f} s  {metered / whole:5.3f}   "
                f"from first to last result {metered_work / work:5.3f}",
                flush=True,
            )
    write(args.json, ratios)
    wholes, works = ([statistics.median(pair[i] for pair in pairs) for pairs in ratios.values()] for i in (0, 1))
    for what, of in (("the whole process", wholes), ("from first to last result", works)):
        print(f"{what}: median {statistics.median(of):.3f} of {len(of)} programs ({min(of):.3f} to {max(of):.3f})")
    figure("from first to last result", [100 * (one - 1) for one in works], "% longer")
    return int(
        not figure("the whole process", [100 * (one - 1) for one in wholes], "% longer", at_most=CLAIMED_PERCENT)
    )


if __name__ == "__main__":
    sys.exit(main())
