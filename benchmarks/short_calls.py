"""How much too little of the time that threads compute goes to Python between short calls of C that release the GIL.

``python -m benchmarks.short_calls [--seconds 12]`` runs tasks that take turns of Python and of NumPy's short sums, on a
worker with one thread and with two, for several shares and lengths of a turn. It prints the share of the CPU time that
is Python's by the tasks' own clocks, and by the report's profile. A sampler that waits for the GIL gets it where
another thread lets go of it, as these sums do, and sees little else: nothing is claimed, and docs/waiting.md says so.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from distributed import Client, LocalCluster

from benchmarks.figures import figure
from dask_efficiency import EfficiencyPlugin, EfficiencyReport, efficiency_report

#: Share of Python, seconds of a turn of both.
KINDS = [(share, turn) for turn in (0.001, 0.004, 0.02) for share in (0.2, 0.5, 0.8)]
#: Seconds of the longest turn of those whose figures are kept.
MOST_TURN = 0.004
#: Numbers that are summed at once: more than 500, as NumPy keeps the GIL for so few.
NUMBERS = 2_000


def loops(times: int) -> int:
    found = 0
    for i in range(times):
        found += i * i
    return found


def sums(values: np.ndarray, times: int) -> float:
    found = 0.0
    for _ in range(times):
        found += values.sum()
    return found


def take_turns(of_loops: int, of_sums: int, seconds: float) -> tuple[float, float]:
    """CPU seconds of Python and of sums, in so many seconds."""
    values, stop, clock = np.ones(NUMBERS), time.monotonic() + seconds, time.thread_time
    in_loops = in_sums = 0.0
    while time.monotonic() < stop:
        began = clock()
        loops(of_loops)
        between = clock()
        sums(values, of_sums)
        in_loops += between - began
        in_sums += clock() - between
    return in_loops, in_sums


def in_a_second() -> tuple[float, float]:
    """Rounds of loops, and sums, in a second of CPU time."""
    values, clock = np.ones(NUMBERS), time.thread_time
    began = clock()
    loops(400_000)
    between = clock()
    sums(values, 50_000)
    return 400_000 / (between - began), 50_000 / (clock() - between)


def shown(report: EfficiencyReport) -> float:
    """Share of loops in the CPU time of the profile."""
    rows = [row for row in report.profile if str(row.bucket) == "thread-cpu"]
    named = {
        name: sum(row.ns for row in rows if any(f.function == name for f in row.stack)) for name in ("loops", "sums")
    }
    return named["loops"] / max(1, sum(named.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=12.0, help="of each (default 12)")
    seconds = parser.parse_args().seconds
    differ = []
    print(f"{'threads':>7}{'turn':>10}{'truth':>8}{'shown':>8}{'turns':>9}")
    for nthreads in (1, 2):
        with (
            LocalCluster(n_workers=1, threads_per_worker=nthreads, processes=True, dashboard_address=":0") as cluster,
            Client(cluster) as client,
        ):
            client.register_plugin(EfficiencyPlugin())
            loops_in_a_second, sums_in_a_second = client.submit(in_a_second).result()
            for share, turn in KINDS:
                of_loops = round(share * turn * loops_in_a_second)
                of_sums = round((1 - share) * turn * sums_in_a_second)
                with efficiency_report(client) as block:
                    tasks = [client.submit(take_turns, of_loops, of_sums, seconds, pure=False) for _ in range(nthreads)]
                    in_loops, in_sums = map(sum, zip(*client.gather(tasks), strict=True))
                truth, found = in_loops / (in_loops + in_sums), shown(block.report)
                differ.append((truth, found))
                turns = (in_loops + in_sums) / turn
                print(f"{nthreads:>7}{turn * 1e3:>7.1f} ms{truth:>8.0%}{found:>8.0%}{turns:>9.0f}", flush=True)
    few = [pair for pair, (_, turn) in zip(differ, 2 * KINDS, strict=True) if turn <= MOST_TURN]
    figure("Python's share", [100 * truth for truth, _ in few], "%")
    figure("Python's share in the profile", [100 * shown for _, shown in few], "%")


if __name__ == "__main__":
    main()
