"""Claim: find_outliers reaches F1 >= .85 on both generators, with an alarm in at most 5 % of the healthy windows.

``python -m benchmarks.stragglers_outliers --generator first|second|both`` judges find_outliers as shipped, and Minder
trained on each generator's own windows, on windows that neither was tuned on. Where a method has a setting to choose,
it is chosen on the `tune` seeds of one generator and reported on both. Intervals are 95 %, from resampled windows. A
machine that is named counts if it is at fault; every other one is a false alarm, also one that the fault spread to.

The second generator (`benchmarks.stragglers_fleet`) has machines that differ lastingly, optionally a past
(``--past SECONDS``, given to find_outliers as `history`), faults from before the window, and tasks with many faults
in their life; the first (`benchmarks.stragglers_generator`) has none of these. Minder looks every ten seconds.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

# one core, as others share the machine
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks import stragglers_fleet as fleet
from benchmarks.stragglers_methods import (
    CONTINUITIES,
    ERROR,
    MEDIAN,
    MINDER,
    MINDER_CONTINUITIES,
    OUTLIERS,
    Judged,
    by_size,
    judged,
    takes_history,
    trained,
)
from benchmarks.stragglers_minder import Outcomes, f1
from benchmarks.stragglers_windows import FIRST, SECOND, SEEDS, given, windows
from dask_efficiency.fleet.minder.detector import Minder, load_minder

#: Classes of task sizes.
SIZES = ((4, 16), (17, 64), (65, 256), (257, 1500))

#: What the claim asks for.
MIN_F1, MAX_ALARMS = 0.85, 0.05

#: Machines of the tables of concurrent faults, of faults from before the window, and of tasks' lives.
TASK = 64
CONCURRENT = (1, 2, 4, 8)
LIVES, LIFE_WINDOWS, LIFE_FAULTS = 5, 12, (1, 2, 4, 8, 12)

Setting = tuple[float, float]
#: What a method named in a case.
Answer = Callable[[Judged], tuple[int, ...]]


def rows(cases: Sequence[Judged], answer: Answer) -> NDArray[np.int64]:
    """By case: right, false and missed machines."""
    found = []
    for case in cases:
        named, faulty = set(answer(case)), set(case.faulty)
        found.append((len(named & faulty), len(named - faulty), len(faulty - named)))
    return np.array(found, np.int64).reshape(-1, 3)


def figures(counts: NDArray[np.int64]) -> str:
    """Precision, recall and F1, each with its interval."""
    drawn = np.random.default_rng(0).integers(0, len(counts), (1000, len(counts)))
    parts = []
    for name, (value, resampled) in zip(
        ("P", "R", "F1"),
        zip(_scores(counts.sum(axis=0)), _scores(counts[drawn].sum(axis=1).T), strict=True),
        strict=True,
    ):
        low, high = np.quantile(resampled, (0.025, 0.975))
        parts.append(f"{name} {float(value):.3f} [{low:.2f}, {high:.2f}]")
    return "  ".join(parts)


def _scores(totals: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    right, false, missed = totals
    return (
        right / np.maximum(right + false, 1),
        right / np.maximum(right + missed, 1),
        2 * right / np.maximum(2 * right + false + missed, 1),
    )


def alarms(cases: Sequence[Judged], answer: Answer) -> str:
    """How many healthy windows raise an alarm."""
    healthy = [case for case in cases if not case.faulty]
    raised = sum(bool(answer(case)) for case in healthy)
    return f"{raised}/{len(healthy)}" + (f" ({raised / len(healthy):.0%})" if healthy else "")


# ---------------------------------------------------------------- settings


def _fixed(method: str, setting: Setting) -> Answer:
    return lambda case: case.said[method][setting]


def chosen(cases: Sequence[Judged], method: str) -> Setting:
    """The setting with the best F1."""
    outcomes: Outcomes = cases[0].said[method]
    return max(outcomes, key=lambda setting: f1(rows(cases, _fixed(method, setting)).sum(axis=0)))


def _size(machines: int) -> int:
    return next(number for number, (_, high) in enumerate(SIZES) if machines <= high)


def chosen_by_size(cases: Sequence[Judged], candidates: Sequence[tuple[str, Setting]]) -> tuple[Answer, str]:
    """For each class of sizes, the method and setting with the best F1."""
    best = []
    for number in range(len(SIZES)):
        those = [case for case in cases if _size(case.machines) == number]
        scores = [f1(rows(those, _fixed(*candidate)).sum(axis=0)) if those else 0.0 for candidate in candidates]
        best.append(candidates[int(np.argmax(scores))])

    def answer(case: Judged) -> tuple[int, ...]:
        method, setting = best[_size(case.machines)]
        return case.said[method][setting]

    return answer, " / ".join(f"{method} {setting}" for method, setting in best)


def answers(tuning: Sequence[Judged]) -> dict[str, tuple[Answer, str]]:
    """All rows of the tables: what a method answers, and with which setting."""
    table: dict[str, tuple[Answer, str]] = {f"{OUTLIERS}, as shipped": (_fixed(OUTLIERS, (1.0, 1.0)), "")}
    for method in (OUTLIERS, MINDER, MEDIAN, ERROR):
        if method in tuning[0].said:
            setting = chosen(tuning, method)
            table[f"{method}, chosen"] = _fixed(method, setting), str(setting)
    table[f"{OUTLIERS}, continuity by size"] = chosen_by_size(
        tuning, [(by_size(OUTLIERS, seconds), (1.0, 1.0)) for seconds in CONTINUITIES]
    )
    if MINDER in tuning[0].said:
        setting = chosen(tuning, MINDER)
        several = [MINDER, *(by_size(MINDER, seconds) for seconds in MINDER_CONTINUITIES)]
        table[f"{MINDER}, continuity by size"] = chosen_by_size(tuning, [(method, setting) for method in several])
        # What its normal score can reach depends on the number of machines.
        table[f"{MINDER}, threshold by size"] = chosen_by_size(tuning, [(MINDER, s) for s in tuning[0].said[MINDER]])
    return table


def shown(table: dict[str, tuple[Answer, str]]) -> dict[str, Answer]:
    """The methods of the finer tables."""
    names = (f"{OUTLIERS}, as shipped", f"{MINDER}, threshold by size", f"{MEDIAN}, chosen")
    return {name: table[name][0] for name in names if name in table}


# ---------------------------------------------------------------- tables


def print_parts(cases: Sequence[Judged], table: dict[str, Answer]) -> None:
    """By type of fault: recall; by task size: F1 and alarms."""
    print("  machines found of those at fault, by type:", " | ".join(table))
    for fault in sorted({case.fault for case in cases if case.faulty}):
        those = [case for case in cases if case.fault == fault]
        found = [int(rows(those, answer)[:, 0].sum()) for answer in table.values()]
        print(f"    {fault:24} {sum(len(case.faulty) for case in those):4}  {found}")
    print("  F1, and healthy windows with an alarm, by machines of the task:")
    for number, (low, high) in enumerate(SIZES):
        those = [case for case in cases if _size(case.machines) == number]
        if those:
            scores = [f"{f1(rows(those, a).sum(axis=0)):.2f}, {alarms(those, a)}" for a in table.values()]
            print(f"    {low:4} to {high:4}: {len(those):3} windows  " + " | ".join(scores))


def print_rows(title: str, cases: Sequence[Judged], table: dict[str, Answer]) -> None:
    """One row a method."""
    print(f"  {title}, {len(cases)} windows:")
    for name, answer in table.items():
        healthy = f"  alarms {alarms(cases, answer)}" if any(not case.faulty for case in cases) else ""
        print(f"    {name:36} {figures(rows(cases, answer))}{healthy}", flush=True)


def print_special(of: str, minder: Minder | None, table: dict[str, Answer], given_: argparse.Namespace) -> None:
    """Concurrent faults; and where the generator has them, faults from before the window, and tasks' lives."""
    seeds = SEEDS[of, given_.seeds][-given_.special :] if given_.special else ()
    options = {"most_machines": TASK, "machines": TASK, "faults": True, "past_seconds": given_.past}
    for concurrent in CONCURRENT if seeds else ():
        cases = judged(windows(of, seeds, concurrent=concurrent, **options), minder, rivals=False)
        print_rows(f"{concurrent} of {TASK} machines at fault at the same time", cases, table)
    if of == SECOND and seeds:
        cases = judged(windows(of, seeds, onset_before=True, **options), minder, rivals=False)
        print_rows("faults from before the window", cases, table)
        for faults in LIFE_FAULTS:
            lives = (
                fleet.generate_life(seed, windows=LIFE_WINDOWS, faults=faults, machines=TASK, past_seconds=given_.past)
                for seed in SEEDS[of, given_.seeds][-LIVES:]
            )
            cases = judged((given(window) for life in lives for window in life), minder, rivals=False)
            print_rows(f"{faults} faults in a task's life of {LIFE_WINDOWS} windows", cases, table)


