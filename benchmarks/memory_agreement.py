"""Claim: results are known within 1 %, working memory of tasks and what they leave behind within 10 %.

Tasks take known amounts of memory: results, temporary arrays, bytearrays that stay, files that are mapped, arrays that
two results share, and what a library's pool gives out. They run one or two at a time on one worker; what a task takes
is claimed of those that run alone. The same runs are watched by two other tools. distributed's ``MemorySampler`` has
managed memory and that of processes, so that its figures are the most of the first, the rise of the second from the
beginning to the most (working), and to the end (left). dask-memusage (``pip install dask-memusage``; a dash where it is
missing) samples the process every 10 ms, and has the least and the most of each task; it is made for workers of one
thread, and its own thread ends with a traceback.

``python -m benchmarks.memory_agreement`` prints the known amounts and what each tool found, and how many of ours are
within their bounds.
"""

from __future__ import annotations

import csv
import logging
import mmap
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from distributed import Client, LocalCluster, wait
from distributed.diagnostics import MemorySampler

from benchmarks.figures import figure
from dask_efficiency import EfficiencyPlugin, EfficiencyReport, efficiency_report

MIB = 2**20
#: Tasks of each case, MiB of each, and seconds that each goes on with it.
TASKS, SIZE, SECONDS = 8, 50, 0.3
#: Shares by which figures may be off: of results, of working memory, and of what is left.
BOUNDS = {"results": 0.01, "working": 0.1, "left": 0.1}
#: Seconds between two samples of ``MemorySampler``.
INTERVAL = 0.1
KEPT: list[Any] = []


def pages(nbytes: int) -> np.ndarray:
    return np.ones(nbytes, "u1")


def result(nbytes: int) -> np.ndarray:
    made = pages(nbytes)
    time.sleep(SECONDS)
    return made


def temporary(nbytes: int) -> int:
    made = pages(nbytes)
    time.sleep(SECONDS)
    return len(made)


def stays(nbytes: int) -> int:
    KEPT.append(bytearray(b"x") * nbytes)
    time.sleep(SECONDS)
    return len(KEPT)


def mapped(nbytes: int) -> int:
    with tempfile.TemporaryFile() as file:
        file.write(bytes(nbytes))
        file.flush()
        with mmap.mmap(file.fileno(), nbytes, access=mmap.ACCESS_READ) as there:
            touched = sum(there[:: mmap.PAGESIZE])
            time.sleep(SECONDS)
    return touched


def shares(nbytes: int) -> tuple[np.ndarray, np.ndarray]:
    return (made := result(nbytes)), made[:]


def pooled(nbytes: int) -> int:
    import pyarrow as pa

    buffer = pa.allocate_buffer(nbytes)
    np.frombuffer(buffer, "u1")[:] = 1
    time.sleep(SECONDS)
    return int(buffer.size)


@dataclass(frozen=True)
class Case:
    """Tasks with known memory: MiB of all results, working memory of one, and what all leave behind."""

    task: Callable[[int], Any]
    results: float = 0.0
    working: float = SIZE
    left: float = 0.0

    @property
    def known(self) -> dict[str, float]:
        return {what: getattr(self, what) for what in BOUNDS}


CASES = (
    Case(result, results=TASKS * SIZE),
    Case(temporary),
    Case(stays, left=TASKS * SIZE),
    Case(mapped),
    # Twice what is there counts as results, so that less than nothing is left beside them.
    Case(shares, results=2 * TASKS * SIZE, left=-TASKS * SIZE),
    # The pool keeps what the first task had, and the others have that: this is left once, and no leak.
    Case(pooled, working=0),
)


def ours(report: EfficiencyReport, prefix: str) -> dict[str, float]:
    """Figures of the report, in MiB."""
    (memory,), skew = report.memory.values(), report.skew[prefix]
    return {
        "results": memory.held_peak / MIB,
        "working": skew.median_working / MIB,
        "left": skew.left_bytes / MIB if skew.working_alone else float("nan"),
    }


