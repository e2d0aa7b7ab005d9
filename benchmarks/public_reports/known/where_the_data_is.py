"""A few long tasks need one large corpus, which lies on a single worker; they all run there.

source: joblib/joblib issue 1021 (Dask backend); also dask/dask issue 5993, dask/dask-ml issue 114
date:   2020-03-10
seen:   the trees of a random forest were built in parallel for small training data; with large data all of them were
        given to the same worker and ran one or two at a time, while the other workers had nothing to do.
cause:  the training data was in the memory of one worker; the scheduler counts the time to move it against the time of
        a task, and so keeps the tasks where the data is.
cure:   the thread: put the data on all workers beforehand (scatter it first, with copies).
"""

from __future__ import annotations

import numpy as np
from distributed import Client, wait

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

CLUSTER = {**TWO_BY_ONE, "memory_limit": "6GB"}
BATCHES = 4
SECONDS = scaled(2400) / 1000
DOCUMENTS, LETTERS, REPEATS = 50, 100_000, 100

EXPECTED = Expected(
    cause="all tasks run on the one worker that holds the large corpus; the other worker is idle for (nearly) the whole"
    " run, because moving what it takes for 0.5 GB is judged dearer than waiting",
    place="the one future of training_data, on which all tasks of build_trees depend; key prefix 'training_data'",
    cure="place the data on every worker beforehand: client.replicate, scatter(..., broadcast=True), or make / load it"
    " on"
    " each worker",
    says=r"(one|single|same|few|1) (of \w+ )?workers?\b|(other|second|another|idle|rest of the) workers?\b"
    r"|workers?\b.{0,40}\b(idle|nothing|no tasks?|empty|without)|balanc|uneven|unequal|localit|skew"
    r"|where (the|its|their) (data|arguments?|inputs?|dependenc\w+)"
    r"|(data|corpus|argument|input|dependency) (is (on|there|held)|lies|sits)\b"
    r"|moving|nothing to do|steal|plac(ed|ement)|not (be )?(spread|distributed|shared)|on worker",
    places=(*marked(__file__), function("training_data"), function("build_trees")),
    cures=r"replicat|broadcast|(all|every|each|both|several|more|other) (of the )?workers|cop(y|ies)|spread|scatter"
    r"|per worker|steal|rebalance|beforehand|move",
    never={
        HOLDS_GIL: "one thread a worker",
        MORE_WORKERS: "the other worker has nothing to do",
        MORE_MEMORY: "memory is ample",
        r"(?i)spill(ing|ed) to disk": "memory is ample",
        r"(?i)too few tasks": "there are two for each thread",
        r"(?i)(sen[dt]s?|travels?|shipped|embedded) (along )?(with|in) (each|every|the) (task|graph)": "it is not",
    },
)


class Corpus(list):
    """Documents."""


def training_data() -> Corpus:
    """Rare documents, each many times over. Dask reckons 0.5 GB (in truth the copies are one and the same object)."""
    return Corpus([f"{number:05d}" * (LETTERS // 5) for number in range(DOCUMENTS)] * REPEATS)


def build_trees(batch: int, data: Corpus) -> int:
    """Some trees of a forest."""
    compute_for(SECONDS)
    return sum(int(data[row][:5]) for row in np.random.default_rng(batch).integers(0, len(data), 1_000))


def bad(client: Client) -> float:
    data = client.submit(training_data)  # <- here
    return sum(client.gather(client.map(build_trees, range(BATCHES), data=data)))  # <- here


def good(client: Client) -> float:
    data = client.submit(training_data)
    wait(data)
    client.replicate(data)
    return sum(client.gather(client.map(build_trees, range(BATCHES), data=data)))