def minder_of(of: str, folder: Path | None, most_machines: int) -> Minder:
    """The detector trained on a generator's windows, from a file if it is there."""
    path = folder / f"minder-{of}.npz" if folder is not None else None
    if path is not None and path.exists():
        return load_minder(path)
    minder = trained(windows(of, SEEDS[of, "train"][:40], most_machines=min(most_machines, TASK)))
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        minder.save(path)
    return minder


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generator", choices=(FIRST, SECOND, "both"), default="both")
    parser.add_argument("--windows", type=int, default=120, help="how many windows to report on, of each generator")
    parser.add_argument("--tune", type=int, default=60, help="how many windows to choose settings on")
    parser.add_argument("--seeds", choices=("tune", "report"), default="report", help="which windows to report on")
    parser.add_argument("--past", type=int, default=0, metavar="SECONDS", help="length of the machines' past")
    parser.add_argument("--machines", type=int, default=400, help="machines of a task at most; the paper says 1500")
    parser.add_argument("--special", type=int, default=20, help="windows for each number of concurrent faults")
    parser.add_argument("--model", type=Path, metavar="FOLDER", help="where trained detectors are, or are to be saved")
    parser.add_argument("--no-minder", action="store_true", help="find_outliers alone")
    arguments = parser.parse_args(argv)
    if arguments.past and not takes_history():
        parser.error("--past: find_outliers takes no history; expected a keyword `history`")
    return arguments


