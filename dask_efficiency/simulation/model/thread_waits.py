"""Waits of tasks in their threads, read from a trace: for Python's interpreter lock (GIL), and for a core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Bool, Float64, Int32, Int64
from dask_efficiency.runs.replay.durations import prefix_of_runs
from dask_efficiency.runs.trace.errors import UnknownNameError
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.simulation.model.cores import BACKGROUND, MIN_LEFT
from dask_efficiency.simulation.model.transfer_costs import BYTE_NS, RESULT_NS
from dask_efficiency.simulation.model.units import listed

#: Threads of a worker that compute for more than so many cores together do not hold the lock all the time.
MAX_CORES = 1.1

#: From so many cores on, the lock is what threads of pure Python wait for.
MIN_CORES = 0.85

#: Threads at once, on average over a run, from which their number says something of the lock, and up to which a run
#: was alone.
MIN_BESIDE, MAX_ALONE = 1.5, 1.1

#: Runs of a prefix that are enough to know it by.
MIN_RUNS = 3

#: Seconds between two turns of an event loop that nothing disturbs, and by how much more they are apart where a thread
#: holds the lock: half of the interval after which Python takes it away (``sys.getswitchinterval``).
TURN_SECONDS, LATER_SECONDS = 0.02, 0.0025

#: Share of CPU from which a prefix's tasks count as computing, so that the event loop's turns say something of them.
MIN_CPU = 0.5


@dataclass(frozen=True, slots=True)
class Gil:
    """What is known of the lock."""

    #: By run: nanoseconds in its thread if no other thread had held the lock; MISSING where it has no such time.
    alone: Int64
    #: By run: the share of that time in which it holds the lock, in [0, 1].
    held: Float64
    #: By prefix, and at last of tasks without one: how many other threads of their process held the lock, in the mean.
    crowd: Float64
    #: What was assumed, a sentence each.
    notes: tuple[str, ...]


def gil_of(trace: RunTrace, shares: Mapping[str, float] | None = None) -> Gil:
    """Read from a trace which tasks hold the lock.

    A trace says for how long each thread computed, not whether it held the lock. Where a worker ran several tasks at
    once, it shows: threads that hold the lock compute for at most one core together, and their time beyond that is
    waiting for each other. Where it did not, the turns of the worker's event loop show it, which needs the lock too;
    and where nothing does, all CPU of tasks is taken to be Python's.

    Parameters
    ----------
    trace
        A recorded run.
    shares
        By prefix: the share of its tasks' time in which they hold the lock when alone, in [0, 1], where that is known.

    Raises
    ------
    UnknownNameError, ValueError
        As of :func:`check_shares`.
    """
    known = dict(shares or {})
    check_shares(trace, known)
    runs = trace.runs
    ran = (runs.start != MISSING) & (runs.stop > runs.start)
    took = np.where(ran, runs.stop - runs.start, 0)
    cpu = np.clip(np.where(ran, runs.cpu_ns, 0), 0, took)
    prefix = prefix_of_runs(trace)
    beside, cores = _beside(trace, ran, took, cpu)
    alone, held = took.astype(np.float64), np.zeros(len(runs))
    found: dict[str, list[str]] = {}
    late = _late(trace, ran)
    for number in np.unique(prefix[ran]).tolist():
        rows = np.flatnonzero(ran & (prefix == number))
        name = trace.prefixes[number] if number >= 0 else ""
        if name in known:
            held[rows] = known[name]
            alone[rows] = took[rows] / np.maximum(1.0, known[name] * beside[rows])
            continue
        computes = cpu[rows].sum() / took[rows].sum()
        crowded = rows[beside[rows] >= MIN_BESIDE]
        if len(crowded) >= MIN_RUNS:
            free = bool(np.average(cores[crowded], weights=took[crowded]) > MAX_CORES)
            kind = "free" if free else "held"
        else:
            free = late.get(number) is False
            kind = {None: "assumed", True: "late", False: "on time"}[late.get(number)]
        if computes >= MIN_CPU or (len(crowded) >= MIN_RUNS and computes >= 0.01):
            found.setdefault(kind, []).append(name)
        if not free:
            alone[rows] = _alone(took[rows], cpu[rows], beside[rows], cores[rows])
            held[rows] = cpu[rows] / np.maximum(alone[rows], 1.0)
    held = np.clip(held, 0.0, 1.0)
    crowd = _crowd(prefix, held, beside, len(trace.prefixes))
    return Gil(np.where(ran, np.rint(alone), MISSING).astype(np.int64), held, crowd, tuple(_notes(found)))


def check_shares(trace: RunTrace, shares: Mapping[str, float]) -> None:
    """Refuse shares of prefixes that no task has, or that are no shares.

    Raises
    ------
    UnknownNameError
        If no task has a prefix.
    ValueError
        If a share is not in [0, 1].
    """
    for name, share in shares.items():
        if name not in trace.prefixes:
            raise UnknownNameError("prefix", name, trace.prefixes)
        if not 0 <= share <= 1:
            raise ValueError(f"gil[{name!r}] is {share!r}; expected the share of its tasks' time, in [0, 1]")


def _alone(took: Int64, cpu: Int64, beside: Float64, cores: Float64) -> Float64:
    """What runs of a prefix would have taken alone.

    Where the lock was never free, a run takes as much longer as there are others: how much of it was the run's own
    waiting for something else is known from those of the same prefix that ran alone, if there were any.
    """
    crowded = beside >= MIN_BESIDE
    if not crowded.any() or not MIN_CORES <= np.average(cores[crowded], weights=took[crowded]) <= MAX_CORES:
        return took.astype(np.float64)
    single = (beside <= MAX_ALONE) & (cpu > 0)
    own = float(np.median(took[single] / cpu[single])) if np.count_nonzero(single) >= MIN_RUNS else 1.0
    found: Float64 = np.where(beside > MAX_ALONE, np.clip(cpu * own, 1, took), took)
    return found


def _crowd(prefix: Int32, held: Float64, beside: Float64, prefixes: int) -> Float64:
    """By prefix: how many other threads held the lock while its tasks ran, in the mean; what ran beside is alike."""
    of = np.where(prefix < 0, prefixes, prefix)
    runs = np.maximum(np.bincount(of, minlength=prefixes + 1), 1)
    crowd: Float64 = np.bincount(of, held * (beside - 1.0), minlength=prefixes + 1) / runs
    return crowd


def _beside(trace: RunTrace, ran: Bool, took: Int64, cpu: Int64) -> tuple[Float64, Float64]:
    """By run: how many runs its worker's process had at once, with itself, and how many cores they used, on average."""
    runs = trace.runs
    threads, cores = np.ones(len(runs)), np.zeros(len(runs))
    for worker in np.unique(runs.worker[ran]).tolist():
        rows = np.flatnonzero(ran & (runs.worker == worker))
        start, stop = runs.start[rows], runs.stop[rows]
        at = np.concatenate([start, stop])
        order = np.argsort(at, kind="stable")
        for into, weight in ((threads, np.ones(len(rows))), (cores, cpu[rows] / took[rows])):
            rate = np.cumsum(np.concatenate([weight, -weight])[order])
            total = np.concatenate([[0.0], np.cumsum(rate[:-1] * np.diff(at[order]))])
            into[rows] = (np.interp(stop, at[order], total) - np.interp(start, at[order], total)) / took[rows]
    return threads, cores


