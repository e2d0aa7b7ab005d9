"""Tasks for the one camera are submitted, and then others that need no more than a core.

source: dask/distributed issue 9108; dask/distributed issue 6467
date:   2025-09-09
seen:   tasks that ask for a resource are given to a worker far beyond what it has of it, and are shown as processing
        while they wait; the asker's cluster takes its time.
cause:  the scheduler sends all tasks for the camera to the worker at once, and counts them as its load, though the
        worker can run one at a time: it holds back the plain tasks, and a thread is idle.
cure:   let the plain tasks ask for something as well, of which there is enough, so that they are not held back (or
        submit them first).

The worker has two threads, and its tasks compute without the GIL. There are as many tasks of one kind as of the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import LONGER_TASKS, MORE_WORKERS, PROCESSES, Expected, function, marked, scaled

CLUSTER: dict[str, Any] = {"n_workers": 1, "threads_per_worker": 2, "resources": {"camera": 1, "core": 2}}
SHOTS, ROUNDS = 16, scaled(800)

EXPECTED = Expected(
    cause="tasks for the camera fill the worker's places, the plain ones are held back, and a thread is idle",
    place="the tasks, where they are submitted or waited for",
    cure="resources for the plain tasks too, or submit them first",
    says=r"resource|constrain|restrict|camera|idle|(one|1|single) (thread|core|task)s? (is|at|of)|free|wait\w* (for|in)"
    r"|one at a time|not (all|both)|in turn|queue|held|blocked|parallel|saturation",
    places=(*marked(__file__), function("expose"), function("develop")),
    cures=r"resource|restrict|constrain|annotat|without|order|priorit|another worker|separate|more of|drop|limit|first"
    r"|saturation|earlier",
    never={
        LONGER_TASKS: "a task takes half a second",
        MORE_WORKERS: "a thread of those there are has nothing to do",
        PROCESSES: "the tasks release the GIL",
    },
)


def work(seed: int) -> float:
    state = np.random.default_rng(seed).standard_normal(50_000)
    for _ in range(ROUNDS):
        state = np.sin(state * 1.1 + 0.5)  # <- here
    return float(state.mean())


def expose(shot: int) -> float:
    return work(shot)  # <- here


def develop(shot: int) -> float:
    return work(1_000 + shot)  # <- here


def bad(client: Client) -> float:
    exposed = client.map(expose, range(SHOTS), resources={"camera": 1})  # <- here
    developed = client.map(develop, range(SHOTS))  # <- here
    return float(sum(client.gather(exposed)) + sum(client.gather(developed)))  # <- here


def good(client: Client) -> float:
    exposed = client.map(expose, range(SHOTS), resources={"camera": 1})
    developed = client.map(develop, range(SHOTS), resources={"core": 1})
    return float(sum(client.gather(exposed)) + sum(client.gather(developed)))
