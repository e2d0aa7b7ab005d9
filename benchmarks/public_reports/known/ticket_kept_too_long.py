"""Tasks that may download one at a time keep their ticket while they compute.

source: dask/distributed issue 2247 (the wish behind it: issue 800)
date:   2018-09-12
seen:   a server admits a few connections, so each task takes a ticket from a Queue, downloads, works, and puts the
        ticket back. Most tasks sit in get(), and print that they could not get one.
cause:  the ticket is for the download, which is short, and is held for the work as well, which is long: threads wait
        for each other, with cores idle.
cure:   put the ticket back as soon as the download is done.
"""

from __future__ import annotations

import time

import numpy as np
from distributed import Client, Queue

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_TWO,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
SCENES = scaled(14)
DOWNLOAD, WORK = 0.05, 0.45

EXPECTED = Expected(
    cause="tasks wait for a ticket that another task holds while it computes",
    place="the get() of the queue, or the function with it",
    cure="give the ticket back before the work",
    says=r"\b(wait|waits|waiting|blocked|blocks|block)\b.{0,60}\b(queue|lock|ticket|each other|another"
    r"|other tasks?|get\(|semaphore"
    r"|result|condition|event|synchroni)|\bqueue\b|one (at a time|after the other|by one)|in turn|serialized|mutual",
    places=(*marked(__file__), function("indices"), function("sync")),
    cures=r"(hold|held|keep|kept)\b.{0,30}\b(short|less)|release|(give|put|return)\w* .{0,20}back|earlier"
    r"|before the|shorter"
    r"|more tickets|outside|without (the lock|waiting)|only (for|while|around)|resources",
    never={
        MORE_WORKERS: "threads wait already",
        LONGER_TASKS: "tasks take half a second",
        HOLDS_GIL: "the work is done without it",
    },
)


def download(scene: int) -> np.ndarray:
    """Wait for a server."""
    time.sleep(DOWNLOAD)
    return np.arange(scene, scene + 1000)


def greenness(scene: np.ndarray) -> int:
    compute_for(WORK)
    return int(scene.sum() % 1013)


def indices(number: int, tickets: Queue) -> int:
    ticket = tickets.get()  # <- here
    scene = download(number)
    green = greenness(scene)
    tickets.put(ticket)
    return green


def indices_after(number: int, tickets: Queue) -> int:
    ticket = tickets.get()
    scene = download(number)
    tickets.put(ticket)
    return greenness(scene)


def bad(client: Client) -> float:
    tickets = Queue("tickets-bad", client=client)
    tickets.put(1)
    futures = client.map(indices, range(SCENES), tickets=tickets)  # <- here
    return float(sum(client.gather(futures)))  # <- here


def good(client: Client) -> float:
    tickets = Queue("tickets-good", client=client)
    tickets.put(1)
    futures = client.map(indices_after, range(SCENES), tickets=tickets)
    return float(sum(client.gather(futures)))
