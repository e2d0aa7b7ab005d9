"""Echoes of the bed under the ice, along the flights of some campaigns.

source: englacial/xopr issue 8
date:   2025-08-26
seen:   of twenty workers only two to five were at work, one at 100 % and the others at a few per cent.
cause:  the flights of one campaign at a time are processed in parallel, and a campaign has few flights, of which one
        takes much longer than the others: the workers wait at the end of each campaign.
cure:   parallelize over the campaigns, not over the flights in each.
"""

from __future__ import annotations

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ()
CLUSTER = TWO_BY_ONE
CAMPAIGNS = 14
TRACES = scaled(5_200)
SAMPLES = 2048

EXPECTED = Expected(
    cause="flights are processed campaign by campaign, with a wait for the longest flight at the end of each: "
    "meanwhile the other worker is idle",
    place="the lines of client.map and gather in the loop",
    cure="all campaigns at once: submit the flights of all before waiting for any",
    says=r"idle|barrier|(wait|gather)\w*.{0,80}(each|round|batch|loop|before|longest|next|campaign)"
    r"|(too )?few(er)? tasks"
    r"|not enough (tasks|parallel)|rounds?|one (batch|campaign) (at a time|after)|in turn|stragglers?|longest task"
    r"|little parallelism|parallelism",
    places=(*marked(__file__), function("bad")),
    cures=r"at once|together|before (waiting|gathering|collecting)|submit (all|them all|the next|everything)"
    r"|as_completed"
    r"|out(side)? (of )?the loop|all (campaigns|flights|tasks|futures|batches)|one (gather|map)|single (gather|map)"
    r"|gather.{0,30}(once|after|end)",
    never={
        COMPUTED_AGAIN: "each flight is processed once",
        LONGER_TASKS: "tasks take up to a second",
        MORE_WORKERS: "those that are there are idle",
        MORE_MEMORY: "memory is plenty",
        HOLDS_GIL: "each worker has one thread",
    },
)


def flights_of(campaign: int) -> list[tuple[int, int]]:
    """Number and traces of the flights of a campaign: a long one, and sometimes a ferry flight."""
    flights = [(10 * campaign, TRACES)]
    if campaign % 3 == 0:
        flights.append((10 * campaign + 1, max(1, TRACES // 12)))
    return flights


def bed_echo(flight: tuple[int, int]) -> float:
    """Mean power of the strongest echo of a flight's traces, after pulse compression."""
    number, traces = flight
    random = np.random.default_rng(number)
    chirp = np.exp(1j * np.linspace(0.0, 60.0, 256) ** 2 / 40.0)
    matched = np.conj(np.fft.fft(chirp, SAMPLES))
    power = 0.0
    for start in range(0, traces, 50):
        count = min(50, traces - start)
        lines = random.standard_normal((count, SAMPLES))
        compressed = np.fft.ifft(np.fft.fft(lines, axis=1) * matched, axis=1)
        power += float((np.abs(compressed) ** 2).max(axis=1).sum())
    return power / traces


def bad(client: Client) -> float:
    total = 0.0
    for campaign in range(CAMPAIGNS):
        futures = client.map(bed_echo, flights_of(campaign))  # <- here
        total += sum(client.gather(futures))  # <- here
    return total


def good(client: Client) -> float:
    flights = [flight for campaign in range(CAMPAIGNS) for flight in flights_of(campaign)]
    return float(sum(client.gather(client.map(bed_echo, flights))))
