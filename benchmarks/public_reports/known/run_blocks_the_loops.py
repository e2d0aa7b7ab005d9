"""A function that takes long is called on all workers with client.run, while their tasks run.

source: dask/distributed issue 7495
date:   2023-01-20
seen:   a function that waits for ten seconds, called with client.run: the workers' logs say that their event loop was
        unresponsive for as long. As a task, it leaves the loop alone.
cause:  client.run calls a function in the worker's event loop. Meanwhile the worker starts no task and answers nobody.
cure:   submit it as a task to each worker, or make it a coroutine that awaits.
"""

from __future__ import annotations

import time

from distributed import Client

from benchmarks.public_reports.programs import LONGER_TASKS, TWO_BY_TWO, Expected, compute_for, function, marked, scaled

CLUSTER = TWO_BY_TWO
TASKS, REFRESHES = scaled(70), scaled(3)

EXPECTED = Expected(
    cause="client.run blocks the workers' event loops, so that they start no task",
    place="the call of client.run, or its function",
    cure="submit it to each worker, or await in it",
    says=r"client\.run|\brun\(|event loops?\b.*\b(block|stood|stand|sle[ep]|busy|held)"
    r"|(block|stood|stand|sle[ep]|busy|held)\w*\b.*\bevent loops?",
    places=(*marked(__file__), function("fetch_catalogue")),
    cures=r"submit|(in|as) a (task|thread)|async|await|coroutine|plugin|(own|another|separate) thread",
    never={
        r"(?i)hold the GIL": "nobody holds it: the loops wait",
        LONGER_TASKS: "the tasks are long enough",
        r"(?i)more threads": "the free threads get no task",
    },
)


def fetch_catalogue() -> int:
    """Ask a service, which takes its time."""
    time.sleep(1.5)
    return 1


def analyse(number: int) -> int:
    compute_for(0.1)
    return number % 5


def bad(client: Client) -> float:
    futures = client.map(analyse, range(TASKS))
    fetched = 0
    for _ in range(REFRESHES):
        fetched += sum(client.run(fetch_catalogue).values())  # <- here
    return fetched + sum(client.gather(futures))


def good(client: Client) -> float:
    futures = client.map(analyse, range(TASKS))
    fetched = 0
    for _ in range(REFRESHES):
        asked = [
            client.submit(fetch_catalogue, workers=[worker], pure=False, priority=1) for worker in client.nthreads()
        ]
        fetched += sum(client.gather(asked))
    return fetched + sum(client.gather(futures))
