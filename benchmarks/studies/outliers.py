"""Claim: find_outliers reaches F1 >= .85 on two generators, with an alarm in at most 5 % of the healthy windows.

``python -m benchmarks.studies.outliers --generator first|second|third`` judges find_outliers as shipped on windows
that it was not tuned on, by confidence, type of fault and number of machines, then with several machines at fault at
once, and, on the second generator, with faults from before the window. Intervals are 95 %, from resampled windows. A
machine that is named counts if it is at fault; every other one is a false alarm, also one that the fault spread to.

The first generator is :mod:`benchmarks.studies.generator`. The second, :mod:`tests.fleet.generated`, has
machines that differ lastingly and, with ``--past SECONDS``, a past that find_outliers gets as `history`. The third,
:mod:`benchmarks.studies.stillness`, has machines that stand still while others follow the job's step; a third of its
faults are hidden in the lasting differences by design. Its last table
is of faults that are there from the first sample, without a past.
"""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

# one core, as others share the machine
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import figure
from benchmarks.studies import generator, stillness
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from dask_efficiency.fleet.outliers.outliers import find_outliers
from tests.fleet import generated

#: The generator that the settings were first chosen on, the one with lasting differences, the one with stillness.
FIRST, SECOND, THIRD = GENERATORS = ("first", "second", "third")

SEEDS = {
    (FIRST, "tune"): generator.TUNE,
    (FIRST, "report"): generator.REPORT,
    (SECOND, "tune"): generated.TUNE,
    (SECOND, "report"): generated.REPORT,
    (THIRD, "tune"): stillness.TUNE,
    (THIRD, "report"): stillness.REPORT,
}

#: Classes of task sizes.
SIZES = ((4, 16), (17, 64), (65, 256), (257, 1500))

#: Least F1, and largest share of healthy windows with an alarm.
MIN_F1, MAX_ALARMS = 0.85, 0.05

#: Bands of confidence, from and below.
BANDS = ((0.0, 0.7), (0.7, 0.8), (0.8, 0.9), (0.9, 1.01))

#: Machines of a task with several faults at once, and how many are at fault.
TASK, CONCURRENT = 64, (1, 2, 4, 8)


@dataclass(frozen=True, slots=True)
class Given:
    """A window as a detector gets it, and the truth."""

    series: MetricSeries
    #: The same machines just before; None where there is no past.
    history: MetricSeries | None
    faulty: tuple[int, ...]
    #: The type of the fault; empty where there is none.
    kind: str


@dataclass(frozen=True, slots=True)
class Judged:
    """A window's truth, and the machines that find_outliers named, with its confidence in each."""

    machines: int
    fault: str
    faulty: tuple[int, ...]
    named: tuple[int, ...]
    confidence: tuple[float, ...] = ()


def drawn_machines(of: str, seed: int, *, most: int) -> int:
    """Machines of a task, at most ``most``; the first generator's are drawn as it draws them itself."""
    # The second's own stream is [seed, 0], which is the same as seed: there, large tasks alone would have faults.
    random = np.random.default_rng(seed if of == FIRST else [seed, 77])
    drawn = random.uniform(math.log(generated.MIN_MACHINES), math.log(generated.MAX_MACHINES))
    return min(round(math.exp(drawn)), most)


def windows(
    of: str,
    seeds: Sequence[int],
    *,
    most_machines: int,
    past_seconds: int = 0,
    machines: int | None = None,
    concurrent: int = 1,
    faults: bool | None = None,
    onset_before: bool = False,
) -> Iterator[Given]:
    """Windows of a generator, by seed; those of the first have no past, nor a fault from before they begin."""
    for seed in seeds:
        if of == THIRD:
            yield _third(seed, machines, faults, past_seconds, from_start=onset_before)
            continue
        count = drawn_machines(of, seed, most=most_machines) if machines is None else machines
        if of == FIRST:
            first = generator.generate(seed, machines=count, concurrent=concurrent, faulty=faults)
            series = MetricSeries.of(first.metrics(generator.SEVEN), metrics=generator.HOST_NAMES)
            yield Given(series, None, first.faulty, first.fault)
            continue
        second = generated.generate(
            seed,
            machines=count,
            past_seconds=past_seconds,
            faults=faults,
            concurrent=concurrent,
            onset_before=onset_before,
        )
        history = None
        if second.past is not None:
            past = MetricSeries.of(second.past, metrics=second.metrics)
            history = replace(past, start=-float(second.past.shape[2]))
        yield Given(MetricSeries.of(second.values, metrics=second.metrics), history, second.faulty, second.kind or "")


