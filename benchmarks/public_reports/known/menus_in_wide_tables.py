"""Sales of canteens are explained by dish and by cook: sums of products of their indicators, part by part.

source: dask/dask-ml issue 548; of the same kind: dask/dask-ml issue 150, online-ml/river issue 1253
date:   2019-09-19 (issue 150: 2018-03-12; issue 1253: 2023-06-05)
seen:   to encode two columns with ten thousand values each as indicators (sparse=False) is far slower than expected.
cause:  each row becomes as many numbers as there are values, all but two of them zero, and all of them are made, moved
        and multiplied.
cure:   sparse indicators (sparse_output=True, the default), or sums by group without any.
"""

from __future__ import annotations

import numpy as np
from distributed import Client
from sklearn.preprocessing import OneHotEncoder

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
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

NEEDS = ("sklearn",)
CLUSTER = TWO_BY_ONE
CANTEENS, MEALS, DISHES, COOKS = scaled(42), 16_000, 700, 300

EXPECTED = Expected(
    cause="dense indicators: a thousand numbers for each meal, of which all but two are zero, are made and multiplied",
    place="the encoder with sparse_output=False in dense, and the product in products",
    cure="sparse indicators, or sums by group",
    says=r"\bdense\b|sparse|\bzeros?\b|one[- ]?hot|indicator|dummies|wide (table|matri|array)|many (columns|categories)"
    r"|encod\w*|(matrix|matmul|@|dot|product|multipl\w+|fit_transform|transform)\W+(\w+\W+){0,8}(costly|slow|takes?"
    r"|took|"
    r"most|expensive|large|big|time)|(costly|slow|expensive|large|big) (matrix|product|multipl\w+|matmul|dot)",
    places=(
        *marked(__file__),
        function("dense"),
        function("products"),
        function("fitted"),
        r"\b(fit_)?transform\b|_encoders\.py\b",
    ),
    cures=r"sparse|scipy|csr|group ?by|groupby|bincount|add\.at|hash\w*|without (the )?(indicators|zeros)|(fewer|less)"
    r" (columns|categories)|float32|smaller type|codes",
    never={
        COMPUTED_AGAIN: "each task runs once",
        HOLDS_GIL: "one thread a worker",
        LOCK: "there is none",
        SLEEP: "nobody sleeps",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "both cores are busy",
        LONGER_TASKS: "tasks take a second",
        MORE_MEMORY: "the zeros are too many",
    },
)


def meals(canteen: int) -> tuple[np.ndarray, np.ndarray]:
    """Dish and cook of each meal, and what was paid."""
    rng = np.random.default_rng(canteen)
    dishes, cooks = rng.integers(0, DISHES, MEALS), rng.integers(0, COOKS, MEALS)
    return np.column_stack([dishes, cooks]), 3.0 + dishes % 7 + (cooks % 5) / 5.0 + rng.random(MEALS)


def encoder(sparse: bool) -> OneHotEncoder:
    return OneHotEncoder(categories=[np.arange(DISHES), np.arange(COOKS)], sparse_output=sparse)


def dense(canteen: int) -> tuple[np.ndarray, np.ndarray]:
    return products(canteen, sparse=False)


def light(canteen: int) -> tuple[np.ndarray, np.ndarray]:
    return products(canteen, sparse=True)


def products(canteen: int, sparse: bool) -> tuple[np.ndarray, np.ndarray]:
    """What the least squares of a canteen add to those of all."""
    kinds, paid = meals(canteen)
    chosen = encoder(sparse).fit_transform(kinds)  # <- here
    squares = chosen.T @ chosen  # <- here
    return squares.toarray() if sparse else squares, np.asarray(chosen.T @ paid)


def fitted(sums: list[tuple[np.ndarray, np.ndarray]]) -> float:
    """Sum of the sizes of all effects."""
    squares = sum((each[0] for each in sums), np.zeros(()))
    effects = np.linalg.solve(squares + np.eye(len(squares)), sum((each[1] for each in sums), np.zeros(())))
    return float(np.abs(effects).sum())


def bad(client: Client) -> float:
    return float(client.submit(fitted, client.map(dense, range(CANTEENS))).result())


def good(client: Client) -> float:
    return float(client.submit(fitted, client.map(light, range(CANTEENS))).result())
