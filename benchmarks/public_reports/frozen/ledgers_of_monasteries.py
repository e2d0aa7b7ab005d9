"""Ledgers of monasteries, each summed up in the coins of its time.

source: JDASoftwareGroup/kartothek pull request 222
date:   2020-02-10
seen:   making the lazy tasks for the partitions of a dataset, by a call of delayed for each in a list, with the same
        keyword arguments each time, was slow with many partitions, long before anything was computed.
cause:  each call of the delayed function looks through all its arguments for lazy values, the same large ones again.
cure:   bind the common arguments to the function once (functools.partial), and make that delayed.
"""

from __future__ import annotations

from functools import partial

import dask
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    marked,
    scaled,
)

NEEDS = ()
CLUSTER = TWO_BY_TWO
LEDGERS = scaled(1200)
COINS = 90
YEARS = 30

EXPECTED = Expected(
    cause="the client spends its time making the graph: each call of delayed looks through all the rates",
    place="the line that calls the delayed function in the list, or that of compute",
    cure="bind the rates to the function once, by functools.partial, or make them one delayed value",
    says=r"\bgraphs?\b|(client|script).{0,60}(busy|build|prepar|before)|before (any|the first)|\bdelayed\b"
    r"|(build|mak|optimi[sz])\w* (the |a |these )?(graph|collection|tasks)|unpack|arguments?",
    places=(*marked(__file__),),
    cures=r"partial|\bonce\b|scatter|delayed\(|outside|bind|one (delayed|argument|task)|fewer (calls|tasks|arguments)"
    r"|smaller (graph|arguments?)|larger|batch|pass .{0,40}(future|reference)|load .{0,30}(in|on) the (task|worker)",
    never={
        COMPUTED_AGAIN: "each ledger is summed once",
        MORE_WORKERS: "the workers have next to nothing to do",
        MORE_MEMORY: "memory is not short",
    },
)


def rates_of_coins() -> dict[str, dict[int, float]]:
    """What each coin was worth, by year."""
    rng = np.random.default_rng(7)
    return {
        f"coin {coin}": {1200 + year: float(worth) for year, worth in enumerate(rng.random(YEARS))}
        for coin in range(COINS)
    }


def sum_up(ledger: int, *, rates: dict[str, dict[int, float]], first: int = 1200, fee: float = 0.02) -> float:
    rng = np.random.default_rng(ledger)
    coins = rng.integers(COINS, size=200)
    years = rng.integers(first, first + YEARS, size=200)
    amounts = rng.random(200)
    return float(
        sum(
            amount * rates[f"coin {coin}"][int(year)] * (1 - fee)
            for coin, year, amount in zip(coins, years, amounts, strict=True)
        )
    )


def map_delayed(function, ledgers, **settings) -> list:
    return [dask.delayed(function)(ledger, **settings) for ledger in ledgers]  # <- here


def bad(client: Client) -> float:
    sums = map_delayed(sum_up, range(LEDGERS), rates=rates_of_coins(), fee=0.03)
    return float(sum(dask.compute(*sums)))  # <- here


def good(client: Client) -> float:
    settled = dask.delayed(partial(sum_up, rates=rates_of_coins(), fee=0.03))
    sums = [settled(ledger) for ledger in range(LEDGERS)]
    return float(sum(dask.compute(*sums)))
