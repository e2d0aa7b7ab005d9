"""Claim: everything of this package switched on at once costs a task no more than `performance_report` alone.

``python -m benchmarks.matrix`` prints, as tables in Markdown, what a task costs in each way in which a cluster can be
watched, with this package and with what Dask has itself: instructions (under valgrind, where it is installed), CPU and
wall time, of tasks that do nothing and of tasks that sort a hundred thousand numbers. Scheduler, worker and client
share a process, see :mod:`benchmarks.one_process`; each figure is of a process of its own. A round has each mode once,
in an order that is turned from round to round; what a mode adds is taken from the mode ``off`` of the same round, and
medians over rounds are printed, with the range. All is timed before any instruction is counted. Each figure goes to
stderr as it comes.

The machine must have nothing else to do, and for the counts a core for each of ``--jobs``: where threads wait for a
core, they exchange the GIL and messages more often, which takes up to a twentieth more instructions. It takes two and a
half hours, with ``--jobs 2`` an hour and three quarters; ``--quick`` takes half an hour.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import statistics
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from benchmarks.figures import figure
from benchmarks.one_process import MODES, WORK
from benchmarks.task_cost import Used, instructions_a_task, used

#: By the work: numbers of tasks that are subtracted from one another, to count instructions and to time. An open page
#: is brought up to date every fourth heartbeat, and garbage is collected every fifth.
COUNTED = {"no-op": (400, 2_400), "array": (50, 300)}
TIMED = {"no-op": (400, 4_400), "array": (50, 550)}

QUICK_MODES = ("off", "on", "trace", "all", "task-stream", "performance-report")

#: Of one mode, by column: a figure a round.
Columns = Mapping[str, Sequence[float]]


def count(modes: Sequence[str], work: str, sizes: tuple[int, int], rounds: int, jobs: int) -> dict[str, list[float]]:
    """Thousands of instructions a task, by mode and round."""

    def counted(mode: str) -> float:
        found = instructions_a_task(mode, work, sizes).total() / 1e3
        print(f"{work} {mode}: {found:.1f} thousand instructions", file=sys.stderr)
        return found

    with ThreadPoolExecutor(jobs) as pool:
        asked = {
            mode: [pool.submit(counted, mode) for _ in range(rounds)] for mode in modes if not MODES[mode].not_counted
        }
        return {mode: [one.result() for one in each] for mode, each in asked.items()}


def time_interleaved(modes: Sequence[str], work: str, sizes: tuple[int, int], rounds: int) -> dict[str, list[Used]]:
    """CPU and wall time, by mode and round."""
    found: dict[str, list[Used]] = {mode: [] for mode in modes}
    for i in range(rounds):
        turned = [*modes[i % len(modes) :], *modes[: i % len(modes)]]
        for mode in turned if i % 2 else reversed(turned):
            found[mode].append(used(mode, work, sizes))
            print(f"{work} {mode}: {found[mode][-1]}", file=sys.stderr)
    return found


def table(columns: Mapping[str, Columns], units: Mapping[str, str]) -> str:
    """Lay out what each mode costs more than the first, in Markdown.

    Parameters
    ----------
    columns
        By mode, figures by column; the first mode has all columns.
    units
        The heading of each column.
    """
    first = next(iter(columns))
    lines = ["| | " + " | ".join(units.values()) + " |", "| --- |" + " ---: |" * len(units)]
    for mode, figures in columns.items():
        cells = [MODES[mode].title]
        for column in units:
            base, here = columns[first].get(column), figures.get(column)
            if not here or not base:
                cells.append(MODES[mode].not_counted or "not counted")
            elif mode == first:
                cells.append(_absolute(here))
            else:
                cells.append(_added(base, here, share=column != "once"))
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _absolute(here: Sequence[float]) -> str:
    return f"{statistics.median(here):.0f} [{min(here):.0f}, {max(here):.0f}]"


def _added(base: Sequence[float], here: Sequence[float], *, share: bool) -> str:
    added = sorted(mine - without for mine, without in zip(here, base, strict=True))
    median = statistics.median(added)
    of_base = f" ({median / statistics.median(base):+.1%})" if share else ""
    return f"{median:+.0f}{of_base} [{added[0]:+.0f}, {added[-1]:+.0f}]"


def headline(columns: Mapping[str, Columns], column: str) -> str:
    """Say whether everything costs no more than `performance_report`, by one column."""
    added = {
        mode: statistics.median(m - o for m, o in zip(columns[mode][column], columns["off"][column], strict=True))
        for mode in ("all", "performance-report")
    }
    holds = added["all"] <= added["performance-report"]
    return (
        f"{column}: everything on adds {added['all']:+.0f}, `performance_report` {added['performance-report']:+.0f}: "
        f"claim {'met' if holds else 'NOT met'}"
    )


UNITS = {
    "instructions": "thousand instructions a task",
    "cpu": "us of CPU a task",
    "wall": "us of wall time a task",
    "once": "ms of CPU, once",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", nargs="+", choices=MODES, metavar="MODE", help=f"of {', '.join(MODES)}")
    parser.add_argument("--work", nargs="+", choices=WORK, help="what the tasks do (default no-op and array)")
    parser.add_argument("--rounds", type=int, default=5, help="times that each mode is run (default 5)")
    parser.add_argument("--counted-rounds", type=int, default=3, help="times that instructions are counted (default 3)")
    parser.add_argument("--jobs", type=int, default=1, help="processes whose instructions are counted at a time")
    parser.add_argument("--tasks", nargs=2, type=int, metavar=("SMALL", "LARGE"), help="sizes to subtract")
    parser.add_argument("--no-instructions", action="store_true", help="count no instructions")
    parser.add_argument("--quick", action="store_true", help="some modes, and no-op tasks, once or twice")
    args = parser.parse_args()
    modes = [mode for mode in args.modes or (QUICK_MODES if args.quick else MODES) if _installed(mode)]
    modes = ["off", *(mode for mode in modes if mode != "off")]
    counts = not args.no_instructions and shutil.which("valgrind") is not None
    if args.quick:
        args.rounds, args.counted_rounds = min(args.rounds, 2), 1
    works = args.work or (("no-op",) if args.quick else ("no-op", "array"))
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for work in works:
        timed = time_interleaved(modes, work, args.tasks or TIMED[work], args.rounds)
        found[work] = {
            mode: {column: [getattr(one, column) for one in each] for column in Used._fields}
            for mode, each in timed.items()
        }
    for work in works:
        columns = found[work]
        if counts:
            counted = count(modes, work, args.tasks or COUNTED[work], args.counted_rounds, args.jobs)
            for mode, each in counted.items():
                columns[mode]["instructions"] = each
        units = {column: unit for column, unit in UNITS.items() if columns["off"].get(column)}
        rounds = f"{args.rounds} rounds" + counts * f", {args.counted_rounds} of them counted"
        print(f"\nTasks: {work}; {rounds}; the first row as it is, the others as what they add: median [range]\n")
        print(table(columns, units))
        if {"all", "performance-report"} <= {*modes}:
            print()
            for column in units:
                print("-", headline(columns, column))
        for mode, figures in columns.items():
            for column in ("instructions", "cpu") if mode != "off" else ():
                if base := columns["off"].get(column) if figures.get(column) else None:
                    added = [100 * (m - o) / o for m, o in zip(figures[column], base, strict=True)]
                    figure(f"{mode}, {work}, {column}", added, "% more")
        if {"all", "performance-report"} <= {*modes}:
            each = zip(columns["all"]["cpu"], columns["performance-report"]["cpu"], strict=True)
            more = [ours - dasks for ours, dasks in each]
            figure(f"everything more than performance_report, {work}", more, "us of CPU", at_most=0)
        sys.stdout.flush()


def _installed(mode: str) -> bool:
    if mode == "pyspy" and not (importlib.util.find_spec("dask_pyspy") and shutil.which("py-spy")):
        print("dask-pyspy is not installed: its row is left out")
        return False
    return True


if __name__ == "__main__":
    main()
