"""The futures of large intermediate results stay in a list, although only small summaries of them are wanted.

source: dask/distributed issue 3092
date:   2019-09-26
seen:   some 500 long tasks are submitted in a loop and their futures appended to a list. More and more results stay in
        the memory of the workers, though nobody asks for them; going through as_completed did not help.
cause:  a worker keeps a result as long as a future refers to it, and the list refers to all until the end. What does
        not fit is written to disk.
cure:   do not keep the futures of results that are not needed any more (or return nothing from the tasks).
"""

from __future__ import annotations

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

CLUSTER = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "1 GiB"}
RUNS = scaled(60)
CELLS = 5_000_000

EXPECTED = Expected(
    cause="futures in a list of the script keep 2.4 GB of results alive that no task needs any more, so that"
    " workers spill them to disk",
    place="the line that keeps the futures of simulate, or simulate, whose results they are",
    cure="let go of those futures (del, no list, release), or summarise in the same task",
    says=r"\b(kept|keeps?|keeping|held|holds?|holding|stay|stays|retain\w*|alive|remain\w*|unreleased|never released)\b"
    r"|spill|(to|from|on) (the )?disk|not (released|needed|freed)|memory (grows|fills|is full)|results? in memory",
    places=(*marked(__file__), function("simulate")),
    cures=r"\bdel\b|releas|drop|let (\w+ )?go|(do not|don't|without) keep\w*|not (be )?kept|forget|delet"
    r"|(in|into) (one|the same|a single) task|return (less|only|nothing|a summary|the summary|smaller)|smaller results?"
    r"|fewer futures",
    never={
        LONGER_TASKS: "bigger tasks would need more memory",
        MORE_MEMORY: "nobody needs what fills the memory",
        MORE_WORKERS: "the memory is filled by what nobody needs",
    },
)


def simulate(run: int) -> np.ndarray:
    """One field of 40 MB."""
    compute_for(0.15)
    return np.random.default_rng(run).integers(0, 1000, CELLS)


def volume(field: np.ndarray) -> int:
    return int(field.sum())


def bad(client: Client) -> float:
    fields = client.map(simulate, range(RUNS))  # <- here
    volumes = client.map(volume, fields)
    return float(sum(client.gather(volumes)))


def good(client: Client) -> float:
    fields = client.map(simulate, range(RUNS))
    volumes = client.map(volume, fields)
    del fields
    return float(sum(client.gather(volumes)))
