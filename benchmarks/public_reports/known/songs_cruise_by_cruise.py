"""Recordings of whales are searched for songs, cruise by cruise, and each cruise gets a catalogue.

source: englacial/xopr issue 8; its cure: pull request 10
date:   2025-08-26
seen:   of twenty workers two to five have something to do at best, on a server; on a laptop it seemed better.
cause:  flights of one campaign run in parallel, and campaigns one after the other: as a campaign has few flights of
        very different length, most workers wait for its longest one, and all of them while its catalogue is made.
cure:   work of all campaigns at once, catalogues included.

Here campaigns are cruises, and flights are recordings.
"""

from __future__ import annotations

import json

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
CRUISES = scaled(10)
#: Seconds of work for each recording of a cruise.
RECORDINGS = (0.6, 0.02, 0.01)
SONGS = 8_000

EXPECTED = Expected(
    cause="each cruise waits for its longest recording, and then for its catalogue, before the next one starts",
    place="gather in the loop over cruises in bad, or the recordings and catalogues it waits for",
    cure="submit recordings of all cruises at once, and catalogues as tasks as well",
    says=r"idle|wait|barrier|one after (the other|another)|in turn\b|each (round|batch|cruise|step|call|group|set)"
    r"|(few|too few) tasks|(not enough|too little) (tasks|work)|parallelism|(longest|last|straggl|slowest)|uneven"
    r"|unbalanced|imbalance|utili[sz]ation|(loop|iteration).{0,40}(gather|result|comput)|nothing to do|gaps? between"
    r"|pauses?",
    places=(*marked(__file__), function("searched"), function("catalogue"), function("bad")),
    cures=r"(at once|all at the same time|all together|in one (go|call))|(submit|start|send).{0,60}(all|before|next"
    r"|earlier|first)|as_completed|before (you )?(wait|gather|collect)|one (single )?(gather|compute)|(gather|collect"
    r"|wait|compute).{0,50}(once|at the end|after the loop|outside)|don't wait|without waiting|overlap|out of the loop"
    r"|split|smaller (pieces|tasks)",
    never={
        LONGER_TASKS: "tasks are long enough, or too long",
        MORE_WORKERS: "of those that are there one waits",
        HOLDS_GIL: "one thread a worker",
        MORE_MEMORY: "there is enough",
        COMPUTED_AGAIN: "each recording is searched once",
        LOCK: "there is none",
    },
)


def searched(cruise: int, recording: int) -> list[float]:
    """Times of songs in a recording."""
    compute_for(RECORDINGS[recording])
    random = np.random.default_rng(cruise * len(RECORDINGS) + recording)
    return [float(time) for time in random.random(SONGS // (recording + 1))]


def catalogue(found: list[list[float]]) -> float:
    """Length of the catalogue of a cruise, with songs in order of time."""
    songs = sorted((time, number) for number, times in enumerate(found) for time in times)
    items = [{"recording": number, "time": round(time, 4), "properties": {"seen": True}} for time, number in songs]
    return float(len(json.dumps(items)))


def bad(client: Client) -> float:
    length = 0.0
    for cruise in range(CRUISES):
        futures = client.map(searched, [cruise] * len(RECORDINGS), range(len(RECORDINGS)))
        found = client.gather(futures)  # <- here
        length += catalogue(found)  # <- here
    return length


def good(client: Client) -> float:
    catalogues = []
    for cruise in range(CRUISES):
        futures = client.map(searched, [cruise] * len(RECORDINGS), range(len(RECORDINGS)))
        catalogues.append(client.submit(catalogue, futures))
    return float(sum(client.gather(catalogues)))
