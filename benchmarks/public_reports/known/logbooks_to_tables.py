"""Log books of ships, each a bag of entries, become one table of winds.

source: dask/dask issue 1448, pull request 1450; of the same kind: dask/dask issue 2884
date:   2016-08-07 (2884: 2017-11-13)
seen:   columns are computed from the first element where they are not given, which starts a computation that can be
        heavy; with names alone it is started as well.
cause:  to_dataframe without meta computes the first partition of the bag while the graph is built; with a bag for each
        book this reads the books one after the other, on one core, throws the entries away, and they are read again
        for the result.
cure:   meta with names and types.
"""

from __future__ import annotations

import re

import dask
import dask.bag as db
import dask.dataframe as dd
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
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
BOOKS, ENTRIES = scaled(14), 130_000
COLUMNS = {"day": int, "latitude": float, "longitude": float, "wind": float}
ENTRY = re.compile(
    r"day (?P<day>\d+): at (?P<latitude>-?[\d.]+) by (?P<longitude>-?[\d.]+), wind (?P<wind>[\d.]+) knots"
)

EXPECTED = Expected(
    cause="to_dataframe has no meta, so it computes the first partition of each bag to find the columns: books are read"
    " one after the other by the script, and then once more for the result",
    place="to_dataframe in winds_of_book, called from mean_wind; or the reading of a book, which is done twice",
    cure="give meta (names and types) to to_dataframe",
    says=r"\bmeta\b|to_dataframe|infer|guess|(column|type)s? (are|is|were)? ?(found|computed|inferred|guessed"
    r"|looked up)"
    r"|(twice|again|second time|two times|2 times|more than once|repeated(ly)?)|re-?(read|comput|pars|load|run)\w*"
    r"|(one (book|bag|computation|task|partition|by one|at a time)|in turn|after (the other|another))|(comput\w+"
    r"|tasks?)"
    r"\W+(\w+\W+){0,5}(while|before|when) (the )?(graph|building)|waits? for|first partition",
    places=(
        *marked(__file__),
        function("winds_of_book"),
        function("mean_wind"),
        function("entries"),
        function("to_dataframe"),
    ),
    cures=r"\bmeta\b|names and types|dtypes?\b|columns? (and|with) types|once\b|persist|together|at once|in parallel"
    r"|without comput",
    never={
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "one of two is idle as it is",
        LONGER_TASKS: "tasks take half a second",
        MORE_MEMORY: "there is enough",
        LOCK: "there is none",
    },
)


def written(book: int) -> list[str]:
    """Lines of a log book."""
    rng = np.random.default_rng([7, book])
    numbers = rng.uniform((-60, -180, 0), (60, 180, 50), (ENTRIES, 3)).round(2).tolist()
    return [f"day {day}: at {y} by {x}, wind {wind} knots" for day, (y, x, wind) in enumerate(numbers)]


@dask.delayed
def entries(book: int) -> list[dict[str, float]]:
    """Entries of a log book."""
    found = (ENTRY.match(line) for line in written(book))
    return [{name: kind(entry[name]) for name, kind in COLUMNS.items()} for entry in found if entry]


def winds_of_book(book: int, typed: bool) -> dd.DataFrame:
    bag = db.from_delayed([entries(book)])
    if typed:
        return bag.to_dataframe(meta=COLUMNS)
    return bag.to_dataframe()  # <- here


def mean_wind(typed: bool) -> float:
    frame = dd.concat([winds_of_book(book, typed) for book in range(BOOKS)])  # <- here
    southern = frame[frame.latitude < 0]
    return float(southern.wind.mean().compute())


def bad(client: Client) -> float:
    return mean_wind(typed=False)  # <- here


def good(client: Client) -> float:
    return mean_wind(typed=True)
