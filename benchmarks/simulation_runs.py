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
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import dask
import distributed
import numpy as np
import psutil
from dask.delayed import Delayed, delayed
from distributed import Client, LocalCluster, get_worker

from benchmarks.computing_programs import CHOOSING, JUDGING
from dask_efficiency import EfficiencyPlugin, RunTrace, critical_path, efficiency_report
from dask_efficiency.report import demo

MB = 1_000_000


def nap(seconds: float, nbytes: int, *inputs: Any) -> bytes:
    """Sleep, longer on a worker that was made slow; the result has that many bytes."""
    time.sleep(seconds * getattr(get_worker(), "benchmark_slowness", 1.0))
    return b"x" * nbytes


def set_slowness(dask_worker: Any, factor: float) -> None:
    """Slow :func:`nap` down on a worker."""
    dask_worker.benchmark_slowness = factor


class _Graph:
    """Adds sleeping tasks with durations drawn in the order in which they are added."""

    def __init__(self, name: str, seed: int) -> None:
        self.name = name
        self.rng = np.random.default_rng(seed)

    def task(self, kind: str, number: int, seconds: float, nbytes: int, *inputs: Delayed) -> Delayed:
        """One more task; it takes 0.5 to 1.5 times as long."""
        return self.exactly(kind, number, seconds * self.rng.uniform(0.5, 1.5), nbytes, *inputs)

    def exactly(self, kind: str, number: int, seconds: float, nbytes: int, *inputs: Delayed) -> Delayed:
        """One more task of that duration; its prefix is the graph's name and its kind."""
        key = f"{self.name}_{kind}-{number}"
        return delayed(nap, pure=False)(float(seconds), nbytes, *inputs, dask_key_name=key)


def tree(leaves: int = 512, seconds: float = 0.04, seed: int = 1) -> Delayed:
    graph = _Graph("tree", seed)
    level = [graph.task("load", i, seconds, 10_000) for i in range(leaves)]
    number = 0
    while len(level) > 1:
        above = []
        for i in range(0, len(level), 2):
            above.append(graph.task("merge", number, seconds, 10_000, *level[i : i + 2]))
            number += 1
        level = above
    return level[0]


def lognormal(tasks: int = 400, seconds: float = 0.05, sigma: float = 1.0, seed: int = 2) -> Delayed:
    """Independent tasks of which a few take far longer than the others, and one that needs them all."""
    graph = _Graph("lognormal", seed)
    times = graph.rng.lognormal(np.log(seconds) - sigma**2 / 2, sigma, tasks)
    level = [graph.exactly("work", i, times[i], 1000) for i in range(tasks)]
    return graph.exactly("total", 0, 0.02, 100, *level)


