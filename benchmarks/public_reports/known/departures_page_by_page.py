"""A large table of departures is read from a database in pages, one page a task.

source: transitland/transitland-datastore issue 1170; like cases: transitland/www-transit-land issue 293,
        stac-utils/stac-fastapi issue 66
date:   2017-08-22 (issue 293: 2018-04-30)
seen:   the first pages of an operator's departures come at once; ten thousand rows after the first million take 20 s,
        and 0.3 s if they are asked for by their keys. Late pages time out.
cause:  with OFFSET the database goes through all rows before the page, from the first one on, to throw them away.
cure:   ask for the rows after a key, which the database finds by its index.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
ROWS, PAGE = scaled(1_800_000), 3_000
BY_NUMBER = "SELECT stop, seconds FROM departures ORDER BY id LIMIT ? OFFSET ?"  # <- here
BY_KEY = "SELECT stop, seconds FROM departures WHERE id >= ? ORDER BY id LIMIT ?"

EXPECTED = Expected(
    cause="for each page the database goes through all rows before it, which OFFSET skips: late pages take long",
    place="the query of page_at",
    cure="ask for rows after a key (WHERE id >= ... LIMIT), or by ranges of the key",
    says=r"offset\W+(\w+\W+){0,10}(skip|read|scan|walk|pass|step|count|throw|discard|rows|goes)|skip(s|ped|ping)?\b"
    r"|(all|the|other|earlier|previous) rows before|from the (start|beginning|first)|discard|thrown? away|throws"
    r"|(late|later|further|deep) pages|quadratic|rows (that|which)( it| they)? (do|does|are)( not|n't)? (need|return)",
    places=(*marked(__file__), function("page_at"), function("BY_NUMBER")),
    cures=r"key ?set|\bseek\b|where\b|(range|last|previous|after)\w*\W+(\w+\W+){0,4}(key|id|row)|by (the )?key"
    r"|(key|id) range|between\b|rowid|(instead of|without|no|avoid|replace) (an )?offset|one query|cursor",
    never={
        r"(?i)(create|add|make|needs?) (an )?index|no index": "the table is in order of its key",
        LOCK: "readers do not wait for each other",
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "both cores are busy",
        MORE_MEMORY: "there is enough",
        COMPUTED_AGAIN: "each task runs once",
    },
)


def database() -> Path:
    return folder("departures_page_by_page") / "departures.sqlite"


def prepare() -> None:
    """A table whose keys have gaps."""
    rng = np.random.default_rng(1170)
    keys = np.cumsum(rng.integers(1, 5, ROWS)).tolist()
    columns = (rng.integers(0, 9_000, ROWS).tolist(), rng.integers(0, 86_400, ROWS).tolist())
    database().unlink(missing_ok=True)
    with sqlite3.connect(database()) as store:
        store.execute("CREATE TABLE departures (id INTEGER PRIMARY KEY, stop INTEGER, seconds INTEGER, sign TEXT)")
        values = zip(keys, *columns, strict=True)
        rows = ((key, stop, at, f"Line {stop % 90} to the station {at % 70}") for key, stop, at in values)
        store.executemany("INSERT INTO departures VALUES (?, ?, ?, ?)", rows)
    store.close()


def page(query: str, *values: int) -> int:
    """Passenger's waits at the stops of a page, added up."""
    store = sqlite3.connect(f"file:{database()}?mode=ro", uri=True)
    rows = store.execute(query, values).fetchall()  # <- here
    store.close()
    return sum((stop * 7 + seconds) % 600 for stop, seconds in rows)


def page_at(number: int) -> int:
    """Page of this number."""
    return page(BY_NUMBER, PAGE, number * PAGE)  # <- here


def page_from(key: int) -> int:
    """Page that begins with this key."""
    return page(BY_KEY, key, PAGE)


def first_keys() -> list[int]:
    """First key of each page, from one pass through the table."""
    store = sqlite3.connect(database())
    keys = [key for (key,) in store.execute("SELECT id FROM departures ORDER BY id")]
    store.close()
    return keys[::PAGE]


def bad(client: Client) -> float:
    return float(sum(client.gather(client.map(page_at, range(-(-ROWS // PAGE))))))


def good(client: Client) -> float:
    return float(sum(client.gather(client.map(page_from, first_keys()))))
