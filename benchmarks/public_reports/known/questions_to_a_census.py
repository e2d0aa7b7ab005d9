"""Questions to a census, each of which persists the weighted answers for itself.

source: dask/dask issue 3400
date:   2018-04-13
seen:   a collection was persisted, and the dashboard shows that all of it is computed once more when it is persisted
        or used again.
cause:  the persisted collection lives as long as somebody holds it. Here a function persists what it was given, and
        its reference ends when the function returns; the next function starts from the lazy collection again.
cure:   persist once, outside of the functions, and give them the persisted collection.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
DISTRICTS, HOUSEHOLDS, ROUNDS = 12, scaled(480_000), 120
COLUMNS = ("children", "income", "rooms", "age", "weight")

EXPECTED = Expected(
    cause="weighted_answers is computed once more for each of the questions, since what each persists is dropped when"
    " its function returns",
    place="the persist in mean_of, which is called for each question; or the from_map whose tasks are repeated",
    cure="persist once outside of the function and keep it, or compute all questions together",
    says=r"again|more than once|(\w+|\d+) times|twice|repeat|re-?comput|anew|once (for )?(each|every|per)|each time"
    r"|every time|several times|not kept|dropp|released|forgot|thrown away",
    places=(*marked(__file__), function("weighted_answers"), function("mean_of"), r"\bpersist\b"),
    cures=r"persist|keep|hold|reference|once|together|one (compute|computation)|dask\.compute|outside|cache|store",
    never={
        HOLDS_GIL: "one thread a worker",
        LOCK: "there is none",
        LONGER_TASKS: "tasks take a third of a second",
        MORE_MEMORY: "there is enough",
        MORE_WORKERS: "both cores are in use",
        SLEEP: "nothing sleeps",
    },
)


def weighted_answers(district: int) -> pd.DataFrame:
    """Answers of a district with weights, so that their sums by age and by rooms are those of the registers."""
    rng = np.random.default_rng(district)
    ages, rooms = rng.integers(0, 90, HOUSEHOLDS), rng.integers(1, 9, HOUSEHOLDS)
    weights = 1.0 + rng.random(HOUSEHOLDS)
    by_age, by_rooms = 2.0 * np.bincount(ages), 2.0 * np.bincount(rooms, minlength=9)
    for _ in range(ROUNDS):
        weights *= (by_age / np.maximum(np.bincount(ages, weights), 1e-9))[ages]
        weights *= (by_rooms / np.maximum(np.bincount(rooms, weights, minlength=9), 1e-9))[rooms]
    children = rng.poisson(1.4, HOUSEHOLDS).astype(float)
    income = rng.lognormal(8.0, 0.5, HOUSEHOLDS)
    values = (children, income, rooms.astype(float), ages.astype(float), weights)
    return pd.DataFrame(dict(zip(COLUMNS, values, strict=True)))


def census() -> dd.DataFrame:
    meta = pd.DataFrame(dict.fromkeys(COLUMNS, pd.Series(dtype=float)))
    answers: dd.DataFrame = dd.from_map(weighted_answers, range(DISTRICTS), meta=meta)  # <- here
    return answers


def mean_of(column: str, answers: dd.DataFrame) -> float:
    answers = answers.persist()  # <- here
    return float(((answers[column] * answers["weight"]).sum() / answers["weight"].sum()).compute())  # <- here


def mean_of_persisted(column: str, answers: dd.DataFrame) -> float:
    return float(((answers[column] * answers["weight"]).sum() / answers["weight"].sum()).compute())


def bad(client: Client) -> float:
    answers = census()
    return sum(mean_of(column, answers) for column in COLUMNS[:-1])  # <- here


def good(client: Client) -> float:
    answers = census().persist()
    return sum(mean_of_persisted(column, answers) for column in COLUMNS[:-1])
