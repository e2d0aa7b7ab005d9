"""Tables of apiaries are made in the script, and passed by value through delayed steps.

source: dask/distributed issue 2327
date:   2018-10-31
seen:   a pipeline of delayed steps, which does next to nothing with tables, is slower in processes the larger the
        tables are, and with a local cluster up to ten times slower than with the scheduler of processes.
cause:  the tables are arguments of the first steps: they are pickled into the graph, go from the client by way of the
        scheduler to the workers, and are unpickled on the way.
cure:   make (or read) the tables in tasks, so that they are on the workers from the start (or scatter them).
"""

from __future__ import annotations

from typing import Any

import dask
import numpy as np
import pandas as pd
from dask import delayed
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas",)
CLUSTER = TWO_BY_ONE
APIARIES = scaled(75)
ROWS = 250_000

EXPECTED = Expected(
    cause="tables of the client are in the graph, as arguments of delayed calls: pickling and sending them takes"
    " far longer"
    " than the steps",
    place="the delayed(cleaned)(table) in piped, or the compute() of it",
    cure="make or read the tables in tasks (or scatter them before)",
    says=r"\bgraph\b|argument|by value|pickl|serializ|\bsen[dt]\b|sending|transfer|travel|mov(ed|es|ing)\b|large object"
    r"|embedded|from the client|the client('s)? (make|data|pickl|send|spen)|literal|upload",
    places=(*marked(__file__), function("piped"), function("cleaned"), function("bad")),
    cures=r"scatter|(in|on|from|by) (the |a )?(tasks?|workers?)|(load|read|make|create|generate)\w* (it|them"
    r"|the data|data|the"
    r" table)|futures?\b|inside|delayed\(",
    never={
        MORE_WORKERS: "those that there are wait for the client",
        HOLDS_GIL: "they have one thread each",
        LONGER_TASKS: "tasks are not the problem, what is sent with them is",
        COMPUTED_AGAIN: "each is computed once",
    },
)


def honey(apiary: int) -> pd.DataFrame:
    rng = np.random.default_rng(apiary)
    hives = np.array([f"hive {number:05d} of apiary {apiary}" for number in range(500)], dtype=object)
    columns = {name: rng.normal(20.0, 4.0, ROWS) for name in ("weight", "warmth", "damp", "hum")}
    return pd.DataFrame({"hive": pd.Series(hives[rng.integers(0, 500, ROWS)], dtype=object), **columns})


def cleaned(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(weight=table["weight"].clip(lower=0.0))


def yielded(table: pd.DataFrame) -> float:
    return float(table["weight"].sum() / 1_000.0)


def piped(tables: list[Any]) -> float:
    steps = [delayed(yielded)(delayed(cleaned)(table)) for table in tables]  # <- here
    return float(sum(dask.compute(*steps)))  # <- here


def bad(client: Client) -> float:
    return piped([honey(apiary) for apiary in range(APIARIES)])  # <- here


def good(client: Client) -> float:
    return piped([delayed(honey)(apiary) for apiary in range(APIARIES)])
