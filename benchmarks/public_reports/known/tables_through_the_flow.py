"""Steps of a flow hand their tables to each other by way of the script.

source: PrefectHQ/prefect issue 9934; a like case: issue 8810
date:   2023-06-13 (issue 8810: 2023-03-16)
seen:   between two steps nothing happens for a time that grows with the size of the data; a million lines given to
        tasks take over a minute, their file's name two seconds.
cause:  the results of a step are gathered into the script, and sent out as arguments of the next one: they are pickled,
        moved and unpickled four times per step, by one process, while the workers have nothing to do.
cure:   give the futures to the next step, so that the data stay where they are.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas",)
CLUSTER = TWO_BY_ONE
SHOPS = 6
LINES = scaled(150_000)
#: Texts as Python strings.
TEXT = {"receipt": object, "article": object}

EXPECTED = Expected(
    cause="results of each step go to the client and back to the workers, which wait meanwhile",
    place="bad, where it gathers the results of a step or gives them to the next one",
    cure="pass the futures on, so that the data stay on the workers",
    says=r"\bclient\b|gather|back and forth|round[- ]?trip|transfer|serializ|pickl|large (graph|argument|object|data)"
    r"|\bsen(t|d|ds|ding)\b|\bmoved?\b|embedded|in the graph|\bscript\b|arguments?",
    places=(*marked(__file__), function("bad"), function("step")),
    cures=r"\bfutures?\b|(stay|keep|leave|remain|kept|left)\w* .{0,30}(worker|cluster|where)|scatter"
    r"|(do not|don't|without|instead of|avoid|less|fewer) .{0,10}gather|chain|persist|gather (less|only)"
    r"|where they are|on the workers?\b|depend",
    never={
        MORE_WORKERS: "those there are have nothing to do most of the time",
        LONGER_TASKS: "tasks have large inputs already",
        MORE_MEMORY: "all of it is some hundred megabytes",
        HOLDS_GIL: "the workers wait",
    },
)


def receipts(shop: int) -> pd.DataFrame:
    draw = np.random.default_rng(shop)
    names = [f"receipt-{shop:03d}-{line // 3:08d}" for line in range(LINES)]
    articles = [f"article {number}" for number in draw.integers(0, 900, LINES)]
    return pd.DataFrame({"receipt": names, "article": articles, "price": draw.random(LINES)}).astype(TEXT)


def without_bottles(lines: pd.DataFrame) -> pd.DataFrame:
    return lines[~lines.article.isin([f"article {number}" for number in range(0, 900, 60)])]


def with_tax(lines: pd.DataFrame) -> pd.DataFrame:
    return lines.assign(price=1.19 * lines.price)


def rounded(lines: pd.DataFrame) -> pd.DataFrame:
    return lines.assign(price=lines.price.round(4))


def total(lines: pd.DataFrame) -> float:
    return float(lines.price.sum())


STEPS = (without_bottles, with_tax, rounded)


def bad(client: Client) -> float:
    tables = client.gather(client.map(receipts, range(SHOPS)))  # <- here
    for step in STEPS:
        futures = [client.submit(step, table, pure=False) for table in tables]  # <- here
        tables = client.gather(futures)  # <- here
    return sum(client.gather([client.submit(total, table, pure=False) for table in tables]))  # <- here


def good(client: Client) -> float:
    tables = client.map(receipts, range(SHOPS))
    for step in STEPS:
        tables = client.map(step, tables, pure=False)
    return sum(client.gather(client.map(total, tables, pure=False)))
