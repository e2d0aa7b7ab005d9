"""Tasks that need one of two kilns, or one of two scales, hold threads while they wait for their turn.

source: dask/distributed issue 4104
date:   2020-09-10
seen:   a semaphore limits how many tasks of a kind run at once; all workers are occupied by tasks that wait for it,
        and do nothing, while there are other tasks that could run.
cause:  a task takes the semaphore when it runs already: as long as it waits it has a thread, which others lack.
cure:   let the scheduler do the waiting: resources of the workers, of which each task of that kind needs one.
"""

from __future__ import annotations

import time

import numpy as np
from distributed import Client, Semaphore

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    PROCESSES,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = {"n_workers": 1, "threads_per_worker": 6}
GOOD_CLUSTER = {**CLUSTER, "resources": {"kiln": 2, "scale": 2}}
POTS, ROUNDS = scaled(24), 40
#: Seconds that the controls of a kiln, and a scale, need for an answer.
FIRING, WEIGHING = 0.25, 0.25

EXPECTED = Expected(
    cause="tasks wait for a semaphore of two leases within the task: four of the six threads wait, first for a kiln and"
    " then for a scale, while tasks that need neither are in the queue",
    place="the with statement on the semaphore in fired and weighed, or the maps of these tasks",
    cure="worker resources (resources={'kiln': 1}) instead of a semaphore, so that waiting tasks hold no thread",
    says=r"semaphore|leases?\b|\block|acquire|resource"
    r"|(threads?|tasks?|workers?|slots?)\b.{0,40}\b(wait|block|occup|hold|idle|held)"
    r"|wait(s|ing)? (for|on|in|within|inside)",
    places=(*marked(__file__), function("fired"), function("weighed"), function("bad"), r"[Ss]emaphore|acquire"),
    cures=r"resource|annotat|secede|more (leases|threads)|(without|no|not|instead of|rather than|outside)\b.{0,40}"
    r"(semaphore|lock|wait|hold|thread)|(order|mix|interleav|alternat|fewer)\b.{0,40}(tasks?|submi\w*)"
    r"|raise .{0,30}(leases|limit)"
    r"|priorit|before the (task|lock|semaphore)|scheduler",
    never={
        COMPUTED_AGAIN: "nothing is",
        HOLDS_GIL: "threads wait for a semaphore",
        PROCESSES: "it is not the GIL",
        LONGER_TASKS: "the tasks are long enough",
        MORE_MEMORY: "there is enough",
    },
)


def answer_of_kiln(pot: int) -> float:
    """What the controls of a kiln report, after some time: they are outside, and no core of ours works meanwhile."""
    time.sleep(FIRING)
    return 1000.0 + pot % 7


def answer_of_scale(pot: int) -> float:
    time.sleep(WEIGHING)
    return 1.5 + 0.1 * (pot % 5)


def fired(pot: int, kilns: Semaphore) -> float:
    with kilns:  # <- here
        return answer_of_kiln(pot)


def weighed(pot: int, scales: Semaphore) -> float:
    with scales:  # <- here
        return answer_of_scale(pot)


def glazed(pot: int) -> float:
    """Thickness of the glaze as it flows, without anything from outside."""
    surface = np.linspace(0.0, 1.0 + pot % 3, 60_000)
    for _ in range(ROUNDS):
        surface = 0.5 * surface + 0.25 * np.cos(surface) + 0.1
    return float(surface.mean())


def bad(client: Client) -> float:
    kilns = Semaphore(max_leases=2, name="kilns")
    scales = Semaphore(max_leases=2, name="scales")
    pots = list(range(POTS))
    firings = client.map(fired, pots, kilns=kilns, priority=2)  # <- here
    weights = client.map(weighed, pots, scales=scales, priority=1)  # <- here
    glazes = client.map(glazed, range(POTS * 2))
    return float(sum(client.gather(firings + weights + glazes)))  # <- here


def good(client: Client) -> float:
    pots = list(range(POTS))
    answers = []
    for pot in pots:
        answers.append(client.submit(answer_of_kiln, pot, resources={"kiln": 1}))
        answers.append(client.submit(answer_of_scale, pot, resources={"scale": 1}))
    glazes = client.map(glazed, range(POTS * 2))
    return float(sum(client.gather(answers + glazes)))
