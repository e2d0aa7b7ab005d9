"""Mean of a value per sensor, from a bag of records, by groupby.

source: dask/distributed issue 5611; the same advice: dask/dask-tutorial issue 213
date:   2021-12-17
seen:   a mean per group with a bag is slow, takes much memory, and workers die of it; on less data it works.
cause:  a bag's groupby brings all records of a group together, whatever is done with them afterwards: every record is
        pickled and sent to where its group is, only to be counted there.
cure:   foldby, which adds up in each partition and sends sums only; or a dataframe, which does the same.
"""

from __future__ import annotations

import random
from typing import Any

import dask.bag as db
from distributed import Client

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
PARTITIONS, RECORDS, SENSORS = 12, scaled(20_000), 400

EXPECTED = Expected(
    cause="groupby moves all records between partitions, though sums would do",
    place="the groupby, its tasks, or the computation",
    cure="foldby, or a dataframe",
    says=r"groupby|group|shuffl|all[- ]to[- ]all|transfer|mov\w+|sen[dt]|communicat|serializ|pickl|exchang|objects"
    r"|between (workers|partitions)",
    places=(*marked(__file__), r"group", r"shuffle", r"partition", function("mean_level")),
    cures=r"foldby|fold|reduc|dataframe|aggregat|before|locally|per partition|in each partition|fewer|columns|arrays",
    never={
        LONGER_TASKS: "there are twelve partitions of 20000 records",
        MORE_WORKERS: "both cores are busy",
    },
)


def records(number: int) -> list[dict[str, Any]]:
    rng = random.Random(number)
    return [
        {"sensor": f"s{rng.randrange(SENSORS)}", "level": rng.random(), "place": (rng.random(), rng.random()), "n": n}
        for n in range(RECORDS)
    ]


def measurements() -> db.Bag:
    return db.from_sequence(range(PARTITIONS), npartitions=PARTITIONS).map(records).flatten()


def sensor(record: dict[str, Any]) -> str:
    return record["sensor"]


def mean_level(group: tuple[str, list[dict[str, Any]]]) -> float:
    levels = [record["level"] for record in group[1]]
    return sum(levels) / len(levels)


def bad(client: Client) -> float:
    return float(measurements().groupby(sensor).map(mean_level).sum().compute())  # <- here


def add_record(total: tuple[float, int], record: dict[str, Any]) -> tuple[float, int]:
    return total[0] + record["level"], total[1] + 1


def add_totals(one: tuple[float, int], other: tuple[float, int]) -> tuple[float, int]:
    return one[0] + other[0], one[1] + other[1]


def good(client: Client) -> float:
    totals = measurements().foldby(sensor, add_record, (0.0, 0), add_totals, (0.0, 0)).compute()
    return sum(level / count for _, (level, count) in totals)
