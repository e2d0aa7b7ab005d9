"""Results of simulations are read by an object that opens the file of a job for each value.

source: pyiron/pyiron_base issue 1630; also pull requests 1251 and 512
date:   2024-08-29
seen:   to load one job opens its HDF5 file some 800 times; to run it, 270 times. Loading is slow.
cause:  the object that stands for the file opens it, reads one value and closes it, each time one is asked for.
cure:   open the file once, and read all values from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("h5py",)
CLUSTER = TWO_BY_ONE
JOBS = scaled(8)
STEPS = 700

EXPECTED = Expected(
    cause="a file is opened and closed for each value that is read from it",
    place="Stored, where it opens the file, or summary, which asks for the values",
    cure="open the file once for all values",
    says=r"\bopen(s|ed|ing)?\b|\bclos(e|es|ed|ing)\b|many (times|small reads|files|calls)|same file|again and again"
    r"|each (value|time|read)|one (value|at a time|by one)|small reads",
    places=(*marked(__file__), function("summary"), function("Stored"), r"__getitem__|files\.py|make_fid"),
    cures=r"\bonce\b|(keep|leave|hold)\w* .{0,30}open|all (values|at once|of them)|in one (go|read|call)|at once"
    r"|fewer (opens|reads|calls|files)|larger reads|together|cache|reuse|re-use|as a whole|outside (of )?the loop",
    never={
        LONGER_TASKS: "a task takes a second",
        MORE_MEMORY: "a task holds a few numbers",
        HOLDS_GIL: "a worker has one thread",
    },
)


def name_of(step: int, what: str) -> str:
    return f"output/step_{step:04d}/{what}"


def prepare() -> None:
    for job in range(JOBS):
        rng = np.random.default_rng(job)
        with h5py.File(folder("jobs") / f"{job}.h5", "w") as file:
            for step in range(STEPS):
                file[name_of(step, "energy")] = rng.normal()
                file[name_of(step, "volume")] = rng.gamma(9.0)


class Stored:
    """Results of a job, by name."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __getitem__(self, name: str) -> Any:
        with h5py.File(self.path, "r") as file:  # <- here
            return file[name][()]  # <- here


def summary(results: Mapping[str, Any]) -> float:
    """Energy by volume, of the steps of a job."""
    energies = [results[name_of(step, "energy")] for step in range(STEPS)]  # <- here
    volumes = [results[name_of(step, "volume")] for step in range(STEPS)]  # <- here
    return float(np.sum(np.array(energies) / np.array(volumes)))


def relaxed(path: Path) -> float:
    return summary(Stored(path))  # <- here


def relaxed_at_once(path: Path) -> float:
    with h5py.File(path, "r") as file:
        return summary({name: file[name][()] for step in range(STEPS) for name in _names(step)})


def _names(step: int) -> tuple[str, str]:
    return name_of(step, "energy"), name_of(step, "volume")


def paths() -> list[Path]:
    return [folder("jobs") / f"{job}.h5" for job in range(JOBS)]


def bad(client: Client) -> float:
    return sum(client.gather(client.map(relaxed, paths())))  # <- here


def good(client: Client) -> float:
    return sum(client.gather(client.map(relaxed_at_once, paths())))
