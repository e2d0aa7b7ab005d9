"""Launch of simulations: seeds in parallel, in processes of their own."""

from __future__ import annotations

import json
import os
import selectors
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from subprocess import PIPE, Popen

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

    The same seed gives the same run, to the nanosecond, on any machine. ``report`` gets the number of finished runs.
    """
    # Hashes of texts must be the same in every process.
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    at_once = max(1, min(len(seeds), processes or CPU_COUNT))
    with tempfile.TemporaryDirectory(prefix="dask-efficiency-") as name:
        folder = Path(name)
        save_trace(trace, folder / "run.trace")
        (folder / "job.json").write_text(json.dumps({"job": job.to_dict(), "traces": sorted(traces)}))
        running: dict[Popen[bytes], Path] = {}
        try:
            for i in range(at_once):
                command = [sys.executable, "-m", __package__, str(folder), *map(str, seeds[i::at_once])]
                errors = folder / f"{i}.txt"
                with errors.open("wb") as file:
                    # It ends when its standard input closes, however this process ends.
                    running[Popen(command, env=environment, stdin=PIPE, stdout=PIPE, stderr=file)] = errors
            _wait(running, report)
        finally:
            for process in running:
                process.kill()
                process.communicate()
        with any_size():
            found = {seed: load_trace(folder / f"{seed}.trace") if seed in traces else None for seed in seeds}
        figures = [json.loads((folder / f"{seed}.json").read_text()) for seed in seeds]
        return [Simulated(seed, **each, trace=found[seed]) for seed, each in zip(seeds, figures, strict=True)]


def _wait(running: Mapping[Popen[bytes], Path], report: Callable[[float], object]) -> None:
    """Wait for all processes, which write a byte for each hundredth of a run, and a file of errors."""
    hundredths = 0
    with selectors.DefaultSelector() as selector:
        for process in running:
            assert process.stdout is not None
            selector.register(process.stdout, selectors.EVENT_READ, process)
        while selector.get_map():
            for key, _ in selector.select(TICK):
                if written := os.read(key.fd, 4096):
                    hundredths += len(written)
                    continue
                selector.unregister(key.fileobj)
                if key.data.wait():
                    text = running[key.data].read_text(errors="replace").strip()
                    *_, last = text.splitlines() or ["it wrote no error"]
                    raise SimulationError(f"a simulation ended with code {key.data.returncode}: {last}")
            report(hundredths / 100)
