"""Runs of workloads that benchmarks share: each in a process of its own, on a cluster of processes, with its clocks."""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from distributed import Client, LocalCluster

from dask_efficiency import EfficiencyPlugin, EfficiencyReport, efficiency_report, load_report, load_trace

#: Cores of a cluster, whatever the machine has: the bottlenecks are known for this number.
CORES = 2


def parser_of(
    description: str | None, names: Collection[str], *, timeout_seconds: float | None = None
) -> argparse.ArgumentParser:
    """The options of a benchmark that runs some of these; with a timeout, each in a process of its own."""

    def name(text: str) -> str:
        if text not in names:
            raise argparse.ArgumentTypeError(f"there is no {text!r}; expected some of {', '.join(names)}")
        return text

    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", type=name, help=f"of {', '.join(names)}; all by default")
    parser.add_argument("--scale", type=_scale, default=1.0, help="size of the work, in (0, 1]")
    parser.add_argument("--json", metavar="FILE", help="where to write what was said, measured and found")
    if timeout_seconds is not None:
        parser.add_argument("--timeout", type=float, default=timeout_seconds, help="seconds that each may take")
        parser.add_argument("--alone", action="store_true", help="run one in this process")
    return parser


def _scale(text: str) -> float:
    if not 0 < float(text) <= 1:
        raise argparse.ArgumentTypeError(f"{text} is no share; expected more than 0 and at most 1")
    return float(text)


def write(file: str | None, told: Any) -> None:
    """Write a result, or results by name, as JSON; nothing without a file."""
    if file:
        Path(file).write_text(json.dumps(told, indent=1, default=asdict))


def lacking(modules: Sequence[str]) -> str:
    """Reason for skipping a workload that needs these modules; empty if they are there."""
    missing = [module for module in modules if find_spec(module) is None]
    return f"skipped, as {' and '.join(missing)} cannot be imported here" if missing else ""


def in_a_process(module: str, name: str, *words: str, timeout: float) -> dict[str, Any] | str:
    """The JSON that ``python -m MODULE NAME --alone --json FILE`` writes, or why there is none."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "result.json"
        command = [sys.executable, "-m", module, name, "--alone", "--json", str(file), *words]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            _, errors = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            return f"did not end within {timeout:g} s"
        finally:
            with suppress(ProcessLookupError):  # its workers, if they are still there
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if not file.exists():
            return f"failed: {(errors.strip().splitlines() or ['no reason given'])[-1]}"
        result: dict[str, Any] = json.loads(file.read_text())
        return result


# -- on a cluster of processes ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ran:
    """A workload that is over, and what is known of it without its report."""

    report: EfficiencyReport
    stopwatch_seconds: float
    #: Seconds of the workers' threads by what they were and did ("task cpu", "loop waits for a core"), by the kernel.
    kernel: dict[str, float]

    def save(self, folder: Path, name: str, *, with_trace: bool) -> None:
        """Keep it as files of that name: the report, what else is known, and the trace if that is worth it."""
        folder.mkdir(parents=True, exist_ok=True)
        self.report.save(str(folder / f"{name}.json"))
        _without_our_paths(folder / f"{name}.json")
        known = {key: getattr(self, key) for key in ("stopwatch_seconds", "kernel")}
        (folder / f"{name}.known.json").write_text(json.dumps(known, indent=1) + "\n")
        if with_trace and self.report.trace is not None:
            self.report.trace.save(str(folder / f"{name}.trace"))

    @classmethod
    def load(cls, folder: Path, name: str) -> Ran:
        report = load_report(str(folder / f"{name}.json"))
        trace = folder / f"{name}.trace"
        if trace.exists():
            report = replace(report, trace=load_trace(str(trace)))
        return cls(report=report, **json.loads((folder / f"{name}.known.json").read_text()))


def recorded(name: str, folder: Path) -> Ran | str:
    """A workload that was saved; why there is none, where there is not."""
    there = (folder / f"{name}.known.json").exists()
    return Ran.load(folder, name) if there else f"skipped, as there is no record of it in {folder}"


def _without_our_paths(file: Path) -> None:
    """Leave this machine's folders out of the names of files in a report's stacks."""
    text = file.read_text()
    installed = "/venv/lib/python3/site-packages/dask_efficiency/"  # and no code of the user's
    for ours, theirs in (
        (f"{Path.cwd()}/dask_efficiency/", installed),
        (sys.prefix, "/venv"),
        (sys.base_prefix, "/usr"),
        (f"{Path.cwd()}/", ""),
    ):
        text = text.replace(ours, theirs)
    file.write_text(text)


@contextmanager
def cluster(workers: int = 2, threads: int = 1, **options: Any) -> Iterator[Client]:
    """The client of a cluster of processes that has two cores, or the one that there is."""
    os.sched_setaffinity(0, cores())
    options = {"dashboard_address": None, "silence_logs": 50, **options}
    with (
        LocalCluster(n_workers=workers, threads_per_worker=threads, processes=True, **options) as cluster,
        Client(cluster) as client,
    ):
        if workers:
            client.wait_for_workers(workers)
        yield client


def cores() -> list[int]:
    """The first two that this process may use."""
    return sorted(os.sched_getaffinity(0))[:CORES]


def measured(client: Client, work: Callable[[], Any], *, trace: bool = True) -> Ran:
    client.register_plugin(EfficiencyPlugin())
    before = client.run(kernel_clocks)
    with efficiency_report(client, trace=trace) as measuring:
        began, busy = time.perf_counter(), busy_seconds() - time.process_time()
        work()
        took, busy = time.perf_counter() - began, busy_seconds() - time.process_time() - busy
    after = client.run(kernel_clocks)
    kernel: Counter[str] = Counter()
    for worker, clocks in after.items():
        for thread, (what, seconds) in clocks.items():
            since = before.get(worker, {}).get(thread, ("", (0.0, 0.0)))[1]
            kernel[f"{what} cpu"] += seconds[0] - since[0]
            kernel[f"{what} waits for a core"] += seconds[1] - since[1]
    workers = sum(seconds for what, seconds in kernel.items() if what.endswith("cpu"))
    kernel["other programs cpu"] = max(0.0, busy - workers)
    return Ran(measuring.report, took, dict(kernel))


def kernel_clocks() -> dict[int, tuple[str, tuple[float, float]]]:
    """By thread of this process: its kind, and its seconds on a core and waiting for one. Empty except on Linux."""
    kinds = {threading.main_thread().native_id: "loop"}
    for thread in threading.enumerate():
        if "Dask-Default-Threads" in thread.name:
            kinds[thread.native_id] = "task"
    found = {}
    for path in Path("/proc/self/task").glob("*/schedstat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            on_core, waiting, _ = map(int, path.read_text().split())
            thread_id = int(path.parent.name)
            found[thread_id] = kinds.get(thread_id, "other"), (on_core / 1e9, waiting / 1e9)
    return found


def busy_seconds() -> float:
    """For which our cores have computed anything, for anybody."""
    ours = {f"cpu{core}" for core in cores()}
    rows = (line.split() for line in Path("/proc/stat").read_text().splitlines())
    # user, nice, system, and after idle and iowait: irq, softirq; the rest is other machines'
    ticks = sum(sum(map(int, row[1:4])) + sum(map(int, row[6:8])) for row in rows if row[0] in ours)
    return ticks / os.sysconf("SC_CLK_TCK")
