"""Launch of simulations: processes that start once for all jobs of a question, and simulate a run each at a time."""

from __future__ import annotations

import json
import math
import os
import selectors
import tempfile
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE, Popen
from time import monotonic
from typing import Any, NamedTuple

from dask.system import CPU_COUNT

from dask_efficiency.files.processes import command
from dask_efficiency.files.storage import any_size
from dask_efficiency.runs.trace.files import load_trace, save_trace
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.simulation.model.ensemble import Ensemble, SeededJob, Wanted


class SimulationError(RuntimeError):
    """A simulation failed."""


_MODULE = "dask_efficiency.simulation.engine.process"
#: Seconds between two reports of progress while nothing is done.
TICK = 0.5


def simulate_jobs(
    trace: RunTrace,
    jobs: Sequence[SeededJob],
    *,
    processes: int | None = None,
    seconds: float = math.inf,
    report: Callable[[float], object] = lambda runs: None,
) -> Generator[Ensemble, None, None]:
    """Simulate a recorded run with each job under its seeds, and yield their ensembles in the order of the jobs.

    The same seed gives the same run, to the nanosecond, on any machine. ``report`` gets the number of finished runs.
    After so many ``seconds`` it ends, with the seeds that are done by then.

    Raises
    ------
    SimulationError
        If a process fails, or a run stands still whose job may not.
    """
    until = monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="dask-efficiency-") as folder:
        launch = _Launch(Path(folder), trace, jobs)
        try:
            # Not more than two, or than one job alone keeps busy: each has the trace in its memory.
            busy = min(sum(launch.left), max(2, *launch.left))
            launch.start(max(1, min(busy, processes or CPU_COUNT)))
            for number in range(len(jobs)):
                while launch.left[number] and (left := until - monotonic()) > 0:
                    launch.wait(min(TICK, left))
                    report(launch.done)
                runs = launch.ensemble(number)
                if runs.stands_still and not jobs[number].may_stand_still:
                    raise SimulationError(runs.stands_still)
                yield runs
        finally:
            launch.end()


def trace_file(folder: Path, job: int, seed: int) -> Path:
    """File of the trace of a job's seed."""
    return folder / f"{job}-{seed}.trace"


class _Run(NamedTuple):
    """Run that a process is asked for; the job by its number."""

    job: int
    seed: int
    wanted: Wanted


class _Process:
    """Process of the engine, and the run that it simulates."""

    def __init__(self, folder: Path, number: int) -> None:
        self._errors = folder / f"{number}.txt"
        # Hashes of texts must be the same in every process.
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        with self._errors.open("wb") as errors:
            # It ends when its standard input closes, however this process ends.
            self._popen = Popen(
                command(_MODULE, str(folder)), env=environment, stdin=PIPE, stdout=PIPE, stderr=errors, bufsize=0
            )
        self._unread = b""
        self.run: _Run | None = None
        #: Share of that run that is done.
        self.share = 0.0

    def fileno(self) -> int:
        """Descriptor of its answers, for a selector."""
        assert self._popen.stdout is not None
        return self._popen.stdout.fileno()

    def begin(self, run: _Run) -> None:
        """Ask for a run."""
        assert self._popen.stdin is not None
        self.run, self.share = run, 0.0
        with suppress(BrokenPipeError):  # its answers will end, too
            self._popen.stdin.write(f"{json.dumps(run)}\n".encode())

    def answers(self) -> Iterator[Mapping[str, Any]]:
        """Read what it wrote: the share that is done, or the figures of a finished run."""
        written = os.read(self.fileno(), 4096)
        if not written:
            self._popen.wait()
            *_, last = self._errors.read_text(errors="replace").strip().splitlines() or ["it wrote no error"]
            raise SimulationError(f"a simulation ended with code {self._popen.returncode}: {last}")
        *lines, self._unread = (self._unread + written).split(b"\n")
        return map(json.loads, lines)

    def end(self) -> None:
        """End the process."""
        self._popen.kill()
        self._popen.communicate()


