"""A table of meteors is put in order by three of its columns, one after the other.

source: dask/dask issue 8435
date:   2021-11-30
seen:   a script computes without being told to; the dashboard shows that the work starts again from the beginning, and
        nobody sees which line does that. It is set_index.
cause:  set_index without divisions computes all of the table to find where to cut it, before it is computed for use.
cure:   give the divisions, which are known (or persist the table before).
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import MORE_MEMORY, MORE_WORKERS, TWO_BY_TWO, Expected, function, marked, scaled

CLUSTER = TWO_BY_TWO
NEEDS = ("pandas",)
NIGHTS = 12
TRAILS = scaled(13_000)
SAMPLES = 500
PARTS = 6

EXPECTED = Expected(
    cause="set_index looks for divisions, and computes the whole table for that, each time",
    place="the set_index(), or the function that makes the table",
    cure="give divisions to set_index; persist the table first",
    says=r"divisions|set_index|quantiles"
    r"|(comput|run|ran|made|execut|evaluat|load)\w* .{0,30}(again|twice|times|repeated|more than once)"
    r"|recomput|same (tasks?|work|results?)",
    places=(*marked(__file__), function("trails_of")),
    cures=r"divisions|persist|keep|once|sorted",
    never={MORE_WORKERS: "they are all busy", MORE_MEMORY: "memory is ample"},
)


def trails_of(night: int) -> pd.DataFrame:
    """Time, height and speed of each trail on the pictures of a night."""
    rng = np.random.default_rng(night)
    parts = []
    for _ in range(10):
        light = rng.random((TRAILS // 10, SAMPLES))
        light.sort(axis=1)
        spectrum = np.abs(np.fft.rfft(light, axis=1))
        parts.append(
            pd.DataFrame(
                {
                    "hour": light[:, 3] * 400 % 1.0 * 12,
                    "height": spectrum[:, 5] * 97 % 1.0 * 40 + 80,
                    "speed": spectrum[:, 9] * 89 % 1.0 * 60 + 11,
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def trails() -> dd.DataFrame:
    empty = pd.DataFrame({"hour": [0.0], "height": [0.0], "speed": [0.0]}).head(0)
    table: dd.DataFrame = dd.from_map(trails_of, range(NIGHTS), meta=empty)
    return table


RANGES = {"hour": (0.0, 12.0), "height": (80.0, 120.0), "speed": (11.0, 71.0)}


def bad(client: Client) -> float:
    table = trails()
    total = 0.0
    for column in RANGES:
        ordered = table.set_index(column, npartitions=PARTS)  # <- here
        total += ordered.map_partitions(len, meta=(None, "i8")).sum().compute()  # <- here
        total += float((ordered.index.to_series() ** 2).sum().compute())  # <- here
    return total


def good(client: Client) -> float:
    table = trails().persist()
    total = 0.0
    for column, (low, high) in RANGES.items():
        divisions = np.linspace(low, high, PARTS + 1).tolist()
        ordered = table.set_index(column, divisions=divisions)
        total += ordered.map_partitions(len, meta=(None, "i8")).sum().compute()
        total += float((ordered.index.to_series() ** 2).sum().compute())
    return total
