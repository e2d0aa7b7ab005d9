"""Tasks compute while they hold the lock of an SQLite file.

source: catalyst-cooperative/pudl issue 2417; DataBiosphere/toil issue 2910
date:   2023-03-18 (toil: 2020-01-08)
seen:   many tasks in parallel put their results into one SQLite file. Each waits until the others have finished, now
        and then so long that SQLite gives up and says that the database is locked.
cause:  one transaction at a time may write to the file; the others wait in SQLite's C code, each with its thread.
cure:   hold the lock for the write only: compute first, then begin the transaction; or let one task write for many.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import PROCESSES, SLEEP, TWO_BY_TWO, Expected, folder, function, marked, scaled

CLUSTER = TWO_BY_TWO
TASKS, SIZE = scaled(130), 650
#: The threads wait for as long as it takes.
PATIENCE = 600.0

EXPECTED = Expected(
    cause="one task at a time has the database's lock; the others wait for it in SQLite",
    place="the statement that takes it, or its function",
    cure="hold it shorter: compute before the transaction, or write for many tasks at once",
    says=r"sqlite|database|\bexecute\b|\btransaction",
    places=(*marked(__file__), function("compute_and_store"), r"Connection\.execute|Cursor\.execute"),
    cures=r"short|before|outside|one task|batch|at once|transaction|commit",
    never={
        SLEEP: "no task sleeps",
        PROCESSES: "the lock is that of a file",
        r"(?i)use more threads": "they would wait for the same lock",
    },
)


def database() -> str:
    return str(folder("sqlite") / "results.sqlite")


def prepare() -> None:
    with closing(sqlite3.connect(database())) as connection:
        connection.execute("create table results (seed integer, largest real)")


def largest_value(seed: int) -> float:
    return float(np.linalg.svd(np.random.default_rng(seed).random((SIZE, SIZE)), compute_uv=False)[0])


def compute_and_store(seed: int) -> float:
    with closing(sqlite3.connect(database(), timeout=PATIENCE, isolation_level=None)) as connection:
        connection.execute("begin immediate")  # <- here
        largest = largest_value(seed)
        connection.execute("insert into results values (?, ?)", (seed, largest))
        connection.execute("commit")
    return largest


def compute_then_store(seed: int) -> float:
    largest = largest_value(seed)
    with closing(sqlite3.connect(database(), timeout=PATIENCE, isolation_level=None)) as connection:
        connection.execute("begin immediate")
        connection.execute("insert into results values (?, ?)", (seed, largest))
        connection.execute("commit")
    return largest


def bad(client: Client) -> float:
    return sum(client.gather(client.map(compute_and_store, range(TASKS))))


def good(client: Client) -> float:
    return sum(client.gather(client.map(compute_then_store, range(TASKS))))
