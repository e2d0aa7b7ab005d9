"""What came up of what nurseries sowed: several questions to one table.

source: www.coiled.io/blog/dask-persist-dataframe
date:   2021-12-14
seen:   each question to a table which had been read and filtered before took more than a minute, although people think
        that the filtered table is in memory.
cause:  a Dask table is not kept: each question reads and filters all files again.
cure:   persist the filtered table, or ask all questions at once.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_TWO
FILES = 8
ROWS = scaled(560_000)
SPECIES = 60

EXPECTED = Expected(
    cause="the files are read and filtered again for each question",
    place="the lines of the questions, or that of the filtered table",
    cure="persist, or one compute for all",
    says=r"again|more than once|twice|repeat\w*|several times|\d+ times|each (time|compute|question)|recomput\w*"
    r"|re-?read"
    r"|same (task|work|input|files)",
    places=(*marked(__file__), function("sown_outside"), function("answers")),
    cures=r"persist|\bonce\b|at once|together|one (call|compute)|single (call|compute)|dask\.compute|keep|cache",
    never={
        LONGER_TASKS: "each task reads megabytes",
        MORE_WORKERS: "they would read the same again",
    },
)


def prepare() -> None:
    place = folder("nurseries")
    rng = np.random.default_rng(17)
    for file in range(FILES):
        table = pd.DataFrame(
            {
                "nursery": rng.integers(0, 25, ROWS),
                "species": [f"species {number}" for number in rng.integers(0, SPECIES, ROWS)],
                "place": rng.choice(["glass", "bed", "field"], ROWS),
                "sown": rng.integers(1, 400, ROWS),
                "share": rng.random(ROWS).round(4),
                "warmth": rng.normal(15, 4, ROWS).round(2),
                "moisture": rng.random(ROWS).round(3),
                "remark": "none",
            }
        )
        table.to_csv(place / f"sowings-{file}.csv", index=False)


def sown_outside():
    """Sowings in beds and fields, with what came up."""
    import dask.dataframe as dd

    table = dd.read_csv(str(folder("nurseries") / "sowings-*.csv"))  # <- here
    table = table[table["place"] != "glass"]  # <- here
    return table.assign(up=table["sown"] * table["share"])  # <- here


def answers(table) -> list[float]:
    warm = table[table["warmth"] > 15]["up"].mean().compute()  # <- here
    best = table.groupby("species")["up"].mean().max().compute()  # <- here
    largest = table.groupby("nursery")["sown"].sum().max().compute()  # <- here
    dry = table[table["moisture"] < 0.2]["share"].mean().compute()  # <- here
    fields = (table["place"] == "field").sum().compute()  # <- here
    spread = table["share"].std().compute()  # <- here
    most = table["up"].max().compute()  # <- here
    common = table["species"].value_counts().max().compute()  # <- here
    return [warm, best, largest, dry, fields, spread, most, common]


def bad(client: Client) -> float:
    return float(sum(answers(sown_outside())))


def good(client: Client) -> float:
    return float(sum(answers(sown_outside().persist())))
