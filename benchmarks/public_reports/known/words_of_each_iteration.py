"""Orbits are fitted to observations of asteroids by iteration; what the fits log is forwarded to the client, in a file.

source: dask/distributed pull requests 7276 and 5217 (their remarks on loggers that talk much); issue 4978
date:   2022-11-09 (issue 4978: 2021-06-25)
seen:   logs of tasks are wanted at the client; with all of their messages, the cluster has more to do with these than
        with the tasks.
cause:  each record of a task's logger, at DEBUG, becomes a message from the worker to the scheduler and from there to
        the client: some thousand of them a task, before which the task does not count as done.
cure:   forward at a coarser level (INFO: a record for each fit), or log to files on the workers.
"""

from __future__ import annotations

import logging

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
ASTEROIDS, ITERATIONS, OBSERVATIONS = 12, scaled(24_000), 400
NAME = "orbits"
LOGGER = logging.getLogger(NAME)
LOGGER.setLevel(logging.DEBUG)

EXPECTED = Expected(
    cause="each iteration's record is forwarded over the scheduler to the client: tens of thousands of messages",
    place="the debug in fit, or forward_logging at DEBUG",
    cure="forward at a coarser level (INFO), log less often, in one record a task, or to a file on the worker",
    says=r"\blog(s|ged|ging|gers?)?\b|log_event|records?\b|forward|\bmessages?\b|\bdebug\b",
    places=(*marked(__file__), function("fit"), function("forward_logging"), function("log_event")),
    cures=r"\blevels?\b|\bINFO\b|WARNING|(fewer|less|not|one|once|every|each|sum up|rare|only)[^\n]{0,40}"
    r"(log|record|message|event|iteration|often|forward)|log (less|to|in|only|once)|\bfiles?\b|batch|aggregat|summar"
    r"|without (logging|forwarding|debug)|unforward|turn off|switch off|disable|silence",
    never={
        MORE_WORKERS: "both cores are busy",
        MORE_MEMORY: "there is enough",
        COMPUTED_AGAIN: "each task runs once",
        LOCK: "it is not a lock that is waited for",
        SLEEP: "nothing sleeps",
    },
)


def fit(asteroid: int) -> float:
    """Phase and amplitude of an asteroid's motion, by steepest descent, as one number."""
    rng = np.random.default_rng(asteroid)
    times = np.sort(rng.uniform(0.0, 6.0, OBSERVATIONS))
    seen = 2.0 * np.sin(times + 0.3) + rng.normal(0.0, 0.1, OBSERVATIONS)
    amplitude, phase = 1.0, 0.0
    misfit = np.inf
    for iteration in range(ITERATIONS):
        wave = np.sin(times + phase)
        rest = amplitude * wave - seen
        amplitude -= 0.01 * float(rest @ wave) / OBSERVATIONS
        phase -= 0.01 * float(rest @ np.cos(times + phase)) * amplitude / OBSERVATIONS
        misfit = float(rest @ rest)
        LOGGER.debug("asteroid %d, iteration %d: misfit %.6f", asteroid, iteration, misfit)  # <- here
    LOGGER.info("asteroid %d: misfit %.6f", asteroid, misfit)
    return amplitude + phase + misfit / OBSERVATIONS


def fits(client: Client, level: int) -> float:
    """All fits, with what they log at a level or above it in a file of the client."""
    handler = logging.FileHandler(folder("words_of_each_iteration") / f"fits{level}.log")
    LOGGER.addHandler(handler)
    LOGGER.propagate = False
    client.forward_logging(NAME, level=level)  # <- here
    try:
        return float(sum(client.gather(client.map(fit, range(ASTEROIDS)))))
    finally:
        client.unforward_logging(NAME)
        LOGGER.removeHandler(handler)
        handler.close()


def bad(client: Client) -> float:
    return fits(client, logging.DEBUG)


def good(client: Client) -> float:
    return fits(client, logging.INFO)
