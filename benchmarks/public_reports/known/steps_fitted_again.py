"""A search over parameters runs the slow first step of a pipeline for each candidate, though most share its parameters.

source: dask/dask-ml issue 141
date:   2018-02-23
seen:   a user compares two grid searches over a pipeline, sees hardly a difference, and asks where the speedup is that
        was promised for pipelines.
cause:  in the plain search each candidate fits all steps of its pipeline, also the early slow ones, the parameters of
        which are the same in most candidates. Only a search that shares the early steps gains, if these are slow, have
        few parameters, and the steps with many parameters come last.
cure:   make a task of the first step, one for each of its parameters, which all candidates that need it share (or cache
        its result).
"""

from __future__ import annotations

from itertools import product

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
WIDTHS = (50, 100, 200)
PENALTIES = range(scaled(10))

EXPECTED = Expected(
    cause="vectorize does the same work with the same arguments once for each candidate: ten times instead of once",
    place="vectorize, or its call in the task of a candidate, or the map() over all candidates",
    cure="compute vectorize once for each width in a task of its own, and pass its result to the candidates;"
    " or cache it",
    says=r"again|repeat|same (work|arguments?|inputs?|results?|values?|calls?|step)|more than once|recomput"
    r"|cach|shared?\b"
    r"|(time|most of)\b.{0,40}\b(in|is|goes)\b|longest|slowest|dominat|bottleneck",
    places=(*marked(__file__), function("vectorize"), function("evaluate")),
    cures=r"once|cach|share|own task|task of (its|their) own|separate task|reuse|split|memoi|pass (its|the) result"
    r"|step of its own|persist",
    never={
        LONGER_TASKS: "the tasks are long enough; longer ones would share even less",
        MORE_WORKERS: "all are busy with work that is done again and again",
        HOLDS_GIL: "one thread a worker, and the work does not hold the GIL",
    },
)


def vectorize(width: int) -> np.ndarray:
    """Slow first step, with few parameters."""
    compute_for(0.55)
    return np.arange(width * 1000) % 17


def fit(features: np.ndarray, penalty: int) -> int:
    """Fast last step, with many."""
    compute_for(0.02)
    return int(features.sum()) // (penalty + 1)


def evaluate(width: int, penalty: int) -> int:
    features = vectorize(width)  # <- here
    return fit(features, penalty)


def bad(client: Client) -> float:
    candidates = list(product(WIDTHS, PENALTIES))
    scores = client.map(evaluate, *zip(*candidates, strict=True))  # <- here
    return float(sum(client.gather(scores)))


def good(client: Client) -> float:
    features = {width: client.submit(vectorize, width) for width in WIDTHS}
    scores = [client.submit(fit, features[width], penalty) for width, penalty in product(WIDTHS, PENALTIES)]
    return float(sum(client.gather(scores)))
