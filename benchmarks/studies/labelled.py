"""Public fleets with labels, SMD and ASD, cut into windows as those of the generators are.

The folder ``data/processed`` of github.com/zhhlee/InterFusion (Li et al., KDD 2021) has eight machines of SMD, a sample
a minute for 16 days (Su et al., OmniAnomaly, KDD 2019), and twelve of ASD, one in five minutes for 15 days; and a part
before, without labels, to train on.

The machines of a fleet are taken for one task, and a sample for one of 15 s. At one a second a window that all methods
can judge had 390 samples, and of ASD there is one such with one machine at fault. Windows of 60 samples, as long as the
generators' 15 minutes, are cut one after the other. If no machine has a label in a window, it is healthy. If exactly
one has, that is the right one, and its first labelled sample is the onset, which is the window's first where the fault
is older. Others are left out. Networks are trained on windows of the train part, thresholds are chosen on the first
half of the test windows, and all are judged on the second half.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.fleet.outliers.metric_series import MetricSeries

#: Names of the fleets, and of their files, and seconds from one sample to the next.
FLEETS = {"smd": ("SMD", "machine", 60.0), "asd": ("ASD", "omi", 300.0)}
#: Seconds that a sample of a window stands for, the usual interval of Prometheus, and samples of a window, which then
#: is as long as the generators'.
PACE, SAMPLES = 15.0, 60


@dataclass(frozen=True, slots=True)
class Window:
    """All metrics of a task's machines, those at fault, and the second in which it begins, or -1."""

    series: MetricSeries
    faulty: tuple[int, ...]
    onset: float


class _Arrays(pickle.Unpickler):
    """Unpickles arrays, and nothing that could run."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in {("numpy", "ndarray"), ("numpy", "dtype"), ("numpy.core.multiarray", "_reconstruct")}:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(f"{module}.{name} is no array")


def public(folder: Path, prefix: str, part: str = "test") -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """Values, and labels, of the machines of one of the sets, as long as the shortest; "train" has no labels.

    Raises
    ------
    FileNotFoundError
        If the folder has none of its files.
    """
    tests = sorted(folder.glob(f"{prefix}-*_test.pkl"))
    names = [path.name.removesuffix("_test.pkl") for path in tests if path.stat().st_size]
    if not names:
        raise FileNotFoundError(f"{folder} has no {prefix}-*_test.pkl; expected data/processed of InterFusion")

    def read(name: str) -> NDArray[Any]:
        with (folder / f"{name}.pkl").open("rb") as file:
            return np.asarray(_Arrays(file).load())

    arrays = [read(f"{name}_{part}") for name in names]
    count = min(len(array) for array in arrays)
    values = np.stack([array[:count].T for array in arrays], axis=1).astype(np.float32)
    if part == "train":
        return values, np.zeros(values.shape[1:], np.bool_)
    return values, np.stack([read(f"{name}_test_label")[:count] for name in names]) > 0


def windows(values: NDArray[np.float32], labels: NDArray[np.bool_]) -> list[Window]:
    """Windows one after the other, without those in which several machines have labels."""
    found, metrics = [], [f"m{number}" for number in range(len(values))]
    for first in range(0, labels.shape[1] - SAMPLES + 1, SAMPLES):
        told = labels[:, first : first + SAMPLES]
        faulty = tuple(np.flatnonzero(told.any(axis=1)).tolist())
        if len(faulty) < 2:
            part = MetricSeries.of(values[:, :, first : first + SAMPLES], metrics=metrics, step_seconds=PACE)
            found.append(Window(part, faulty, PACE * int(told.any(axis=0).argmax()) if faulty else -1.0))
    return found


def split(folder: Path, fleet: str) -> tuple[list[Window], list[Window], list[Window]]:
    """Windows to train on, those to choose thresholds on, and those to judge by: the earlier and the later tests."""
    prefix = FLEETS[fleet][1]
    tests = windows(*public(folder, prefix))
    return windows(*public(folder, prefix, "train")), tests[: len(tests) // 2], tests[len(tests) // 2 :]