def sampled(sampler: MemorySampler, name: str) -> dict[str, float]:
    """Figures of ``MemorySampler``, in MiB."""
    managed, process = (
        [nbytes / MIB for _, nbytes in sampler.samples[f"{name} {measure}"]] for measure in ("managed", "process")
    )
    return {"results": max(managed), "working": max(process) - process[0], "left": process[-1] - process[0]}


def by_task(path: Path, prefix: str) -> dict[str, float]:
    """Figures of dask-memusage, in MiB: it has those of tasks only."""
    if not path.exists():
        return {}
    with path.open() as file:
        rows = [row for row in csv.DictReader(file) if row["task_key"].startswith(prefix)]
    found = [float(row["max_memory_mb"]) - float(row["min_memory_mb"]) for row in rows]
    return {"working": median(found)} if found else {}


def watch_tasks(cluster: LocalCluster, path: Path) -> str:
    """Let dask-memusage watch a cluster; returns why it does not."""
    try:
        from dask_memusage import install  # type: ignore[import-not-found]  # optional
    except ImportError as error:
        return f"{type(error).__name__}: {error}"
    install(cluster.scheduler, str(path))
    return ""


def run(threads: int, found: dict[tuple[str, str], dict[str, dict[str, float]]]) -> None:
    """Run all cases with so many tasks at a time."""
    size = {"n_workers": 1, "threads_per_worker": threads, "memory_limit": "8 GiB", "dashboard_address": ":0"}
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(silence_logs=logging.CRITICAL, **size) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(EfficiencyPlugin())
        wait([client.submit(case.task, 1000, pure=False) for case in CASES])  # what they import is there
        path, sampler = Path(folder, "memusage.csv"), MemorySampler()
        if missing := watch_tasks(cluster, path):
            print(f"without dask-memusage: {missing}")
        for case in CASES:
            name = case.task.__name__
            time.sleep(2)  # the results of the case before go, and heartbeats say so
            with (
                sampler.sample(f"{name} managed", client=client, measure="managed", interval=INTERVAL),
                sampler.sample(f"{name} process", client=client, measure="process", interval=INTERVAL),
                efficiency_report(client=client) as report,
            ):
                futures = client.map(case.task, [SIZE * MIB] * TASKS, key=name, pure=False)
                wait(futures)
                time.sleep(1.5)
            del futures
            figures = ours(report.report, name), sampled(sampler, name), by_task(path, name)
            found[f"{threads} at a time", name] = dict(zip(TOOLS, figures, strict=True))


TOOLS = ("this package", "MemorySampler", "dask-memusage")


def main() -> None:
    """Print what is known beside what each tool found."""
    found: dict[tuple[str, str], dict[str, dict[str, float]]] = {}
    for threads in (1, 2):
        run(threads, found)
    print(f"{'':13} {'tasks':10} {'MiB of':8} {'known':>7}", *(f"{tool:>14}" for tool in TOOLS))
    within: defaultdict[str, list[bool]] = defaultdict(list)
    known = {case.task.__name__: case.known for case in CASES}
    for (how, name), tools in found.items():
        for what, amount in known[name].items():
            figures = [tools[tool].get(what, float("nan")) for tool in TOOLS]
            texts = [f"{figure:14.1f}" if figure == figure else f"{'-':>14}" for figure in figures]
            print(f"{how:13} {name:10} {what:8} {amount:7.0f}", *texts)
            if figures[0] == figures[0] and (what == "results" or how.startswith("1 ")):
                # Of nothing, as much is allowed as of one task.
                within[what].append(abs(figures[0] - amount) <= BOUNDS[what] * (abs(amount) or SIZE))
    for what, ones in within.items():
        figure(f"{what} within {BOUNDS[what]:.0%}", sum(ones), of=len(ones), at_least=len(ones))


if __name__ == "__main__":
    main()
