"""Disk: bytes a second that reach the disk where a worker spills."""

from __future__ import annotations

import os
import tempfile
import time
from typing import Any

from dask_efficiency.adapters.hardware.measured import REPEATS, NotMeasured, best_rate

#: Bytes that are written at once, and at most in all repetitions.
CHUNK = 2**20
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
    data = os.urandom(CHUNK)
    try:
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:

            def once() -> tuple[float, float]:
                count = 0
                began = time.perf_counter()
                while time.perf_counter() < began + seconds and count * CHUNK * repeats < MAX_NBYTES:
                    file.seek(0)
                    file.write(data)
                    os.fdatasync(file.fileno()) if hasattr(os, "fdatasync") else os.fsync(file.fileno())
                    count += 1
                return CHUNK * count / (time.perf_counter() - began), float("nan")

            return best_rate(once, repeats)
    except OSError as error:
        raise NotMeasured(f"cannot write to {directory}: {error.strerror or error}") from error
