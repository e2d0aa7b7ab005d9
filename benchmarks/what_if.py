"""Claim: what a what-if predicts is within 5 % (median) of what the same change, really made, gives.

``python benchmarks/what_if.py`` makes ten changes on a cluster of four worker processes: prefixes that are sped up or
slowed down, slow workers that are repaired, transfers that are removed by placement, memory for results that would be
spilled. Each is predicted from a recorded run without it, then made, run and recorded. Tasks sleep, so that a busy
machine does not decide. The error is that of the makespan; beside it stands what doing nothing would be wrong by, and
what ``simulate``, which lets Dask place all tasks anew, predicts of the same change.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import dask
from dask.delayed import Delayed, delayed
from distributed import Client, LocalCluster, get_worker

from benchmarks.figures import figure
from dask_efficiency import ClusterSpec, CriticalPath, EfficiencyPlugin, critical_path, efficiency_report, simulate

#: Seconds that each result takes to be sent, and to be written.
SLOW_LINK = 0.15
SLOW_DISK = 0.15

#: Bytes of results that a worker keeps in memory: less than one that is large.
MEMORY = 2_000_000


def nap(seconds: float, nbytes: int = 0) -> bytes:
    """A task's work; a worker may be slower than the others."""
    time.sleep(seconds * getattr(get_worker(), "benchmark_slowness", 1.0))
    return b"x" * nbytes


def load(seconds: float, *inputs: Any) -> bytes:
    return nap(seconds)


def merge(seconds: float, *inputs: Any) -> bytes:
    return nap(seconds)


def big(seconds: float, nbytes: int, *inputs: Any) -> bytes:
    return nap(seconds, nbytes)


def set_slowness(dask_worker: Any, factor: float) -> None:
    """Slow a worker's tasks down."""
    dask_worker.benchmark_slowness = factor


def make_link_slow(dask_worker: Any) -> None:
    """Let a worker wait before it sends a result."""
    import asyncio

    original = dask_worker.handlers["get_data"]

    async def get_data(comm: Any, **kwargs: Any) -> Any:
        await asyncio.sleep(SLOW_LINK)
        return await original(comm, **kwargs)

    dask_worker.handlers["get_data"] = get_data


def make_disk_slow(dask_worker: Any) -> None:
    """Let a worker's disk wait for each result."""
    files = dask_worker.data.slow.data.d
    kind: Any = type(files)

    class SlowFile(kind):  # type: ignore[misc]  # whatever class this version of Dask has
        def __setitem__(self, key: Any, value: Any) -> None:
            time.sleep(SLOW_DISK)
            super().__setitem__(key, value)

    files.__class__ = SlowFile


def set_memory(dask_worker: Any, nbytes: int) -> None:
    """Set the bytes that a worker keeps in memory before it writes to disk."""
    dask_worker.data.fast.n = nbytes


def tree(load_seconds: float = 0.1, merge_seconds: float = 0.1, leaves: int = 32) -> Delayed:
    level = [delayed(load, pure=False)(load_seconds * (0.5 + i * 7 % 11 / 10), i) for i in range(leaves)]
    while len(level) > 1:
        level = [delayed(merge, pure=False)(merge_seconds, *level[i : i + 2]) for i in range(0, len(level), 2)]
    return level[0]


def wide(load_seconds: float = 0.1, tasks: int = 100) -> Delayed:
    level = [delayed(load, pure=False)(load_seconds * (0.5 + i * 7 % 11 / 10), i) for i in range(tasks)]
    return delayed(merge, pure=False)(0.05, *level)


def race(load_seconds: float = 0.2, merge_seconds: float = 0.12) -> Delayed:
    """Two chains side by side; when the longer one gets faster, the other one bounds the run."""
    first, second = delayed(load, pure=False)(load_seconds), delayed(merge, pure=False)(merge_seconds)
    for _ in range(9):
        first = delayed(load, pure=False)(load_seconds, first)
        second = delayed(merge, pure=False)(merge_seconds, second)
    return delayed(merge, pure=False)(merge_seconds, first, second)


def chain(nbytes: int, where: list[str]) -> Delayed:
    """One task after the other, on these workers in turn."""
    found: Any = ()
    for worker in where:
        with dask.annotate(workers=[worker], allow_other_workers=False):
            found = (delayed(big, pure=False)(0.1, nbytes, *found),)
    return found[0]


@dataclass(frozen=True)
class Case:
    """A change: what is run before and after it, and what a what-if is told of it."""

    name: str
    before: Callable[[], Delayed]
    after: Callable[[], Delayed]
    what_if: dict[str, Any]
    #: Slowness by position of the worker, before the change.
    slow: dict[int, float] = field(default_factory=dict)
    #: Bytes that a worker keeps in memory after the change; before, it is :data:`MEMORY`.
    memory: int = MEMORY


