"""Each product of a day asks for the day's data by the same delayed call.

source: dask/dask issue 2073, with the question on Stack Overflow it came from (42773134); also explained in dask/dask
        issue 1541
date:   2017-03-13 (the other 2016-09-15)
seen:   helper functions make delayed calls with the same arguments, and what should be one task is made and run once
        for each time it is asked for.
cause:  delayed takes functions as impure unless told otherwise: each call gets a key of its own, so that the scheduler
        cannot see that the tasks are the same.
cure:   pure=True for what depends on its arguments alone, or make the delayed object once and pass it around.
"""

from __future__ import annotations

import dask
import numpy as np
from dask.delayed import Delayed
from distributed import Client

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
DAYS = scaled(40)
SHAPE = (60, 200, 200)
BANDS = ("cold", "warm", "wet", "windy", "bright")

EXPECTED = Expected(
    cause="load is called several (5) times with the same day: each product of a day makes a task of its own"
    " that reads and"
    " unpacks the same file",
    place="the delayed(load)(day) in of_day(), or load",
    cure="load each day once: pure=True, or one delayed object for the products of a day",
    says=r"same (file|data|work|input|call|argument|task|result|day|preparation|path)|again|repeat|twice"
    r"|re-?(read|load|comput)"
    r"|(\d+|many|several|five) times|more than once|identical|duplicat|equal (tasks|arguments|calls)"
    r"|\bimpure|pure=|redundan",
    places=(*marked(__file__), function("load"), function("of_day"), function("bad")),
    cures=r"pure|\bonce\b|cache|shar(e|ed|ing)\b|reuse|re-use|same (task|delayed|future|key)|persist|pass(ed"
    r"|ing)?\b|one (task|delayed|load)"
    r"|keep|memoi[sz]",
    never={
        MORE_WORKERS: "the work is needless",
        PROCESSES: "one thread a worker",
        LONGER_TASKS: "a task takes some tenths of a second",
        MORE_MEMORY: "there is enough",
        r"(?i)slow disk|disk is slow|faster disk": "the files are in the page cache: it is CPU time",
    },
)


def prepare() -> None:
    for day in range(DAYS):
        rng = np.random.default_rng(day)
        field = np.cumsum(rng.integers(-2, 3, SHAPE, dtype="int16"), axis=1, dtype="int16")
        np.savez_compressed(folder("fields") / f"{day}.npz", field=field)


def load(day: int) -> np.ndarray:
    with np.load(folder("fields") / f"{day}.npz") as file:
        field = file["field"]
    return np.tanh(field / 50.0)


def product(field: np.ndarray, band: int) -> float:
    low = -1 + 2 * band / len(BANDS)
    return float(((field >= low) & (field < low + 0.4)).mean())


def of_day(day: int, pure: bool) -> Delayed:
    return dask.delayed(load, pure=pure or None)(day)  # <- here


def products(pure: bool) -> float:
    parts = [dask.delayed(product)(of_day(day, pure), band) for day in range(DAYS) for band in range(len(BANDS))]
    weights = [1 + number % 7 for number in range(len(parts))]
    return float(np.dot(dask.compute(*parts), weights))  # <- here


def bad(client: Client) -> float:
    return products(pure=False)


def good(client: Client) -> float:
    return products(pure=True)
