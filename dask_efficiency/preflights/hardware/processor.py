"""Processor: matrix products with NumPy, in one thread and in several."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np

from dask_efficiency.preflights.hardware.measured import REPEATS, best_rate

#: Rows of the matrices: three of them take 1.5 MB, and a product a millisecond.
ROWS = 256


def matrix_products(threads: int, seconds: float, repeats: int = REPEATS) -> dict[str, Any]:
    """Floating-point operations a second of products in double precision.

    NumPy's own threads must be switched off by the environment of the process: here each thread multiplies matrices of
    its own, as tasks on several threads of a worker do.
    """
    matrices = [np.random.default_rng(i).random((ROWS, ROWS)) for i in range(threads)]
    for matrix in matrices:
        matrix @ matrix  # the first one loads the library and touches the memory

    def once() -> tuple[float, float]:
        counts, cpu = [0] * threads, [0.0] * threads
        until = time.perf_counter() + seconds

        def multiply(number: int) -> None:
            matrix, result = matrices[number], np.empty((ROWS, ROWS))
            began = time.thread_time()
            while not counts[number] or time.perf_counter() < until:  # a thread may start late
                np.matmul(matrix, matrix, out=result)
                counts[number] += 1
            cpu[number] = time.thread_time() - began

        began = time.perf_counter()
        if threads == 1:
            multiply(0)
        else:
            started = [threading.Thread(target=multiply, args=(i,)) for i in range(threads)]
            for thread in started:
                thread.start()
            for thread in started:
                thread.join()
        took = time.perf_counter() - began
        return 2 * ROWS**3 * sum(counts) / took, sum(cpu) / took / threads

    return best_rate(once, repeats)
