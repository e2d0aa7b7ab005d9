"""Each line of a text file is made a table of one row, and the tables are put together.

source: dask/distributed issue 2210; a like case: dask/dask issue 7614
date:   2018-08-24 (the like case 2021-04-27)
seen:   a bag of lines of JSON, whose fields differ a little, is mapped with a function that makes a pandas DataFrame of
        each line; then all of them are put together. It takes very long, and needs much more memory than the text.
cause:  a DataFrame of one row costs about a millisecond to make and some more to put together, thousands of times the
        cost of the row itself.
cure:   hand on the plain records, and make one DataFrame of all records of a partition (or Bag.to_dataframe).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import dask.bag as db
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
FILES = 8
LINES = scaled(1_500)

EXPECTED = Expected(
    cause="a DataFrame is made of every single line, and thousands of such tables are put together",
    place="table_of, which makes the DataFrame, and together, which puts them together; or the map() of it",
    cure="make one DataFrame of all records of a partition",
    says=r"DataFrame|\bpandas\b|\bconcat|(for|of) (each|every|one|a single) (line|row|record|element|item)|(row"
    r"|line) by|per (row|line|record|element|item)|single rows?|small (tables|frames|objects)|Python (code|loop)"
    r"|table_of",
    places=(
        *marked(__file__),
        function("table_of"),
        function("together"),
        r"\bconcat\b",
        r"pandas\b.*\bframe\b",
    ),
    cures=r"one DataFrame|(once|one call) (for|per)|per partition|(for|of) (a|the|each|every) (whole "
    r"|entire )?(partition|block|file|batch)|from_records|to_dataframe|list of (dict|record)|plain (dict|record)"
    r"|vectori|batch|at once|whole (block|partition|column)|many (rows|lines|records)|read_json"
    r"|avoid .{0,30}(DataFrame|pandas|concat)|fewer (calls|DataFrames|objects)|in bulk",
    never={
        LONGER_TASKS: "a task takes a second and more",
        HOLDS_GIL: "one thread a worker",
        r"(?i)read_text[^.\n]{0,40}(slow|most of)|blocksize": "reading the lines is a small part",
    },
)


def prepare() -> None:
    for number in range(FILES):
        lines = []
        for line in range(LINES):
            record: dict[str, Any] = {f"field_{i}": line * i % 97 for i in range(20)}
            record |= {"amount": line % 11, "shop": f"shop-{line % 40}", f"extra_{line % 3}": True}
            lines.append(json.dumps(record))
        (folder("frame_per_line") / f"{number}.json").write_text("\n".join(lines))


def table_of(line: str) -> pd.DataFrame:
    return pd.DataFrame([json.loads(line)])  # <- here


def together(tables: Iterable[pd.DataFrame]) -> list[int]:
    frame = pd.concat(list(tables), ignore_index=True)  # <- here
    return [int(frame["amount"].sum())]


def in_one_table(records: Iterable[dict[str, Any]]) -> list[int]:
    frame = pd.DataFrame(list(records))
    return [int(frame["amount"].sum())]


def bad(client: Client) -> float:
    lines = db.read_text(str(folder("frame_per_line") / "*.json"))
    return float(sum(lines.map(table_of).map_partitions(together).compute()))  # <- here


def good(client: Client) -> float:
    lines = db.read_text(str(folder("frame_per_line") / "*.json"))
    return float(sum(lines.map(json.loads).map_partitions(in_one_table).compute()))
