"""Figures of a recording are computed one after the other, each from the sound itself.

source: Open-EO/openeo-processes-python pull request 55
date:   2021-10-15
seen:   processes on data cubes were slow, as what several results have in common was computed for each of them; the
        change has them computed in an explicit call of Dask's compute.
cause:  each compute() starts at the source again: nothing is kept of what the results share.
cure:   one dask.compute() for all of them (or persist() of what they share, where it fits in memory).
"""

from __future__ import annotations

import dask
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
MINUTES, SAMPLES, WINDOW = 48, scaled(1_100) * 1024, 1024

EXPECTED = Expected(
    cause="the same spectra are computed anew for each of five figures, as each has its own compute()",
    place="the lines that compute, one after the other; functions sound and loudness, tasks of which run five times",
    cure="compute all figures together with dask.compute(), or persist the spectra",
    says=r"(comput|calculat|run|ran|ma[dk]e|evaluat|execut|repeat|do|work)\w*\b.{0,40}"
    r"\b(again|twice|anew|repeated\w*|more than once|several times|(\d+|five|many|multiple) times|each time"
    r"|every time)"
    r"|(same|identical|shared|common) (\w+ ){0,2}(tasks|work|computation|keys|results|input|source|graph)"
    r"|repeat|recomput|redundant|duplicat|(several|separate|\d+|five|many|repeated) (calls (of|to) )?compute",
    places=(*marked(__file__), function("loudness"), function("sound"), function("spectra"), function("bad")),
    cures=r"persist|dask\.compute|(one|single|same|common) (call|compute|graph|computation)|together|at once"
    r"|(in|with) one|once|keep|cache|reuse",
    never={
        MORE_WORKERS: "the work is needless",
        PROCESSES: "the tasks are NumPy's and do not hold the GIL for long",
        MORE_MEMORY: "there is enough",
        LONGER_TASKS: "the tasks are long enough",
    },
)


def sound(block_id=None) -> np.ndarray:
    """A minute at the pond."""
    rng = np.random.default_rng(block_id[0])
    time = np.arange(SAMPLES)
    croak = np.sin(0.31 * time) * (np.sin(1e-4 * time * (1 + block_id[0] % 3)) > 0.6)
    return croak + 0.2 * rng.standard_normal(SAMPLES)


def loudness(samples: np.ndarray) -> np.ndarray:
    """Energy of each window in the band in which frogs call."""
    spectra = np.abs(np.fft.rfft(samples.reshape(-1, WINDOW) * np.hanning(WINDOW), axis=1))
    return np.log1p((spectra[:, 30:80] ** 2).sum(axis=1))


def spectra() -> da.Array:
    minutes = da.map_blocks(sound, chunks=((SAMPLES,) * MINUTES,), dtype="f8", meta=np.empty(0))
    return minutes.map_blocks(loudness, chunks=((SAMPLES // WINDOW,) * MINUTES,), dtype="f8", meta=np.empty(0))


def bad(client: Client) -> float:
    calls = spectra()
    quietest = calls.min().compute()  # <- here
    loudest = calls.max().compute()  # <- here
    usual = calls.mean().compute()  # <- here
    spread = calls.std().compute()  # <- here
    busy = (calls > 5.0).mean().compute()  # <- here
    return float(quietest + loudest + usual + spread + busy)


def good(client: Client) -> float:
    calls = spectra()
    figures = dask.compute(calls.min(), calls.max(), calls.mean(), calls.std(), (calls > 5.0).mean())
    return float(sum(figures))
