"""A table that is partitioned by port and quarter is opened again for each port.

source: dask/dask issue 3571
date:   2018-06-06
seen:   to work on one part after the other of a partitioned Parquet data set takes more than a second for each with
        read_parquet and filters, though most of that is opening the data set, which is the same for all; without
        Dask it is opened once, and each part then takes a fifth of a second.
cause:  every read_parquet lists the files of the data set, gathers its metadata and plans anew, on the client, and
        what is computed then is a small thing on its own, while the other workers have nothing to do.
cure:   one read_parquet (or one task for each port, which reads its own files) and one compute for all ports.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_TWO,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_TWO
PORTS, QUARTERS, ROWS = scaled(100), 4, 120

EXPECTED = Expected(
    cause="a read_parquet() and a compute() for each port, one after the other: the data set is listed and planned on"
    " the client each time, and the workers get one small task and wait for the next",
    place="the read_parquet() in the loop, or the compute() in it",
    cure="read once and compute all ports together: one groupby, or a task for each port",
    says=r"read_?parquet|metadata|footer"
    r"|(opened|listed|planned|read|built|parsed)\b.{0,30}(again|each|every|times|anew)"
    r"|(each|every|many|separate|\d+|small|repeated|one) (\w+ ){0,2}(compute|computations?|calls|graphs?"
    r"|submissions?)"
    r"|one (\w+ ){0,2}(after|at a time|by one)|in turn|sequential|loop|idle|wait(s|ing)? for the client"
    r"|client\b.{0,40}(busy|works?|between|prepar|build|time|alone)"
    r"|between (the )?(computations?|computes?|graphs?|calls)",
    places=(*marked(__file__), function("read_parquet"), function("bad"), function("range_of_tide")),
    cures=r"together|at once|(one|single) (\w+ ){0,2}(compute|computation|call|graph|read|read_parquet)"
    r"|\bonce\b|dask\.compute"
    r"|outside|before the loop|out of the loop|groupby|from_map|in parallel|batch|futures"
    r"|client\.(map|compute|submit)",
    never={
        MORE_WORKERS: "the workers are idle",
        PROCESSES: "the workers are idle",
        MORE_MEMORY: "there is enough",
    },
)


def prepare() -> None:
    rows = PORTS * QUARTERS * ROWS
    numbers = np.arange(rows)
    table = pd.DataFrame(
        {
            "port": [f"P{number:03d}" for number in numbers // (QUARTERS * ROWS)],
            "quarter": numbers // ROWS % QUARTERS,
            "level": 2.0 * np.sin(0.5 * numbers) + np.sin(0.013 * numbers),
            "wind": 5.0 + np.cos(0.03 * numbers),
        }
    )
    table.to_parquet(folder("tides"), partition_cols=["port", "quarter"])


def range_of_tide(part: pd.DataFrame) -> pd.Series:
    """Highest and lowest level, without what the wind does."""
    still = part["level"] - 0.05 * part["wind"]
    return pd.Series([float(still.max() - still.min())])


def port(name: str) -> pd.Series:
    return range_of_tide(pd.read_parquet(folder("tides") / f"port={name}"))


def names() -> list[str]:
    return [f"P{number:03d}" for number in range(PORTS)]


def bad(client: Client) -> float:
    total = 0.0
    for name in names():
        table = dd.read_parquet(str(folder("tides")), filters=[("port", "==", name)])  # <- here
        whole = table[["level", "wind"]].repartition(npartitions=1)
        total += float(whole.map_partitions(range_of_tide, meta=(None, "f8")).sum().compute())  # <- here
    return total


def good(client: Client) -> float:
    return float(dd.from_map(port, names(), meta=pd.Series([], dtype="f8")).sum().compute())
