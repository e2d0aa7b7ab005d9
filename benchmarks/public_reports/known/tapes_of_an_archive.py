"""Checksums of digitised tapes, by a C library that is called through ctypes.

source: dask/distributed issue 2942
date:   2019-08-08
seen:   long tasks in a C++ library; workers seem stuck from time to time, and warn that their event loop was not
        responsive.
cause:  the wrapper of the library holds the GIL while it computes, so that no other thread of the worker can do a
        thing.
cure:   wrap the library so that the GIL is released; in ctypes, it is CDLL that releases it, and PyDLL that holds it.

One worker has two threads, since the tapes' catalogue would be in its memory; each tape is a task.
"""

from __future__ import annotations

import ctypes
import ctypes.util

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    MORE_MEMORY,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = {"n_workers": 1, "threads_per_worker": 2}
TAPES = scaled(16)
ROUNDS = 240
LENGTH = 8_000_000

EXPECTED = Expected(
    cause="the tasks hold the GIL in the C library, so the worker's second thread waits for it",
    place="the function that calls the library, or where it is loaded",
    cure="release the GIL in the library's wrapper (CDLL in place of PyDLL), or use processes with one thread each",
    says=r"\bGIL\b|interpreter lock|one (thread|core) at a time|threads? .{0,30}wait\w* for each other",
    places=(
        *marked(__file__),
        function("checksum_holding"),
        function("checksum_of"),
        function("library"),
    ),
    cures=r"releas\w+ (of )?(the |it)?|processes|threads_per_worker=1|one thread|CDLL|nogil|without the GIL",
    never={
        LONGER_TASKS: "tasks of most of a second are long enough",
        COMPUTED_AGAIN: "nothing is computed twice",
        MORE_MEMORY: "there is enough",
        r"(?i)split the (largest|longest|long)": "there are many tasks of the same length",
    },
)


def library(loader: type[ctypes.CDLL]) -> ctypes.CDLL:
    """C library with the checksum."""
    found = loader(ctypes.util.find_library("z") or "libz.so.1")
    found.crc32.argtypes = (ctypes.c_ulong, ctypes.c_void_p, ctypes.c_uint)
    found.crc32.restype = ctypes.c_ulong
    return found


def checksum_of(tape: int, zlib: ctypes.CDLL) -> int:
    """Checksum of a tape that repeats a pattern."""
    samples = np.random.default_rng(tape).integers(0, 256, LENGTH, dtype="u1")
    total = 0
    for _ in range(ROUNDS):
        total = zlib.crc32(total, samples.ctypes.data, len(samples))  # <- here
    return total


def checksum_holding(tape: int) -> int:
    return checksum_of(tape, library(ctypes.PyDLL))  # <- here


def checksum_beside(tape: int) -> int:
    return checksum_of(tape, library(ctypes.CDLL))


def bad(client: Client) -> float:
    return float(sum(client.gather(client.map(checksum_holding, range(TAPES), pure=False))))  # <- here


def good(client: Client) -> float:
    return float(sum(client.gather(client.map(checksum_beside, range(TAPES), pure=False))))
