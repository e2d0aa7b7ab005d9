"""Process of the engine: reads a trace and a job, and writes a file for each seed.

A byte for each hundredth of a seed that is done goes to standard output.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from functools import partial
from pathlib import Path


def _end_with_parent(folder: Path) -> None:
    """End this process, and remove its files, when its parent is gone, which closes the standard input."""
    os.read(0, 1)  # a reader with a lock could not be left alone at the end
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _simulate(folder: Path, seeds: list[int]) -> None:
    """Simulate the job of a folder with each of these seeds, and write a file for each."""
    import gc
    import json
    import logging

    import dask

    from dask_efficiency.files.storage import any_size
    from dask_efficiency.runs.trace.files import load_trace, save_trace
    from dask_efficiency.show.progress import hidden
    from dask_efficiency.simulation.engine.engine import Engine
    from dask_efficiency.simulation.engine.workload import Workload
    from dask_efficiency.simulation.model.calibration import calibrate
    from dask_efficiency.simulation.model.ensemble import SimulationJob

    logging.disable(logging.CRITICAL)
    # This machine's Dask configuration does not matter: the recorded run's settings are in the trace.
    dask.config.refresh(paths=[], env={})
    job_file = json.loads((folder / "job.json").read_text())
    job, kept = SimulationJob.from_dict(job_file["job"]), set(job_file["traces"])
    with any_size(), hidden():  # its progress was shown when it was first read
        trace = load_trace(folder / "run.trace")
    calibration, workload = calibrate(trace, job.gil, job.cluster.network, job.cluster.cores), Workload(trace)
    # A simulation keeps what it makes until its end; looking for garbage in it takes a third of the time.
    gc.disable()
    for seed in seeds:
        hundredths = _Hundredths()
        simulated = Engine(workload, calibration, job, seed).run(hundredths)
        if seed in kept and simulated.trace is not None:
            save_trace(simulated.trace, folder / f"{seed}.trace")
        figures = {"makespan_seconds": simulated.makespan_seconds, "kinds": simulated.kinds}
        (folder / f"{seed}.json").write_text(json.dumps(figures))
        hundredths(1.0)


class _Hundredths:
    """Writes a byte for each hundredth of a seed."""

    written = 0

    def __call__(self, share: float) -> None:
        due = int(100 * min(share, 1.0)) - self.written
        if due > 0:
            os.write(1, bytes(due))
            self.written += due


if __name__ == "__main__":
    # Ctrl-C goes to all processes of a terminal; the parent ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Before Dask is imported, which takes a second.
    threading.Thread(target=partial(_end_with_parent, Path(sys.argv[1])), daemon=True).start()
    _simulate(Path(sys.argv[1]), list(map(int, sys.argv[2:])))
