"""Claim: with the memory that a finding names nothing is spilled, paused or killed; with four fifths of it, it is.

Fourteen programs, each after a public report, run on two workers with too little memory. The report of that
run should give the answer of its discussion on its first screen. Six were added after the first rules, the last ones;
slices, rounds and one large file had no answer until rules were changed. Of the first six, the
finding names a size: they run again with it, and with four fifths of it. Dask's own counters judge these runs (bytes
that workers wrote to disk, and pauses and restarts among the scheduler's events): the report has no part in it.
Spilling less than a hundredth of the memory limit is none.

``python -m benchmarks.memory_sizes --tries 10`` prints a line for each run, how many sizes held, and how many first
screens have the answer.
"""

from __future__ import annotations

import argparse
import logging
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask import delayed
from dask.utils import format_bytes, parse_bytes
from distributed import Client, LocalCluster, wait

from benchmarks.figures import figure
from dask_efficiency import EfficiencyReport, efficiency_report

#: Share of the named memory that must be too little.
LESS = 0.8
#: Share of the memory limit of which spilling counts.
COUNTS = 0.01


@dataclass(frozen=True)
class Program:
    """Program after a public report: what it runs, with how little memory, and what the report must say of it."""

    #: Report, what was seen in it, and the answer.
    source: str
    run: Callable[[Client], Any]
    memory: str
    #: Pattern of the answer, on the first screen.
    says: str
    config: Mapping[str, Any] = field(default_factory=dict)
    #: More arguments of its workers.
    workers: Mapping[str, Any] = field(default_factory=dict)
    #: False if its cure is no size.
    sized: bool = True


def mebibytes(number: float) -> np.ndarray:
    """An array of so many MiB, whose pages are written."""
    return np.full(round(number * 2**17), 1.0)


def centred(client: Client) -> float:
    x = da.random.random((72_000, 1_000), chunks=(2_000, -1))
    return float(abs(x - x.mean(axis=0)).mean().compute())


def rechunked(client: Client) -> float:
    x = da.random.random((8_000, 8_000), chunks=(-1, 500)).rechunk((500, -1))
    return float(x.map_blocks(lambda block: block.max(axis=1, keepdims=True), chunks=(500, 1)).sum().compute())


def part(number: int, keys: int = 1_000) -> pd.DataFrame:
    rng = np.random.default_rng(number)
    return pd.DataFrame({"key": rng.integers(0, keys, 300_000), **{f"c{i}": rng.random(300_000) for i in range(5)}})


def table(parts: int, keys: int = 1_000) -> dd.DataFrame:
    return dd.from_map(part, range(parts), keys=keys, meta=part(0).head(0))


def shuffled(client: Client) -> float:
    return float(table(28).shuffle("key").map_partitions(len).sum().compute())


def merged(client: Client) -> float:
    discounts = dd.from_pandas(pd.DataFrame({"key": np.arange(3), "discount": 0.1}), npartitions=3)
    found = table(12, keys=2).merge(discounts, on="key")
    return float(found.map_partitions(lambda rows: rows.size).sum().compute())


@cache
def noise() -> np.ndarray:
    return np.random.default_rng(0).random(16 * 2**17)


def read(number: int) -> np.ndarray:
    """Makes 16 MiB in no time, which no compression makes smaller."""
    return noise() + number


def write(block: np.ndarray) -> float:
    time.sleep(0.15)
    return float(block[0])


def read_ahead(client: Client) -> float:
    blocks = [delayed(read)(number) for number in range(60)]
    with dask.annotate(resources={"writer": 1}):
        written = [delayed(write)(block) for block in blocks]
    return float(sum(dask.compute(*written, optimize_graph=False)))


def fit(seed: int) -> float:
    """Needs 180 MiB while it runs, and returns a number."""
    scratch = mebibytes(180)
    time.sleep(0.5)
    return float(scratch[seed])


def working(client: Client) -> float:
    return sum(client.gather(client.map(fit, range(24))))


def persisted(client: Client) -> float:
    x = da.random.random((96_000, 1_000), chunks=(2_000, -1)).persist()
    wait(x)
    return float((x + 1).sum().compute())


KEPT: list[np.ndarray] = []


def parse(number: int) -> int:
    """Keeps 8 MiB in a global list."""
    KEPT.append(mebibytes(8))
    time.sleep(0.15)
    return number


def leaking(client: Client) -> float:
    return float(sum(client.gather(client.map(parse, range(60)))))


