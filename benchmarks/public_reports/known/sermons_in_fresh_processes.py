"""Words of old sermons are counted year by year, by a script that was written before there was a cluster.

source: dask/dask issue 6726; of the same kind: monocongo/climate_indices issue 927
date:   2020-10-12 (927: 2026-09-16)
seen:   with scheduler="processes" the same code takes seconds longer than it should, and hardly gets faster with more
        processes; with a pool that is kept it is fast.
cause:  each compute(scheduler="processes") starts new processes, which import everything before they do anything, and
        end after it; the cluster, which is there and has all that loaded, does nothing.
cure:   leave out the scheduler, so that the cluster is used (or keep one pool), and compute all years at once.
"""

from __future__ import annotations

from collections import Counter

import dask
import numpy as np
from dask.delayed import Delayed
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LOCK,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
YEARS, SERMONS, WORDS = scaled(9), 4, 90_000
VOCABULARY = np.array([f"{first}{last}" for first in ("grace", "sin", "faith", "sea", "lamb") for last in range(400)])

EXPECTED = Expected(
    cause='compute(scheduler="processes") starts new processes for each year, which takes far longer than to count, and'
    " the workers of the cluster have nothing to do",
    place="compute in rarest_in_year, called in a loop in bad",
    cure="compute on the cluster (no scheduler=), or keep a pool",
    says=r"scheduler\s*=|(start|spawn|creat|fork|launch|new|fresh)\w*\W+(\w+\W+){0,4}(process|pool|interpreter)"
    r"|process pool"
    r"|multiprocess|(cluster|workers?|cores)\W+(\w+\W+){0,4}(idle|nothing|not used|unused|no tasks)|(idle|unused"
    r"|nothing)"
    r"\W+(\w+\W+){0,4}(cluster|workers?)|outside (of )?(the cluster|Dask|the workers)|not (on|by|through|with)"
    r" (the|this)"
    r" (cluster|client|workers)|bypass|no tasks|the (script|client)\W+(\w+\W+){0,4}(waits?|busy|itself|alone)",
    places=(*marked(__file__), function("rarest_in_year"), function("bad"), r"multiprocessing"),
    cures=r"scheduler|on the cluster|(use|through|by|with) the (client|cluster|workers)|one pool|keep"
    r"|client\.compute|once\b"
    r"|together|without (the )?processes|on (the )?workers|submit",
    never={
        HOLDS_GIL: "one thread a worker, and they do nothing",
        MORE_WORKERS: "those there are have nothing to do",
        MORE_MEMORY: "there is enough",
        LOCK: "there is none",
        COMPUTED_AGAIN: "nothing is computed twice",
    },
)


def words_of(year: int, sermon: int) -> Counter[str]:
    rng = np.random.default_rng([12, year, sermon])
    spoken = VOCABULARY[(rng.random(WORDS) ** 2 * len(VOCABULARY)).astype(int)]
    return Counter(word.upper() for word in spoken.tolist())


def rarity(counts: list[Counter[str]]) -> float:
    """Mean of the shares of the words that are said least."""
    total = sum(counts, Counter())
    said = sorted(total.values())
    return sum(said[: len(said) // 10]) / sum(said)


def rarest(year: int) -> Delayed:
    count = dask.delayed(words_of)
    return dask.delayed(rarity)([count(year, sermon) for sermon in range(SERMONS)])


def rarest_in_year(year: int) -> float:
    return float(rarest(year).compute(scheduler="processes"))  # <- here


def bad(client: Client) -> float:
    return sum(rarest_in_year(year) for year in range(YEARS))  # <- here


def good(client: Client) -> float:
    return sum(dask.compute(*(rarest(year) for year in range(YEARS))))