def _third(seed: int, machines: int | None, faults: bool | None, past_seconds: int, *, from_start: bool) -> Given:
    window = stillness.generate(
        seed, machines=machines, faults=faults, past_seconds=past_seconds, from_start=from_start
    )
    series, history = (
        None if values is None else MetricSeries.of(values, metrics=window.metrics, step_seconds=window.every_seconds)
        for values in (window.values, window.past)
    )
    assert series is not None
    past = None if history is None else replace(history, start=-float(past_seconds))
    return Given(series, past, window.faulty, f"{window.kind}, {window.size}" if window.kind else "")


def judged(given: Iterator[Given]) -> list[Judged]:
    """Each window, judged by find_outliers as shipped."""
    cases = []
    for window in given:
        found = find_outliers(window.series, history=window.history)
        named = tuple(int(finding.worker) for finding in found)
        confidence = tuple(finding.confidence for finding in found)
        cases.append(Judged(len(window.series.workers), window.kind, window.faulty, named, confidence))
    return cases


def rows(cases: Sequence[Judged]) -> NDArray[np.int64]:
    """By case: right, false and missed machines."""
    found = []
    for case in cases:
        named, faulty = set(case.named), set(case.faulty)
        found.append((len(named & faulty), len(named - faulty), len(faulty - named)))
    return np.array(found, np.int64).reshape(-1, 3)


def f1(totals: NDArray) -> float:
    """F1 of right, false and missed machines."""
    return float(_scores(totals)[2])


def figures(counts: NDArray[np.int64]) -> str:
    """Precision, recall and F1, each with its interval."""
    drawn = np.random.default_rng(0).integers(0, len(counts), (1000, len(counts)))
    resampled = _scores(counts[drawn].sum(axis=1).T)
    parts = []
    for name, value, values in zip(("P", "R", "F1"), _scores(counts.sum(axis=0)), resampled, strict=True):
        low, high = np.quantile(values, (0.025, 0.975))
        parts.append(f"{name} {float(value):.3f} [{low:.2f}, {high:.2f}]")
    return "  ".join(parts)


def _scores(totals: NDArray) -> tuple[NDArray, NDArray, NDArray]:
    right, false, missed = totals
    return (
        right / np.maximum(right + false, 1),
        right / np.maximum(right + missed, 1),
        2 * right / np.maximum(2 * right + false + missed, 1),
    )


def alarms(cases: Sequence[Judged]) -> str:
    """Number and share of healthy windows that raise an alarm."""
    healthy = [case for case in cases if not case.faulty]
    raised = sum(bool(case.named) for case in healthy)
    return f"{raised}/{len(healthy)}" + (f" ({raised / len(healthy):.0%})" if healthy else "")


def calibration(cases: Sequence[Judged]) -> list[str]:
    """By band of confidence: machines named, and the share that is at fault, with its interval after Wilson."""
    named = [
        (sure, machine in case.faulty)
        for case in cases
        for machine, sure in zip(case.named, case.confidence, strict=True)
    ]
    lines = []
    for low, high in BANDS:
        right = [correct for sure, correct in named if low <= sure < high]
        if right:
            least, most = wilson(sum(right), len(right))
            of = f"{sum(right)} of {len(right)} at fault [{least:.0%}, {most:.0%}]"
            lines.append(f"{low:4.0%} to {min(high, 1.0):4.0%}: {of}")
    return lines