def shuffle(partitions: int = 24, piece: int = MB // 10, seed: int = 3) -> Delayed:
    """Each partition is split into as many pieces as there are partitions; each new partition needs one of each."""
    graph = _Graph("shuffle", seed)
    loads = [graph.task("load", i, 0.06, piece * partitions) for i in range(partitions)]
    pieces = [
        [graph.task("split", i * partitions + j, 0.025, piece, loads[i]) for j in range(partitions)]
        for i in range(partitions)
    ]
    merged = [graph.task("merge", j, 0.06, 1000, *(row[j] for row in pieces)) for j in range(partitions)]
    return graph.exactly("total", 0, 0.02, 100, *merged)


def stencil(cells: int = 16, steps: int = 20, seconds: float = 0.05, seed: int = 4) -> Delayed:
    """Each cell needs itself and its two neighbours of the step before."""
    graph = _Graph("stencil", seed)
    level = [graph.task("init", i, seconds, 50_000) for i in range(cells)]
    for step in range(1, steps):
        level = [
            graph.task("step", step * cells + i, seconds, 50_000, *level[max(0, i - 1) : i + 2]) for i in range(cells)
        ]
    return graph.exactly("total", 0, 0.02, 100, *level)


def warm_up(workers: int) -> Delayed:
    """A few tasks on each worker, whose results move between them."""
    graph = _Graph("warm", 0)
    level = [graph.task("init", i, 0.05, 10_000) for i in range(2 * workers)]
    for step in range(1, 3):
        level = [
            graph.task("step", step * 1000 + i, 0.02, 10_000, level[i], level[i - workers]) for i in range(2 * workers)
        ]
    return graph.exactly("total", 0, 0.01, 100, *level)


#: Graphs of sleeping tasks by name.
GRAPHS: dict[str, Callable[[], Delayed]] = {
    "tree": tree,
    "lognormal": lognormal,
    "shuffle": shuffle,
    "stencil": stencil,
}


def frame(client: Client, method: str) -> None:
    """A shuffle of a table with 32 partitions to 16."""
    import dask
    import dask.datasets

    table = dask.datasets.timeseries(end="2000-02-02", freq="1s", seed=1)
    with dask.config.set({"dataframe.shuffle.method": method}):
        table.shuffle("name", npartitions=16).map_partitions(len).sum().compute()


def array(client: Client) -> None:
    """Spread around the mean of 800 MB in 64 chunks, of a product with itself turned round."""
    import dask.array as da

    values = da.random.default_rng(1).random((8000, 8000), chunks=(1000, 1000))
    (da.exp(values) * values.T - values.mean()).std().compute()


def svd(client: Client) -> None:
    """Ten singular values of a matrix of 240 MB, by random projection."""
    import dask.array as da

    values = da.random.default_rng(2).random((120_000, 250), chunks=(6_000, 250))
    da.compute(*da.linalg.svd_compressed(values, 10, n_power_iter=2, seed=da.random.default_rng(3)))


def overlap(client: Client) -> None:
    """Two smoothing steps of a picture of 128 MB, whose chunks need their neighbours' edges."""
    import dask.array as da

    def smooth(block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return (block + np.roll(block, 1, 0) + np.roll(block, -1, 0) + np.roll(block, 1, 1) + np.roll(block, -1, 1)) / 5

    values = da.random.default_rng(4).random((4_000, 4_000), chunks=(500, 500))
    for _ in range(2):
        values = da.map_overlap(smooth, values, depth=1, boundary="reflect")
    values.max().compute()


def words(client: Client) -> None:
    """The ten most frequent of 1.2 million made-up words; pure Python, which holds the interpreter's lock."""
    import dask.bag as db

    def draw(part: int) -> list[str]:
        rng = np.random.default_rng(part)
        return [f"word{number}" for number in rng.zipf(1.5, 25_000) % 5_000]

    db.from_sequence(range(48), npartitions=48).map(draw).flatten().frequencies(split_every=8).topk(
        10, lambda pair: pair[1]
    ).compute()


def groups(client: Client) -> None:
    """A table that is merged with its groups' means, and a function applied to each group."""
    import dask.datasets

    table = dask.datasets.timeseries(end="2000-01-21", freq="2s", seed=5)
    means = table.groupby("name")[["x", "y"]].mean().reset_index()
    merged = table.merge(means, on="name", suffixes=("", "_mean"))
    merged.assign(off=(merged.x - merged.x_mean).abs()).groupby("name").off.apply(
        lambda off: off.nlargest(3).sum(), meta=("off", "f8")
    ).compute()


def product(client: Client) -> None:
    """The largest of each row of a product of two matrices of 72 MB, in 16 chunks each."""
    import dask.array as da

    left, right = (da.random.default_rng(seed).random((3_000, 3_000), chunks=(750, 750)) for seed in (6, 7))
    (left @ right).max(axis=1).compute()


def records(client: Client) -> None:
    """Means by city of 200,000 records, which are written and read as JSON; pure Python."""
    import json

    import dask.bag as db

    def write(part: int) -> list[str]:
        rng = np.random.default_rng(part)
        rows = zip(rng.integers(0, 100, 5_000).tolist(), rng.random(5_000).tolist(), strict=True)
        return [json.dumps({"city": f"city-{city}", "value": value}) for city, value in rows]

    lines = db.from_sequence(range(40), npartitions=40).map(write).flatten()
    found = lines.map(json.loads).foldby(
        "city", lambda row, one: (row[0] + one["value"], row[1] + 1), (0.0, 0), lambda a, b: (a[0] + b[0], a[1] + b[1])
    )
    dict(found.compute())


def join(client: Client) -> None:
    """Two tables of 432,000 rows, joined on a column of which neither is sorted, and counted by name."""
    import dask.datasets

    left, right = (dask.datasets.timeseries(end="2000-01-11", freq="2s", seed=seed) for seed in (8, 9))
    right = right.drop_duplicates(subset="id", split_out=4)[["id", "x"]]
    with dask.config.set({"dataframe.shuffle.method": "tasks"}):
        left.merge(right, on="id", suffixes=("", "_right")).groupby("name").x_right.agg(["mean", "count"]).compute()


def search(client: Client) -> None:
    """Three rounds in which each of the best candidates brings forth others, as futures."""

    def score(seed: int) -> tuple[float, int]:
        rng = np.random.default_rng(seed)
        return float(np.linalg.norm(rng.random((300, 300)) @ rng.random((300, 300)))), seed

    seeds = list(range(60))
    for _ in range(3):
        found = client.gather(client.map(score, seeds, pure=False))
        seeds = [seed * 7 + i for _, seed in sorted(found)[:15] for i in range(4)]


def wavefront(client: Client) -> None:
    """A table of 14 by 14 blocks, each of which needs those to the left and above."""

    def fill(row: int, column: int, *needed: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        block = np.random.default_rng(14 * row + column).random((250, 250))
        for other in needed:
            block = np.maximum(block, np.sqrt(other + block))
        return np.cumsum(block, axis=1) / 250

    cells: dict[tuple[int, int], Delayed] = {}
    for row in range(14):
        for column in range(14):
            needed = [cells[at] for at in ((row, column - 1), (row - 1, column)) if at in cells]
            cells[row, column] = delayed(fill, pure=False)(row, column, *needed)
    client.compute(cells[13, 13]).result()


def rolling(client: Client) -> None:
    """Means of 200 rows of a table that is sorted by time, and how often they are above 0, by hour."""
    import dask.datasets

    table = dask.datasets.timeseries(end="2000-01-25", freq="2s", partition_freq="1d", seed=10)
    means = table[["x", "y"]].rolling(200).mean()
    (means > 0).resample("1h").sum().compute()


def histogram(client: Client) -> None:
    """A histogram and percentiles of 12 million numbers in 48 chunks, after they were cut and sorted in each."""
    import dask
    import dask.array as da

    values = da.random.default_rng(11).normal(size=12_000_000, chunks=250_000)
    cut = da.clip(values, -3, 3).map_blocks(np.sort)
    counts, _ = da.histogram(cut, bins=100, range=(-3, 3))
    dask.compute(counts, da.percentile(cut, [5, 50, 95]))


def letters(client: Client) -> None:
    """The words of made-up texts by their first letter, and the longest of each; a bag and its groups."""
    import dask.bag as db

    def write(part: int) -> list[str]:
        rng = np.random.default_rng(part)
        return ["".join(chr(97 + n) for n in rng.integers(0, 26, rng.integers(3, 12))) for _ in range(3_000)]

    texts = db.from_sequence(range(36), npartitions=36).map(write).flatten()
    texts.filter(str.isalpha).map(str.upper).foldby(lambda text: text[0], max, "", max, "").compute()


def torch(client: Client) -> None:
    """The demo's batches through a neural network."""
    demo.infer(client, 2.0)


def demo_parts(client: Client) -> None:
    """The demo with as much work on one worker as on two; its part that hands data from worker to worker needs two."""
    demo.group_and_shuffle(client, 1.0)
    demo.reduce_more_than_memory(client, 1 / len(client.nthreads()))
    demo.infer(client, 1.0)
    demo.retry(client, 1.0)


#: Programs that compute, by name.
PROGRAMS: dict[str, Callable[[Client], None]] = {
    "frame": lambda client: frame(client, "tasks"),
    "frame-p2p": lambda client: frame(client, "p2p"),
    "array": array,
    "torch": torch,
    "demo": demo_parts,
    # By these eight the computing of event loops was found to be too much, and mended.
    "svd": svd,
    "overlap": overlap,
    "words": words,
    "groups": groups,
    "product": product,
    "records": records,
    "join": join,
    "search": search,
    # Chosen after the model.
    "wavefront": wavefront,
    "rolling": rolling,
    "histogram": histogram,
    "letters": letters,
    # Of :mod:`benchmarks.simulation_threads`.
    **CHOOSING,
    **JUDGING,
}


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
        return f"{workload}_w{self.workers}_t{self.threads}_{self.variant}_r{self.repeat}.trace"


@dataclass(frozen=True)
class Run:
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
    graphs, programs = list(GRAPHS), [name for name in PROGRAMS if name not in CHOOSING | JUDGING]
    setups = [Setup(4), Setup(8), Setup(2), Setup(1), Setup(16), Setup(4, variant="slow"), Setup(3)]
    setups += [Setup(4, variant=name) for name in VARIANTS if name not in ("plain", "slow")]
    setups += [Setup(2, threads=2)]
    everything = [([replace(setup, repeat=i) for i in range(repeats)], graphs) for setup in setups]
    # In turn, so that a machine that gets busier slows both.
    return [*everything, ([Setup(n, repeat=i) for i in range(repeats) for n in (1, 2)], programs)]


def measure(client: Client, name: str) -> RunTrace:
    with efficiency_report(client, trace=True, savings=0) as report:
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
