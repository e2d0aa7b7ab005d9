"""Memory: bytes a second that one thread moves between two arrays that no cache holds."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from dask_efficiency.preflights.hardware.measured import REPEATS, best_rate

#: Bytes of each of the two arrays. Caches of today's servers hold tens of megabytes for each core that may use them.
NBYTES = 64 * 2**20
MIN_NBYTES = 4 * 2**20


def copies(limit: int, seconds: float, repeats: int = REPEATS) -> dict[str, Any]:
    """Bytes a second that are read and written.

    Parameters
    ----------
    limit
        Of the worker's memory, in bytes; 0 for none. The two arrays take an eighth of it at most.
    seconds
        Of one repetition.
    repeats
        How many there are.

    References
    ----------
    ``distributed.worker.benchmark_memory`` copies pieces of 10 MiB at most, which a cache may hold, and takes memory
    from the system for each.
    """
    nbytes = min(NBYTES, max(limit // 16, MIN_NBYTES)) if limit else NBYTES
    source, target = np.ones(nbytes // 8), np.empty(nbytes // 8)
    np.copyto(target, source)

    def once() -> tuple[float, float]:
        count = 0
        began, cpu = time.perf_counter(), time.thread_time()
        while time.perf_counter() < began + seconds:
            np.copyto(target, source)
            count += 1
        took = time.perf_counter() - began
        return 2 * nbytes * count / took, (time.thread_time() - cpu) / took

    return best_rate(once, repeats)
