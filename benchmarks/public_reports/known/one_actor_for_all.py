"""An actor holds a model, and all requests go to it.

source: dask/dask issue 9000
date:   2022-04-29
seen:   work given to actors cannot be spread as that of tasks can: no balancing, nothing on the dashboard, and a worker
        has a single thread for actors.
cause:  an actor lives on one worker, and its methods run one after the other in one thread there; all other cores wait.
cure:   tasks, with a model in each worker (or an actor for each worker).
"""

from __future__ import annotations

from functools import cache

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
REQUESTS, ROUNDS = 20, scaled(220)

EXPECTED = Expected(
    cause="one actor does all the work, in one thread of one worker",
    place="the actor's method, or the line that calls it or waits for it",
    cure="tasks, or several actors",
    says=r"actor|(one|single|1|only one) (worker|thread|core|process)|idle|nothing to do|unused|other workers?|balanc"
    r"|in turn|serial|one (at a time|after (the other|another))|uneven|imbalance",
    places=(*marked(__file__), function("score"), r"Scorer"),
    cures=r"tasks?\b|actors?|submit|client\.map|spread|several|each worker|per worker|more than one|parallel|balanc",
    never={
        MORE_WORKERS: "the other worker does nothing already",
        LONGER_TASKS: "a call takes some tenths of a second",
        r"(?i)GIL contention": "each worker has one thread, and numpy releases the GIL",
    },
)


class Scorer:
    def __init__(self) -> None:
        self.weights = np.random.default_rng(0).standard_normal(100_000)

    def score(self, request: int) -> float:
        state = self.weights * (1 + request / 100)
        for _ in range(ROUNDS):
            state = np.sin(state * 1.1) + np.cos(state)  # <- here
        return float(state.mean())


def bad(client: Client) -> float:
    scorer = client.submit(Scorer, actor=True).result()  # <- here
    answers = [scorer.score(request) for request in range(REQUESTS)]  # <- here
    return float(sum(answer.result() for answer in answers))  # <- here


@cache
def scorer_here() -> Scorer:
    return Scorer()


def score_here(request: int) -> float:
    return scorer_here().score(request)


def good(client: Client) -> float:
    return float(sum(client.gather(client.map(score_here, range(REQUESTS)))))
