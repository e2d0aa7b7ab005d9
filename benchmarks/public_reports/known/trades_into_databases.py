"""Trades of each venue are matched and put into an SQLite file of the venue, row by row.

source: Fraunhofer-AISEC/gallia pull request 204
date:   2022-07-04
seen:   to insert many rows is very slow.
cause:  each insert is committed by itself, and a commit waits until the disk has it.
cure:   insert all rows in one transaction, and commit at the end.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
VENUES, TRADES = 8, scaled(1_000)

EXPECTED = Expected(
    cause="each row is committed to SQLite by itself, and each commit waits for the disk (fsync)",
    place="Ledger.add (its commit), called by matched for each trade",
    cure="one transaction for many rows: commit once at the end, executemany",
    says=r"commit|fsync|transaction|sqlite|database|\bdisk\b|(wait|write|writing)\w*\b.{0,40}\b(disk|file|storage|i/?o)"
    r"|\bi/o\b|insert|row by row|each row|execute\b",
    places=(*marked(__file__), function("add"), function("matched"), r"commit"),
    cures=r"commit|transaction|executemany|batch|at once|once\b|together|fewer|bulk|in one|synchronous|journal|\bwal\b",
    never={
        HOLDS_GIL: "one thread a worker, which waits for the disk",
        LONGER_TASKS: "a task takes seconds",
        COMPUTED_AGAIN: "each is computed once",
        MORE_MEMORY: "a task holds next to nothing",
    },
)


class Ledger:
    """Trades of a venue in a file."""

    def __init__(self, venue: int, *, commit_each: bool) -> None:
        kind = "each" if commit_each else "all"
        self.connection = sqlite3.connect(folder("ledgers") / f"venue-{venue}-{kind}.sqlite")
        self.connection.execute("create table trade (buyer integer, seller integer, cents integer)")
        self.commit_each = commit_each

    def add(self, buyer: int, seller: int, cents: int) -> None:
        self.connection.execute("insert into trade values (?, ?, ?)", (buyer, seller, cents))
        if self.commit_each:
            self.connection.commit()  # <- here

    def close(self) -> float:
        self.connection.commit()
        (total,) = self.connection.execute("select sum(cents * (buyer % 7 + 1)) from trade").fetchone()
        self.connection.close()
        return float(total)


def orders(venue: int) -> Iterator[tuple[int, int, int]]:
    rng = np.random.default_rng(venue)
    for _ in range(TRADES):
        bids = np.sort(rng.normal(100, 4, 2_000))[::-1]
        asks = np.sort(rng.normal(101, 4, 2_000))
        depth = int(np.argmax(asks > bids))
        yield depth, int(rng.integers(1_000)), int(100 * (bids[depth] + asks[depth]) / 2)


def matched(venue: int, *, commit_each: bool) -> float:
    ledger = Ledger(venue, commit_each=commit_each)
    for buyer, seller, cents in orders(venue):
        ledger.add(buyer, seller, cents)  # <- here
    return ledger.close()


def bad(client: Client) -> float:
    return sum(client.gather(client.map(matched, range(VENUES), commit_each=True)))  # <- here


def good(client: Client) -> float:
    return sum(client.gather(client.map(matched, range(VENUES), commit_each=False)))
