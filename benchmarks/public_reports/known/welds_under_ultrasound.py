"""Volumes of welds are made from echoes of ultrasound, and a script asks them one question after the other.

source: Open-EO/openeo-processes-python pull request 55
date:   2021-10-15
seen:   processes that each need a result of a lazy array are slow; the change calls compute explicitly, so that the
        same computation is not done several times.
cause:  values that the script needs on its way (the limits, the mean, the shares) each compute all of the volume anew.
cure:   compute or persist the volume once, and ask the result.
"""

from __future__ import annotations

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
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
SLABS = scaled(16)
ECHOES = 220_000

EXPECTED = Expected(
    cause="each of the five values that the script needs computes the whole volume from the echoes again",
    place="the lines of questions() that turn lazy values into numbers, or focused, which is done again for each",
    cure="persist the volume, or compute the values together where they do not depend on each other",
    says=r"(again|anew|twice|repeated(ly)?|more than once|several times|many times|(\d+|five|each) times|times over|not"
    r" kept|thrown away|forgotten|re-?(comput|calculat|run|do|ma[dk])\w*|same (tasks?|work|computation|function|key)"
    r"|each (compute|computation|value)|\d+ computations|separate(ly)? comput\w*)",
    places=(*marked(__file__), function("focused"), function("questions"), function("volume")),
    cures=r"persist|once\b|together|one (compute|computation)|single compute|dask\.compute|keep|cache|store|reuse",
    never={
        MORE_WORKERS: "they would do the same work as often",
        MORE_MEMORY: "the volume is small",
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "there is one a core",
        LOCK: "there is none",
    },
)


def focused(slab: np.ndarray) -> np.ndarray:
    """Echoes of a slab, brought to focus by many delays."""
    times = np.linspace(0, 1, ECHOES)
    image = np.zeros(ECHOES)
    for delay in range(1, 13):
        wave = np.sin(times * (90.0 + slab[0]) * delay)
        image += np.abs(np.fft.irfft(np.fft.rfft(wave) * 0.9, n=ECHOES)) / delay
    return image[None, :]


def volume() -> da.Array:
    slabs = da.arange(SLABS, chunks=1)
    weld: da.Array = slabs.map_blocks(focused, chunks=((1,) * SLABS, (ECHOES,)), new_axis=1, dtype=float)
    return weld


def questions(weld: da.Array) -> float:
    """How much of a weld is void, and how clear that is."""
    darkest = float(weld.min())  # <- here
    brightest = float(weld.max())  # <- here
    mean = float(weld.mean())  # <- here
    level = darkest + 0.4 * (brightest - darkest)
    share = float((weld > level).mean())  # <- here
    contrast = float(abs(weld - mean).mean())  # <- here
    return share + contrast


def bad(client: Client) -> float:
    return questions(volume())  # <- here


def good(client: Client) -> float:
    return questions(volume().persist())
