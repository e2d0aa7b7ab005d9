"""A trained model is asked for its prediction one row at a time.

source: dask/dask issue 5599 (a trained model within a function that is applied to each row); dask/dask issue 5625
date:   2019-11-18 (the other 2019-11-22)
seen:   scoring a table with a model that was trained before takes far longer than the model needs for the same rows in
        one call; more partitions or other workers do not change it.
cause:  each call of predict has a fixed price (checks of its input, a pass through the trees set up in Python), which
        is paid for every row.
cure:   one call of predict for each partition (map_partitions / map_blocks with the whole block).
"""

from __future__ import annotations

import pickle

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas", "sklearn")
CLUSTER = TWO_BY_ONE
PARTITIONS, ROWS = 8, scaled(800)
COLUMNS = [f"feature {number}" for number in range(12)]

EXPECTED = Expected(
    cause="model.predict is called once for each row: the fixed costs of the call (validation, setting up in"
    " Python) are"
    " nearly all of the tasks' time",
    place="the apply with model.predict in one_by_one()",
    cure="predict for all rows of a partition in one call",
    says=r"(each|every|one|single|per|by)[- ](row|record|sample)|row[- ](by|wise)|\brows?\b|axis=1|\bapply\b"
    r"|python (loop|code|func)"
    r"|vectori[sz]|in batches|overhead (of|per) (a |each |the )?calls?|(many|\d+) (short |small )?calls"
    r"|calls? (of|to) \W?predict"
    r"|called .{0,30}times|\bpredict\b|validat",
    places=(
        *marked(__file__),
        function("one_by_one"),
        function("predict"),
        function("price"),
        r"_validate|check_array",
    ),
    cures=r"vectori[sz]|batch|(whole|entire|all|full|complete)\b.{0,30}(partition|block|rows|table|frame|array"
    r"|column|input)"
    r"|map_partitions|(at|in) (once|one call|a single call|one go)|one call|many rows|several rows|instead"
    r" of (each|every|one) row"
    r"|without apply|fewer calls|columns|arrays?\b",
    never={
        MORE_WORKERS: "the work is needless",
        LONGER_TASKS: "a task takes a second",
        MORE_MEMORY: "there is enough",
        r"(?i)model.{0,30}(sent|travels|transfer)": "it is small, and loaded once",
    },
)


def prepare() -> None:
    from sklearn.ensemble import RandomForestRegressor

    rng = np.random.default_rng(1)
    seen = rng.normal(size=(800, len(COLUMNS)))
    model = RandomForestRegressor(n_estimators=12, max_depth=6, random_state=2)
    model.fit(seen, seen[:, 0] * seen[:, 1] + seen[:, 2])
    (folder("predictions") / "model.pickle").write_bytes(pickle.dumps(model))


def load():
    return pickle.loads((folder("predictions") / "model.pickle").read_bytes())


def houses(number: int) -> pd.DataFrame:
    return pd.DataFrame(np.random.default_rng(number).normal(size=(ROWS, len(COLUMNS))), columns=COLUMNS)


def price(row: pd.Series, model) -> float:
    return model.predict([row.to_numpy()])[0]  # <- here


def one_by_one(rows: pd.DataFrame, model) -> pd.Series:
    return rows.apply(price, axis=1, model=model)  # <- here


def all_at_once(rows: pd.DataFrame, model) -> pd.Series:
    return pd.Series(model.predict(rows.to_numpy()), rows.index)


def total(score) -> float:
    model = dask.delayed(load)()
    table = dd.from_map(houses, range(PARTITIONS), meta=houses(0).head(0))
    return float(table.map_partitions(score, model, meta=(None, float)).sum().compute())  # <- here


def bad(client: Client) -> float:
    return total(one_by_one)


def good(client: Client) -> float:
    return total(all_at_once)
