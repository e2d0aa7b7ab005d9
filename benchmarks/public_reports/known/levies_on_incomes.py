"""A levy is worked out for each income of a country, by a function that takes one income.

source: dask/dask issue 4344
date:   2018-12-31
seen:   ``apply`` of a Python function to a column takes 36 s with Dask's threads, and 22 s with pandas alone; by
        several processes that the user starts himself, 5 s.
cause:  the function is Python code, which holds the GIL: only one thread of the process runs at a time.
cure:   several processes of one thread each (or code that works on whole columns).
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import LOCK, LONGER_TASKS, TWO_BY_ONE, Expected, marked, scaled

NEEDS = ("pandas", "pyarrow")
CLUSTER = {"n_workers": 1, "threads_per_worker": 2}
GOOD_CLUSTER = TWO_BY_ONE
REGIONS = 16
PEOPLE = scaled(500_000)

EXPECTED = Expected(
    cause="the threads wait for the GIL, which the Python function holds: one income after the other",
    place="apply() of the function, or the function levy",
    cure="processes of one thread each, or whole columns instead of one value at a time",
    says=r"\bGIL\b|interpreter lock|pure Python|Python code",
    places=(*marked(__file__), r"\blevy\b"),
    cures=r"process|one thread|threads_per_worker|vectori[sz]|whole (columns?|arrays?|partitions?)|numpy|numba"
    r"|cython"
    r"|compiled|release",
    never={
        LONGER_TASKS: "tasks of half a second are long enough",
        LOCK: "it is the interpreter's lock, of which the program cannot hold less by shorter sections",
    },
)


def incomes_of(region: int) -> pd.DataFrame:
    """Incomes of a region's people, and the number of their children."""
    chance = np.random.default_rng(region)
    return pd.DataFrame({"income": chance.lognormal(10, 0.6, PEOPLE), "children": chance.integers(0, 4, PEOPLE)})


STEPS = tuple((2_000.0 * number, 0.002 * number) for number in range(1, 25))


def levy(income: float) -> float:
    """What is to be paid of an income: each step has a higher share."""
    due = 0.0
    for start, share in STEPS:
        if income <= start:
            break
        due += (income - start) * share
    return round(due, 2)


def revenue() -> float:
    people = dd.from_map(incomes_of, range(REGIONS))
    due = people["income"].apply(levy, meta=("income", "f8"))  # <- here
    return float(due.sum().compute())  # <- here


def bad(client: Client) -> float:
    return revenue()


def good(client: Client) -> float:
    return revenue()
