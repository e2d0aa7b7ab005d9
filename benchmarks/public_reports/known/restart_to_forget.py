"""All workers are restarted after each batch, to be sure that its results are gone.

source: dask/distributed issue 2340; a like case: dask/distributed issue 8534
date:   2018-11-07 (the like case 2024-02-26)
seen:   a long-running program wants to forget what is left of one batch before the next, and calls restart() in its
        loop. With many workers that took very long, and often timed out.
cause:  a restart ends and starts all worker processes, each of which imports its libraries anew; meanwhile nothing is
        computed.
cure:   drop the futures of the batch: workers forget results that no future refers to, and need no restart.
"""

from __future__ import annotations

import numpy as np
from distributed import Client, wait

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
BATCHES = scaled(4)
SCENES = 8

EXPECTED = Expected(
    cause="the program restarts all workers after each batch, and waits until they are back, during which none"
    " computes",
    place="the call of restart() in the loop",
    cure="release the futures instead of restarting the workers",
    says=r"restart|(start|import)\w* (up )?(again|anew|of (the )?(workers?|process(es)?))|new (workers?|process(es)?)"
    r"|workers? (\w+ )?(left|lost|gone|clos|remov|disappear|replac|miss|join|came|come|start)"
    r"|(no|without|lack of|wait\w* for) (a |any |the |new )?workers?|lost workers?|startup|start-up",
    places=(*marked(__file__), function("restart")),
    cures=r"(without|instead of|avoid|not|fewer|less|rather than|no) (\w+ ){0,3}restart"
    r"|restart\w* (less|only|once|fewer)"
    r"|releas|\bdel\b|drop|delet|cancel|forget|keep (the |all )?(workers|process)|reuse",
    never={
        LONGER_TASKS: "the tasks are long enough",
        MORE_WORKERS: "the more workers there are, the longer a restart takes",
        r"(?i)out of memory|killed|exceed\w* (its|the|their) memory": "no worker died: the program restarts them",
    },
)


def classify(scene: int) -> np.ndarray:
    compute_for(0.1)
    return np.full(200_000, scene % 5, dtype=np.int64)


def area(classes: np.ndarray) -> int:
    return int(classes.sum())


def bad(client: Client) -> float:
    total = 0
    for batch in range(BATCHES):
        scenes = client.map(classify, range(batch * SCENES, (batch + 1) * SCENES))
        wait(scenes)
        total += sum(client.gather(client.map(area, scenes)))
        client.restart()  # <- here
    return float(total)


def good(client: Client) -> float:
    total = 0
    for batch in range(BATCHES):
        scenes = client.map(classify, range(batch * SCENES, (batch + 1) * SCENES))
        wait(scenes)
        total += sum(client.gather(client.map(area, scenes)))
        del scenes
    return float(total)
