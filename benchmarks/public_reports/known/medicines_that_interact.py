"""Prescriptions of patients against a table of interactions of medicines, which each task asks a future for.

source: dask/distributed issue 8086
date:   2023-08-09
seen:   tasks that call result() of a future are slow and take memory for a second copy, though the value lies on their
        own worker.
cause:  within a task, result() gets the value as a client does: it is pickled, sent through a connection of the worker
        to itself, and unpickled, for each task anew. The worker's own reference is not used.
cure:   give the future to the task as an argument (then it gets the worker's own object), or gather it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from distributed import Client, Future, Variable

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
MEDICINES, PATIENTS, PRESCRIBED = scaled(200), scaled(32), 400

EXPECTED = Expected(
    cause="each task fetches a copy of the whole table through result() of a future: it is pickled and unpickled for"
    " every task",
    place="result() in the task function severity_known (or the Variable there)",
    cure="pass the future as an argument of the task, or keep the table in the worker once it is there",
    says=r"\bresult\(\)|\.result\b|(pickl|serial|deserial|unpickl|cop(y|i)|transfer|fetch|download|gather|sent|sends|send"
    r"|receiv|moved|wait\w* for)\w*\b.{0,120}\b(table|futures?|dict|interactions?|results?|task|value|data|workers?"
    r"|client|object)|(table|futures?|dict|value|client|variable)\b.{0,120}\b(pickl|serial|deserial|unpickl|cop(y|i)"
    r"|transfer|fetch|download|gather|sent|each task|every task|in tasks?|within)|get_client|inside (a |the |each )?"
    r"tasks?",
    places=(*marked(__file__), function("severity_fetched"), r"\bresult\b", r"Variable"),
    cures=r"argument|parameter|pass(ed)?\b.{0,60}\b(futures?|table|it)|gather|cache|once (per|for each|in each|on each)"
    r"|keep|per worker|worker'?s own|scatter|depend|hand\b.{0,40}\bfuture|input",
    never={
        HOLDS_GIL: "one thread a worker",
        LOCK: "there is none",
        LONGER_TASKS: "tasks are long by what they fetch",
        MORE_MEMORY: "there is enough",
        MORE_WORKERS: "both cores are in use",
        SLEEP: "nothing sleeps",
    },
)


def interactions() -> dict[tuple[str, str], float]:
    """Severity of the interaction of each pair of medicines."""
    rng = np.random.default_rng(3)
    names = [f"medicine-{number:04d}" for number in range(MEDICINES)]
    severities = rng.random((MEDICINES, MEDICINES)).tolist()
    return {
        (first, second): row[j]
        for first, row in zip(names, severities, strict=True)
        for j, second in enumerate(names)
        if first < second
    }


def severity(table: dict[tuple[str, str], float], patient: int) -> float:
    rng = np.random.default_rng(patient)
    taken = sorted(f"medicine-{number:04d}" for number in set(rng.integers(0, MEDICINES, PRESCRIBED).tolist()))
    return sum(table[first, second] for i, second in enumerate(taken) for first in taken[:i])


def severity_fetched(patient: int) -> float:
    table: Future[Any] = Variable("interactions").get()
    return severity(table.result(), patient)  # <- here


def severity_given(patient: int, table: dict[tuple[str, str], float]) -> float:
    return severity(table, patient)


def bad(client: Client) -> float:
    table = client.submit(interactions)
    Variable("interactions", client=client).set(table)
    return float(sum(client.gather(client.map(severity_fetched, range(PATIENTS)))))


def good(client: Client) -> float:
    table = client.submit(interactions)
    return float(sum(client.gather(client.map(severity_given, range(PATIENTS), table=table))))
