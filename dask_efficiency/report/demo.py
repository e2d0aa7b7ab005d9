"""Sample workload of about 20 s that loses thread time in common ways, and its report."""

from __future__ import annotations

import logging
import random
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any

from dask_efficiency.files.processes import safe_path

if TYPE_CHECKING:
    import numpy as np
    from distributed import Client, LocalCluster
    from numpy.typing import NDArray

    from dask_efficiency.report.model import EfficiencyReport

#: Limit of a worker process. Dask pauses a worker at 80 % of it and kills it at 95 %; the measured peak of this
#: workload, with pandas, pyarrow and torch loaded, is 750 MiB.
MEMORY_LIMIT = "1 GiB"
#: Share of the limit from which results are spilled. Dask's default is 0.6; at this share the array below spills while
#: the process stays far from being paused or killed.
SPILL_TARGET = 0.2
#: Bytes of the array of :func:`reduce_more_than_memory` per worker: three times what a worker may keep.
ARRAY_NBYTES = 600 * 2**20
#: Bytes sent between workers at each step of :func:`wait_on_data`. A guess.
HANDED_NBYTES = 32 * 2**20


def group_and_shuffle(client: Client, scale: float) -> int:
    """Mean by name, then a shuffle to one partition per name; returns the number of rows that arrive."""
    import dask.datasets

    days = max(2, round(16 * scale))
    frame = dask.datasets.timeseries(end=f"2000-01-{1 + days:02}", seed=1)
    frame.groupby("name").x.mean().compute()
    return int(frame.shuffle("name", npartitions=8).map_partitions(len).sum().compute())


