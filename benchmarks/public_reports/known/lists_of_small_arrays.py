"""Tasks return long lists of small arrays, each of which is serialized by itself.

source: dask/distributed issue 6368 and pull request 7029
date:   2022-05-18 (pull request 2022-09-10)
seen:   a task returns a list of a million numbers, eight megabytes. To get it takes twenty seconds and much memory,
        where a fraction of a second was expected.
cause:  to send a list, Dask goes into it and serializes each item by itself, with a header of its own, if the items are
        of a kind for which it has a serializer. That costs far more than the data, in the event loops of both sides.
cure:   return one array (or pickle the list as a whole): 0.13 s instead of 14 s in the pull request.
"""

from __future__ import annotations

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
REGIONS = scaled(8)
TRACKS = 10_000

EXPECTED = Expected(
    cause="each of 10,000 small arrays in the list that a task returns is serialized by itself, and so read again",
    place="tracks (its return value), or the gather() that receives the lists",
    cure="return one array (or table) instead of a list of many small ones",
    says=r"serial|pickl|unpack|(many|small|\d,?\d*) (\w+ )?(small )?(objects|arrays|items|pieces|elements|frames)"
    r"|(gather|transfer|receiv|send)\w*.{0,40}\b(results?|long|most|time|slow|wait)|event loop",
    places=(*marked(__file__), function("tracks")),
    cures=r"one (\w+ )?(array|table|frame|object|buffer)|single (\w+ )?(array|table|frame|object|buffer)|stack"
    r"|concatenat"
    r"|DataFrame|as a whole|NumPy array|2-?d|fewer (\w+ )?(objects|arrays|items|pieces)|bytes|Arrow"
    r"|summar|reduc\w+ .*(worker|task)|smaller results?|return (less|fewer)",
    never={
        MORE_WORKERS: "the client reads the lists one after the other, whoever sends them",
        HOLDS_GIL: "the tasks themselves run without the GIL, one in each process",
        r"(?i)(compress|network bandwidth|slow network)": "there is less than a megabyte in each list",
    },
)


def positions(region: int) -> np.ndarray:
    compute_for(0.1)
    return np.arange(TRACKS * 10).reshape(TRACKS, 10) % (region + 2)


def tracks(region: int) -> list[np.ndarray]:
    return [track.copy() for track in positions(region)]  # <- here


def bad(client: Client) -> float:
    lists = client.gather(client.map(tracks, range(REGIONS)))  # <- here
    return float(sum(int(track[-1]) for tracks_of in lists for track in tracks_of))


def good(client: Client) -> float:
    arrays = client.gather(client.map(positions, range(REGIONS)))
    return float(sum(int(array[:, -1].sum()) for array in arrays))
