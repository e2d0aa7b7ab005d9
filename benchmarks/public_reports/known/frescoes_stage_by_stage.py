"""Frescoes are scanned: each scan is cleaned, and cracks are then counted in what is clean.

source: dask/dask issue 5584; of the same kind: dask/dask issue 2866 (its comments of 2018-12-13), dask/distributed
        issue 2136
date:   2019-11-13 (issue 2136: 2018-07-20)
seen:   nearly all tasks of the first kind run before those of the second kind, which need them and would free their
        memory; what the first ones make does not fit into the memory of the workers.
cause:  tasks that were submitted first go first: cleaned scans pile up, are written to disk, and are read again later.
cure:   a higher priority for the second kind (or both in one task, or both submitted together for each scan).
"""

from __future__ import annotations

import time

import numpy as np
from distributed import Client, wait

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_WORKERS,
    PROCESSES,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = {"n_workers": 2, "threads_per_worker": 1, "memory_limit": "1GB"}
SCANS, SIDE = scaled(160), 1_800

EXPECTED = Expected(
    cause="all scans are cleaned before cracks are counted in any: they do not fit into memory, and go to disk and"
    " back",
    place="the two client.map in counted; results of cleaned",
    cure="count cracks first (a higher priority), or clean and count in one task",
    says=r"spill|\bdisk\b|written (out|to)|unspill|(memory|ram)\W+(\w+\W+){0,8}(full|limit|exceed\w*|not enough"
    r"|too small|fit"
    r"|pile)|(not|than|beyond)\W+(\w+\W+){0,4}(fit|memory)|pile|accumulat|held (too )?long|(kept|held|stay\w*"
    r"|wait\w*)\W+"
    r"(\w+\W+){0,4}(in memory|memory)|priorit|order (of|in)|before (any|the first|others|they are)|too early|breadth"
    r"|pause",
    places=(*marked(__file__), function("counted"), function("cleaned"), function("cracks")),
    cures=r"priorit|in one task|one function|together|fuse|merge|combine|same task|batch\w*|(fewer|less"
    r"|smaller) (\w+ )?"
    r"(at a time|at once|results|scans|arrays|types?)|depth|in the same|right after|as soon as|earlier"
    r"|submit\W+(\w+\W+)"
    r"{0,6}(pairs?|each|both|later|fewer)|release|chain|float32|memory_limit|more memory|larger|raise|free\w*|sooner",
    never={
        COMPUTED_AGAIN: "each task runs once",
        HOLDS_GIL: "one thread a worker",
        LOCK: "there is none",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "both cores are busy, and the memory is that of the machine",
        LONGER_TASKS: "the tasks are not too small",
    },
)


def header(scan: int) -> dict[str, int]:
    """What the scanner wrote about a scan."""
    return {"scan": scan, "side": SIDE}


def cleaned(about: dict[str, int]) -> np.ndarray:
    """Scan without the light that falls from one side."""
    rng = np.random.default_rng(about["scan"])
    return rng.random((SIDE, SIDE)) - np.linspace(0.0, 0.2, SIDE)


def cracks(clean: np.ndarray) -> float:
    """Share of the points that are much darker than their neighbours."""
    return float((clean[:, 1:] - clean[:, :-1] < -0.9).mean())


def planned() -> None:
    """Read the plan of the walls, which takes a moment."""
    until = time.perf_counter() + 0.3
    plan = np.arange(50_000.0)
    while time.perf_counter() < until:
        np.sin(plan, out=plan)


def counted(client: Client, priority: int) -> float:
    headers = client.map(header, range(SCANS))
    wait(headers)
    scans = client.map(cleaned, headers)  # <- here
    planned()
    counts = client.map(cracks, scans, priority=priority)  # <- here
    del scans
    return float(sum(client.gather(counts)))


def bad(client: Client) -> float:
    return counted(client, 0)


def good(client: Client) -> float:
    return counted(client, 10)
