"""Calls of bats are handed to the workers as they are cut from the tape; two measures are taken of each.

source: dask/distributed issue 3333; of the same kind: alteryx/evalml issue 2095, dask/distributed issue 4770 (its
        workaround is the other way round: several calls of scatter where one is too large)
date:   2019-12-19 (issue 2095: 2021-04-06; issue 4770: 2021-04-29)
seen:   data come packet by packet; to scatter a packet to all workers takes far longer than to analyse it, and workers
        have little to do.
cause:  scatter(broadcast=True) of each packet is a call that waits for the scheduler and all workers, one by one.
cure:   scatter all packets (or many) at once, without broadcast, or hand small ones to the tasks.
"""

from __future__ import annotations

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
CALLS, SAMPLES = scaled(1_700), 4_096

EXPECTED = Expected(
    cause="the client waits for a scatter to all workers for each of many hundred calls, one after the other",
    place="the scatter in bad",
    cure="one scatter of all calls, without broadcast, or the calls as arguments",
    says=r"scatter|broadcast|replicat|round[- ]?trips?|client\W+(\w+\W+){0,8}(waits?|waited|waiting|blocked|sends?|sent"
    r"|submit\w*)|(submit\w*|sent|send\w*|handed|come|came|arriv\w+)\W+(\w+\W+){0,6}(one (by|at|after)|slowly|in turn"
    r"|singly"
    r"|piece by piece)|one (call|item|packet|array|task) (at a time|after)|many (calls|small)|workers?\W+(\w+\W+){0,8}"
    r"(idle|nothing to do|wait)",
    places=(*marked(__file__), function("bad"), r"\bscatter\b"),
    cures=r"(one|single) (call|scatter|time)|(all|many|several|them|whole list)\W+(\w+\W+){0,4}(at once|together"
    r"|in one)"
    r"|at once|\bonce\b|list\b|batch\w*|without (the )?broadcast|broadcast ?= ?false|(drop|remove|avoid|no|fewer"
    r"|less)\W+"
    r"(\w+\W+){0,3}(scatter|broadcast)|instead of scatter\w*|as (an )?arguments?|direct\w*|on the workers|together"
    r"|client\.map|hash ?= ?false|in advance|ahead|larger|bigger",
    never={
        COMPUTED_AGAIN: "each task runs once",
        HOLDS_GIL: "one thread a worker",
        LOCK: "there is none",
        SLEEP: "nobody sleeps",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "the workers have little to do",
        MORE_MEMORY: "there is enough",
    },
)


def tape() -> list[np.ndarray]:
    """Calls of bats, each of which falls from a high tone to a low one."""
    rng = np.random.default_rng(3333)
    time = np.linspace(0.0, 1.0, SAMPLES)
    high, fall = rng.uniform(400.0, 900.0, CALLS), rng.uniform(100.0, 300.0, CALLS)
    return [np.sin((high[call] - fall[call] * time) * time) + rng.normal(0.0, 0.1, SAMPLES) for call in range(CALLS)]


def loudness(call: np.ndarray) -> float:
    return float(np.sqrt((call**2).mean()))


def pitch(call: np.ndarray) -> float:
    """Middle of the tones of a call."""
    power = np.abs(np.fft.rfft(call)) ** 2
    return float((power * np.arange(power.size)).sum() / power.sum())


def bad(client: Client) -> float:
    measures = []
    for call in tape():
        sent = client.scatter(call, broadcast=True)  # <- here
        measures += [client.submit(loudness, sent), client.submit(pitch, sent)]
    return float(sum(client.gather(measures)))


def good(client: Client) -> float:
    sent = client.scatter(tape())
    return float(sum(client.gather(client.map(loudness, sent) + client.map(pitch, sent))))
