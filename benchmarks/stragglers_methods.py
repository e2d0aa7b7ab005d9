"""What the detectors, and their rivals and ablations, name in a window, by setting."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.stragglers_minder import ROBUST, STRIDE, Outcomes, Z, all_at_once, one_by_one
from benchmarks.stragglers_windows import Given
from dask_efficiency.fleet.minder.detector import WINDOW_SAMPLES, Minder, embedded
from dask_efficiency.fleet.minder.distances import pairwise_scores, robust_scores, standardised
from dask_efficiency.fleet.minder.train import train_minder
from dask_efficiency.fleet.minder.windows import normalised, windowed
from dask_efficiency.fleet.outliers.metric_series import filled
from dask_efficiency.fleet.outliers.outliers import find_outliers

OUTLIERS, MINDER, MEDIAN, ERROR = (
    "find_outliers",
    "Minder",
    "Minder, median as reference",
    "reconstruction error",
)

#: Multiples of find_outliers' own threshold, and seconds of continuity.
FACTORS = (0.7, 0.85, 1.0, 1.15, 1.3, 1.5)
CONTINUITIES = (150.0, 210.0, 270.0, 330.0)

#: Seconds of continuity for Minder beside the paper's four minutes.
MINDER_CONTINUITIES = (120, 180, 300, 360)


@dataclass(frozen=True, slots=True)
class Judged:
    """A window's truth, and what the methods named."""

    machines: int
    fault: str
    faulty: tuple[int, ...]
    said: dict[str, Outcomes]


def default(option: str) -> float:
    """What an option of find_outliers is unless given."""
    return float(inspect.signature(find_outliers).parameters[option].default)


def takes_history() -> bool:
    """Whether find_outliers can be given the machines' past."""
    return "history" in inspect.signature(find_outliers).parameters


def by_size(method: str, seconds: float) -> str:
    """Name of a method with another continuity."""
    return f"{method}, {seconds:.0f} s"


def outliers(window: Given, *, continuities: bool = True) -> dict[str, Outcomes]:
    """What find_outliers names: by multiple of its threshold, and by continuity."""
    usual = default("continuity_seconds")
    said: dict[str, Outcomes] = {OUTLIERS: {(factor, 1.0): _named(window, factor, usual) for factor in FACTORS}}
    for seconds in CONTINUITIES if continuities else ():
        named = said[OUTLIERS][1.0, 1.0] if seconds == usual else _named(window, 1.0, seconds)
        said[by_size(OUTLIERS, seconds)] = {(1.0, 1.0): named}
    return said


def _named(window: Given, factor: float, continuity_seconds: float) -> tuple[int, ...]:
    options: dict[str, Any] = {"threshold": factor * default("threshold"), "continuity_seconds": continuity_seconds}
    if window.history is not None:
        options["history"] = window.history
    return tuple(int(finding.worker) for finding in find_outliers(window.series, **options))


def minders(window: Given, minder: Minder, *, rivals: bool = True) -> dict[str, Outcomes]:
    """What Minder names with its own score, with the median as reference, and by its autoencoders' error."""
    smooth = filled(normalised(window.series.values), reach=30)
    cut = {
        name: windowed(smooth[window.series.metrics.index(name)], length=WINDOW_SAMPLES, stride=STRIDE)
        for name in minder.metrics
    }
    back = {name: embedded(minder.models[name], cut[name]) for name in minder.metrics}
    normal = [pairwise_scores(back[name]) for name in minder.metrics]
    said = {MINDER: one_by_one(normal, Z), MEDIAN: all_at_once((robust_scores(back[n]) for n in back), ROBUST)}
    if rivals:
        said[ERROR] = one_by_one(_errors(cut, back), Z)
        for seconds in MINDER_CONTINUITIES:
            said[by_size(MINDER, seconds)] = one_by_one(normal, Z, continuity=seconds // STRIDE)
    return said


def _errors(cut: dict[str, NDArray[np.float32]], back: dict[str, NDArray[np.float32]]) -> Iterable[NDArray[np.float32]]:
    """How badly each machine's windows come back, standardised as the distances are."""
    for name, windows in cut.items():
        yield standardised(np.sqrt(((windows - back[name]) ** 2).sum(axis=2)))


def judged(windows: Iterable[Given], minder: Minder | None, *, rivals: bool = True) -> list[Judged]:
    """All methods on each window; without a trained detector, find_outliers alone."""
    cases = []
    for window in windows:
        said = outliers(window, continuities=rivals)
        if minder is not None:
            said |= minders(window, minder, rivals=rivals)
        cases.append(Judged(len(window.series.workers), window.kind, window.faulty, said))
    return cases


def trained(windows: Iterable[Given]) -> Minder:
    """Minder as the package trains it, with the order of its metrics learnt from the known faults."""
    learnt = list(windows)
    return train_minder(
        [window.series for window in learnt], [[str(machine) for machine in window.faulty] for window in learnt]
    )
