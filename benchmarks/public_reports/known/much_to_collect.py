"""Tasks make very many small Python objects in workers that already hold millions of them.

source: dask/distributed issue 2801; also dask/distributed issues 2502 and 4987
date:   2019-06-25 (the others 2019-02-04 and 2021-07-09)
seen:   the workers kept warning that full garbage collections took a third of the CPU time, though memory was ample;
        other thresholds for the collector did not help, nor did more memory, fewer workers or calling the collector.
cause:  each full collection visits all container objects that are alive; a worker holding millions of them pays that
        again and again while its tasks make and drop many more.
cure:   the threads end without one; they point at the workload (hold fewer Python objects, use arrays) and measure
        what the collector costs by turning it off. Here: freeze the lasting objects, so that they are not visited.
"""

from __future__ import annotations

import functools
import gc

from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
BATCHES = scaled(24)
RECORDS = 150_000
ARTICLES = 1_000_000

EXPECTED = Expected(
    cause="the cyclic garbage collector takes a large share of the workers' CPU time: full collections visit the"
    " millions"
    " of lasting objects of catalogue again and again, because bill makes hundreds of thousands of containers each"
    " time",
    place="catalogue() (a million dicts and lists that stay in each worker) and the list of dicts made in bill; garbage"
    " collection time within the tasks of bill",
    cure="hold fewer container objects (arrays, an Arrow or pandas table, plain numbers instead of a dict with a list"
    " each), or gc.freeze() after the lasting objects are made / collect less often",
    says=r"garbage|\bgc\b|collector|collections\b|cyclic",
    places=(*marked(__file__), function("catalogue"), function("bill")),
    cures=r"(fewer|less) (\w+ ){0,3}(objects|containers|dicts|lists)|arrays?\b|arrow|pandas|numpy|tables?\b|column"
    r"|freeze"
    r"|less often|rarely|seldom|threshold|disable|(turn|switch) (it )?off|plain numbers|tuples|slots",
    never={
        MORE_MEMORY: "memory is ample",
        r"(?i)memory leak": "nothing leaks",
        r"(?i)\bcall gc\.collect|gc\.collect\(\) (in|after|at)": "it would be yet another collection",
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        LONGER_TASKS: "the tasks are long enough",
    },
)


@functools.cache
def catalogue(frozen: bool) -> dict:
    """Once for each worker process."""
    if frozen:
        gc.disable()
    articles = {number: {"price": number * 7 % 1000, "group": [number % 13]} for number in range(ARTICLES)}  # <- here
    if frozen:
        gc.freeze()
        gc.enable()
    return articles


def bill(batch: int, frozen: bool) -> int:
    articles = catalogue(frozen)
    first = batch * 7919
    records = [{"article": (first + i * 31) % ARTICLES, "counts": [i % 3, i % 5]} for i in range(RECORDS)]  # <- here
    return sum(articles[record["article"]]["price"] * sum(record["counts"]) for record in records)


def bad(client: Client) -> float:
    return sum(client.gather(client.map(bill, range(BATCHES), frozen=False)))


def good(client: Client) -> float:
    return sum(client.gather(client.map(bill, range(BATCHES), frozen=True)))
