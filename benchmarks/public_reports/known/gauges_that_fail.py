"""Floods of the last century from gauges in rivers; the records of a few gauges are broken.

source: dask/distributed issue 2436; of the same kind: dask/distributed pull request 3577 and issue 8506
date:   2018-12-22 (pull request 3577: 2020-03-16; issue 8506: 2024-02-14)
seen:   one task of many raises an error, and the whole computation ends with it, though all others are independent.
cause:  compute raises the first error, and what the other tasks have found is dropped; the script leaves out the gauge
        that failed, and computes all others again.
cure:   take what succeeded (gather(errors="skip"), or catch the error in the task), and leave the others.
"""

from __future__ import annotations

from typing import Any

import dask
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
GAUGES, DAYS, DRAWS = scaled(30), 36_500, 200
#: Shares of the gauges before those that are broken.
BROKEN = frozenset({int(0.05 * GAUGES), int(0.2 * GAUGES), int(0.4 * GAUGES)})

EXPECTED = Expected(
    cause="a failed task ends the computation, and all gauges are computed again without the one that failed",
    place="the compute in bad, again after each error raised by recorded",
    cure="keep what succeeded: gather with errors='skip', or catch the error in the task",
    says=r"fail|\berr(or|ors|ed)?\b|exception|rais(e|ed|es|ing)\b|broken|again|repeat|more than once|(several|two"
    r"|three|four"
    r"|many) times|recomput|same (tasks?|work|results?)|(dropped|thrown away|discarded|lost|forgotten|wasted)|cancel",
    places=(
        *marked(__file__),
        function("bad"),
        function("flood"),
        function("recorded"),
        function("compute"),
    ),
    cures=r"skip|catch|except\b|try\b|handle|errors? ?=|return\w*\W+(\w+\W+){0,5}(none|nan|error|exception)|keep\w*"
    r"|only (the|those|what)|persist|futures?|gather|client\.(map|submit|compute)|as_completed|check\w*|validat\w*"
    r"|before|cache|store|retr(y|ies)",
    never={
        HOLDS_GIL: "one thread a worker",
        LOCK: "there is none",
        SLEEP: "nobody sleeps",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "both cores are busy",
        LONGER_TASKS: "tasks take tenths of a second",
        MORE_MEMORY: "there is enough",
    },
)


class BrokenRecord(ValueError):
    """The record of a gauge has gaps that cannot be filled."""


def recorded(gauge: int) -> np.ndarray:
    """Water level on each day of a hundred years."""
    rng = np.random.default_rng(gauge)
    level = np.exp(rng.normal(size=DAYS).cumsum() / 300.0) * rng.gamma(2.0, 1.0, DAYS)
    if gauge in BROKEN:
        raise BrokenRecord(gauge)
    return level


def flood(gauge: int) -> float:
    """Level that is exceeded once in a century, by drawing the years again and again."""
    level = recorded(gauge).reshape(100, -1)
    rng = np.random.default_rng(gauge)
    drawn = [np.quantile(level[rng.integers(0, 100, 100)], 1.0 - 1.0 / DAYS) for _ in range(DRAWS)]
    spread = [np.sort(level[rng.integers(0, 100, 100)], axis=None)[-100:].mean() for _ in range(DRAWS)]
    return float(np.median(drawn) + np.median(spread))


def floods(gauges: list[int]) -> list[Any]:
    """Lazy, with names by which the dashboard shows them in order."""
    lazy = dask.delayed(flood)
    return [lazy(gauge, dask_key_name=f"flood-of-{len(gauges)}-{gauge:03}") for gauge in gauges]


def bad(client: Client) -> float:
    left = list(range(GAUGES))
    while True:
        try:
            return float(sum(dask.compute(*floods(left))))  # <- here
        except BrokenRecord as error:
            left.remove(error.args[0])


def good(client: Client) -> float:
    return float(sum(client.gather(client.map(flood, range(GAUGES)), errors="skip")))
