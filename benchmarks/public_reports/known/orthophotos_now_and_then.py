"""Orthophotos that are sharpened a few at a time; the script looks once a second which of them are done.

source: nipy/nipype issue 3104, pull request 2317; of the same kind: eth-cscs/pyfirecrest pull request 99
date:   2019-11-21 (pull request 2317: 2017-11-30; pyfirecrest: undated, of 2024)
seen:   a workflow of many short jobs hardly uses the machine: between a job's end and the next one's start nothing
        happens for a second or two.
cause:  the loop that hands out jobs sleeps for a fixed time between its looks at what is done. Jobs shorter than that
        wait for the next look, and so do the workers.
cure:   be told when a job is done (as_completed) instead of looking now and then; or hand out more at once.
"""

from __future__ import annotations

import time

import numpy as np
from distributed import Client, Future, as_completed

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LOCK,
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
PHOTOS, SIDE, ROUNDS, AT_ONCE = scaled(44), 1_000, 2, 4
#: Seconds between two looks.
INTERVAL = 1.0

EXPECTED = Expected(
    cause="the script sleeps for a second between two looks at its futures, and the workers have nothing to do"
    " meanwhile",
    place="time.sleep in bad, or the submit there",
    cure="as_completed (or wait) in place of sleeping; or more tasks handed out at once",
    says=r"sleep|poll|(script|client|main)\b.{0,80}\b(wait|idle|pause|nothing|asleep|submit|hands?|late)"
    r"|(workers?|threads?|cores?|cluster)\W+(\w+\W+){0,8}(idle|nothing to do|no (work|tasks?)|without (work|tasks?)"
    r"|unused|not used|wait\w*|starv\w*)|idle\W+(\w+\W+){0,6}(workers?|threads?|cores?|cluster)|no tasks? to",
    places=(*marked(__file__), function("bad"), r"\bsleep\b"),
    cures=r"as_completed|sleep|poll|\bwait\(|futures? (is|are) done|as (soon as )?(they|it|each|futures?)\b.{0,40}"
    r"\b(done|finish|complete)|submit|more\b.{0,40}\bat once|ahead|callback|shorter interval|in advance",
    never={
        COMPUTED_AGAIN: "each task runs once",
        HOLDS_GIL: "one thread a worker",
        LOCK: "there is none",
        LONGER_TASKS: "tasks are not the cause, their number is given",
        MORE_MEMORY: "there is enough",
        PROCESSES: "they have one thread each",
    },
)


def sharpen(photo: int) -> float:
    rng = np.random.default_rng(photo)
    image = rng.random((SIDE, SIDE))
    for _ in range(ROUNDS):
        blurred = (np.roll(image, 1, 0) + np.roll(image, -1, 0) + np.roll(image, 1, 1) + np.roll(image, -1, 1)) / 4.0
        image = np.clip(image + 0.4 * (image - blurred), 0.0, 1.0)
    return float(image.std())


def bad(client: Client) -> float:
    to_do = list(range(PHOTOS))
    under_way: list[Future[float]] = []
    total = 0.0
    while to_do or under_way:
        done = [future for future in under_way if future.done()]
        under_way = [future for future in under_way if future not in done]
        total += sum(client.gather(done))
        while to_do and len(under_way) < AT_ONCE:
            under_way.append(client.submit(sharpen, to_do.pop()))  # <- here
        time.sleep(INTERVAL)  # <- here
    return total


def good(client: Client) -> float:
    to_do = list(range(PHOTOS))
    under_way = as_completed([client.submit(sharpen, to_do.pop()) for _ in range(min(AT_ONCE, PHOTOS))])
    total = 0.0
    for future in under_way:
        if to_do:
            under_way.add(client.submit(sharpen, to_do.pop()))
        total += future.result()
    return total
