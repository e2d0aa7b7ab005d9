"""The total weights of fields of pumpkins.

source: dask/dask-kubernetes issue 121
date:   2019-02-06
seen:   to see what many pods are good for, a total was taken of each of several arrays of a million numbers by
        dask.delayed; it did not get faster with more threads and pods as hoped.
cause:  the function is Python's own sum, which takes an array number by number, makes a Python object of each, and
        holds the GIL meanwhile, so that threads of a process can't work at the same time.
cure:   the array's sum, which adds in compiled code.
"""

from __future__ import annotations

import dask
import dask.array as da
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
FIELDS = scaled(65)
PUMPKINS = 3_000_000

EXPECTED = Expected(
    cause="Python's sum adds element by element, holding the GIL",
    place="the line with delayed(sum), or that of compute",
    cure="the sum of NumPy or of the array",
    says=r"\bGIL\b|element.{0,5}(by|wise)|(each|every|per|single) (element|value|number|item)|built.?in|pure Python"
    r"|Python('s)? (sum|code|loop|objects?)|in Python|\bsum\b.{0,40}(slow|Python|loop)",
    places=(*marked(__file__), r"\bsum\b"),
    cures=r"NumPy|vectori[sz]|array'?s? (method|own|sum|operation)|\.sum\b|np\.sum|compiled|array\.sum"
    r"|sum of .{0,20}array|whole arrays?",
    never={
        COMPUTED_AGAIN: "each array is used once",
        LONGER_TASKS: "tasks take hundreds of milliseconds",
        MORE_WORKERS: "all cores have work",
    },
)


def fields() -> list[da.Array]:
    return [da.random.default_rng(i).random(PUMPKINS, chunks=-1) for i in range(FIELDS)]


def bad(client: Client) -> float:
    totals = [dask.delayed(sum)(field) for field in fields()]  # <- here
    return float(sum(dask.compute(*totals)))  # <- here


def good(client: Client) -> float:
    totals = [field.sum() for field in fields()]
    return float(sum(dask.compute(*totals)))
