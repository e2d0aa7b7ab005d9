"""Calls of birds are counted in text files of observers.

source: dask/dask issue 1707
date:   2016-10-25
seen:   a file of 500 MB took 157 s and 8 GB of memory by read_text().compute(), and 4 s by read_csv of a DataFrame.
        With count() before compute() it was 5 s.
cause:  all records come back to the client: they are pickled by the workers, sent, and unpickled by the client alone.
cure:   count on the workers, so that only the counts come back.
"""

from __future__ import annotations

import json
from typing import Any

import dask.bag as db
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import LONGER_TASKS, MORE_WORKERS, TWO_BY_TWO, Expected, folder, marked, scaled

CLUSTER = TWO_BY_TWO
FILES = 8
CALLS = scaled(13_000)

EXPECTED = Expected(
    cause="all records are brought to the client, which unpickles them and counts by itself",
    place="compute() of the bag",
    cure="count in tasks, and bring only the counts",
    says=r"\bto (the|your) client|client .{0,60}(gather|fetch|unpickl|deseriali[sz]|receiv|download|result)"
    r"|(gather|fetch|bring|brought|collect|return)\w* .{0,60}(client|results?|data|records)"
    r"|results? .{0,30}(large|big|MB|MiB|GB)|(large|big) results?|unpickl|deseriali[sz]",
    places=(*marked(__file__), r"\bcommonest\b", r"\brecords\b", r"\bbad\b"),
    cures=r"reduc|aggregat|count|on the (workers|cluster)|in (the )?tasks|smaller results?|less|before compute"
    r"|persist|fold|only what",
    never={
        LONGER_TASKS: "there are 8 tasks, one for each file",
        MORE_WORKERS: "it is the client that works",
    },
)


def paths() -> list[str]:
    return [str(folder("calls_of_birds") / f"observer-{i}.jsonl") for i in range(FILES)]


def prepare() -> None:
    """Write a file for each observer, a line for each call."""
    for observer, path in enumerate(paths()):
        rng = np.random.default_rng(observer)
        kinds, tones = rng.integers(0, 60, CALLS).tolist(), rng.integers(1000, 9000, (CALLS, 12)).tolist()
        with open(path, "w") as file:
            for i, (kind, tone) in enumerate(zip(kinds, tones, strict=True)):
                heard = {"place": f"wood-{i % 17}", "minute": i, "note": f"call {i} from tree {i % 501}"}
                print(json.dumps({"bird": f"bird-{kind:02d}", "tones": tone, "heard": heard}), file=file)


def records() -> db.Bag:
    return db.read_text(paths()).map(json.loads)


def bird_of(record: dict[str, Any]) -> str:
    return record["bird"]


def commonest(counts: dict[str, int]) -> float:
    bird = max(counts, key=lambda name: (counts[name], name))
    return float(counts[bird] + int(bird[-2:]))


def bad(client: Client) -> float:
    counts: dict[str, int] = {}
    for record in records().compute():  # <- here
        counts[record["bird"]] = counts.get(record["bird"], 0) + 1
    return commonest(counts)


def good(client: Client) -> float:
    return commonest(dict(records().map(bird_of).frequencies().compute()))
