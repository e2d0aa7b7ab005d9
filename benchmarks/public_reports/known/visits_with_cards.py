"""Visits to a swimming pool are joined with the cards of its members; some of either have no number.

source: pandas-dev/pandas issue 24698 (its comments of 2020-04-16 and 2021-11-14) and pull request 42865
date:   2020-04-16 (issue 24698: 2019-01-09; pull request 42865: 2021-08-03)
seen:   a left join with a table whose keys are unique has many times the rows of its left table, takes very long, and
        runs out of memory; after the missing keys of one table are dropped, it does not.
cause:  in pandas missing keys are equal: each row without a key is joined with each row without a key.
cure:   leave out the rows without a key before the join.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
DAYS, VISITS, CARDS = scaled(110), 60_000, 40_000

EXPECTED = Expected(
    cause="rows without a card number are joined with all rows without one (missing keys are equal): the result has"
    " far more rows than the tables",
    place="the merge in joined",
    cure="drop rows without a number before the merge (dropna)",
    says=r"(nan|nulls?|missing|empty|none|n/?a)\b\W+(\w+\W+){0,8}(match|join|merge|pair|keys?|each other|every|equal)"
    r"|(match|join|merge|keys?)\w*\W+(\w+\W+){0,10}(nan|nulls?|missing)\b|cartesian|cross[- ](join|product)|many[- ]to"
    r"[- ]many|explo(de|sion)|(duplicated?|repeated|same) keys?|(more|multipl\w+|times( as many)?)( the)? rows"
    r"|rows\W+(\w+\W+){0,6}(multipl|grow|more than|times)",
    places=(*marked(__file__), function("joined"), r"\bmerge\b"),
    cures=r"dropna|notna|(drop|filter|remove|leave out|exclude)\w*\W+(\w+\W+){0,6}(nan|nulls?|missing|rows|keys?)"
    r"|before (the |a )?(merge|join)|unique keys|deduplicat|aggregate (first|before)",
    never={
        r"(?i)shuffl": "nothing is shuffled",
        MORE_WORKERS: "both cores are busy",
        PROCESSES: "they have one thread each",
        HOLDS_GIL: "one thread a worker",
        LONGER_TASKS: "tasks take tenths of a second",
        MORE_MEMORY: "it is the rows that are too many",
        COMPUTED_AGAIN: "each task runs once",
        LOCK: "there is none",
    },
)


def with_gaps(numbers: np.ndarray, gaps: int) -> np.ndarray:
    values = numbers.astype(float)
    values[:gaps] = np.nan
    return values


def visits_of(day: int) -> pd.DataFrame:
    """Visits of a day; guests pay at the desk, and have no card."""
    rng = np.random.default_rng(day)
    cards = with_gaps(rng.integers(0, CARDS, VISITS), VISITS // 40)
    minutes, entrance = rng.gamma(4.0, 20.0, VISITS), rng.integers(0, 5, VISITS)
    return pd.DataFrame({"card": cards, "minutes": minutes, "entrance": entrance})


def members() -> pd.DataFrame:
    """Members, each with a card; some have not fetched theirs."""
    rng = np.random.default_rng(24698)
    cards = with_gaps(rng.permutation(CARDS), CARDS // 16)
    return pd.DataFrame({"card": cards, "tariff": rng.integers(0, 9, CARDS), "born": rng.integers(1930, 2020, CARDS)})


def visits() -> dd.DataFrame:
    table: dd.DataFrame = dd.from_map(visits_of, range(DAYS), meta=visits_of(0).head(0))
    return table


def minutes_by_tariff(part: pd.DataFrame) -> pd.DataFrame:
    """Minutes of members with a card, by tariff."""
    known = part[part["card"].notna()]
    return known.groupby("tariff", as_index=False)["minutes"].sum()


def joined(left: dd.DataFrame, right: pd.DataFrame) -> float:
    """Minutes at the price of their tariff."""
    both = left.merge(right, on="card")  # <- here
    meta = {"tariff": "int64", "minutes": "float64"}
    minutes = both.map_partitions(minutes_by_tariff, meta=meta).compute()
    return float((minutes["minutes"] * (minutes["tariff"] + 1)).sum())


def bad(client: Client) -> float:
    return joined(visits(), members())


def good(client: Client) -> float:
    return joined(visits().dropna(subset=["card"]), members().dropna(subset=["card"]))
