"""The engine's process: reads a trace and jobs, and writes what became of each seed."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import sys
from pathlib import Path

import dask

from dask_efficiency.adapters.dask_engine.engine import Engine
from dask_efficiency.adapters.dask_engine.workload import Workload
from dask_efficiency.simulation.calibration import calibrate
from dask_efficiency.simulation.job import Job
from dask_efficiency.trace.files import read_trace, save_trace


def main(folder: Path, seeds: list[int]) -> None:
    """Simulate the job of a folder with each of these seeds; print a line of JSON for each."""
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    # What Dask is configured to on this machine has nothing to do with the recorded run: its settings are in the trace.
    dask.config.refresh(paths=[], env={})
    job_file = json.loads((folder / "job.json").read_text())
    job, kept = Job.from_dict(job_file["job"]), set(job_file["traces"])
    trace = read_trace(folder / "run.trace")
    calibration, workload = calibrate(trace, job.gil, job.cluster.network), Workload(trace)
    # A simulation keeps what it makes until its end; looking for garbage in it takes a third of the time.
    gc.disable()
    for seed in seeds:
        simulated = asyncio.run(Engine(workload, calibration, job, seed).run())
        if seed in kept and simulated.trace is not None:
            save_trace(simulated.trace, folder / f"{seed}.trace")
        gc.collect()
        row = {"seed": seed, "makespan_seconds": simulated.makespan_seconds, "kinds": simulated.kinds}
        sys.stdout.write(json.dumps(row) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), list(map(int, sys.argv[2:])))
