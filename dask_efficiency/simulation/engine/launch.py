"""Launch: seeds simulated side by side, each in a process that does nothing else."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from dask.system import CPU_COUNT

from dask_efficiency.files.storage import any_size
from dask_efficiency.runs.trace.files import load_trace, save_trace
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.simulation.model.ensemble import Simulated, SimulationJob

_MODULE = "dask_efficiency.simulation.engine"


class SimulationError(RuntimeError):
    """A simulation did not come to its end."""


#: Seconds between two reports, where nothing is done meanwhile.
TICK = 0.5


def simulate_seeds(
    trace: RunTrace,
    job: SimulationJob,
    seeds: Sequence[int],
    *,
    traces: Collection[int] = (),
    processes: int | None = None,
    report: Callable[[float], object] = lambda runs: None,
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
    report
        Is called now and then with how many runs are done, also parts of one.

    Returns
    -------
    list of Simulated
        In the order of the seeds.

    Raises
    ------
    SimulationError
        If a simulated run stands still, or its process ends with an error; says why.
    """
    at_once = max(1, min(len(seeds), processes or CPU_COUNT))
    with tempfile.TemporaryDirectory(prefix="dask-efficiency-") as name:
        folder = Path(name)
        save_trace(trace, folder / "run.trace")
        (folder / "job.json").write_text(json.dumps({"job": job.to_dict(), "traces": sorted(traces)}))
        shares = [seeds[i::at_once] for i in range(at_once)]
        running: list[subprocess.Popen[bytes]] = []
        try:
            running.extend(_start(folder, share) for share in shares)
            _wait(folder, dict(zip(running, shares, strict=True)), report)
        finally:
            for process in running:
                process.kill()
                process.communicate()
        return [_read(folder, seed, traced=seed in traces) for seed in seeds]


def _start(folder: Path, seeds: Sequence[int]) -> subprocess.Popen[bytes]:
    # Texts must have the same hash in every process.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", _MODULE, str(folder), *map(str, seeds)]
    with _said(folder, seeds).open("wb") as said:
        # It ends when its standard input does: whatever becomes of this process, none is left.
        return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said)


def _said(folder: Path, seeds: Sequence[int]) -> Path:
    return folder / f"{seeds[0]}.txt"


def _wait(
    folder: Path, running: Mapping[subprocess.Popen[bytes], Sequence[int]], report: Callable[[float], object]
) -> None:
    """Wait for all processes, which write a byte for each hundredth of a run."""
    hundredths = 0
    with selectors.DefaultSelector() as selector:
        for process in running:
            assert process.stdout is not None
            selector.register(process.stdout, selectors.EVENT_READ, process)
        while selector.get_map():
            for key, _ in selector.select(TICK):
                if written := os.read(key.fd, 4096):
                    hundredths += len(written)
                else:
                    selector.unregister(key.fileobj)
                    _check(key.data, folder, running[key.data])
            report(hundredths / 100)


def _check(process: subprocess.Popen[bytes], folder: Path, seeds: Sequence[int]) -> None:
    """Refuse a process that ended with an error."""
    if process.wait():
        said = _said(folder, seeds).read_text(errors="replace").strip()
        *_, last = said.splitlines() or ["it said nothing"]
        raise SimulationError(f"a simulation ended with code {process.returncode}: {last}")


def _read(folder: Path, seed: int, *, traced: bool) -> Simulated:
    figures = json.loads((folder / f"{seed}.json").read_text())
    with any_size():
        trace = load_trace(folder / f"{seed}.trace") if traced else None
    return Simulated(seed, figures["makespan_seconds"], figures["kinds"], trace)
