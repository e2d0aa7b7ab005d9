"""The prices of many barns, estimated by a model of trees.

source: dmlc/xgboost issue 5729
date:   2020-05-30
seen:   training took 121 s, but predicting with the model through Dask 502 s.
cause:  the table was in chunks of 100 rows, and the model predicts each chunk on its own, where each call has a fixed
        cost of its own; training had put chunks together first.
cure:   larger chunks.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
from distributed import Client
from sklearn.ensemble import RandomForestRegressor

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("sklearn",)
CLUSTER = TWO_BY_ONE
BARNS = scaled(40_000)
TRAITS = 6
CHUNK, WIDE_CHUNK = 100, 12_500

EXPECTED = Expected(
    cause="chunks of 100 rows are too small: there are many small tasks, and each prediction has a fixed cost",
    place="the line with the chunks, or that of map_blocks, or the function that predicts",
    cure="larger chunks",
    says=r"(small|tiny|short|many|too few rows).{0,30}(chunks?|tasks?|blocks?|partitions?|calls?)"
    r"|(chunks?|tasks?|blocks?|calls?).{0,40}(small|tiny|short|overhead|fixed cost)|overhead"
    r"|(each|every|per) (call|chunk|block)|\d+ calls",
    places=(*marked(__file__), function("estimate")),
    cures=r"(larger|bigger|longer|fewer|coarser|wider) (chunks?|tasks?|blocks?|partitions?|calls?|batch\w*)|rechunk"
    r"|more (rows|work)|chunks? (larger|bigger)|chunks=|many rows",
    never={
        COMPUTED_AGAIN: "each chunk is used once",
        MORE_WORKERS: "all cores are busy",
    },
)


def trained() -> RandomForestRegressor:
    rng = np.random.default_rng(1)
    traits = rng.random((400, TRAITS))
    price = traits @ np.arange(1.0, TRAITS + 1) + np.sin(9 * traits[:, 0])
    return RandomForestRegressor(n_estimators=60, max_depth=5, random_state=1, n_jobs=1).fit(traits, price)


def estimate(traits: np.ndarray, model: RandomForestRegressor) -> np.ndarray:
    return model.predict(traits)


def barns(chunk: int) -> da.Array:
    step = da.arange(BARNS, chunks=chunk)
    return da.stack([da.sin(step * (0.37 + trait)) ** 2 for trait in range(TRAITS)], axis=1).rechunk((chunk, TRAITS))


def total(client: Client, chunk: int) -> float:
    model = client.scatter(trained(), broadcast=True)
    prices = barns(chunk).map_blocks(estimate, model=model, dtype="f8", drop_axis=1)  # <- here
    return float(prices.sum().compute())


def bad(client: Client) -> float:
    return total(client, CHUNK)  # <- here


def good(client: Client) -> float:
    return total(client, WIDE_CHUNK)
