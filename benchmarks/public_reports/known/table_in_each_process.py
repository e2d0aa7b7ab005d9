"""A large table that all tasks need is copied to each of many worker processes of the same machine.

source: dask/dask-searchcv issue 33; a like case: PSLmodels/OG-Core issue 562 and pull request 566
date:   2017-03-23 (the like case 2020-04-27)
seen:   a grid search over 0.28 GB of data runs on one machine. The more workers are started, the more memory is needed,
        until there is none left.
cause:  each worker process gets its own copy of the data which all fits need. Memory is that of the data times the
        number of processes, not of the machine.
cure:   fewer processes with more threads, which share one copy, as the fits run without the GIL; or count workers by
        memory, not by cores.
"""

from __future__ import annotations

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

CLUSTER = {"n_workers": 4, "threads_per_worker": 1}
GOOD_CLUSTER = {"n_workers": 1, "threads_per_worker": 4}
FITS = scaled(100)
ENTRIES = 20_000_000

EXPECTED = Expected(
    cause="each of the four processes receives and holds its own copy of a table of 160 MB",
    place="the scatter() to all workers, or fit, the tasks of which need the table",
    cure="fewer processes with more threads each, which share a copy",
    says=r"\bcop(y|ies|ied)\b|replica|duplicat|(each|every|all|four|4) (worker|process)|broadcast"
    r"|same (data|result|table)"
    r"|(sent|transfer\w*|moved|received) (\w+ )?(to|by|\d|several|between|many|four)|transfers?\b|memory",
    places=(*marked(__file__), function("fit"), function("scatter")),
    cures=r"fewer (workers|process)|(one|single|same) process|more threads|threads? (share|per|in|each)|share"
    r"|less often"
    r"|memory.?map|one copy|single copy|smaller (table|data)|threads_per_worker|nthreads",
    never={
        HOLDS_GIL: "the tasks release the GIL, so threads do as well as processes",
        LONGER_TASKS: "the tasks are long enough",
        r"(?i)more (worker )?processes": "each further process holds a further copy",
    },
)


def fit(table: np.ndarray, start: int) -> int:
    compute_for(0.08)
    return int(table[start::1_000_000].sum())


def bad(client: Client) -> float:
    table = client.scatter(np.ones(ENTRIES, dtype=np.int64), broadcast=True)  # <- here
    return float(sum(client.gather([client.submit(fit, table, start) for start in range(FITS)])))


good = bad
