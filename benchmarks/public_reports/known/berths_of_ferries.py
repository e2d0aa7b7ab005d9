"""Delays of ferries at their berths, from one file for each month.

source: dask/dask-tutorial issue 136
date:   2019-11-12
seen:   all files of a folder read by one read_csv, and means of delays by place, took longer than the same in turn by
        pandas, although several threads were there.
cause:  the text is parsed by Python code that holds the interpreter lock, so the threads of the one process take turns.
cure:   use processes rather than threads.
"""

from __future__ import annotations

import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    MORE_MEMORY,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("pandas", "pyarrow")
CLUSTER = {"n_workers": 1, "threads_per_worker": 2}
GOOD_CLUSTER = TWO_BY_ONE
MONTHS = 24
CALLS = scaled(260_000)
PORTS = ["Aver", "Brim", "Colm", "Dunn", "Esk", "Fell", "Garth", "Holm"]

EXPECTED = Expected(
    cause="the parsing of clock times in Python holds the GIL, and both threads are in one process, so they take turns",
    place="the line of read_csv, or the function that parses a clock time",
    cure="processes with a thread each rather than threads (or parsing that isn't Python code for each value)",
    says=r"\bGIL\b|interpreter lock|Python (code|function)s?.{0,60}(one|a single) (thread|core|process)|take turns",
    places=(*marked(__file__), function("minutes_of"), function("late_by")),
    cures=r"process|workers? with (one|a single|fewer) threads?|threads_per_worker|n_workers|nthreads"
    r"|vectori[sz]|whole columns?|to_datetime|to_timedelta|converters?",
    never={
        COMPUTED_AGAIN: "each file is read once",
        LONGER_TASKS: "a task takes most of a second",
        MORE_MEMORY: "memory is plenty",
    },
)


def prepare() -> None:
    place = folder("ferries")
    random = np.random.default_rng(11)
    due = random.integers(0, 1300, CALLS)
    late = random.integers(0, 90, CALLS)
    table = pd.DataFrame(
        {
            "port": np.array(PORTS)[random.integers(0, len(PORTS), CALLS)],
            "due": [f"{minute // 60:02}h{minute % 60:02}" for minute in due],
            "berthed": [f"{minute // 60:02}h{minute % 60:02}" for minute in due + late],
            "late": [f"+{minutes} min" for minutes in late],
            "cars": random.integers(0, 120, CALLS),
        }
    )
    text = table.to_csv(index=False)
    for month in range(MONTHS):
        (place / f"calls-{month:02}.csv").write_text(text)


def minutes_of(clock: str) -> float:
    """Minutes since midnight of a time such as 07h35."""
    hours, minutes = clock.strip().split("h")
    return int(hours) * 60.0 + int(minutes)


def late_by(note: str) -> float:
    """Minutes of a note such as +12 min."""
    number, unit = note.strip().split(" ")
    return float(number.lstrip("+")) if unit == "min" else float("nan")


def mean_delays() -> float:
    calls = dd.read_csv(  # <- here
        str(folder("ferries") / "calls-*.csv"),
        converters={"due": minutes_of, "berthed": minutes_of, "late": late_by},
    )
    calls["wait"] = calls["berthed"] - calls["due"] + calls["late"]
    means = calls.groupby("port")["wait"].mean().compute()
    return float(means.sum())


def bad(client: Client) -> float:
    return mean_delays()


def good(client: Client) -> float:
    return mean_delays()
