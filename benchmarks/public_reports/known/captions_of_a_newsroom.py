"""Captions of a newsroom, put to the pictures that they describe.

source: ml6team/fondant issue 649
date:   2023-11-20
seen:   tables that steps of a pipeline had written had to be merged by an identifier before the next step; merging
        large ones was slow.
cause:  a merge by a column moves all rows of both tables between the workers, although both are sorted by it.
cure:   make the identifier the index, with known divisions, and merge by the index.
"""

from __future__ import annotations

from itertools import pairwise

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LOCK,
    LONGER_TASKS,
    SLEEP,
    TWO_BY_TWO,
    Expected,
    folder,
    marked,
    scaled,
)

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_TWO
PICTURES = scaled(8_000_000)
COLUMNS = 5

EXPECTED = Expected(
    cause="the merge by a column shuffles both tables, although both are sorted by it",
    place="the line of the merge, or that of the compute",
    cure="read the identifier as a sorted index, with divisions, and merge by the index",
    says=r"shuffl|(rows|data|partitions?|tables?).{0,40}(mov|exchang|rearrang|transfer|redistribut)|transfer|communicat",
    places=(*marked(__file__),),
    cures=r"\bindex\b|set_index|divisions|sorted|map_partitions|partition.?wise|without (a )?shuffl|avoid.{0,30}shuffl"
    r"|broadcast",
    never={
        COMPUTED_AGAIN: "each file is read once",
        LONGER_TASKS: "the size of the tasks is not the fault",
        LOCK: "there is none",
        SLEEP: "nothing sleeps",
    },
)


def write(name: str, files: int, first_seed: int) -> None:
    place = folder(name)
    edges = np.linspace(0, PICTURES, files + 1).astype(int)
    for number, (start, end) in enumerate(pairwise(edges)):
        rng = np.random.default_rng(first_seed + number)
        table = pd.DataFrame({"picture": np.arange(start, end)})
        for column in range(COLUMNS):
            table[f"{name} {column}"] = rng.integers(0, 30_000, end - start)
        table.to_parquet(place / f"{number:03d}.parquet", index=False)


def prepare() -> None:
    write("pictures", 20, 100)
    write("captions", 16, 200)


def agreement(both: dd.DataFrame) -> float:
    """Sum over all columns of how far apart picture and caption are."""
    differences = [(both[f"pictures {column}"] - both[f"captions {column}"]).abs() for column in range(COLUMNS)]
    return float(sum(differences[1:], differences[0]).sum().compute())  # <- here


def bad(client: Client) -> float:
    pictures = dd.read_parquet(folder("pictures"))
    captions = dd.read_parquet(folder("captions"))
    return agreement(pictures.merge(captions, on="picture"))  # <- here


def good(client: Client) -> float:
    pictures = dd.read_parquet(folder("pictures"), index="picture", calculate_divisions=True)
    captions = dd.read_parquet(folder("captions"), index="picture", calculate_divisions=True)
    return agreement(pictures.merge(captions, left_index=True, right_index=True))