def _judged_of(of: str, minder: Minder | None, seeds: Iterable[int], arguments: argparse.Namespace) -> list[Judged]:
    given_windows = windows(of, list(seeds), most_machines=arguments.machines, past_seconds=arguments.past)
    return judged(given_windows, minder)


def main(argv: Sequence[str] | None = None) -> None:
    """Train, choose, report."""
    arguments = _arguments(argv)
    torch.set_num_threads(1)
    generators = (FIRST, SECOND) if arguments.generator == "both" else (arguments.generator,)
    minders = {
        of: None if arguments.no_minder else minder_of(of, arguments.model, arguments.machines) for of in generators
    }
    tables = {
        of: answers(_judged_of(of, minders[of], SEEDS[of, "tune"][: arguments.tune], arguments)) for of in generators
    }
    for of in generators:
        cases = _judged_of(of, minders[of], SEEDS[of, arguments.seeds][: arguments.windows], arguments)
        past = f"a past of {arguments.past} s" if arguments.past and of == SECOND else "no past"
        print(f"=== {of} generator, {arguments.seeds} seeds, {past}: {len(cases)} windows", flush=True)
        for chosen_on, table in tables.items():
            print(f"  settings chosen on the {chosen_on} generator's tune seeds:")
            for name, (answer, setting) in table.items():
                counts = rows(cases, answer)
                print(f"    {name:36} {figures(counts)}  alarms {alarms(cases, answer)}  {setting}", flush=True)
        print_claim(of, cases, tables[of][f"{OUTLIERS}, as shipped"][0])
        print_parts(cases, shown(tables[of]))
        print_special(of, minders[of], shown(tables[of]), arguments)


def print_claim(of: str, cases: Sequence[Judged], answer: Answer) -> None:
    """Whether find_outliers as shipped does what the claim says."""
    reached = f1(rows(cases, answer).sum(axis=0))
    healthy = [case for case in cases if not case.faulty]
    share = sum(bool(answer(case)) for case in healthy) / max(len(healthy), 1)
    holds = "holds" if reached >= MIN_F1 and share <= MAX_ALARMS else "does not hold"
    print(
        f"  claim on the {of} generator {holds}: F1 {reached:.3f} >= {MIN_F1}, alarms {share:.1%} <= {MAX_ALARMS:.0%}"
    )


if __name__ == "__main__":
    main()
