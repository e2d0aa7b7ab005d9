"""Waits of tasks in their threads, read from a trace: for Python's lock (GIL), and for cores that others may take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf, sqrt

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Bool, Float64, Int64
from dask_efficiency.runs.replay.durations import prefix_of_runs
from dask_efficiency.runs.trace.errors import UnknownNameError
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.show.figures import format_share
from dask_efficiency.show.finding import MOST
from dask_efficiency.simulation.model.cores import BACKGROUND, MIN_LEFT
from dask_efficiency.simulation.model.transfer_costs import BYTE_NS, RESULT_NS
from dask_efficiency.simulation.model.units import few_names
from dask_efficiency.straggler.peers import MIN_ALIKE

#: Cores that a worker's threads use together, above which they do not hold the lock all the time: one, and the error of
#: measuring it.
MAX_CORES = 1.1
#: Mean number of other threads during a run, from which their cores, or their waits, tell about the lock, and a run how
#: event loops wait for those that hold it: a guess.
LEAST_CROWD = 0.3
#: Seconds between two turns of an undisturbed event loop, as in Dask, and the delay by a thread that holds the lock:
#: half of the interval after which Python takes it away (``sys.getswitchinterval``).
TURN_SECONDS, LATER_SECONDS = 0.02, 0.0025


@dataclass(frozen=True, slots=True)
class Gil:
    """Time and lock (GIL) of runs."""

    #: By run: nanoseconds in its thread if no other thread had held the lock; MISSING if it did not run.
    alone: Int64
    #: By run: share of that time in which it holds the lock, in [0, 1].
    held: Float64
    #: By prefix, and last for tasks without one: mean number of other threads of the process that held the lock.
    crowd: Float64
    #: Assumptions, a sentence each.
    notes: tuple[str, ...]


def read_gil(trace: RunTrace, shares: Mapping[str, float] | None = None, for_cores: Float64 | None = None) -> Gil:
    """Read from a trace which tasks hold the lock; ``for_cores`` are the nanoseconds that each run waited for a core.

    Known shares, by prefix, are taken. If a worker ran several tasks at once, what a report sampled of their waiting
    for the lock tells it: threads that hold it for a share of their time queue for it in the way of
    :func:`lock_speeds`. Without samples, their cores do: threads that hold the lock use at most one core together. If
    tasks ran alone, the turns of its event loop show it, which needs the lock, too. Else all CPU of tasks counts as
    Python's.
    """
    known, runs = shares or {}, trace.runs
    waited = np.zeros(len(runs)) if for_cores is None else for_cores
    ran = (runs.start != MISSING) & (runs.stop > runs.start)
    took = np.where(ran, runs.stop - runs.start, 0)
    cpu = np.clip(np.where(ran, runs.cpu_ns, 0), 0, took)
    prefix = prefix_of_runs(trace)
    threads, cores = _threads_and_cores(trace, ran, cpu)
    alone, held = took.astype(np.float64), np.zeros(len(runs))
    names: dict[str, list[str]] = {}
    late = _late(trace, ran)
    for number in np.unique(prefix[ran]).tolist():
        rows = np.flatnonzero(ran & (prefix == number))
        name = trace.prefixes[number] if number >= 0 else ""
        if name in known:
            held[rows] = known[name]
            alone[rows] = took[rows] / np.maximum(1.0, known[name] * threads[rows])
            continue
        computes = cpu[rows].sum() / took[rows].sum()
        crowded = rows[threads[rows] >= 1 + LEAST_CROWD]
        if len(crowded) >= MIN_ALIKE and name in trace.gil_waits:
            if computes >= 0.01:
                names.setdefault("sampled", []).append(name)
            found = _sampled(took[rows], cpu[rows], waited[rows], threads[rows] - 1.0, trace.gil_waits[name])
            alone[rows], held[rows] = found
            continue
        if len(crowded) >= MIN_ALIKE:
            free = bool(np.average(cores[crowded], weights=took[crowded]) > MAX_CORES)
            kind = "free" if free else "held"
        else:
            free = late.get(number) is False
            kind = {None: "assumed", True: "late", False: "on time"}[late.get(number)]
        if computes >= MOST or (len(crowded) >= MIN_ALIKE and computes >= 0.01):
            names.setdefault(kind, []).append(name)
        if not free:
            crowd = np.maximum(threads[rows] - 1.0, 1e-9)
            used = np.minimum(cpu[rows] / took[rows], 1.0 / (1.0 + crowd))
            longer = (1.0 / crowd - used) / (1.0 / crowd - used - used**2)
            alone[rows] = np.maximum(took[rows] / longer, np.minimum(cpu[rows], took[rows]))
            held[rows] = cpu[rows] / np.maximum(alone[rows], 1.0)
    held = np.clip(held, 0.0, 1.0)
    prefixes = len(trace.prefixes)
    of = np.where(prefix < 0, prefixes, prefix)
    others = np.bincount(of, held * (threads - 1.0), minlength=prefixes + 1)
    crowd = others / np.maximum(np.bincount(of, minlength=prefixes + 1), 1)
    return Gil(np.where(ran, np.rint(alone), MISSING).astype(np.int64), held, crowd, tuple(_notes(names)))


def check_shares(trace: RunTrace, shares: Mapping[str, float]) -> None:
    """Refuse shares of unknown prefixes, and shares outside [0, 1]."""
    for name, share in shares.items():
        if name not in trace.prefixes:
            raise UnknownNameError("prefix", name, trace.prefixes)
        if not 0 <= share <= 1:
            raise ValueError(f"gil[{name!r}] is {share!r}; expected the share of its tasks' time, in [0, 1]")


def _sampled(took: Int64, cpu: Int64, for_cores: Float64, crowd: Float64, share: float) -> tuple[Float64, Float64]:
    """Time of a prefix's runs without the lock's waits, with those for cores; and the share of it that it is held.

    Of ``m`` others alike, a thread that holds the lock for a share ``h`` of its time alone takes ``1 + h m q`` times as
    long, where ``q`` is the share of its time at the lock: solved for ``h``. Who holds the lock may wait for a core:
    then all waits are longer, in the same proportion.
    """
    waits = share * (took - cpu)
    alone = np.maximum(took - waits - for_cores, cpu)
    stretched = 1.0 + for_cores.sum() / max(cpu.sum(), 1.0)
    longer = waits.sum() / stretched / max(alone.sum(), 1.0)
    others = max(float(np.average(crowd, weights=took)), 1e-9)
    held = (sqrt(longer**2 + 4.0 * longer * (1.0 + longer) / others) - longer) / 2.0
    return np.maximum(took - waits, cpu), np.minimum(held, cpu / np.maximum(alone, 1.0))


def _threads_and_cores(trace: RunTrace, ran: Bool, cpu: Int64) -> tuple[Float64, Float64]:
    """By run: mean number of runs of its worker, itself included, and of the cores that they used, while it ran."""
    runs = trace.runs
    threads, cores = np.ones(len(runs)), np.zeros(len(runs))
    for worker in np.unique(runs.worker[ran]).tolist():
        rows = np.flatnonzero(ran & (runs.worker == worker))
        start, stop = runs.start[rows], runs.stop[rows]
        threads[rows] = _mean_use(start, stop, np.ones(len(rows)), start, stop)
        cores[rows] = _mean_use(start, stop, cpu[rows] / (stop - start), start, stop)
    return threads, cores


def _mean_use(start: Int64, stop: Int64, rate: Float64, since: Int64, until: Int64) -> Float64:
    """Mean, between two instants, of the sum of the rates of the intervals that go on."""
    at = np.concatenate([start, stop])
    order = np.argsort(at, kind="stable")
    now = np.cumsum(np.concatenate([rate, -rate])[order])
    # Sums from the first instant on, as those of nanoseconds since the epoch lose digits.
    total = np.concatenate([[0.0], np.cumsum(now[:-1] * np.diff(at[order]))])
    mean: Float64 = (np.interp(until, at[order], total) - np.interp(since, at[order], total)) / (until - since)
    return mean


def _late(trace: RunTrace, ran: Bool) -> dict[int, bool]:
    """By prefix that heartbeats tell about: True if event loops turned later while its tasks computed."""
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
    late = {}
    for number, pairs in delay.items():
        if len(pairs) >= MIN_ALIKE:
            later, weights = np.array(pairs).T
            late[number] = bool(np.average(later, weights=weights) > LATER_SECONDS)
    return late


_WHY = {
    "sampled": "are taken to hold Python's lock (GIL) for as long as their sampled waits for it say",
    "held": "are taken to hold Python's lock (GIL) while they compute: a worker's used at most one core together",
    "free": "are taken not to hold Python's lock (GIL), as those of a worker used more than one core together",
    "late": "are taken to hold Python's lock (GIL) while they compute, as event loops turned later meanwhile",
    "on time": "are taken not to hold Python's lock (GIL), as event loops turned on time while they computed",
    "assumed": "are taken to hold Python's lock (GIL) while they compute: nothing in the trace shows whether they do",
}


def _notes(names: Mapping[str, list[str]]) -> list[str]:
    return [f"tasks of {few_names(names[kind], 'prefixes')} {why}" for kind, why in _WHY.items() if kind in names]


#: Seconds of CPU of a scheduler for each task, with its message, five transitions, and the next task's message:
#: measured in runs of 20 to 90 tasks a second on 2 to 8 workers.
_SCHEDULER_SECONDS = 0.001


def few_cores(trace: RunTrace, cores: Mapping[str, float]) -> bool:
    """True if some host has fewer cores than threads of workers, and a scheduler on the only host."""
    hosts = {worker.host for worker in trace.workers}
    return any(
        sum(worker.nthreads for worker in trace.workers if worker.host == host) + (len(hosts) == 1) > cores[host]
        for host in hosts & set(cores)
    )


def core_waits(trace: RunTrace, cores: Mapping[str, float]) -> Float64:
    """By run: nanoseconds between start and stop in which it waited for a core; 0 if unknown.

    What a report sampled is taken, unless others took cores. Without it, a computing thread gets the cores that tasks,
    event loops and the background of every process leave.
    """
    runs, waits = trace.runs, np.zeros(len(trace.runs))
    hosts = np.array([worker.host for worker in trace.workers] + [""])
    ran = (runs.start != MISSING) & (runs.stop > runs.start) & (runs.worker >= 0)
    known = {} if shares_of_others(trace) else trace.core_waits
    sampled = np.array([known.get(prefix, np.nan) for prefix in trace.prefixes] + [np.nan])
    for host in set(hosts[:-1]) & set(cores):
        rows = np.flatnonzero(ran & (hosts[np.clip(runs.worker, -1, len(hosts) - 2)] == host))
        if not len(rows):
            continue
        start, stop = runs.start[rows], runs.stop[rows]
        took = (stop - start).astype(np.float64)
        cpu = np.clip(runs.cpu_ns[rows], 0, took)
        around = [_known_intervals(runs.executing[rows], start), _known_intervals(stop, runs.ended[rows])]
        moved = _taking_in(trace, hosts[:-1] == host)
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
        share = sampled[prefix_of_runs(trace)[rows]]
        waits[rows] = np.where(np.isnan(share), np.minimum(took - cpu, cpu * (1.0 / left - 1.0)), share * (took - cpu))
    return waits


def _taking_in(trace: RunTrace, here: Bool) -> tuple[Int64, Int64, Float64]:
    """Intervals in which workers on a host took in results, and the share of a core that it took."""
    transfers = trace.transfers
    known = transfers.arrived & (transfers.start != MISSING) & (transfers.stop > transfers.start)
    known &= (transfers.receiver >= 0) & (transfers.receiver < len(here))
    known[known] = here[transfers.receiver[known]]
    start, stop = transfers.start[known], transfers.stop[known]
    # Without the cost of each message: its results have rows of their own.
    computing = RESULT_NS + BYTE_NS * np.maximum(transfers.nbytes[known], 0)
    return start, stop, np.minimum(computing / (stop - start), 1.0)


def _known_intervals(start: Int64, stop: Int64) -> tuple[Int64, Int64]:
    """Make intervals that are empty where an end is unknown."""
    known = (start != MISSING) & (stop != MISSING) & (stop > start)
    return np.where(known, start, 0), np.where(known, stop, 0)


#: Share of a host's cores from which others are taken into account: below, it is within the error of its measurement,
#: as heartbeats are half a second apart.
MIN_OTHERS = 0.1


def shares_of_others(trace: RunTrace) -> dict[str, float]:
    """By host with known cores: share of these that others took, if it is large enough to matter."""
    known = {worker.host: worker.others for worker in trace.workers if 0 < worker.cores < inf}
    return {host: share for host, share in known.items() if share >= MIN_OTHERS}


def waits_for_others(trace: RunTrace) -> Float64:
    """By run: nanoseconds between start and stop in which it waited for a core, where others took some; else 0.

    A report's samples tell the share of the time off the CPU. Without these: threads that are ready share a core
    evenly, so that with ``n`` for each core, one that computes for ``t`` waits for ``(n - 1) t``.
    """
    runs, series, waits = trace.runs, trace.series, np.zeros(len(trace.runs))
    hosts = np.array([worker.host for worker in trace.workers] + [""])
    ran = (runs.start != MISSING) & (runs.stop > runs.start) & (runs.worker >= 0)
    sampled = np.array([trace.core_waits.get(prefix, np.nan) for prefix in trace.prefixes] + [np.nan])
    for host in shares_of_others(trace):
        ready = series.run_queue[(hosts[series.worker] == host) & ~np.isnan(series.run_queue)]
        rows = np.flatnonzero(ran & (hosts[runs.worker] == host))
        took = (runs.stop[rows] - runs.start[rows]).astype(np.float64)
        cpu = np.clip(runs.cpu_ns[rows], 0, took)
        more = max(float(ready.mean()) - 1.0, 0.0) if len(ready) else 0.0
        share = sampled[prefix_of_runs(trace)[rows]]
        waits[rows] = np.where(np.isnan(share), np.minimum(took - cpu, cpu * more), share * (took - cpu))
    return waits


def note_on_others(trace: RunTrace) -> tuple[str, ...]:
    """Sentence on cores that others took; empty if they took few."""
    others = shares_of_others(trace)
    if not others:
        return ()
    most, where = format_share(max(others.values())), few_names(sorted(others))
    taken = f"Other processes took {most} of the cores of {where} while the run was recorded"
    return (f"{taken}: predictions are without them, and less sure.",)
