"""What the engine's process does; to standard output goes a byte for each hundredth of a seed that is done."""

from __future__ import annotations

import gc
import json
import logging
import os
from pathlib import Path

import dask

from dask_efficiency.files.storage import any_size
from dask_efficiency.runs.trace.files import load_trace, save_trace
from dask_efficiency.show.progress import hidden
from dask_efficiency.simulation.engine.engine import Engine
from dask_efficiency.simulation.engine.workload import Workload
from dask_efficiency.simulation.model.calibration import calibrate
from dask_efficiency.simulation.model.job import Job


def simulate(folder: Path, seeds: list[int]) -> None:
    """Simulate the job of a folder with each of these seeds, and write a file for each."""
    logging.disable(logging.CRITICAL)
    # What Dask is configured to on this machine has nothing to do with the recorded run: its settings are in the trace.
    dask.config.refresh(paths=[], env={})
    job_file = json.loads((folder / "job.json").read_text())
    job, kept = Job.from_dict(job_file["job"]), set(job_file["traces"])
    with any_size(), hidden():  # it was read before
        trace = load_trace(folder / "run.trace")
    calibration, workload = calibrate(trace, job.gil, job.cluster.network, job.cluster.cores), Workload(trace)
    # A simulation keeps what it makes until its end; looking for garbage in it takes a third of the time.
    gc.disable()
    for seed in seeds:
        hundredths = Hundredths()
        simulated = Engine(workload, calibration, job, seed).run(hundredths)
        if seed in kept and simulated.trace is not None:
            save_trace(simulated.trace, folder / f"{seed}.trace")
        figures = {"makespan_seconds": simulated.makespan_seconds, "kinds": simulated.kinds}
        (folder / f"{seed}.json").write_text(json.dumps(figures))
        hundredths(1.0)


class Hundredths:
    """Writes a byte for each hundredth of a seed."""

    def __init__(self) -> None:
        self._written = 0

    def __call__(self, share: float) -> None:
        """Write those that are due at this share of the seed."""
        due = int(100 * min(share, 1.0)) - self._written
        if due > 0:
            os.write(1, bytes(due))
            self._written += due