def _late(trace: RunTrace, ran: Bool) -> dict[int, bool]:
    """By prefix, where it can be seen: whether event loops turned later while its tasks computed."""
    runs, series = trace.runs, trace.series
    prefix = prefix_of_runs(trace)
    delay: dict[int, list[tuple[float, float]]] = {}
    for worker in np.unique(runs.worker[ran]).tolist():
        beats = np.flatnonzero((series.worker == worker) & ~np.isnan(series.loop_interval))
        rows = np.flatnonzero(ran & (runs.worker == worker))
        beats = beats[np.argsort(series.at[beats], kind="stable")]
        for before, beat in zip(beats[:-1].tolist(), beats[1:].tolist(), strict=True):
            since, until = int(series.at[before]), int(series.at[beat])
            inside = np.clip(np.minimum(runs.stop[rows], until) - np.maximum(runs.start[rows], since), 0, None)
            if inside.sum() < (until - since) / 2:
                continue
            for number in np.unique(prefix[rows[inside > 0]]).tolist():
                of = inside[prefix[rows] == number].sum()
                if of > inside.sum() / 2:
                    later = float(series.loop_interval[beat]) - TURN_SECONDS
                    delay.setdefault(number, []).append((later, float(of)))
    found = {}
    for number, pairs in delay.items():
        if len(pairs) >= MIN_RUNS:
            later, weights = np.array(pairs).T
            found[number] = bool(np.average(later, weights=weights) > LATER_SECONDS)
    return found


_WHY = {
    "held": "are taken to hold Python's lock (GIL) while they compute: a worker's used at most one core together",
    "free": "are taken not to hold Python's lock (GIL), as those of a worker used more than one core together",
    "late": "are taken to hold Python's lock (GIL) while they compute, as event loops turned later meanwhile",
    "on time": "are taken not to hold Python's lock (GIL), as event loops turned on time while they computed",
    "assumed": "are taken to hold Python's lock (GIL) while they compute: nothing in the trace shows whether they do",
}


def _notes(found: Mapping[str, list[str]]) -> list[str]:
    return [f"tasks of {listed(found[kind], 'prefixes')} {why}" for kind, why in _WHY.items() if kind in found]


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