def create_dict(size: int) -> dict[int, dict[int, int]]:
    """Makes some 650 MiB of small objects."""
    return {i: dict.fromkeys(range(i, i + 100), i) for i in range(size)}


def nested(client: Client) -> int:
    return len(client.submit(create_dict, 140_000).result())


def read_and_concat(number: int) -> int:
    """Needs some 130 MiB, as files are read and put together."""
    files = [part(20 * number + i) for i in range(4)]
    table = pd.concat(files)
    time.sleep(0.3)
    return len(table)


def concatenated(client: Client) -> int:
    return sum(client.gather(client.map(read_and_concat, range(24))))


def window(number: int) -> list[np.ndarray]:
    """Parts of one array, each of which counts as if it were alone."""
    whole = mebibytes(16)
    return [whole[i:] for i in range(8)]


def windows(client: Client) -> int:
    made = client.map(window, range(16))
    wait(made)
    return sum(client.gather(client.map(len, made)))


@cache
def prepared(number: int) -> pd.DataFrame:
    return part(number)


def job(number: int) -> float:
    """Leaves 14 MiB in a cache."""
    time.sleep(0.15)
    return float(prepared(number)["c0"].sum())


def jobs(client: Client) -> float:
    return sum(client.gather(client.map(job, range(50))))


def load(mebibytes_of_file: int) -> np.ndarray:
    made = mebibytes(mebibytes_of_file)
    time.sleep(0.2)
    return made


def one_large_file(client: Client) -> float:
    files = client.map(load, [*[4] * 20, 420])
    return sum(client.gather(client.map(lambda one: float(one[0]), files)))


def rounds(client: Client) -> int:
    kept = []
    for i in range(12):
        kept += client.map(load, [16] * 4, pure=False)
        wait(kept)
        time.sleep(0.1 * (i > 6))
    return len(kept)


TASKS = {"dataframe.shuffle.method": "tasks", "array.rechunk.method": "tasks"}
#: Names of the programs, in the order of the issue that asks for them.
PROGRAMS = {
    "rechunk": Program(
        "dask/dask issue 4610: a rechunk generates data faster than they are consumed; more memory, or fewer at a time",
        rechunked,
        "900 MiB",
        r"too little: .* a worker would do",
        TASKS,
    ),
    "shuffle": Program(
        "dask/dask issue 2456: a shuffle exceeds the memory limit; all of the table must fit into the workers",
        shuffled,
        "700 MiB",
        r"too little: .* a worker would do",
        TASKS,
    ),
    "centring": Program(
        "dask/dask issue 874: x - x.mean() keeps all of x; compute the mean before",
        centred,
        "500 MiB",
        r"compute mean_agg\S* before",
    ),
    "read ahead": Program(
        "pydata/xarray issue 6709: tasks that load run ahead of those that use what they load; hold them back",
        read_ahead,
        "500 MiB",
        r"worker-saturation to 1\.1",
        {"distributed.scheduler.worker-saturation": float("inf")},
        {"resources": {"writer": 1}},
    ),
    "merge": Program(
        "dask/dask issue 8769: a merge puts all rows of a key into one partition, on one worker",
        merged,
        "600 MiB",
        r"too little: .* a worker would do",
        TASKS,
    ),
    "working memory": Program(
        "dask/distributed issue 6232: unmanaged memory is that of tasks at work; fewer threads, or smaller chunks",
        working,
        "700 MiB",
        r"4 tasks of fit at a time",
        {"distributed.worker.memory.terminate": False},
        {"threads_per_worker": 4},
    ),
    "persist": Program(
        "dask/dask issue 5778: a persisted array fills the workers; it stays while the client holds it",
        persisted,
        "500 MiB",
        r"holds .* of random_sample.* that no task waits for",
        sized=False,
    ),
    "leak": Program(
        "dask/dask issue 10328: unmanaged memory grows with the number of tasks; find what keeps it",
        leaking,
        "1 GiB",
        r"grows, and stays",
        workers={"threads_per_worker": 1},
        sized=False,
    ),
    "nested dicts": Program(
        "PrefectHQ/prefect issue 2772: a task never ends, as nannies kill its workers: its dicts need more memory",
        nested,
        "500 MiB",
        r"(?i)killed .* create_dict",
        {"distributed.scheduler.allowed-failures": 1},
        sized=False,
    ),
    "concat": Program(
        "NREL/buildstockbatch issue 210: what one task reads must fit as often as there are threads",
        concatenated,
        "600 MiB",
        r"4 tasks of read_and_concat at a time",
        {"distributed.worker.memory.terminate": False},
        {"threads_per_worker": 4},
        sized=False,
    ),
    "slices": Program(
        "dask/distributed issue 4061: workers spill with a quarter of their memory in use: sizes count shared memory",
        windows,
        "1 GiB",
        r"share memory",
        sized=False,
    ),
    "cache": Program(
        "dask/distributed issue 2757: memory grows with each task, which returns nothing large: find what keeps it",
        jobs,
        "1 GiB",
        r"left by tasks of job",
        workers={"threads_per_worker": 1},
        sized=False,
    ),
    "one large file": Program(
        "dask/dask issue 4700: one partition is loaded whole by one worker, which needs memory for it",
        one_large_file,
        "600 MiB",
        r"while 1 task of load ran|too little on worker",
        sized=False,
    ),
    "rounds": Program(
        "dask/distributed issue 2464: memory grows with each compute, whose futures are kept: let go of them",
        rounds,
        "600 MiB",
        r"holds .* of load.* that no task waits for",
        sized=False,
    ),
}


