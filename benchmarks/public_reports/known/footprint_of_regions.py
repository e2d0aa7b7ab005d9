"""The footprint of what regions buy is computed from three tables: purchases, suppliers and emissions.

source: pydata/xarray issue 8017
date:   2023-07-25
seen:   one dot product of four arrays takes twenty times as long as the same with the operator @ between them.
cause:  several arrays are handed to one einsum, which does not split the product into pairs unless told so
        (optimize=False is the default, in dask.array as well): it runs over all combinations of all indices in a plain
        loop, without BLAS.
cure:   optimize=True, or one product after the other (@, tensordot).
"""

from __future__ import annotations

import dask.array as da
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
REGIONS, GOODS, SUPPLIERS, GASES = scaled(22) * 220, 180, 170, 160

EXPECTED = Expected(
    cause="einsum of three arrays without optimize loops over all combinations of four indices, without BLAS",
    place="da.einsum in footprint_at_once",
    cure="optimize=True, or two matrix products",
    says=r"einsum|(contract|product|multipl)\w*\W+(\w+\W+){0,8}(at once|in one go|order|naive|plain|all (indices|"
    r"combinations)|without blas|not optimi[sz]ed|unoptimi[sz]ed|pair)|without blas|(naive|nested|plain) loops?"
    r"|all combinations",
    places=(*marked(__file__), function("footprint_at_once"), r"einsum"),
    cures=r"optimi[sz]e\W*=|optimi[sz]e\b|matmul|tensordot|\bdot\b|@|pair|two (products|steps|at a time)|one after"
    r"|contraction (order|path)|opt_einsum|\bblas\b|matrix (product|multiplication)|step by step|intermediate",
    never={
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "both cores are busy",
        LONGER_TASKS: "tasks take a second",
        MORE_MEMORY: "there is enough",
        COMPUTED_AGAIN: "each task runs once",
        LOCK: "there is none",
    },
)


def tables() -> tuple[da.Array, da.Array, da.Array]:
    """What regions buy, who supplies it, and what suppliers emit."""
    noise = da.random.default_rng(8017)
    bought = noise.random((REGIONS, GOODS), chunks=(220, GOODS))
    supplied = noise.random((GOODS, SUPPLIERS), chunks=-1)
    emitted = noise.random((SUPPLIERS, GASES), chunks=-1)
    return bought, supplied, emitted


def footprint_at_once(bought: da.Array, supplied: da.Array, emitted: da.Array) -> da.Array:
    footprint: da.Array = da.einsum("rg,gs,sk->rk", bought, supplied, emitted)  # <- here
    return footprint


def footprint_in_pairs(bought: da.Array, supplied: da.Array, emitted: da.Array) -> da.Array:
    footprint: da.Array = bought @ (supplied @ emitted)
    return footprint


def bad(client: Client) -> float:
    return float(footprint_at_once(*tables()).mean().compute())


def good(client: Client) -> float:
    return float(footprint_in_pairs(*tables()).mean().compute())
