"""Couplings of bells: the product of two matrices of theirs, element by element, comes to the client to be summed up.

source: dask/dask issue 3657 (its comments of 2020-03-23)
date:   2018-06-22 (comments: 2020-03-23)
seen:   a Kronecker product of Dask arrays takes much longer than the arithmetic in it, on one machine as well.
cause:  compute() moves all of the product from the workers to the client, through pipes of the network.
cure:   leave it on the workers (persist), and send for what is made of it only.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
TOWERS = scaled(14)
TONES, BELLS = 72, 72

EXPECTED = Expected(
    cause="results of hundreds of megabytes are moved from the workers to the client",
    place="the compute() of the product",
    cure="reduce it on the workers, compute() the small result",
    says=r"(transfer|mov|send|sent|fetch|gather|bring|brought|collect|return|download|comes?|copied|pull)\w*\b[^\n]{0,60}"
    r""
    r"\b(client|local|script|this process)"
    r"|client\b[^\n]{0,60}\b(waits|receiv|gather|result|transfer|bytes|MB|GB|MiB|GiB)"
    r"|large results?|results? (is|are) (large|big)",
    places=(*marked(__file__), function("product_of")),
    cures=r"(on|by|at|in) the (workers|cluster)|reduc|aggregat|sum|persist|smaller|less data|only what|future|write",
    never={
        MORE_WORKERS: "it is the client that is the bottleneck",
        LONGER_TASKS: "tasks are not the bottleneck",
        PROCESSES: "the product comes from processes, and that is what costs",
        MORE_MEMORY: "memory is ample",
    },
)


def matrices(tower: int) -> tuple[da.Array, da.Array]:
    rng = np.random.default_rng(tower)
    tones = da.from_array(rng.random((TONES, TONES)), chunks=(TONES // 4, TONES))
    bells = da.from_array(rng.random((BELLS, BELLS)), chunks=(BELLS, BELLS))
    return tones, bells


def product_of(tower: int) -> da.Array:
    """Kronecker product, with its four axes left apart."""
    tones, bells = matrices(tower)
    product: da.Array = tones[:, None, :, None] * bells[None, :, None, :]
    return product


def bad(client: Client) -> float:
    total = 0.0
    for tower in range(TOWERS):
        couplings = product_of(tower).compute()  # <- here
        total += float(np.square(couplings).sum())
    return total


def good(client: Client) -> float:
    total = 0.0
    for tower in range(TOWERS):
        total += float(da.square(product_of(tower)).sum().compute())
    return total
