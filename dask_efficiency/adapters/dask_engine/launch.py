"""Launch: seeds simulated side by side, each in a process that does nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from dask_efficiency.simulation.job import Job, Simulated
from dask_efficiency.trace.files import read_trace, save_trace
from dask_efficiency.trace.run_trace import TraceTables

_MODULE = "dask_efficiency.adapters.dask_engine"


class SimulationError(RuntimeError):
    """A simulation did not come to its end."""


def simulate_seeds(
    trace: TraceTables, job: Job, seeds: Sequence[int], *, traces: Collection[int] = (), processes: int | None = None
) -> list[Simulated]:
    """Simulate a recorded run, once for each seed.

    Parameters
    ----------
    trace
        The recorded run.
    job
        Where, and with which changes.
    seeds
        Each is a run of its own; the same seed gives the same run, to the nanosecond, on any machine.
    traces
        Seeds whose simulated runs are given as traces.
    processes
        How many processes at once; one for each core if None.

    Returns
    -------
    list of Simulated
        In the order of the seeds.

    Raises
    ------
    SimulationError
        If a simulated run stands still, or its process ends with an error; says why.
    """
    at_once = max(1, min(len(seeds), processes or len(os.sched_getaffinity(0))))
    with tempfile.TemporaryDirectory(prefix="dask-efficiency-") as name:
        folder = Path(name)
        save_trace(trace, folder / "run.trace")
        (folder / "job.json").write_text(json.dumps({"job": job.to_dict(), "traces": sorted(traces)}))
        running = [_start(folder, seeds[i::at_once]) for i in range(at_once)]
        try:
            rows = {row["seed"]: row for process in running for row in _read(process)}
        finally:
            for process in running:
                process.kill()
                process.communicate()
        return [
            Simulated(
                seed,
                rows[seed]["makespan_seconds"],
                rows[seed]["kinds"],
                read_trace(folder / f"{seed}.trace") if seed in traces else None,
            )
            for seed in seeds
        ]


def _start(folder: Path, seeds: Sequence[int]) -> subprocess.Popen[str]:
    # Texts must have the same hash in every process, and the user's configuration is in the trace.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", _MODULE, str(folder), *map(str, seeds)]
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _read(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    out, err = process.communicate()
    if process.returncode:
        *_, last = err.strip().splitlines() or ["it said nothing"]
        raise SimulationError(f"a simulation ended with code {process.returncode}: {last}")
    return [json.loads(line) for line in out.splitlines() if line.startswith("{")]
