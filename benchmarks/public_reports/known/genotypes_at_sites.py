"""Sites of a large array of genotypes are chosen by a filter, and the lengths of the chunks that remain are asked for.

source: dask/dask issue 7416 (it came up in pydata/xarray issue 4663)
date:   2021-03-19
seen:   after da.compress with a filter of one dimension, compute_chunk_sizes takes 44 s; found by hand from the filter,
        the sizes are there in 0.2 s.
cause:  it computes blocks of the array, with all that leads to them, to look at their shapes, although the lengths
        along the filtered dimension follow from the filter alone.
cure:   count what the filter keeps in each of its chunks, and give the array these chunks.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
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
SITES_PER_CHUNK, SAMPLES = 10_000, 60
SITES = scaled(36) * SITES_PER_CHUNK

EXPECTED = Expected(
    cause="compute_chunk_sizes computes all blocks of the filtered array (reading and decoding the genotypes) only to"
    " see their lengths, and they are computed a second time for the result",
    place="the call of compute_chunk_sizes in passing_sites, or the task read that runs twice for each block",
    cure="take the sizes from the filter (count per chunk), or persist the blocks, so that they are computed once",
    says=r"compute_chunk_sizes|chunk sizes|unknown (chunk|size|length|shape)|(comput|run|ran|read|execut|decod)\w*\b"
    r".{0,60}\b(again|twice|2 times|two times|more than once|repeated)|again|twice|repeated"
    r"|same (work|tasks|keys|data)",
    places=(*marked(__file__), function("compute_chunk_sizes"), function("passing_sites"), function("read")),
    cures=r"persist|once|keep (it|them|the result)|filter|mask|count|known|without computing|avoid|chunk sizes|reuse"
    r"|together|one compute",
    never={
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "both cores are busy",
        LONGER_TASKS: "a task takes tenths of a second",
        MORE_MEMORY: "there is enough",
    },
)


def read(block_info: dict | None = None) -> np.ndarray:
    """Calls of some samples at some sites, from likelihoods."""
    sites, samples = block_info[None]["chunk-location"]
    shape = block_info[None]["chunk-shape"]
    rng = np.random.default_rng(sites * 1000 + samples)
    likelihoods = rng.gamma(0.7, 1.0, (3, *shape)).astype("f4")
    return likelihoods.argmax(axis=0).astype("i1")


def quality() -> da.Array:
    return da.random.default_rng(5).uniform(0, 60, SITES, chunks=SITES_PER_CHUNK)


def genotypes() -> da.Array:
    chunks = da.core.normalize_chunks((SITES_PER_CHUNK, SAMPLES), (SITES, SAMPLES), dtype="i1")
    return da.map_blocks(read, chunks=chunks, dtype="i1", meta=np.empty((0, 0), "i1"))


def passing_sites() -> da.Array:
    calls = da.compress(quality() > 30, genotypes(), axis=0)
    calls.compute_chunk_sizes()  # <- here
    return calls


def passing_sites_counted() -> da.Array:
    keep = quality() > 30
    calls = da.compress(keep, genotypes(), axis=0)
    counts = keep.map_blocks(lambda kept: kept.sum(keepdims=True), dtype=int, chunks=((1,) * keep.numblocks[0],))
    calls._chunks = (tuple(counts.compute().tolist()), *calls.chunks[1:])
    return calls


def heterozygosity(calls: da.Array) -> float:
    """Mean over the sites of every second half of the array, which needs its length."""
    later = calls[calls.shape[0] // 2 :]
    share = (later == 1).mean(axis=0) + (calls == 1).mean(axis=0)
    return float(share.mean().compute())  # <- here


def bad(client: Client) -> float:
    return heterozygosity(passing_sites())


def good(client: Client) -> float:
    return heterozygosity(passing_sites_counted())