class _Launch:
    """Processes of the engine, the runs that they are to simulate, and the figures of those that are done."""

    def __init__(self, folder: Path, trace: RunTrace, jobs: Sequence[SeededJob]) -> None:
        self._folder, self._trace, self._jobs = folder, trace, jobs
        self._due: deque[_Run] = deque()
        for number, seeded in enumerate(jobs):
            wanted = Wanted.NOTHING if seeded.is_traced_again(trace) else seeded.wanted
            self._due.extend(_Run(number, seed, wanted) for seed in seeded.seeds)
        #: By job: number of its runs that are not done, and by seed the figures of those that are.
        self.left = [len(seeded.seeds) for seeded in jobs]
        self._figures: list[dict[int, Mapping[str, Any]]] = [{} for _ in jobs]
        self._finished = 0
        self._processes: list[_Process] = []
        self._selector = selectors.DefaultSelector()

    def start(self, processes: int) -> None:
        """Start so many processes, each with a run."""
        save_trace(self._trace, self._folder / "run.trace")
        (self._folder / "jobs.json").write_text(json.dumps([seeded.job.to_dict() for seeded in self._jobs]))
        for number in range(processes):
            process = _Process(self._folder, number)
            self._processes.append(process)
            self._selector.register(process, selectors.EVENT_READ)
        self._begin_runs()

    def wait(self, seconds: float) -> None:
        """Wait for answers of the processes for so many seconds at most; those that are done begin another run."""
        for key, _ in self._selector.select(seconds):
            process: Any = key.fileobj
            for answer in process.answers():
                if "share" in answer:
                    process.share = answer["share"]
                else:
                    self._finish(process, answer)
        self._begin_runs()

    def _begin_runs(self) -> None:
        for process in self._processes:
            if process.run is None and self._due:
                process.begin(self._due.popleft())

    def _finish(self, process: _Process, figures: Mapping[str, Any]) -> None:
        """Note the figures of a run; after the last of a job that needs it, ask once more for the median one."""
        assert process.run is not None
        (number, seed, wanted), process.run, process.share = process.run, None, 0.0
        self._figures[number][seed] = figures
        self._finished += 1
        self.left[number] -= 1
        if not self.left[number] and self._jobs[number].wanted is not wanted and not self._stands_still(number):
            self._due.appendleft(_Run(number, self._runs(number).nearest, Wanted.TRACE))
            self.left[number] = 1

    @property
    def done(self) -> float:
        """Number of runs that are done, with the shares of those that are not."""
        return self._finished + sum(process.share for process in self._processes)

    def _stands_still(self, number: int) -> str:
        reasons = (figures.get("stands_still", "") for figures in self._figures[number].values())
        return next(filter(None, reasons), "")

    def _runs(self, number: int) -> Ensemble:
        if why := self._stands_still(number):
            return Ensemble({}, stands_still=why)
        done = {seed: self._figures[number][seed] for seed in self._jobs[number].seeds if seed in self._figures[number]}
        return Ensemble(
            {seed: figures["makespan_seconds"] for seed, figures in done.items()},
            memory_needed=max((figures["memory_needed"] for figures in done.values()), default=0),
            overfull=sum(figures["overfull"] for figures in done.values()) / max(len(done), 1),
        )

    def ensemble(self, number: int) -> Ensemble:
        """Ensemble of a job's runs that are done, with what is wanted of the median one; removes their traces."""
        runs = self._runs(number)
        if not runs.makespans:
            return runs
        file, trace = trace_file(self._folder, number, runs.nearest), None
        if file.exists():
            with any_size():
                trace = load_trace(file)
        for seed in runs.makespans:
            trace_file(self._folder, number, seed).unlink(missing_ok=True)
        return replace(runs, trace=trace, kinds=self._figures[number][runs.nearest].get("kinds", {}))

    def end(self) -> None:
        """End the processes, whatever they do."""
        for process in self._processes:
            process.end()
        self._selector.close()