def wilson(right: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """95 % interval of a share, after Wilson (JASA 1927)."""
    share, centre = right / n, (right / n + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def print_parts(cases: Sequence[Judged]) -> None:
    """By type of fault: machines found; by task size: F1 and alarms."""
    print("  machines found of those at fault, by type:")
    for fault in sorted({case.fault for case in cases if case.faulty}):
        those = [case for case in cases if case.fault == fault]
        print(f"    {fault:24} {rows(those)[:, 0].sum():4} of {sum(len(case.faulty) for case in those)}")
    print("  F1, and healthy windows with an alarm, by machines of the task:")
    for low, high in SIZES:
        those = [case for case in cases if low <= case.machines <= high]
        if those:
            print(
                f"    {low:4} to {high:4}: {len(those):3} windows  {f1(rows(those).sum(axis=0)):.2f}, {alarms(those)}"
            )


def print_special(of: str, seeds: Sequence[int], past: int) -> None:
    """Several machines at fault at once; and where the generator has them, faults from before the window."""
    if of == THIRD:
        cases = judged(windows(of, seeds, most_machines=0, onset_before=True))
        title = "no past, and faults from the first sample"
        print(f"  {title}, {len(cases)} windows: {figures(rows(cases))}  alarms {alarms(cases)}", flush=True)
        print_parts(cases)
        return
    kinds: dict[str, dict[str, Any]] = {
        f"{concurrent} of {TASK} machines at fault at once": {"concurrent": concurrent} for concurrent in CONCURRENT
    }
    if of == SECOND:
        kinds["faults from before the window"] = {"onset_before": True}
    common: dict[str, Any] = {"most_machines": TASK, "machines": TASK, "faults": True, "past_seconds": past}
    for title, options in kinds.items():
        cases = judged(windows(of, seeds, **common, **options))
        print(f"  {title}, {len(cases)} windows: {figures(rows(cases))}", flush=True)


def print_claim(of: str, cases: Sequence[Judged]) -> None:
    """Both parts of the claim, with the verdict."""
    reached = f1(rows(cases).sum(axis=0))
    healthy = [case for case in cases if not case.faulty]
    share = sum(bool(case.named) for case in healthy) / max(len(healthy), 1)
    figure(f"F1 on the {of} generator", reached, at_least=MIN_F1)
    raised = sum(bool(case.named) for case in healthy)
    most = MAX_ALARMS * len(healthy)
    figure(f"healthy windows of the {of} with an alarm", raised, of=len(healthy), at_most=most)
    holds = "holds" if reached >= MIN_F1 and share <= MAX_ALARMS else "does not hold"
    print(
        f"  claim on the {of} generator {holds}: F1 {reached:.3f} >= {MIN_F1}, alarms {share:.1%} <= {MAX_ALARMS:.0%}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generator", choices=GENERATORS, nargs="+", default=GENERATORS)
    parser.add_argument("--windows", type=int, default=120, help="windows to report on, of each generator")
    parser.add_argument("--seeds", choices=("tune", "report"), default="report", help="which windows to report on")
    parser.add_argument("--past", type=int, default=0, metavar="SECONDS", help="length of the machines' past")
    parser.add_argument("--machines", type=int, default=400, help="machines of a task at most; the paper says 1500")
    parser.add_argument("--special", type=int, default=20, help="windows for each number of faults at once")
    given = parser.parse_args()
    for of in given.generator:
        seeds = SEEDS[of, given.seeds]
        cases = judged(windows(of, seeds[: given.windows], most_machines=given.machines, past_seconds=given.past))
        past = f"a past of {given.past} s" if given.past and of != FIRST else "no past"
        print(f"=== {of} generator, {given.seeds} seeds, {past}: {len(cases)} windows", flush=True)
        print(f"  {figures(rows(cases))}  alarms {alarms(cases)}", flush=True)
        print_claim(of, cases)
        print("  machines named, by confidence:", *calibration(cases), sep="\n    ")
        print_parts(cases)
        if given.special:
            print_special(of, seeds[-given.special :], given.past)


if __name__ == "__main__":
    main()
