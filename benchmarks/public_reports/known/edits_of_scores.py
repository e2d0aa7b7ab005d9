"""Scores of music are printed in other keys, from one big document.

source: dask/dask issue 1783
date:   2016-11-15
seen:   changing a big XML document many times, by delayed(), was 1.8 times slower than a plain loop and 4 times slower
        than multiprocessing.Pool.map.
cause:  the document is an argument of each delayed call, so it is pickled and sent for each task; Pool.map pickles it
        once for each batch.
cure:   make the document one task of the graph: wrap it in delayed() once, and pass that.
"""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement

import dask
from distributed import Client

from benchmarks.public_reports.programs import LONGER_TASKS, MORE_WORKERS, TWO_BY_TWO, Expected, marked, scaled

CLUSTER = TWO_BY_TWO
KEYS = scaled(60)
BARS = 14_000

EXPECTED = Expected(
    cause="every delayed call carries the whole document, which is pickled and unpickled for each task",
    place="the call of the delayed function",
    cure="wrap the document in delayed() once (or scatter it), and pass that",
    says=r"pickl|seriali[sz]|\bcarr(y|ies)\b|embed|by value"
    r"|\b(large|big|heavy|\d+(\.\d+)? [kMG]i?B)\b.{0,50}\b(tasks?|functions?|objects?|graphs?|arguments?)\b",
    places=(*marked(__file__), r"\bhighest_in_key\b"),
    cures=r"scatter|delayed\(|wrap|once|future|as data|load .{0,20}(on|in) the (worker|task)",
    never={
        LONGER_TASKS: "it is the document that is sent, not the number of tasks",
        MORE_WORKERS: "workers wait for the document",
    },
)


def score() -> Element:
    music = Element("score")
    for i in range(BARS):
        bar = SubElement(music, "bar", number=str(i), notes=" ".join(str(i * k % 88) for k in (3, 5, 7)))
        bar.text = f"la {i % 13}"
    return music


def highest_in_key(document: Element, key: int) -> float:
    bars = [bar for bar in document if int(bar.attrib["number"]) % KEYS == key]
    return sum(max(map(int, bar.attrib["notes"].split())) + key for bar in bars) / len(bars)


def bad(client: Client) -> float:
    document = score()
    printed = [dask.delayed(highest_in_key)(document, key) for key in range(KEYS)]  # <- here
    return sum(dask.compute(*printed))


def good(client: Client) -> float:
    document = dask.delayed(score)()
    printed = [dask.delayed(highest_in_key)(document, key) for key in range(KEYS)]
    return sum(dask.compute(*printed))