@dataclass(frozen=True)
class Run:
    """Bytes that workers wrote to disk, their pauses and restarts, and the report of a run."""

    memory: float
    spilled: float
    paused: int
    killed: int
    report: EfficiencyReport

    @property
    def short(self) -> bool:
        """True if memory was too little."""
        return self.spilled > COUNTS * self.memory or bool(self.paused or self.killed)

    def __str__(self) -> str:
        spilled = format_bytes(round(self.spilled))
        return f"{format_bytes(round(self.memory))}: {spilled} spilled, paused {self.paused}, killed {self.killed}"


def run(program: Program, memory: float) -> Run:
    """Run a program on workers with so much memory each."""
    size = {"n_workers": 2, "threads_per_worker": 2, "memory_limit": round(memory), **program.workers}
    with (
        dask.config.set(program.config),
        LocalCluster(dashboard_address=":0", silence_logs=logging.CRITICAL, **size) as cluster,
        Client(cluster) as client,
    ):
        client.run(_warm)
        try:
            with efficiency_report(client=client) as report:
                program.run(client)
        except Exception as error:  # a KilledWorker is an answer, too
            print(f"    {type(error).__name__}: {error!s:.80}")
        written = client.run(lambda dask_worker: dask_worker.data.cumulative_metrics["disk-write", "bytes"])
        events = [event for _, events in client.get_events().items() for _, event in events if isinstance(event, dict)]
        paused = sum(event.get("status") == "paused" for event in events)
        killed = len(client.get_events("worker-restart-memory"))
    return Run(memory, sum(written.values()), paused, killed, report)


def _warm() -> None:
    import dask.array
    import dask.dataframe  # noqa: F401  # what importing takes is no part of the program


def attempt(program: Program) -> tuple[bool, bool]:
    """Run a program with too little memory, the named one, and less; True if the size holds, and if it is answered."""
    first = run(program, parse_bytes(program.memory))
    screen = " ".join(" ".join(lines) for lines in first.report.first_screen.findings)
    says = re.search(program.says, screen) is not None
    print(f"    {first}; first screen: {'the answer' if says else screen}")
    if not program.sized:
        return True, says
    named = [one.evidence["memory_needed"] for one in first.report.findings if "memory_needed" in one.evidence]
    if not named:
        return False, says
    enough, less = (run(program, share * named[0]) for share in (1.0, LESS))
    print(f"    {enough}\n    {less}")
    return not enough.short and less.short, says


def main() -> None:
    """Try each program, and print how many tries held."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=PROGRAMS, default=[*PROGRAMS])
    arguments = parser.parse_args()
    all_held, all_says, sized = 0, 0, 0
    for name in arguments.only:
        print(f"{name} ({PROGRAMS[name].source})")
        held, says = zip(*(attempt(PROGRAMS[name]) for _ in range(arguments.tries)), strict=True)
        sizes = f"{sum(held)} of {arguments.tries} sizes held, " if PROGRAMS[name].sized else ""
        print(f"  {name}: {sizes}{sum(says)} of {arguments.tries} first screens have the answer", flush=True)
        all_says += sum(says)
        if PROGRAMS[name].sized:
            sized += arguments.tries
            all_held += sum(held)
            figure(f"sizes of {name} that held", sum(held), of=arguments.tries, at_least=0.8 * arguments.tries)
    tries = len(arguments.only) * arguments.tries
    figure("sizes that held", all_held, of=sized)
    figure("first screens with the answer", all_says, of=tries, at_least=tries)


if __name__ == "__main__":
    main()
