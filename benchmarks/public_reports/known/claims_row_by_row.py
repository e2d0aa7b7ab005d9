"""Claims on an insurance are sorted by customer, and a script goes through them to find the dearest year of each.

source: dask/dask pull request 882 and issue 4871, with the question on Stack Overflow it came from (56416326)
date:   2015-12-17 (4871: 2019-06-02)
seen:   one can go through the rows of a Dask dataframe in a loop; the loop computes one partition after the other, and
        brings its rows to the script.
cause:  each partition is a computation of its own, and comes out of a shuffle, which needs all files: files are parsed
        and shuffled anew for every partition, and the script adds up what workers could add up.
cure:   do the work on the partitions (map_partitions), in one computation, or at least persist before the loop.
"""

from __future__ import annotations

import io

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
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
BRANCHES, CLAIMS, CUSTOMERS, GROUPS = scaled(12), 52_000, 900, 12
META = pd.DataFrame({"customer": pd.Series(dtype=int), "year": pd.Series(dtype=int), "cost": pd.Series(dtype=float)})

EXPECTED = Expected(
    cause="the loop over rows computes one partition after the other, each with the whole shuffle and the"
    " parsing of all"
    " files before it",
    place="the loop over itertuples in dearest_in_loop, or claims_of_branch, which is done again for each partition",
    cure="one computation: map_partitions after the shuffle; or persist before the loop",
    says=r"itertuples|row by row|one (partition|computation|by one|at a time)|(twice|again|anew|repeated(ly)?|\d+ times"
    r"|many times|more than once|several times|times over)|re-?(read|comput|pars|load|run|shuffl)\w*|in turn"
    r"|after (the other|another)|(each|every|per) partition|many computations|\d+ computations",
    places=(
        *marked(__file__),
        function("dearest_in_loop"),
        function("claims_of_branch"),
        function("by_customer"),
        function("itertuples"),
    ),
    cures=r"persist|map_partitions|once\b|one computation|single compute|together|on the workers|keep|without"
    r" (the )?loop"
    r"|instead of (the loop|itertuples)",
    never={
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "they would do the same work as often",
        MORE_MEMORY: "there is enough",
        LOCK: "there is none",
    },
)


def written(branch: int) -> str:
    """Claims of a branch as text."""
    rng = np.random.default_rng([8, branch])
    customers, years = rng.integers(0, CUSTOMERS, CLAIMS).tolist(), rng.integers(1990, 2024, CLAIMS).tolist()
    costs = rng.gamma(1.5, 2000, CLAIMS).round(2).tolist()
    return "\n".join(
        f"{customer};{year};{cost} EUR" for customer, year, cost in zip(customers, years, costs, strict=True)
    )


def claims_of_branch(branch: int) -> pd.DataFrame:
    """Large claims of a branch, which are few."""
    table = pd.read_csv(io.StringIO(written(branch)), sep=";", names=["customer", "year", "cost"])
    table["cost"] = [float(cost.removesuffix(" EUR")) for cost in table["cost"]]
    return table[table.cost > 8000].astype({"customer": int, "year": int})


def by_customer() -> dd.DataFrame:
    claims = dd.from_map(claims_of_branch, range(BRANCHES), meta=META)
    return claims.shuffle("customer", npartitions=GROUPS)


def dearest_in_loop(claims: dd.DataFrame) -> float:
    """Sum of the costs of each customer's dearest year."""
    costs: dict[tuple[int, int], float] = {}
    for row in claims.itertuples():  # <- here
        costs[row.customer, row.year] = costs.get((row.customer, row.year), 0.0) + row.cost
    dearest: dict[int, float] = {}
    for (customer, _), cost in costs.items():
        dearest[customer] = max(cost, dearest.get(customer, 0.0))
    return sum(dearest.values())


def dearest_of_group(claims: pd.DataFrame) -> pd.Series:
    years = claims.groupby(["customer", "year"])["cost"].sum()
    return years.groupby("customer").max()


def bad(client: Client) -> float:
    return float(dearest_in_loop(by_customer()))  # <- here


def good(client: Client) -> float:
    dearest = by_customer().map_partitions(dearest_of_group, meta=pd.Series(dtype=float, name="cost"))
    return float(dearest.sum().compute())
