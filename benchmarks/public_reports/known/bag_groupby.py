"""Records of a bag are grouped, to count and add them up.

source: dask/distributed issue 5611 (the bag in it needs an all-to-all shuffle; the dataframe does not); Dask's page on
        bags ("groupby is expensive, consider foldby")
date:   2022-01-12
seen:   a sum for each key of a bag of records takes very long and much memory, while the same with a dataframe, or with
        foldby, is quick.
cause:  Bag.groupby moves every record to the partition of its key, in Python objects that are pickled, before anything
        is added up.
cure:   foldby: add up within each partition, and combine the sums (or a dataframe).
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import dask.bag as db
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
FILES, RECORDS, SHOPS = 12, scaled(24_000), 400

EXPECTED = Expected(
    cause="bag.groupby shuffles all records between the partitions (splitting, pickling and sending Python"
    " objects) only"
    " to reduce each group to a sum",
    place="the groupby()",
    cure="foldby (add up in each partition first), or a dataframe's groupby",
    says=r"group.?by|shuffl|all.to.all|(move|sen[dt]|transfer|exchang|travel)\w*\b.{0,60}(record|data|partition"
    r"|worker|item|byte|result)"
    r"|(record|data|partition|item|byte)s?.{0,40}\b(moved?|sent|transferred|exchanged|between workers)"
    r"|communicat|pickl|serializ|serialis"
    r"|split",
    places=(*marked(__file__), r"group.?by|shuffle|split", function("bad"), function("takings")),
    cures=r"foldby|fold\b|reduction|reduce|dataframe|(combine|aggregate|add up|sum|count)\b.{0,40}(in|within|per"
    r"|each|before|first)"
    r"|before (the )?(shuffl|group|mov|send)|frequencies|arrays?\b|fewer objects",
    never={
        MORE_WORKERS: "the cores are busy with needless work",
        MORE_MEMORY: "there is enough",
        HOLDS_GIL: "one thread a worker",
        COMPUTED_AGAIN: "each file is read once",
    },
)


def prepare() -> None:
    for number in range(FILES):
        rng = np.random.default_rng(number)
        shops, cents = rng.integers(0, SHOPS, RECORDS).tolist(), rng.integers(1, 9_000, RECORDS).tolist()
        lines = (
            json.dumps({"shop": f"shop-{shop}", "cents": sum_, "till": sum_ % 7, "items": [sum_ % 11, sum_ % 5]})
            for shop, sum_ in zip(shops, cents, strict=True)
        )
        (folder("receipts") / f"{number}.json").write_text("\n".join(lines))


def receipts() -> db.Bag:
    return db.read_text(str(folder("receipts") / "*.json")).map(json.loads)


def shop(receipt: dict) -> str:
    return receipt["shop"]


def takings(shop: str, of_shop: Iterable[dict]) -> tuple[str, int]:
    return shop, sum(receipt["cents"] for receipt in of_shop)


def add(so_far: int, receipt: dict) -> int:
    return so_far + receipt["cents"]


def plus(one: int, other: int) -> int:
    return one + other


def checked(by_shop: dict[str, int]) -> float:
    return float(sum(cents * (len(shop) + number) for number, (shop, cents) in enumerate(sorted(by_shop.items()))))


def bad(client: Client) -> float:
    grouped = receipts().groupby(shop).starmap(takings)  # <- here
    return checked(dict(grouped.compute()))  # <- here


def good(client: Client) -> float:
    return checked(dict(receipts().foldby(shop, add, 0, plus, 0).compute()))
