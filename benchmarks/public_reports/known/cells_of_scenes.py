"""Scenes are cut into cells by one kind of task, and the cells are looked at by another.

source: dask/distributed issue 1426
date:   2017-09-25
seen:   tasks return lists of data that are expensive to move, and each item is to become a task of its own; the person
        can only think of fetching the lists and mapping over them, by which everything goes to the client and back.
cause:  result() or gather brings all data into the client, and map sends it to the workers again as arguments.
cure:   leave the lists on the workers: submit tasks that take the future of the list and the number of the item.
"""

from __future__ import annotations

import itertools

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
SCENES, CELLS, SIDE = scaled(8), 6, 1_300

EXPECTED = Expected(
    cause="the cells (hundreds of megabytes) are gathered into the client, and sent back to the workers as arguments"
    " of the"
    " next tasks; most of the time goes into moving, serializing and hashing them there",
    place="the lines of surveyed that gather the lists and map over the cells; in the client",
    cure="pass the futures on (tasks that take the future of the list and an index), so that data stays on the workers",
    says=r"\bclient\b|gather|\bresult\(|transfer|travel|mov(e|ed|es|ing)\b|sen[dt]\b|send(s|ing)|\bgraph\b|argument"
    r"|large"
    r" (result|object|graph|data|arg)|serializ|pickl|hash|token|round.?trip|back to the workers|scatter",
    places=(*marked(__file__), function("surveyed"), function("cells")),
    cures=r"futures?\b|(on|in) (the )?workers?|scatter|not (gather|fetch|bring)|without (gather|fetch)|leave|keep"
    r"|instead"
    r" of gather|delayed|pass (the|it|them)|stay",
    never={
        MORE_WORKERS: "those that there are wait for the client",
        PROCESSES: "they have one thread each",
        HOLDS_GIL: "one thread a worker",
        LONGER_TASKS: "tasks are long enough, if their data is there",
        COMPUTED_AGAIN: "each is computed once",
    },
)


def cells(scene: int) -> list[np.ndarray]:
    rng = np.random.default_rng(scene)
    picture = rng.standard_normal((CELLS * SIDE, SIDE), dtype="f8")
    return list(picture.reshape(CELLS, SIDE, SIDE))


def brightness(cell: np.ndarray) -> float:
    return float(np.abs(np.diff(cell, axis=0)).mean() + np.quantile(cell[::7], 0.9))


def brightness_of(scene: list[np.ndarray], number: int) -> float:
    return brightness(scene[number])


def surveyed(client: Client) -> list[float]:
    scenes = client.gather(client.map(cells, range(SCENES)))  # <- here
    pieces = list(itertools.chain.from_iterable(scenes))
    return client.gather(client.map(brightness, pieces))  # <- here


def surveyed_in_place(client: Client) -> list[float]:
    scenes = client.map(cells, range(SCENES))
    looks = [client.submit(brightness_of, scene, number) for scene in scenes for number in range(CELLS)]
    return client.gather(looks)


def bad(client: Client) -> float:
    return sum(surveyed(client))


def good(client: Client) -> float:
    return sum(surveyed_in_place(client))
