"""Real runs that a simulation is judged by: each is made on a new local cluster and its trace is saved.

``python -m benchmarks.simulation_runs FOLDER`` makes all that are not in the folder yet, in the order of :func:`plan`,
and adds a line for each to ``FOLDER/index.jsonl``. Each cluster is made by a process of its own, as the order of sets
in the scheduler depends on where objects lie and on the seed of the process's hashes.

Whatever else the machine does makes them longer (``others`` in the index says how much it did), and eight workers on
two cores the most: sleeping tasks may be run at a priority of their own, such as ``chrt --rr 1``.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import dask
import distributed
import numpy as np
import psutil
from distributed import Client, LocalCluster

from benchmarks.simulation_work import GRAPHS, PROGRAMS, set_slowness, warm_up
from dask_efficiency import EfficiencyPlugin, RunTrace, critical_path, efficiency_report
from dask_efficiency.report import demo

#: How much longer tasks take on the worker that is slow.
SLOWNESS = 2.5

#: Dask's settings by variant. A worker is slow where ``slow`` is in the name. A saturation of 1 leaves a worker of one
#: thread without a task in reserve; from 1.1, which is the default, to 2 makes no difference to it.
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "slow": {},
    "saturation1": {"distributed.scheduler.worker-saturation": 1.0},
    "saturationinf": {"distributed.scheduler.worker-saturation": float("inf")},
    "nosteal": {"distributed.scheduler.work-stealing": False},
    "slow-nosteal": {"distributed.scheduler.work-stealing": False},
}


@dataclass(frozen=True)
class Setup:
    """A cluster, and what is done differently on it."""

    workers: int
    threads: int = 1
    variant: str = "plain"
    repeat: int = 0

    def file(self, workload: str) -> str:
        """The name of a trace."""
        return f"{workload}_w{self.workers}_t{self.threads}_{self.variant}_r{self.repeat}.trace"


@dataclass(frozen=True)
class Run:
    """A line of the index."""

    file: str
    workload: str
    workers: int
    threads: int
    variant: str
    repeat: int
    #: Of the trace, as its critical path says.
    makespan_seconds: float
    #: From when the scheduler received the first graph until the last result that the client wanted was reported.
    scheduler_seconds: float
    tasks: int
    #: Name of the worker that was slow; empty if there was none.
    slow: str
    settings: dict[str, Any]
    #: Cores that other processes of the machine used meanwhile.
    others: float
    distributed: str


def plan(repeats: int) -> list[tuple[list[Setup], list[str]]]:
    """All runs; the most needed first."""
    graphs, programs = list(GRAPHS), list(PROGRAMS)
    setups = [Setup(4), Setup(8), Setup(2), Setup(1), Setup(16), Setup(4, variant="slow"), Setup(3)]
    setups += [Setup(4, variant=name) for name in VARIANTS if name not in ("plain", "slow")]
    setups += [Setup(2, threads=2)]
    everything = [([replace(setup, repeat=i) for i in range(repeats)], graphs) for setup in setups]
    # In turn, so that a machine that gets busier slows both.
    return [*everything, ([Setup(n, repeat=i) for i in range(repeats) for n in (1, 2)], programs)]


def measure(client: Client, name: str) -> RunTrace:
    """Run and record."""
    with efficiency_report(client, trace=True) as report:
        if name in GRAPHS:
            client.compute(GRAPHS[name](), optimize_graph=False).result()
        else:
            PROGRAMS[name](client)
    assert report.trace is not None
    return report.trace


def scheduler_seconds(trace: RunTrace) -> float:
    """From the first graph's receipt until the last wanted result is reported."""
    wanted = trace.tasks.wanted[trace.runs.task]
    return float(np.max(trace.runs.reported[wanted]) - trace.graphs.received[0]) / 1e9


def _cpu_of_others() -> float:
    """CPU seconds of the machine, without those of this process and its workers."""
    machine, this = psutil.cpu_times(), psutil.Process()
    own = [process.cpu_times() for process in (this, *this.children(recursive=True))]
    return float(machine.user + machine.system + machine.nice - sum(times.user + times.system for times in own))