def cases(names: list[str], addresses: list[str]) -> list[Case]:
    four, one = addresses[:4] * 3, addresses[:1] * 12

    def spilling() -> Delayed:
        return chain(4_000_000, one)

    return [
        Case("tree: load twice as fast", tree, lambda: tree(load_seconds=0.05), {"speed_up": {"load": 2.0}}),
        Case("tree: merge twice as fast", tree, lambda: tree(merge_seconds=0.05), {"speed_up": {"merge": 2.0}}),
        Case("tree: merge half as fast", tree, lambda: tree(merge_seconds=0.2), {"speed_up": {"merge": 0.5}}),
        Case("wide: load twice as fast", wide, lambda: wide(load_seconds=0.05), {"speed_up": {"load": 2.0}}),
        Case("wide: load a third faster", wide, lambda: wide(load_seconds=0.075), {"speed_up": {"load": 4 / 3}}),
        Case("race: load 5 times as fast", race, lambda: race(load_seconds=0.04), {"speed_up": {"load": 5.0}}),
        Case("wide: a slow worker repaired", wide, wide, {"repair": [names[0]]}, {0: 3.0}),
        Case("tree: a slow worker repaired", tree, tree, {"repair": [names[1]]}, {1: 2.0}),
        Case(
            "transfers removed by placement",
            lambda: chain(1000, four),
            lambda: chain(1000, one),
            {"without": ["transfer"]},
        ),
        Case("memory for all results", spilling, spilling, {"without": ["spill"]}, memory=1 << 40),
    ]


def measure(client: Client, graph: Delayed) -> CriticalPath:
    with efficiency_report(client, trace=True) as report:
        client.compute(graph, optimize_graph=False).result()
    assert report.trace is not None
    return critical_path(report.trace)


def simulated(path: CriticalPath, seeds: int, what_if: dict[str, Any]) -> float:
    """The makespan that a simulation with a change predicts."""
    repaired = what_if.get("repair", ())
    cluster = ClusterSpec.from_trace(path.trace).with_speeds(dict.fromkeys(repaired, 1.0))
    changes = {name: value for name, value in what_if.items() if name != "repair"}
    return simulate(path.trace, cluster, seeds=seeds, force=True, **changes).makespan_seconds


def main() -> None:
    """Predict, make and compare the changes; print the errors and their median."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="runs before and after each change; medians count")
    parser.add_argument("--seeds", type=int, default=4, help="simulated runs of each recorded one")
    parser.add_argument("--only", default="", help="only changes with this in their names")
    given = parser.parse_args()
    repeats = given.repeats
    settings = {
        "distributed.worker.memory.target": 0.001,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": False,
    }
    options = {"n_workers": 4, "threads_per_worker": 1, "memory_limit": "2 GiB", "dashboard_address": ":0"}
    with dask.config.set(settings), LocalCluster(processes=True, **options) as cluster, Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin())
        infos = client.scheduler_info(n_workers=-1)["workers"]
        addresses = sorted(infos)
        names = [str(infos[address]["name"]) for address in addresses]
        client.run(make_link_slow)
        client.run(make_disk_slow)
        measure(client, tree(0.01, 0.01))

        errors, of_simulation, naive, unlike = [], [], [], []
        columns = ("before", "replayed", "predicted", "simulated", "measured", "error", "simulated", "as it was")
        print(f"{'change':34}" + "".join(f" {column:>9}" for column in columns))
        for case in (case for case in cases(names, addresses) if given.only in case.name):
            paths, after = [], []
            for _ in range(repeats):
                # In turn, so that a machine that gets busier slows both.
                for position, factor in case.slow.items():
                    client.run(set_slowness, factor=factor, workers=[addresses[position]])
                paths.append(measure(client, case.before()))
                client.run(set_slowness, factor=1.0)
                client.run(set_memory, nbytes=case.memory)
                after.append(measure(client, case.after()).makespan_seconds)
                client.run(set_memory, nbytes=MEMORY)
            measured = statistics.median(after)
            before = statistics.median(path.makespan_seconds for path in paths)
            replayed = statistics.median(path.what_if().makespan_seconds for path in paths)
            predicted = statistics.median(path.what_if(**case.what_if).makespan_seconds for path in paths)
            again = statistics.median(simulated(path, given.seeds, {}) for path in paths)
            virtual = statistics.median(simulated(path, given.seeds, case.what_if) for path in paths)
            errors.append(abs(predicted - measured) / measured)
            of_simulation.append(abs(virtual - measured) / measured)
            unlike.append(abs(again - replayed) / replayed)
            naive.append(abs(before - measured) / measured)
            print(
                f"{case.name:34} {before:9.3f} {replayed:9.3f} {predicted:9.3f} {virtual:9.3f} {measured:9.3f}"
                f" {100 * (predicted / measured - 1):+8.1f}% {100 * (virtual / measured - 1):+8.1f}%"
                f" {100 * (before / measured - 1):+8.1f}%",
                flush=True,
            )
        for name, found in (("what_if", errors), ("simulate", of_simulation), ("no prediction", naive)):
            print(f"{name}: median error {100 * statistics.median(found):.1f} %, largest {100 * max(found):.1f} %")
        figure("median error", 100 * statistics.median(errors), "%", at_most=5)
        figure("largest error", 100 * max(errors), "%")
        figure("median error of simulate", 100 * statistics.median(of_simulation), "%")
        figure("median error without a prediction", 100 * statistics.median(naive), "%")
        print(f"unchanged runs, simulated and replayed, differ by at most {100 * max(unlike):.1f} %")


if __name__ == "__main__":
    main()
