"""Firings of a kiln are computed in stages; the script looks from time to time whether a stage is done.

source: deepforge-dev/deepforge issue 205; of the same kind: sematic-ai/sematic pull request 655, apache/datafusion
        issue 697
date:   2016-06-03 (655: 2023-03-10; 697: 2021-07-08)
seen:   stages of a pipeline are short, and the pipeline takes long: whoever starts the next one looks every five
        seconds.
cause:  when a stage is done, nobody notices until the pause is over, and the workers have nothing to do.
cure:   wait for the stage itself (wait, gather, as_completed), or depend on it; at least a shorter pause.
"""

from __future__ import annotations

import time

import numpy as np
from distributed import Client, Future, wait

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
STAGES, SHELVES = scaled(5), 8
#: Pause between two looks, in seconds.
PAUSE = 2.5

EXPECTED = Expected(
    cause="the script sleeps between looks, and starts the next stage late",
    place="time.sleep() in finished",
    cure="wait for the futures instead of looking from time to time",
    says=r"sleep|poll|\bpaus(e|es|ed|ing)\b|(client|script).{0,40}(wait|idle|nothing)|between (the )?(batches|stages"
    r"|submissions"
    r"|computations)|nothing (was )?submitted|gaps?\b|late\b",
    places=(*marked(__file__), function("finished"), function("bad")),
    cures=r"\bwait\b|wait\(|as_completed|gather|result\(\)|shorter|callback|avoid the sleep|without (the )?sleep"
    r"|less often|more often"
    r"|instead of|depend|all (stages )?at once|submit .{0,40}(ahead|before|earlier|at once)|sooner|remove",
    never={
        MORE_WORKERS: "those there are have nothing to do",
        MORE_MEMORY: "a shelf is a number",
        LONGER_TASKS: "tasks are long enough",
        HOLDS_GIL: "nobody holds it",
    },
)


def fired(shelf: int, heat: float) -> float:
    """Heat of a shelf after a stage."""
    compute_for(0.05)
    return heat + float(np.cos(shelf)) / 10


def finished(futures: list[Future[float]]) -> bool:
    """True when all are done, after a while."""
    while not all(future.done() for future in futures):
        time.sleep(PAUSE)  # <- here
    return True


def bad(client: Client) -> float:
    heat = 1.0
    for stage in range(STAGES):
        futures = client.map(fired, range(stage, stage + SHELVES), heat=heat)
        finished(futures)  # <- here
        heat = float(np.mean(client.gather(futures)))
    return heat


def good(client: Client) -> float:
    heat = 1.0
    for stage in range(STAGES):
        futures = client.map(fired, range(stage, stage + SHELVES), heat=heat)
        wait(futures)
        heat = float(np.mean(client.gather(futures)))
    return heat
