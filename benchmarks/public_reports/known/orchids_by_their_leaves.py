"""Orchids by their leaves: how well the height of a plant follows from them, for some settings.

source: dask/dask-ml issue 114
date:   2018-01-10
seen:   a search for parameters within joblib's Dask backend was parallel for few rows, and ever more serial with more
        of them, although the values of the table had been given to scatter.
cause:  the values of a table are a new array each time they are asked for, which the backend does not know again: the
        scattered array is not used, and the data goes from the client to a worker for each task.
cure:   take the array once, scatter it, and give this same array to all tasks.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from distributed import Client
from joblib import Parallel, delayed, parallel_config

from benchmarks.public_reports.programs import (
    LOCK,
    MORE_WORKERS,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas", "joblib")
CLUSTER = TWO_BY_ONE
PLANTS = 250_000
SETTINGS = scaled(130)

EXPECTED = Expected(
    cause="the table's values go from the client to a worker for each task, as each time they are a new array",
    place="the line of Parallel with the values, or that of scatter",
    cure="take the values once, scatter them once, and pass the same array to each task",
    says=r"(client|script).{0,80}(sen[dt]|ship|transfer|upload|argument|serializ|pickl|scatter)"
    r"|(argument|array|data|input|object|table)s?.{0,60}(sent|ship|transfer|travel|pass|serializ|pickl|scatter"
    r"|with each task|from the client|again)|transfer|serializ|communicat|large (argument|object)s?|scatter",
    places=(*marked(__file__), function("score")),
    cures=r"scatter|\bonce\b|same (array|object|data)|one (array|copy)|memmap|(load|read)\w*.{0,40}(worker|task)"
    r"|futures?\b|\.values|to_numpy|(before|outside|out of) the (loop|call)",
    never={
        MORE_WORKERS: "the client sends the data",
        LOCK: "there is none",
        SLEEP: "nothing sleeps",
    },
)


def orchids() -> tuple[pd.DataFrame, pd.Series]:
    rng = np.random.default_rng(6)
    leaves = pd.DataFrame(rng.random((PLANTS, 10)), columns=[f"leaf {number}" for number in range(10)])
    leaves["number of leaves"] = rng.integers(1, 9, PLANTS)
    return leaves, leaves.sum(axis=1) + rng.normal(size=PLANTS)


def score(leaves: np.ndarray, heights: np.ndarray, setting: int) -> float:
    """Error for a tenth of the plants, of a ridge regression on the others."""
    test = np.arange(len(heights)) % 10 == setting % 10
    known, target = leaves[~test], heights[~test]
    penalty = 10.0 ** (setting % 7 - 3)
    weights = np.linalg.solve(known.T @ known + penalty * np.eye(known.shape[1]), known.T @ target)
    return float(np.mean((leaves[test] @ weights - heights[test]) ** 2))


def bad(client: Client) -> float:
    leaves, heights = orchids()
    with parallel_config(backend="dask", scatter=[leaves.values, heights.values]):  # <- here
        errors = Parallel()(
            delayed(score)(leaves.values, heights.values, setting)  # <- here
            for setting in range(SETTINGS)
        )
    return float(sum(errors))


def good(client: Client) -> float:
    leaves, heights = (table.to_numpy() for table in orchids())
    with parallel_config(backend="dask", scatter=[leaves, heights]):
        errors = Parallel()(delayed(score)(leaves, heights, setting) for setting in range(SETTINGS))
    return float(sum(errors))
