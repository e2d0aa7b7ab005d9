"""Every task reads the same table from a shared disk before it does its own small work.

source: dask/distributed issue 1422 (of the same kind: dask/dask issue 8290)
date:   2017-09-24
seen:   tasks are submitted one by one, and every one needs the same CSV files, which lie on a shared file system; the
        person wants to avoid that each task reads them again, and to have them in the memory of each worker once.
cause:  the reading is inside of the task, so it is done once per task instead of once per worker.
cure:   make the table data of the cluster: read it once as a task (or scatter it to all workers) and pass the future to
        the tasks (persist, scatter and replicate are named).
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    PROCESSES,
    TWO_BY_TWO,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas",)
CLUSTER = TWO_BY_TWO
BASKETS = scaled(120)
ARTICLES = 250_000

EXPECTED = Expected(
    cause="each task does the same preparation again: pd.read_csv of the same file takes most of every task's time; it"
    " is"
    " done 120 times where once (per worker) would do",
    place="pd.read_csv(path) inside price()",
    cure="read the table once, as a task or in the client, and pass it as a future to the tasks (submit / scatter with"
    " broadcast), or cache it per worker (a worker plugin, functools.cache)",
    says=r"same (file|table|data|work|preparation|csv|input|call|argument|path)|again|repeat|re-?(read|load|pars)"
    r"|(read|load|pars|open|prepar)\w*\b.{0,60}\b(each|every|per|all) (of the )?(task|call|time)"
    r"|(each|every|all|per|of the) tasks?\b.{0,60}\b(read|load|pars|open|prepar|same)|(\d+|many|several) times"
    r"|more than once|once (per|for each|in each|a|for every) (task|call|worker)|set-?up|initiali[sz]",
    places=(*marked(__file__), function("price"), r"read_csv"),
    cures=r"\bonce\b|scatter|broadcast|cache|(pass|hand|give|share)\b.{0,40}\b(future|table|result|it|argument)"
    r"|per worker"
    r"|(each|every) worker|plugin|replicat|persist|as a task|shared|reuse|re-use|keep",
    never={
        r"(?i)\b(use|to|as|into|store \w+ as) parquet|parquet instead": "less time each, but still for each task",
        r"dask\.dataframe|dd\.read_csv": "the table is small",
        HOLDS_GIL: "it is done too often, by whatever threads",
        PROCESSES: "it is done too often, by whatever threads",
        r"(?i)disk is slow|slow disk|faster disk": "the file is in the page cache: it is CPU time",
        LONGER_TASKS: "it is most of each task",
    },
)


def path() -> str:
    return str(folder("prices") / "prices.csv")


def prepare() -> None:
    rng = np.random.default_rng(10)
    table = pd.DataFrame(
        {
            "article": np.arange(ARTICLES),
            "group": rng.integers(0, 90, ARTICLES),
            "net": rng.uniform(1, 900, ARTICLES).round(2),
            "tax": rng.choice([0.07, 0.19], ARTICLES),
            "weight": rng.uniform(0, 30, ARTICLES).round(3),
            "label": [f"no. {number:07d}" for number in range(ARTICLES)],
        }
    )
    table.to_csv(path(), index=False)


def sum_up(basket: int, table: pd.DataFrame) -> float:
    """What the articles of one basket cost."""
    chosen = np.random.default_rng(basket).integers(0, len(table), 200_000)
    articles = table.iloc[chosen]
    return float((articles["net"] * (1 + articles["tax"])).sum())


def price(basket: int, path: str) -> float:
    table = pd.read_csv(path)  # <- here
    return sum_up(basket, table)


def bad(client: Client) -> float:
    where = path()
    futures = [client.submit(price, basket, where) for basket in range(BASKETS)]
    return sum(client.gather(futures))


def good(client: Client) -> float:
    table = client.submit(pd.read_csv, path())
    futures = [client.submit(sum_up, basket, table) for basket in range(BASKETS)]
    return sum(client.gather(futures))
