"""Loads on wind turbines, on machines that a batch system hands out one after the other.

source: esi-neuroscience/syncopy issue 438; of the same kind: dask/dask-jobqueue pull request 223, dask/distributed
        issue 2138
date:   2023-02-13 (pull request 223: 2019-01-16; issue 2138: its comment of 2019-04-12)
seen:   a computation does not start, for as long as one of the requested jobs is still in the queue, though most of the
        workers are there and have nothing to do.
cause:  the script waits until all workers it asked for have come.
cure:   start with the first worker (or with few); Dask gives tasks to others as they come.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer
from typing import Any

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    PROCESSES,
    SCALE,
    Expected,
    function,
    marked,
    scaled,
)

#: The machine that is there when the script starts; further ones come from the queue.
CLUSTER = {"n_workers": 1, "threads_per_worker": 1}
MACHINES = 3
#: Seconds after which the batch system has machines, and how many there are then.
SOON, LATE = 0.3, 10.0 * SCALE
TURBINES, SECONDS, RATE = scaled(80), 2_400, 400

EXPECTED = Expected(
    cause="the script waits for the last of three workers, while the others have nothing to do",
    place="wait_for_workers in bad",
    cure="start with the first worker: tasks go to further ones as they come",
    says=r"wait_for_workers|wait\w*\W+(\w+\W+){0,6}(workers?|machines?|jobs?|cluster)\b|(workers?|machines?|cluster"
    r"|threads?"
    r"|cores?)\W+(\w+\W+){0,8}(idle|idled|nothing to do|no (work|tasks?)|without (work|tasks?)|unused|not used|free)"
    r"|idle\W+(\w+\W+){0,6}(workers?|machines?|cluster)|before (the first|any|a first) task|no tasks? (yet|until|for"
    r"|at)"
    r"|start(ed|s)? late|late start|nothing (ran|runs|was running|is running|was submitted)"
    r"|first task\W+(\w+\W+){0,5}after"
    r"|client\W+(\w+\W+){0,6}(waits|waited|waiting)",
    places=(*marked(__file__), function("bad"), r"\bwait_for_workers\b"),
    cures=r"(start|begin|submit)\w*\W+(\w+\W+){0,8}(first|earlier|early|at once|right away|immediately|fewer|few"
    r"|those|one"
    r"|sooner|before|without)|fewer workers|(do not|don't|no need to|without|rather than|instead of) wait\w*"
    r"|n_workers ?="
    r" ?1|wait_for_workers\(1\)|as (they|workers) (come|arrive|join|connect)|(join|come|arrive)\w* later|drop the wait"
    r"|remove\W+(\w+\W+){0,3}wait",
    never={
        COMPUTED_AGAIN: "each task runs once",
        HOLDS_GIL: "one thread a worker",
        LOCK: "there is none",
        LONGER_TASKS: "tasks take tenths of a second",
        MORE_MEMORY: "there is enough",
        PROCESSES: "they have one thread each",
    },
)


@contextmanager
def batch_queue(client: Client) -> Iterator[None]:
    """Batch system that has a second machine soon, and a third one when somebody else is done with it."""
    cluster: Any = client.cluster
    timers = [Timer(SOON, cluster.scale, [MACHINES - 1]), Timer(LATE, cluster.scale, [MACHINES])]
    for timer in timers:
        timer.start()
    try:
        yield
    finally:
        for timer in timers:
            timer.cancel()
            timer.join()


def load_of(turbine: int) -> float:
    """Share of the strong gusts in the spectrum of the load on a mast."""
    rng = np.random.default_rng(turbine)
    wind = 9.0 + rng.standard_normal(SECONDS * RATE).cumsum() / 90.0
    load = np.where(wind > 0.0, wind, 0.0) ** 2
    power = np.abs(np.fft.rfft(load - load.mean())) ** 2
    ordered = np.sort(load + rng.standard_normal(load.size))
    gusts = np.sort(np.abs(np.fft.irfft(np.sqrt(power))))
    return float(power[: power.size // 8].sum() / power.sum() + ordered[-100:].mean() / (1.0 + gusts[-1]))


def loads(client: Client) -> float:
    return float(sum(client.gather(client.map(load_of, range(TURBINES)))))


def bad(client: Client) -> float:
    with batch_queue(client):
        client.wait_for_workers(MACHINES)  # <- here
        return loads(client)


def good(client: Client) -> float:
    with batch_queue(client):
        client.wait_for_workers(1)
        return loads(client)
