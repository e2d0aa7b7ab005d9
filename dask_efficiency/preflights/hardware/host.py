"""Measurements of a host: processor, memory, disk, Python's loops and a user's workload, each with repetitions."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

#: Repetitions of each measurement, of which the best counts: disturbances only make it slower.
REPEATS = 3
#: Seconds after which a measurement is not repeated; a guess.
MAX_SECONDS = 2.0


T = TypeVar("T")


class CannotMeasure(Exception):
    """Hardware or software that a measurement needs is missing; the message names it."""


def best_rate(measure: Callable[[], tuple[float, float]], repeats: int = REPEATS) -> dict[str, Any]:
    """Repetition with the highest rate; ``measure`` returns one, and the share of time its threads computed, or NaN."""
    repetitions = _repeated(measure, repeats)
    rate, share = max(repetitions)
    return {"value": rate, "share": share, "count": len(repetitions)}


def least_seconds(measure: Callable[[], float], repeats: int = REPEATS) -> dict[str, Any]:
    """Repetition with the fewest seconds."""
    repetitions = _repeated(measure, repeats)
    return {"value": min(repetitions), "count": len(repetitions)}


def _repeated(measure: Callable[[], T], repeats: int) -> list[T]:
    repetitions = []
    began = time.perf_counter()
    for _ in range(repeats):
        repetitions.append(measure())
        if time.perf_counter() - began > MAX_SECONDS:
            break
    return repetitions


#: Rows of the matrices: three of them take 1.5 MB, and a product a millisecond.
ROWS = 256


def matrix_products(threads: int, seconds: float, repeats: int = REPEATS) -> dict[str, Any]:
    """Floating-point operations a second of products in double precision, each thread's of matrices of its own."""
    # NumPy's own threads must be switched off by the environment of the process.
    matrices = [np.random.default_rng(i).random((ROWS, ROWS)) for i in range(threads)]
    for matrix in matrices:
        matrix @ matrix  # the first product loads the library and touches the memory

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


#: Bytes of each of the two arrays. Caches of today's servers hold tens of megabytes for each core.
NBYTES = 64 * 2**20
MIN_NBYTES = 4 * 2**20


def copies(limit: int, seconds: float, repeats: int = REPEATS) -> dict[str, Any]:
    """Bytes a second that one thread reads and writes between arrays that no cache holds, of an eighth of the limit."""
    # ``distributed.worker.benchmark_memory`` copies pieces of 10 MiB at most, which a cache may hold.
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


#: Bytes written at once: at first, and at most on a disk that takes them in less than this many seconds. A fast disk
#: takes less time for a MiB than a core takes to wake up for it, and whether it has to is chance: rates of 2 or of 6
#: GB/s.
CHUNK = 2**20
MAX_CHUNK = 16 * 2**20
MOMENT_SECONDS = 5e-3
#: Most bytes written in all repetitions.
MAX_NBYTES = 96 * 2**20


def writes(directory: str, seconds: float, repeats: int = REPEATS) -> dict[str, Any]:
    """Bytes a second written to the disk where a worker spills, each chunk until the disk has it."""
    # The file has no name, so that nothing remains of it however the process ends.
    try:
        with tempfile.TemporaryFile(dir=directory, buffering=0) as file:

            def write(data: bytes) -> None:
                file.seek(0)
                file.write(data)
                os.fdatasync(file.fileno()) if hasattr(os, "fdatasync") else os.fsync(file.fileno())

            data = os.urandom(CHUNK)
            while len(data) < MAX_CHUNK:
                began = time.perf_counter()
                write(data)
                if time.perf_counter() - began > MOMENT_SECONDS:
                    break
                data += data

            def once() -> tuple[float, float]:
                count = 0
                began = time.perf_counter()
                while time.perf_counter() < began + seconds and count * len(data) * repeats < MAX_NBYTES:
                    write(data)
                    count += 1
                return len(data) * count / (time.perf_counter() - began), float("nan")

            return best_rate(once, repeats)
    except OSError as error:
        raise CannotMeasure(f"cannot write to {directory}: {error.strerror or error}") from error


#: Turns of the loop between two looks at the clock: a quarter of a millisecond.
TURNS = 5_000


def python_loops(
    seconds: float, repeats: int = REPEATS, spent: Callable[[float], object] = lambda seconds: None
) -> dict[str, Any]:
    """Turns a second of a loop in pure Python; and ``others``, CPU seconds a second of the process's other threads.

    ``spent`` is called every quarter of a millisecond with the CPU seconds used so far.
    """
    repetitions = []
    start = time.thread_time()
    for _ in range(repeats):
        count = 0
        began, thread, process = time.perf_counter(), time.thread_time(), time.process_time()
        while time.perf_counter() < began + seconds:
            for _ in range(TURNS):
                pass
            count += TURNS
            spent(time.thread_time() - start)
        took = time.perf_counter() - began
        own = time.thread_time() - thread
        others = max(0.0, time.process_time() - process - own)
        repetitions.append((count / took, own / took, others / took))
    rate, share, others = max(repetitions)
    return {"value": rate, "share": share, "others": others, "count": repeats}


#: Kinds of a workload.
CALLABLE, SCRIPT = "callable", "script"


def run(kind: str, payload: bytes, repeats: int = REPEATS) -> dict[str, Any]:
    """Seconds of a workload of the client: a function as cloudpickle wrote it, or the source of a script."""
    if kind == CALLABLE:
        import cloudpickle

        function = cloudpickle.loads(payload)
    else:
        code = compile(payload, "<workload>", "exec")

        def function() -> None:
            try:
                exec(code, {"__name__": "__main__"})
            except SystemExit as end:
                if end.code:
                    raise

    def once() -> float:
        began = time.perf_counter()
        function()
        return time.perf_counter() - began

    return least_seconds(once, repeats)
