"""A data frame made by costly readers is sorted; finding the divisions runs all readers, computing runs them again.

source: dask/dask issue 8709; also dask-contrib/dask-sql issue 250
date:   2022-02-11 (the other 2021-10-11)
seen:   a data frame came from custom readers (from_delayed); with a sort each reader ran twice, which was not so with
        the readers of Dask itself.
cause:  sorting needs divisions, which are computed from the data at once; that pass reads all of the data and throws it
        away, and the result reads it again.
cure:   the threads: persist before the sort (memory against time), or hand over divisions that are known.
"""

from __future__ import annotations

from pathlib import Path

import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask import delayed
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    compute_for,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas", "pyarrow")
CLUSTER = TWO_BY_ONE
FILES, LINES = scaled(10), 2_000
META = pd.DataFrame({"station": np.array([], dtype="int64"), "value": np.array([], dtype="float64")})

EXPECTED = Expected(
    cause="the readers (parse_log) run twice: once to find the divisions for the sort, once for the result",
    place="sort_values on a frame from from_delayed that was not persisted; the task parse_log, which runs twice as"
    " often"
    " as there are files (two computations in one compute)",
    cure="persist() the frame before sort_values (or know and pass the divisions, or store it once as Parquet and sort"
    " from there)",
    says=r"twice|(2|two|several|many|\d+) (times|computations|passes)|again|re-?(read|comput|run|execut|pars)|repeat"
    r"|second time|more than once|once more|anew|divisions|same (work|tasks?|results?|computation|files?|graph|data)",
    places=(*marked(__file__), function("parse_log"), r"sort_values|from_delayed"),
    cures=r"persist|divisions|parquet|stor(e|ing)|once|keep|reuse|re-use|cache",
    never={
        r"(?i)shuffl\w* is (the|slow|a)|(avoid|fewer|less|the cost of) (the )?shuffl": "the sort takes little",
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        LONGER_TASKS: "the tasks are long enough",
        r"(?i)too (few|many) partitions": "there are enough",
        r"(?i)client is (slow|busy)": "it waits",
    },
)


def paths() -> list[Path]:
    return [folder("logs") / f"log-{number:03d}.txt" for number in range(FILES)]


def prepare() -> None:
    for number, path in enumerate(paths()):
        random = np.random.default_rng(number)
        stations, values = random.integers(0, 1_000_000, LINES), random.random(LINES)
        path.write_text("".join(f"station={s};value={v:.6f};unit=K\n" for s, v in zip(stations, values, strict=True)))


def parse_log(path: Path) -> pd.DataFrame:
    rows = []
    for line in path.read_text().splitlines():
        fields = dict(field.split("=") for field in line.split(";"))
        rows.append((int(fields["station"]), float(fields["value"])))
    compute_for(1.2)  # decrypt, validate, ...
    return pd.DataFrame(rows, columns=["station", "value"])


def head_sum(part: pd.DataFrame) -> pd.Series:
    return pd.Series([part["value"].sum()], name="value")


def bad(client: Client) -> float:
    frame = dd.from_delayed([delayed(parse_log)(path) for path in paths()], meta=META, verify_meta=False)
    ordered = frame.sort_values("station")  # <- here
    return float(ordered.map_partitions(head_sum, meta=("value", "float64")).compute().sum())  # <- here


def good(client: Client) -> float:
    frame = dd.from_delayed([delayed(parse_log)(path) for path in paths()], meta=META, verify_meta=False)
    ordered = frame.persist().sort_values("station")
    return float(ordered.map_partitions(head_sum, meta=("value", "float64")).compute().sum())
