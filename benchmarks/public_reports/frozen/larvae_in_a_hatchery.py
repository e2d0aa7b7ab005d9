"""Larvae in the tanks of a hatchery, counted by a model.

source: dask/distributed issue 7493
date:   2023-01-20
seen:   data are loaded, run through one of a few large models, and the results saved. When the models were slower than
        the loading, loaded data piled up in the workers, were written to disk, and the logs were full of warnings of
        unmanaged memory, which was the models.
cause:  the models take most of each worker's memory, and loading runs ahead of them: what it has loaded is spilled to
        disk and read back.
cure:   load no more than what is used next: loading and model in one task (or memory enough for both).
"""

from __future__ import annotations

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import COMPUTED_AGAIN, LOCK, PROCESSES, Expected, function, marked, scaled

NEEDS = ()
CLUSTER = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "500MiB"}
TANKS = scaled(150)
LARVAE = 3000
SIDE = 24
WEIGHTS = 20_000_000

EXPECTED = Expected(
    cause="all tanks are loaded before the model gets to them, and are spilled to disk, as the model has the memory",
    place="the line that maps the loading, or the loading, or the line that maps the model",
    cure="load in the task that uses it, or only some tanks ahead of the model",
    says=r"spill|(to|from) disk|(out|short) of memory|memory (is |was )?(full|short|pressure|limit)"
    r"|paus|pil\w* up|ahead",
    places=(*marked(__file__), function("larvae_of_tank"), function("count_alive")),
    cures=r"memory|one task|same task|fewer|less (data|ahead)|smaller|as_completed|(in|by) (turn|batches)|batch"
    r"|release|backpressure|limit|at a time|fuse|ahead|priority",
    never={
        COMPUTED_AGAIN: "each tank is loaded once",
        LOCK: "no lock is used",
        PROCESSES: "each worker is a process with one thread",
    },
)

MODELS: dict[str, np.ndarray] = {}


def model(stage: str) -> np.ndarray:
    """Weights of the model of a stage, which each process keeps."""
    if stage not in MODELS:
        MODELS[stage] = np.random.default_rng(len(stage)).random(WEIGHTS)
    return MODELS[stage]


def larvae_of_tank(tank: int) -> list[np.ndarray]:
    """Cut each larva out of the picture of a tank."""
    rng = np.random.default_rng(tank)
    picture = rng.random((1000, 1000))
    corners = rng.integers(1000 - SIDE, size=(LARVAE, 2))
    return [picture[row : row + SIDE, column : column + SIDE] for row, column in corners]


def count_alive(larvae: list[np.ndarray], stage: str) -> float:
    weights = model(stage)[: SIDE * SIDE].reshape(SIDE, SIDE)
    return float(sum((larva * weights).sum() for larva in larvae))


def count_in_tank(tank: int, stage: str) -> float:
    return count_alive(larvae_of_tank(tank), stage)


def bad(client: Client) -> float:
    larvae = client.map(larvae_of_tank, range(TANKS))  # <- here
    alive = client.map(count_alive, larvae, stage="veliger")  # <- here
    return float(sum(client.gather(alive)))


def good(client: Client) -> float:
    alive = client.map(count_in_tank, range(TANKS), stage="veliger")
    return float(sum(client.gather(alive)))
