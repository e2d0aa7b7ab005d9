"""A method of an object that carries a large table is mapped over many inputs.

source: dask/distributed issue 3108; its cure: PrefectHQ/prefect pull request 1589
date:   2019-10-01 (cure 2019-10-02)
seen:   2,000 calls of a bound method took almost three minutes with submit and with map alike; with map nothing ran
        for a long time, then everything at once. The object pickles to 0.15 MB, the method itself does nearly nothing.
cause:  the function of each task is the bound method, so the whole object is pickled for every task, and unpickled by
        the worker's event loop for every task.
cure:   treat the object as data: scatter it once to all workers, and pass it to a small function as an argument.

Only the transport is at fault: tasks of 30 ms are long enough for Dask.
"""

from __future__ import annotations

from distributed import Client

from benchmarks.public_reports.programs import LONGER_TASKS, TWO_BY_TWO, Expected, compute_for, function, marked, scaled

CLUSTER = TWO_BY_TWO
CALLS = scaled(60)
ENTRIES = 200_000

EXPECTED = Expected(
    cause="every task carries the object of its method, pickled: 5 MB each",
    place="the map() of the method, or the method",
    cure="scatter the object once, and pass it as an argument",
    says=r"pickl|serializ|\bcarr(y|ies)\b"
    r"|\b(large|big|heavy|\d+ [kMG]i?B)\b.{0,40}\b(tasks?|functions?|objects?|graph)\b",
    places=(*marked(__file__), function("quote"), function("PriceList")),
    cures=r"scatter|as an argument|as data|once (to|on|for) (each|every|all)",
    never={
        LONGER_TASKS: "tasks of 30 ms are long enough",
        r"(?i)split the": "there are more tasks than threads all the time",
    },
)


class PriceList:
    """Knows the price of many articles."""

    def __init__(self, entries: int) -> None:
        self.prices = {f"article-{i:07d}": i * 7 % 1000 for i in range(entries)}

    def quote(self, number: int) -> int:
        compute_for(0.03)
        return self.prices[f"article-{number:07d}"]


def quote_from(number: int, prices: PriceList) -> int:
    return prices.quote(number)


def bad(client: Client) -> float:
    prices = PriceList(ENTRIES)
    futures = client.map(prices.quote, range(CALLS))  # <- here
    return sum(client.gather(futures))


def good(client: Client) -> float:
    prices = client.scatter(PriceList(ENTRIES), broadcast=True)
    return sum(client.gather(client.map(quote_from, range(CALLS), prices=prices)))
