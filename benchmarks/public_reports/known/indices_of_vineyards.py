"""Indices of vineyards are added to a table column by column, each with an assignment of its own.

source: alteryx/featuretools issue 923 (its cure: pull request 924); of the same kind: ludwig-ai/ludwig pull
        request 1193
date:   2020-04-23 (1193: 2021-06-03)
seen:   features are put into a Dask table one after the other, which is slow when there are many, and makes a task
        graph that nobody can follow; with pandas the same code is fast.
cause:  each assignment wraps the table of the one before: a long chain, which the client has to go through again and
        again before any task runs.
cure:   one function that adds all columns to a partition (map_partitions), or one assign for all.
"""

from __future__ import annotations

from itertools import combinations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
PARTITIONS = 16
ROWS = scaled(15_000)
BANDS = [f"band_{number}" for number in range(15)]
#: Pairs of bands, of which there is an index each.
PAIRS = list(combinations(BANDS, 2))[: scaled(105)]

EXPECTED = Expected(
    cause="the client builds and optimizes a long chain of assignments, while the workers have nothing to do",
    place="the assignment in the loop, or the compute() of its result",
    cure="one function for all columns by map_partitions, or one assign",
    says=r"optimi[sz]|graph|expression|\bassign(ments?)?\b|quer(y|ies) plan|planning|(before|until) (the "
    r"|any )?(first )?tasks?"
    r"|(client|script).{0,60}(busy|prepar|build|comput|python|CPU)|chain",
    places=(*marked(__file__), function("with_indices"), function("bad")),
    cures=r"map_partitions|assign|at once|all (the )?columns|one (function|step|call|assignment)|fewer|smaller graph"
    r"|(shorter|less) .{0,20}(chain|expression|graph)|simpler|in one go|loop|persist",
    never={
        MORE_WORKERS: "the workers wait for the client",
        MORE_MEMORY: "the table is small",
        LONGER_TASKS: "there are few tasks",
    },
)


def vineyard(number: int) -> pd.DataFrame:
    rng = np.random.default_rng(number)
    return pd.DataFrame({band: rng.uniform(0.1, 1.0, ROWS) for band in BANDS})


def table() -> dd.DataFrame:
    bands: dd.DataFrame = dd.from_map(vineyard, range(PARTITIONS), meta=vineyard(0).head(0))
    return bands


def with_indices(frame: dd.DataFrame) -> dd.DataFrame:
    """Table with a column for each pair of bands."""
    for left, right in PAIRS:
        index = (frame[left] - frame[right]) / (frame[left] + frame[right])  # <- here
        frame[f"{left}_{right}"] = index  # <- here
    return frame


def all_indices(part: pd.DataFrame) -> pd.DataFrame:
    """Columns of all pairs of bands of a partition."""
    indices = {f"{left}_{right}": (part[left] - part[right]) / (part[left] + part[right]) for left, right in PAIRS}
    return part.assign(**indices)


def bad(client: Client) -> float:
    frame = with_indices(table())
    return float(frame.max().compute().sum())  # <- here


def good(client: Client) -> float:
    frame = table().map_partitions(all_indices)
    return float(frame.max().compute().sum())
