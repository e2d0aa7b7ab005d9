"""The main directions of many small matrices are found, one per task, by a library that has threads of its own.

source: dask/dask issue 9588
date:   2022-10-21
seen:   three workers with one thread each fit a model of a machine-learning library on a machine of ten cores: 20 s,
        with nearly two minutes of CPU time and 15 s of system time; the library had started 30 threads. Holding the
        library to one thread inside of the task is shown as the remedy.
cause:  threads_per_worker limits only Dask's threads. The threads of the library under the task are not limited by it:
        every task uses as many as the machine has cores, or as it was told to, and all tasks together have many more
        threads than there are cores.
cure:   limit the library in the task to one thread (threadpoolctl, the library's own call, or the environment
        variables of the workers).

Here the number of threads comes from a line in the code of the task, as in a script that once had a whole machine for
itself (Dask sets the number of BLAS threads to 1 when it starts a worker; the line undoes it).
"""

from __future__ import annotations

import numpy as np
from distributed import Client
from threadpoolctl import threadpool_limits

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("threadpoolctl",)
CLUSTER = TWO_BY_ONE
MODELS = scaled(20)
ROUNDS = 40
THREADS = 4

EXPECTED = Expected(
    cause="oversubscription: each task lets the BLAS library use 4 threads, so two tasks at a time run eight threads on"
    " two cores; they wait for one another at every product (spinning, context switches, system time) and get less"
    " done",
    place="threadpool_limits(limits=threads) in directions(), with THREADS = 4 from bad()",
    cure="one BLAS thread per task: threadpool_limits(1), or leave the worker's OMP_NUM_THREADS /"
    " OPENBLAS_NUM_THREADS at"
    " 1; let Dask do the parallel part",
    says=r"oversubscri|\b(BLAS|OpenMP|OpenBLAS|MKL|librar(y|ies|y's)|native|numpy'?s?)\b.{0,60}threads?"
    r"|threads? .{0,30}\b(BLAS|librar|OpenMP|NumPy|its own|their own)|(more|too many|extra|own|\d+|four|eight) threads"
    r"|threads.{0,30}\b(than|per|on|for) .{0,20}cores?|wait\w* for (a |the |other )?cores?|spin|context switch"
    r"|nested parallel|(contend|compet|fight)\w* for .{0,20}cores?",
    places=(*marked(__file__), function("directions"), r"threadpool_limits"),
    cures=r"threadpool|(OMP|OPENBLAS|MKL)_NUM|(one|1|single|fewer|less) (\w+ )?threads?|limit .{0,40}threads"
    r"|threads.{0,30}\b(to|at|of) (1|one)\b|environment",
    never={
        HOLDS_GIL: "the products leave the GIL",
        PROCESSES: "each worker has one thread",
        MORE_WORKERS: "there are too many threads already",
        LONGER_TASKS: "the tasks are long enough",
        r"(?i)(workers|cores) are (fully|well) used": "much of their CPU time is waiting",
    },
)


def directions(number: int, threads: int) -> float:
    """Find the main directions of a random matrix, by repeated products."""
    source = np.random.default_rng(number)
    with threadpool_limits(limits=threads):  # <- here
        matrix = source.standard_normal((600, 600))
        block = source.standard_normal((600, 200))
        for _ in range(ROUNDS):
            block = matrix.T @ (matrix @ block)
            block /= np.abs(block).max()
        return float(np.linalg.norm(block))


def bad(client: Client) -> float:
    return sum(client.gather(client.map(directions, range(MODELS), threads=THREADS)))  # <- here


def good(client: Client) -> float:
    return sum(client.gather(client.map(directions, range(MODELS), threads=1)))
