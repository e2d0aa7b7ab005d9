"""Light curves of stars are compared with a long list of reference values, which each delayed call gets.

source: dask/dask issue 4734 (it came out of issue 4727)
date:   2019-04-24
seen:   a long list as argument of many delayed calls makes everything slow: building, optimizing, sending,
        scheduling.
cause:  a list may have delayed values in it, so that Dask goes through all of it, item by item, for each call, and it
        is part of each task.
cure:   wrap it once (delayed(values, traverse=False), or scatter), or give an array, which is not searched.
"""

from __future__ import annotations

import dask
import numpy as np
from dask import delayed
from distributed import Client

from benchmarks.public_reports.programs import (
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
STARS, REFERENCES = scaled(320), 12_000

EXPECTED = Expected(
    cause="the client goes through the long list, item by item, for each delayed call (and puts it into each task)",
    place="the line with delayed(unlike)(star, references) in bad; its compute",
    cure="delayed(references, traverse=False) once, or scatter it, or pass a numpy array",
    says=r"\blist\b|argument|travers|unpack|item by item|(large|big|long|same) (\w+ )?(argument|list|object|input"
    r"|value|data)"
    r"|graph.{0,40}(large|big|size|MB|MiB|build|making|construct|send|sent)|(large|big|huge|build\w*|construct\w*"
    r"|mak\w*|creat\w*|send\w*).{0,25}"
    r"graph|pickl|seriali[sz]|tokeni[sz]|in the client|client (is|was|spen|takes|work)|(with|in|into|for) each"
    r" (task|call)|every (task|call)"
    r"|workers?.{0,30}(wait|idle|nothing)|main (program|thread)|your (script|program)|delayed",
    places=(*marked(__file__), function("bad"), r"unpack_collections|delayed|graph|client"),
    cures=r"traverse|scatter|once\b|wrap|numpy|array|outside|as one|single (task|object)|fewer|smaller|(read|load"
    r"|make|create|build)\w*\b.{0,30}"
    r"(in|on) (the )?(tasks?|workers?)|future|delayed\(|share|batch",
    never={
        MORE_WORKERS: "those that there are wait for the client",
        MORE_MEMORY: "there is enough",
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        LOCK: "there is none",
        SLEEP: "nothing sleeps",
    },
)


def reference_values() -> list[float]:
    return np.random.default_rng(8).normal(0, 1, REFERENCES).cumsum().tolist()


def unlike(star: int, references: list[float]) -> float:
    """How unlike the light curve of a star is to the references."""
    curve = np.random.default_rng([8, star]).normal(0, 1, REFERENCES).cumsum()
    return float(np.abs(curve - np.asarray(references)).mean())


def bad(client: Client) -> float:
    references = reference_values()
    calls = [delayed(unlike)(star, references) for star in range(STARS)]  # <- here
    return float(sum(dask.compute(*calls)))  # <- here


def good(client: Client) -> float:
    references = delayed(reference_values(), traverse=False)
    calls = [delayed(unlike)(star, references) for star in range(STARS)]
    return float(sum(dask.compute(*calls)))
