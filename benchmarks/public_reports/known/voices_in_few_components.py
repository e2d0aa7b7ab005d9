"""Voices are reduced to a few components, with an algorithm that is told to compute as it goes.

source: dask/dask pull request 5041 (an option that it came with); its use: dask/dask-ml pull request 777
date:   2019-07-01
seen:   the compressed singular value decomposition passes over its input several times. With an option that keeps
        memory low, the input is loaded or made anew for each of these passes.
cause:  with compute=True each pass is a computation of its own, for which nothing is kept of the input, which is costly
        to load.
cure:   persist the input, which fits into memory; or do without that option.
"""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    TWO_BY_ONE,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
SPEAKERS = scaled(24)
FRAMES, BANDS, COMPONENTS = 1_500, 120, 6

EXPECTED = Expected(
    cause="the recordings are transformed again for each pass of the decomposition",
    place="the call of svd_compressed, the computation after it, or the function that makes the spectra",
    cure="persist the array before",
    says=r"\bagain\b|recomput|repeat|anew|several times|\d+ times|times over|more than once|twice|each (pass|iteration)"
    r"|re-?read|re-?load|not kept|persist",
    places=(*marked(__file__), function("spectra"), r"svd_compressed|compression_matrix"),
    cures=r"persist|compute=|keep|kept|cache|\bonce\b|in memory|n_power_iter|iterator|single pass",
    never={
        LONGER_TASKS: "the tasks are long enough",
        MORE_WORKERS: "the work should not be done so often",
        MORE_MEMORY: "there is enough",
        HOLDS_GIL: "the tasks do not hold it, and one runs per process",
    },
)


def spectra(block_info: dict[Any, Any] | None = None) -> np.ndarray:
    """Spectra of all frames of one speaker, which are costly to make."""
    speaker = block_info[None]["chunk-location"][0] if block_info else 0
    compute_for(0.15)
    rng = np.random.default_rng(speaker)
    basis = np.sin(np.outer(np.arange(1, COMPONENTS + 1), np.arange(BANDS)) / 17)
    return rng.random((FRAMES, COMPONENTS)) * np.arange(COMPONENTS, 0, -1) @ basis + rng.random((FRAMES, BANDS)) / 50


def voices() -> da.Array:
    chunks = ((FRAMES,) * SPEAKERS, (BANDS,))
    sounds: da.Array = da.map_blocks(spectra, chunks=chunks, dtype=float, meta=np.empty((0, 0)))
    return sounds


def decomposed(sounds: da.Array) -> float:
    _, values, _ = da.linalg.svd_compressed(
        sounds, COMPONENTS, iterator="power", n_power_iter=2, seed=5, compute=True
    )  # <- here
    return float(values.compute().sum())  # <- here


def bad(client: Client) -> float:
    return decomposed(voices())


def good(client: Client) -> float:
    return decomposed(voices().persist())
