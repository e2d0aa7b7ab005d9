"""What the monitor's cluster runs: the demo's parts and three more, with what each shows."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

from dask_efficiency.report import demo

if TYPE_CHECKING:
    from distributed import Client


def spin(seconds: float, *after: object) -> int:
    """Compute for some CPU seconds, once the results given are there."""
    stop = time.thread_time() + seconds
    while time.thread_time() < stop:
        pass
    return 1


def one_after_another(client: Client, scale: float) -> int:
    """Tasks of which each needs the one before, so that one thread works; the number of tasks."""
    steps = [client.submit(spin, 0.1, pure=False)]
    for _ in range(round(40 * scale)):
        steps.append(client.submit(spin, 0.1, steps[-1], pure=False))
    return sum(client.gather(steps))


def lose_results(client: Client, scale: float) -> int:
    """Results of which half die with a worker and are computed again; the number of results."""
    from distributed import wait

    workers = len(client.nthreads())
    results = client.map(spin, [1.0] * round(16 * scale), pure=False)
    wait(results)
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
    done = sum(client.gather(results))
    client.wait_for_workers(workers)
    return done


def think(client: Client, scale: float) -> int:
    """Nothing, as a user does who looks at a result."""
    time.sleep(5 * scale)
    return 0


#: In the order in which they run, over and over.
PARTS = (
    *demo.PARTS,
    demo.DemoPart("one task after another", one_after_another),
    demo.DemoPart("a worker that dies", lose_results),
    demo.DemoPart("a client that thinks", think),
)

#: What of the metrics and alerts shows each part, by its name.
LOOK_AT = {
    "dataframe group-by and shuffle": "thread-noncpu and overhead grow: many small tasks",
    "array reduction that spills": "spill grows; DaskEfficiencySpilling",
    "torch inference": "thread-cpu grows, if there are cores enough",
    "waiting on data": "waiting-on-data grows; DaskEfficiencyLow",
    "failing and retried tasks": "thread-cpu, though in vain: outcomes are in dask_efficiency_thread_seconds_total",
    "one task after another": "idle grows: one thread of all works; DaskEfficiencyLow",
    "a worker that dies": "lost-worker and unmeasured grow; DaskEfficiencyRecomputing",
    "a client that thinks": "no-work grows; the efficiency's curve ends",
}
