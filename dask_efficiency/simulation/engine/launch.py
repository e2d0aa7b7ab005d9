"""Launch of simulations: seeds in parallel, in processes of their own."""

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


class SimulationError(RuntimeError):
    """A simulation failed."""


#: Seconds between two reports of progress while nothing is done.
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
    """Simulate a recorded run, once for each seed, in their order; those in ``traces`` with traces.

    The same seed gives the same run, to the nanosecond, on any machine. ``report`` is called now and then with the
    number of runs that are done, fractions included. One process for each core runs at once, or ``processes``.
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
    # Hashes of texts must be the same in every process.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-m", __package__, str(folder), *map(str, seeds)]
    with _errors_file(folder, seeds).open("wb") as errors:
        # It ends when its standard input closes, however this process ends.
        return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)


def _errors_file(folder: Path, seeds: Sequence[int]) -> Path:
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
    """Raise the error with which a process ended."""
    if process.wait():
        errors = _errors_file(folder, seeds).read_text(errors="replace").strip()
        *_, last = errors.splitlines() or ["it wrote no error"]
        raise SimulationError(f"a simulation ended with code {process.returncode}: {last}")


def _read(folder: Path, seed: int, *, traced: bool) -> Simulated:
    figures = json.loads((folder / f"{seed}.json").read_text())
    with any_size():
        trace = load_trace(folder / f"{seed}.trace") if traced else None
    return Simulated(seed, figures["makespan_seconds"], figures["kinds"], trace)
