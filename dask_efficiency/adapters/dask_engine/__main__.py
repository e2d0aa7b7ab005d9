"""The engine's process: reads a trace and a job, and writes what became of each seed."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import sys
import threading
from pathlib import Path

import dask

from dask_efficiency.adapters.dask_engine.engine import Engine
from dask_efficiency.adapters.dask_engine.workload import Workload
from dask_efficiency.simulation.calibration import calibrate
from dask_efficiency.simulation.job import Job
from dask_efficiency.trace.files import read_trace, save_trace


def main(folder: Path, seeds: list[int]) -> None:
    """Simulate the job of a folder with each of these seeds, and write a file for each."""
    logging.disable(logging.CRITICAL)
    # What Dask is configured to on this machine has nothing to do with the recorded run: its settings are in the trace.
    dask.config.refresh(paths=[], env={})
    job_file = json.loads((folder / "job.json").read_text())
    job, kept = Job.from_dict(job_file["job"]), set(job_file["traces"])
    trace = read_trace(folder / "run.trace")
    calibration, workload = calibrate(trace, job.gil, job.cluster.network, job.cluster.cores), Workload(trace)
    # A simulation keeps what it makes until its end; looking for garbage in it takes a third of the time.
    gc.disable()
    for seed in seeds:
        simulated = asyncio.run(Engine(workload, calibration, job, seed).run())
        if seed in kept and simulated.trace is not None:
            save_trace(simulated.trace, folder / f"{seed}.trace")
        gc.collect()
        figures = {"makespan_seconds": simulated.makespan_seconds, "kinds": simulated.kinds}
        (folder / f"{seed}.json").write_text(json.dumps(figures))


def _end_with_parent() -> None:
    """End this process when the one that began it is gone, which closes the standard input."""
    os.read(0, 1)  # a reader with a lock could not be left alone at the end
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=_end_with_parent, daemon=True).start()
    main(Path(sys.argv[1]), list(map(int, sys.argv[2:])))