def order(names: list[str], repeat: int) -> list[str]:
    """Another workload first in each repeat, as a cluster remembers bandwidth."""
    at = repeat % len(names)
    return names[at:] + names[:at]


def record(folder: Path, setup: Setup, workloads: list[str]) -> Iterator[Run]:
    """Make a cluster and run these workloads on it."""
    settings = dict(VARIANTS[setup.variant])
    limit = "2 GiB"
    if "demo" in workloads:
        settings["distributed.worker.memory.target"] = demo.SPILL_TARGET
        limit = demo.MEMORY_LIMIT
    options: dict[str, Any] = {
        "n_workers": setup.workers,
        "threads_per_worker": setup.threads,
        "memory_limit": limit,
        "dashboard_address": ":0",
    }
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(settings))
        cluster = stack.enter_context(LocalCluster(processes=True, **options))
        client = stack.enter_context(Client(cluster))
        client.wait_for_workers(setup.workers)
        client.register_plugin(EfficiencyPlugin())
        client.compute(warm_up(setup.workers), optimize_graph=False).result()
        slow = ""
        if "slow" in setup.variant:
            infos = client.scheduler_info(n_workers=-1)["workers"]
            address = min(infos, key=lambda address: str(infos[address]["name"]))
            slow = str(infos[address]["name"])
            client.run(set_slowness, factor=SLOWNESS, workers=[address])
        for name in order(workloads, setup.repeat):
            if name in PROGRAMS:
                # The first task on each worker imports what it needs; nothing in a trace tells that from its work.
                PROGRAMS[name](client)
            time.sleep(1.0)
            # A full collection of the garbage of a process that is scheduler and client takes a tenth of a second,
            # in some runs and not in others.
            gc.collect()
            gc.freeze()
            began, before = time.monotonic(), _cpu_of_others()
            trace = measure(client, name)
            others = (_cpu_of_others() - before) / (time.monotonic() - began)
            trace.save(folder / setup.file(name))
            yield Run(
                file=setup.file(name),
                workload=name,
                **asdict(setup),
                makespan_seconds=critical_path(trace).makespan_seconds,
                scheduler_seconds=scheduler_seconds(trace),
                tasks=len(trace.tasks),
                slow=slow,
                settings={key: str(value) for key, value in settings.items()},
                others=others,
                distributed=distributed.__version__,
            )


def read_index(folder: Path) -> list[Run]:
    """All runs of a folder."""
    index = folder / "index.jsonl"
    if not index.exists():
        return []
    return [Run(**json.loads(line)) for line in index.read_text().splitlines()]


def make_all(folder: Path, repeats: int, only: list[str]) -> None:
    """Make the runs that are missing, one cluster after the other."""
    for setups, workloads in plan(repeats):
        for setup in setups:
            known = {run.file for run in read_index(folder)}
            missing = [name for name in workloads if setup.file(name) not in known and (not only or name in only)]
            # The demo has a memory limit of its own.
            parts = [[name for name in missing if name != "demo"], [name for name in missing if name == "demo"]]
            for part in filter(None, parts):
                command = [sys.executable, "-m", "benchmarks.simulation_runs", str(folder), "--only", *part]
                command += ["--cluster", json.dumps(asdict(setup))]
                if subprocess.run(command, check=False).returncode:
                    print(f"failed: {setup} {part}", flush=True)


def main() -> None:
    """Make all runs, or those of one cluster."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--only", nargs="*", default=[], help="workloads")
    parser.add_argument("--cluster", help="JSON of one cluster; without it, all")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    if options.cluster is None:
        make_all(options.folder, options.repeats, options.only)
        return
    setup = Setup(**json.loads(options.cluster))
    for run in record(options.folder, setup, options.only):
        with (options.folder / "index.jsonl").open("a") as index:
            index.write(json.dumps(asdict(run)) + "\n")
        print(f"{time.strftime('%H:%M:%S')} {run.file} {run.makespan_seconds:.3f} s", flush=True)


if __name__ == "__main__":
    main()
