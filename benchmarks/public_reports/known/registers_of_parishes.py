"""Registers of parishes are small tables, and each task makes a Dask table of its own to count in it.

source: dask/dask issue 5969
date:   2020-03-03
seen:   a function that is mapped over a bag makes Dask tables of small arrays; what takes next to no time alone takes
        seconds there.
cause:  each task builds a Dask collection within itself, whose graph is built, optimized and run for a few hundred
        rows.
cure:   pandas within a task, or one Dask collection outside of the tasks.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    MORE_MEMORY,
    MORE_WORKERS,
    SLEEP,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
PARISHES = scaled(320)
BURIALS = 400

EXPECTED = Expected(
    cause="tasks build Dask tables and compute them, each with its own graph and tasks",
    place="ages_at_death: from_pandas() or compute() in it",
    cure="pandas in the task, or one Dask table for all outside of the tasks",
    says=r"(dask|comput|collection|dataframe|submit|graph|call).{0,60}(in|inside|within|from) (a |the |each |its "
    r"|other |another )?tasks?"
    r"|tasks? (that )?(compute|submit|start|wait for|run) (other|more|further|their own|tasks|a)"
    r"|nested|secede|optimi[sz]|graph|expression|waits? for (other|its own|further|inner|more|the) tasks?|from_pandas"
    r"|dask (collection|dataframe|table)",
    places=(*marked(__file__), function("ages_at_death"), r"dask[/.]"),
    cures=r"pandas|outside|without dask|not .{0,20}(in|inside|within) (a )?tasks?|scheduler=|synchronous"
    r"|one (graph|collection|dataframe|table)|on the client|in the script|avoid|instead|futures|as_completed|dependenc"
    r"|call (the function|it) directly|worker_client|return",
    never={
        MORE_WORKERS: "each task would still build its graph",
        MORE_MEMORY: "a register is small",
        SLEEP: "nobody sleeps",
    },
)


def register(parish: int) -> pd.DataFrame:
    rng = np.random.default_rng(parish)
    return pd.DataFrame({"decade": rng.integers(165, 185, BURIALS), "age": rng.integers(0, 90, BURIALS)})


def ages_at_death(parish: int) -> float:
    """Sum of the mean ages of decades."""
    burials = dd.from_pandas(register(parish), npartitions=2)  # <- here
    adults = burials[burials["age"] > 20]
    return float(adults.groupby("decade")["age"].mean().compute().sum())  # <- here


def ages_by_pandas(parish: int) -> float:
    """Sum of the mean ages of decades, without Dask."""
    burials = register(parish)
    adults = burials[burials["age"] > 20]
    return float(adults.groupby("decade")["age"].mean().sum())


def bad(client: Client) -> float:
    return float(sum(client.gather(client.map(ages_at_death, range(PARISHES)))))  # <- here


def good(client: Client) -> float:
    return float(sum(client.gather(client.map(ages_by_pandas, range(PARISHES)))))