def reduce_more_than_memory(client: Client, scale: float) -> float:
    """Spread of an array around its mean, read twice and larger than memory; returns about 0.289."""
    import dask.array as da

    rows = round((ARRAY_NBYTES * len(client.nthreads()) * scale / 8) ** 0.5)
    values = da.random.default_rng(1).random((rows, rows), chunks=(rows // 8, rows // 8))
    return float((values - values.mean()).std().compute())


def infer(client: Client, scale: float) -> int:
    """Batches through a small neural network on the CPU; returns the number of rows classified."""
    model = client.submit(build_model, pure=False)
    batches = client.map(classify, range(max(2, round(24 * scale))), model=model, pure=False)
    return sum(client.gather(batches))


def wait_on_data(client: Client, scale: float) -> int:
    """Chains of arrays, each step on another worker; returns the number of steps done."""
    workers = list(client.nthreads())
    chains = 2 * len(workers)
    steps = max(1, round(15 * scale))
    ends = []
    for chain in range(chains):
        array = client.submit(produce, HANDED_NBYTES, workers=[workers[chain % len(workers)]], pure=False)
        for step in range(1, steps + 1):
            array = client.submit(add_one, array, workers=[workers[(chain + step) % len(workers)]], pure=False)
        ends.append(client.submit(first, array, pure=False))
    return sum(client.gather(ends))


def retry(client: Client, scale: float) -> int:
    """Tasks of which a third of the tries fails after its work; returns the number of tasks."""
    futures = client.map(work_and_maybe_fail, range(max(4, round(40 * scale))), retries=50, pure=False)
    return len(client.gather(futures))


def build_model() -> Any:
    """Network of three layers with fixed weights."""
    import torch

    torch.manual_seed(1)
    linear, relu = torch.nn.Linear, torch.nn.ReLU
    return torch.nn.Sequential(linear(256, 1024), relu(), linear(1024, 1024), relu(), linear(1024, 10)).eval()


def classify(batch: int, model: Any) -> int:
    """Classify one batch of random rows; returns the number of rows."""
    import torch

    torch.set_num_threads(1)
    rows = torch.randn(4096, 256, generator=torch.Generator().manual_seed(batch))
    with torch.inference_mode():
        return len(model(rows).argmax(dim=1))


def produce(nbytes: int) -> NDArray[np.float64]:
    """Zeros of a given size."""
    import numpy as np

    return np.zeros(nbytes // 8)


def add_one(array: NDArray[np.float64]) -> NDArray[np.float64]:
    """New array of the same size: little work for so large an input."""
    return array + 1


def first(array: NDArray[np.float64]) -> int:
    """Number of steps of the chain."""
    return int(array[0])


def work_and_maybe_fail(number: int) -> int:
    """Spin for 50 ms, then fail one time in three, like a service that drops connections."""
    stop = time.thread_time() + 0.05
    while time.thread_time() < stop:
        pass
    if random.random() < 1 / 3:
        raise ConnectionError(f"task {number} lost its connection; Dask tries it again")
    return number


@dataclass(frozen=True, slots=True)
class DemoPart:
    """One part of the workload; its name is its span in the report."""

    name: str
    run: Callable[[Client, float], int | float]
    #: Modules needed beyond those of every Dask worker, and the command that installs them.
    needs: tuple[str, ...] = ()
    install: str = ""

    @property
    def obstacle(self) -> str | None:
        """Reason why it cannot run here, in a sentence; None if it can."""
        if not (missing := " and ".join(module for module in self.needs if find_spec(module) is None)):
            return None
        return f"skipped, as {missing} cannot be imported here; {self.install} adds what is missing"


PARTS = (
    DemoPart(
        "dataframe group-by and shuffle", group_and_shuffle, ("pandas", "pyarrow"), "pip install 'dask[dataframe]'"
    ),
    DemoPart("array reduction that spills", reduce_more_than_memory),
    DemoPart("torch inference", infer, ("torch",), "pip install torch"),
    DemoPart("waiting on data", wait_on_data),
    DemoPart("failing and retried tasks", retry),
)


def run_workload(
    client: Client, *, announce: Callable[[DemoPart], None] = lambda part: None, scale: float = 1.0
) -> None:
    """Run every part that can run here on two workers or more, each announced first and in a span of its name.

    ``scale`` is the size of the work, in (0, 1]; 1 takes about 20 s on two cores.
    """
    from distributed import span

    for part in PARTS:
        announce(part)
        if part.obstacle is not None:
            continue
        with span(part.name), warnings.catch_warnings():
            # Making a dataframe inside a span warns, although the graph that is sent has the span.
            warnings.filterwarnings("ignore", "Dask annotations", UserWarning)
            part.run(client, scale)


def run_demo(
    *,
    workers: int = 2,
    threads: int = 2,
    output: str = "dask-efficiency-demo.json",
    dashboard: bool = False,
    scale: float = 1.0,
) -> EfficiencyReport:
    """Run the workload on a new local cluster, print and save its report, and say where to look next."""
    from distributed import Client

    from dask_efficiency.plugin.scheduler.plugin import EfficiencyPlugin
    from dask_efficiency.report.efficiency_report import efficiency_report
    from dask_efficiency.show.progress import progress
    from dask_efficiency.show.terminal import show

    with local_cluster(workers, threads, dashboard=dashboard) as cluster, Client(cluster) as client:
        print(f"A cluster of {workers} worker processes with {threads} threads each, {MEMORY_LIMIT} a process.")
        if dashboard:
            print(f"Dask's dashboard, while this runs: {client.dashboard_link}")
        client.register_plugin(EfficiencyPlugin())
        for part in PARTS:
            if part.obstacle is not None:
                print(f"{part.name}: {part.obstacle}")
        with (
            progress("starting", unit="parts", of=len(PARTS)) as advance,
            efficiency_report(client=client, name="demo") as measured,
        ):
            run_workload(client, announce=lambda part: advance(PARTS.index(part), doing=part.name), scale=scale)
        report = measured.report
        print()
        show(report.first_screen)
        report.save(output)
    print(_where_next(output))
    return report


def _where_next(output: str) -> str:
    return f"""
Saved to {output}. Where to look next:

  dask-efficiency report {output} --all

    shows all of this report; with a scheduler's address in place of the file, a live cluster's.
    With --html demo.html it writes a page with more: a timeline, all workers and prefixes.

  client.register_plugin(EfficiencyPlugin())
  with efficiency_report() as report:
      ...

    measures your own code: `from dask_efficiency import EfficiencyPlugin, efficiency_report`.

  dask-efficiency explain spill

    says what a bucket or a cause means, and what to do about it."""


@contextmanager
def local_cluster(workers: int, threads: int, *, dashboard: bool) -> Iterator[LocalCluster]:
    """Local cluster that Ctrl-C closes in order."""
    import dask
    from distributed import LocalCluster

    with ExitStack() as stack:
        stack.enter_context(safe_path())
        # Ctrl-C goes to every process of the terminal, and this process hangs if its workers die of it. Workers inherit
        # the mask; this thread receives a pending Ctrl-C afterwards.
        resource_tracker.ensure_running()  # started later, it would lift the mask
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        stack.callback(signal.pthread_sigmask, signal.SIG_SETMASK, mask)
        stack.enter_context(dask.config.set({"distributed.worker.memory.target": SPILL_TARGET}))
        cluster = stack.enter_context(
            LocalCluster(
                n_workers=workers,
                threads_per_worker=threads,
                memory_limit=MEMORY_LIMIT,
                # without an address Dask takes its usual port, and warns if it is taken
                dashboard_address=":0",
                scheduler_kwargs={"dashboard": dashboard},
                # Tasks that fail on purpose would each log an error with its traceback.
                silence_logs=logging.CRITICAL,
            )
        )
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        yield cluster
