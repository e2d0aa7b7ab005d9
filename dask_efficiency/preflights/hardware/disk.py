"""Disk: bytes a second that reach the disk where a worker spills."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from typing import Any

from dask_efficiency.preflights.hardware.measured import REPEATS, NotMeasured, best_rate

#: Bytes that are written at once: at first, and on a disk that takes them in a moment. A fast disk takes less time for
#: a MiB than a core takes to wake up for it: whether it has to is chance, and made a rate of 2 or of 6 GB/s.
CHUNK = 2**20
MAX_CHUNK = 16 * 2**20
MOMENT_SECONDS = 5e-3

#: Bytes that are written at most in all repetitions.
MAX_NBYTES = 96 * 2**20


def writes(directory: str, seconds: float, repeats: int = REPEATS) -> dict[str, Any]:
    """Bytes a second that are written, each chunk until the disk has it.

    Raises
    ------
    NotMeasured
        If nothing can be written there.

    References
    ----------
    ``distributed.worker.benchmark_disk`` measures the same. Here the file has no name, so that nothing is left of it
    however the process ends.
    """
    try:
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:

            def write(data: bytes) -> None:
                file.seek(0)
                file.write(data)
                os.fdatasync(file.fileno()) if hasattr(os, "fdatasync") else os.fsync(file.fileno())

            data = _of_a_moment(write)

            def once() -> tuple[float, float]:
                count = 0
                began = time.perf_counter()
                while time.perf_counter() < began + seconds and count * len(data) * repeats < MAX_NBYTES:
                    write(data)
                    count += 1
                return len(data) * count / (time.perf_counter() - began), float("nan")

            return best_rate(once, repeats)
    except OSError as error:
        raise NotMeasured(f"cannot write to {directory}: {error.strerror or error}") from error


def _of_a_moment(write: Callable[[bytes], None]) -> bytes:
    """Data for which the disk takes about a moment, found by writing ever more of it."""
    data = os.urandom(CHUNK)
    while len(data) < MAX_CHUNK:
        began = time.perf_counter()
        write(data)
        if time.perf_counter() - began > MOMENT_SECONDS:
            break
        data += data
    return data
