"""Charters of an abbey in one marked-up edition: places named in each of them.

source: dask/dask issue 1783
date:   2016-11-15
seen:   parts of a large XML text, changed by delayed functions, took 1.8 times as long as in a loop, and four times as
        long as with a pool of processes; the processes were far from busy.
cause:  the text is an argument of each delayed call, so all of it is serialized and sent for each task anew, where
        the pool had it once for each batch.
cure:   hand the text over once, as a delayed object (or scattered) that all tasks refer to.
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

import dask
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ()
CLUSTER = TWO_BY_TWO
CHARTERS = scaled(500)
WITNESSES = 220

EXPECTED = Expected(
    cause="the whole text is sent with each task",
    place="the line of the delayed call, or of compute",
    cure="the text once: delayed or scattered",
    says=r"(large|big|same|whole|MB|MiB|GB|GiB|bytes|arguments?|data|text).{0,80}(each|every|per|all"
    r"|with) (the )?(tasks?|calls?)"
    r"|(each|every|per|all) (the )?(tasks?|calls?).{0,80}(large|big|same|whole|MB|MiB|GB|GiB|bytes|arguments?|data)"
    r"|\bgraph.{0,60}(large|big|data|MB|MiB|GB|GiB|bytes)|(large|big|data|MB|MiB|GB|GiB|bytes).{0,60}\bgraph"
    r"|serial(is|iz)|pickl",
    places=(*marked(__file__), function("places_in")),
    cures=r"scatter|\bonce\b|delayed\(|as a future|read .{0,30}(in|on)|load .{0,30}(in|on)|only (the|its) part|part of"
    r"|smaller arguments?|pass .{0,30}(future|name|path|part)",
    never={
        COMPUTED_AGAIN: "each charter is read once",
        LONGER_TASKS: "it isn't their number that costs",
        MORE_WORKERS: "workers wait for what is sent",
        MORE_MEMORY: "memory is plenty",
        HOLDS_GIL: "workers wait for what is sent",
    },
)


def edition() -> str:
    """Text of all charters."""
    parts = ["<edition>"]
    for number in range(CHARTERS):
        names = "".join(
            f"<witness rank='{rank}'><place>Vill {(number * rank) % 97}</place></witness>" for rank in range(WITNESSES)
        )
        parts.append(f"<charter n='{number}'>{names}</charter>")
    parts.append("</edition>")
    return "".join(parts)


def places_in(text: str, number: int) -> int:
    """Number of different places in a charter."""
    first = text.index(f"<charter n='{number}'>")
    last = text.index("</charter>", first) + len("</charter>")
    charter = ET.fromstring(text[first:last])
    return len({place.text for place in charter.iter("place")})


def bad(client: Client) -> float:
    text = edition()
    counts = [dask.delayed(places_in)(text, number) for number in range(CHARTERS)]  # <- here
    return float(sum(dask.compute(*counts)))  # <- here


def good(client: Client) -> float:
    text = dask.delayed(edition())
    counts = [dask.delayed(places_in)(text, number) for number in range(CHARTERS)]
    return float(sum(dask.compute(*counts)))
