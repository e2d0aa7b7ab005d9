"""How long tasks of a recorded run waited for a core, as far as what else their host did explains it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Bool, Float64, Int64
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.simulation.model.cores import BACKGROUND, MIN_LEFT
from dask_efficiency.simulation.model.transfer_costs import BYTE_NS, RESULT_NS

#: Cores that a scheduler uses for each task that ends in a second: its message, some five transitions, the next one
#: sent. In runs of 20 to 90 tasks a second on 2 to 8 workers, its process used 1 ms of CPU a task.
_SCHEDULER_SECONDS = 0.001


def few_cores(trace: RunTrace, cores: Mapping[str, float]) -> bool:
    """Whether the processes of some host had less than a core each: its workers' threads, and a scheduler."""
    hosts = {worker.host for worker in trace.workers}
    return any(
        sum(worker.nthreads for worker in trace.workers if worker.host == host) + (len(hosts) == 1) > cores[host]
        for host in hosts & set(cores)
    )


def core_waits(trace: RunTrace, cores: Mapping[str, float]) -> Float64:
    """By run: nanoseconds between its start and its stop in which it waited for a core; 0 where that is not known.

    A thread that computes gets what the others leave it. What they used is in the trace: tasks their CPU, event loops
    what goes on around tasks; beside it every process has something to do in the background. A run waits at most for
    as long as it did not compute.

    Parameters
    ----------
    cores
        By host.
    """
    runs, found = trace.runs, np.zeros(len(trace.runs))
    hosts = np.array([worker.host for worker in trace.workers] + [""])
    ran = (runs.start != MISSING) & (runs.stop > runs.start) & (runs.worker >= 0)
    for host in set(hosts[:-1]) & set(cores):
        rows = np.flatnonzero(ran & (hosts[np.clip(runs.worker, -1, len(hosts) - 2)] == host))
        if not len(rows):
            continue
        start, stop = runs.start[rows], runs.stop[rows]
        took = (stop - start).astype(np.float64)
        cpu = np.clip(runs.cpu_ns[rows], 0, took)
        around = [_known(runs.executing[rows], start), _known(stop, runs.ended[rows])]
        moved = _moved(trace, hosts[:-1] == host)
        used = _mean_use(
            np.concatenate([start, *(first for first, _ in around), moved[0]]),
            np.concatenate([stop, *(last for _, last in around), moved[1]]),
            np.concatenate([cpu / took, np.ones(2 * len(rows)), moved[2]]),
            start,
            stop,
        )
        processes = int(np.count_nonzero(hosts[:-1] == host)) + (len(set(hosts[:-1])) == 1)
        seconds = max(float(stop.max() - start.min()) / 1e9, 1e-9)
        others = used - cpu / took + processes * BACKGROUND + _SCHEDULER_SECONDS * len(rows) / seconds
        left = np.clip(cores[host] - others, MIN_LEFT, 1.0)
        found[rows] = np.minimum(took - cpu, cpu * (1.0 / left - 1.0))
    return found


def _moved(trace: RunTrace, here: Bool) -> tuple[Int64, Int64, Float64]:
    """When results were taken in by workers that are here, and how much of a core that took."""
    transfers = trace.transfers
    known = transfers.arrived & (transfers.start != MISSING) & (transfers.stop > transfers.start)
    known &= (transfers.receiver >= 0) & (transfers.receiver < len(here))
    known[known] = here[transfers.receiver[known]]
    start, stop = transfers.start[known], transfers.stop[known]
    # Without what each message takes: results of one message are rows of their own.
    computing = RESULT_NS + BYTE_NS * np.maximum(transfers.nbytes[known], 0)
    return start, stop, np.minimum(computing / (stop - start), 1.0)


def _known(start: Int64, stop: Int64) -> tuple[Int64, Int64]:
    """Intervals; empty where an end of them is not known."""
    known = (start != MISSING) & (stop != MISSING) & (stop > start)
    return np.where(known, start, 0), np.where(known, stop, 0)


def _mean_use(start: Int64, stop: Int64, rate: Float64, since: Int64, until: Int64) -> Float64:
    """The mean, between two instants, of the sum of the rates of those intervals that go on."""
    at = np.concatenate([start, stop])
    order = np.argsort(at, kind="stable")
    now = np.cumsum(np.concatenate([rate, -rate])[order])
    # From the first instant on, as sums of the nanoseconds since the epoch lose digits.
    total = np.concatenate([[0.0], np.cumsum(now[:-1] * np.diff(at[order]))])
    found: Float64 = (np.interp(until, at[order], total) - np.interp(since, at[order], total)) / (until - since)
    return found
