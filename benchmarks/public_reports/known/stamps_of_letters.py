"""Postage is worked out for each letter of a day.

source: dask/distributed issue 2181
date:   2018-08-14
seen:   several million calls by Client.map: minutes passed before anything ran, and the scheduler was the limit.
cause:  a task for each small call: a call takes microseconds, and Dask's work for a task most of a millisecond.
cure:   calls in batches (a bag with partitions of some hundred records, or a function of a batch).
"""

from __future__ import annotations

from collections.abc import Sequence

from distributed import Client

from benchmarks.public_reports.programs import HOLDS_GIL, MORE_WORKERS, TWO_BY_TWO, Expected, marked, scaled

CLUSTER = TWO_BY_TWO
LETTERS = scaled(8_000)
BATCH = 400

EXPECTED = Expected(
    cause="8,000 tasks of microseconds each, so that the scheduler's work for tasks takes the time",
    place="map() over the letters",
    cure="batches: a task for many letters",
    says=r"small tasks|tasks .{0,30}(too )?(small|short|tiny|many)|(too )?many .{0,20}tasks|overhead|scheduler"
    r"|short tasks|longer tasks",
    places=(*marked(__file__), r"\bpostage\b"),
    cures=r"batch|longer tasks|bigger tasks|larger tasks|fewer (and |, )?(longer |larger |bigger )?tasks|group|chunk"
    r"|\bbags?\b|several .{0,20}(in|per) (a|one|each) task|many .{0,20}(in|per) (a|one|each) task|more work",
    never={
        MORE_WORKERS: "the scheduler is the limit",
        HOLDS_GIL: "the functions take microseconds: it is Dask's work around them",
    },
)


def postage(weight: int) -> float:
    steps = (2_000, 5_000, 10_000, 50_000)
    return 0.95 + 0.7 * sum(weight > step for step in steps)


def postage_of_all(weights: Sequence[int]) -> float:
    return sum(postage(weight) for weight in weights)


def weights() -> list[int]:
    return [(i * 7919) % 100_003 for i in range(LETTERS)]


def bad(client: Client) -> float:
    futures = client.map(postage, weights())  # <- here
    return sum(client.gather(futures))


def good(client: Client) -> float:
    letters = weights()
    batches = [letters[i : i + BATCH] for i in range(0, LETTERS, BATCH)]
    return sum(client.gather(client.map(postage_of_all, batches)))
