"""Process of the engine: reads a trace and jobs, and simulates the runs that it is asked for.

Each line of the standard input asks for a run: the number of its job, its seed, and what is wanted of it. A line on
standard output answers now and then with the share that is done, and with the figures at the end.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
from functools import lru_cache, partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any


def _read(folder: Path, asked: SimpleQueue[Any]) -> None:
    """Pass on what the parent asks for, and end this process, with its files, when that closes the standard input."""
    unread = b""
    while written := os.read(0, 4096):  # a reader with a lock could not be left alone at the end
        *lines, unread = (unread + written).split(b"\n")
        for line in lines:
            asked.put(json.loads(line))
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _answer(**values: Any) -> None:
    os.write(1, f"{json.dumps(values)}\n".encode())


def _simulate(folder: Path, asked: SimpleQueue[Any]) -> None:
    """Simulate the runs that are asked for, until this process is ended."""
    import gc
    import logging

    import dask

    from dask_efficiency.files.storage import any_size
    from dask_efficiency.runs.path.path import CriticalPath
    from dask_efficiency.runs.path.scope import Question
    from dask_efficiency.runs.trace.files import load_trace, save_trace
    from dask_efficiency.show.progress import hidden
    from dask_efficiency.simulation.engine.engine import Engine, StandsStill
    from dask_efficiency.simulation.engine.launch import trace_file
    from dask_efficiency.simulation.engine.workload import Workload
    from dask_efficiency.simulation.model.calibration import Calibration, calibrate
    from dask_efficiency.simulation.model.coarser import coarser
    from dask_efficiency.simulation.model.ensemble import SimulationJob, Wanted
    from dask_efficiency.simulation.model.run_figures import makespan_seconds

    logging.disable(logging.CRITICAL)
    # This machine's Dask configuration does not matter: the recorded run's settings are in the trace.
    dask.config.refresh(paths=[], env={})
    jobs = [*map(SimulationJob.from_dict, json.loads((folder / "jobs.json").read_text()))]
    with any_size(), hidden():  # its progress was shown when it was first read
        trace = load_trace(folder / "run.trace")
    workload = Workload(trace)

    # Jobs that differ in their workers, or settings, have the same costs.
    costs = [(job.gil, job.cluster.network, job.cluster.cores, job.others, job.chunks, job.calls_alone) for job in jobs]

    @lru_cache(maxsize=2)
    def prepared(first: int) -> tuple[Workload, Calibration]:
        gil, network, cores, others, chunks, calls_alone = costs[first]
        found = calibrate(trace, gil, network, cores, others=others)
        if chunks == 1:
            return workload, found
        fewer = coarser(trace, chunks)
        return Workload(fewer.trace), fewer.calibration(found, calls_alone=calls_alone)

    # A simulation keeps what it makes until its end; looking for garbage in it takes a third of the time.
    gc.disable()
    while True:
        number, seed, wanted = asked.get()
        engine = Engine(*prepared(costs.index(costs[number])), jobs[number], seed)
        try:
            simulated = engine.run(_Progress())
        except StandsStill as error:
            _answer(stands_still=str(error))
            continue
        if wanted == Wanted.TRACE:
            save_trace(simulated, trace_file(folder, number, seed))
        kinds = CriticalPath.of(simulated, Question()).seconds("kind") if wanted == Wanted.KINDS else {}
        memory = {"memory_needed": engine.memory_needed, "overfull": engine.overfull}
        _answer(makespan_seconds=makespan_seconds(simulated), kinds=kinds, **memory)


class _Progress:
    """Answers with the share of a run that is done, at each hundredth."""

    _hundredths = 0

    def __call__(self, share: float) -> None:
        if (reached := int(100 * min(share, 1.0))) > self._hundredths:
            self._hundredths = reached
            _answer(share=reached / 100)


def main() -> None:
    """Simulate the jobs of the folder that the argument names."""
    # Ctrl-C goes to all processes of a terminal; the parent ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    folder, asked = Path(sys.argv[1]), SimpleQueue[Any]()
    # Before Dask is imported, which takes a second.
    threading.Thread(target=partial(_read, folder, asked), daemon=True).start()
    _simulate(folder, asked)
