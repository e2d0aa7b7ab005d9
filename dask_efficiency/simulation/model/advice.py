"""Advice: a run under other settings of its cluster and its partitions, and the search for the best of these."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Int64
from dask_efficiency.report.sizes import COPIES, OF_MEMORY, PROCESS, SMALL_TASK_SECONDS, joined
from dask_efficiency.runs.replay.durations import prefix_of_runs
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.show.finding import MOST
from dask_efficiency.show.shown import Shown
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.ensemble import SimulationJob
from dask_efficiency.simulation.model.result import Prediction
from dask_efficiency.simulation.model.sweeps import NEARLY

if TYPE_CHECKING:
    import pandas as pd

SATURATION = "distributed.scheduler.worker-saturation"
#: Saturation with which each thread has its next task at hand.
FULL = 2.0
#: Share of the time, or of the cost, that a change must save to be advised: what runs of one setting differ by.
WORTH = 0.03
#: Multiples of the number of workers that are tried.
MULTIPLES = (0.25, 0.5, 2.0, 4.0)


@dataclass(frozen=True, slots=True)
class Setting:
    """Cluster of equal workers, and the size of partitions, for a run."""

    workers: int
    nthreads: int
    #: Bytes of each worker; 0 is no limit.
    memory_limit: int
    #: How many times as large partitions are as in the recorded run.
    chunks: int = 1
    #: ``distributed.scheduler.worker-saturation``; None is as it was.
    saturation: float | None = None

    @property
    def threads(self) -> int:
        """Threads of all workers, which are paid for."""
        return self.workers * self.nthreads

    def job(self, own: ClusterSpec) -> SimulationJob:
        """Make the job of a run, given its own cluster."""
        is_own = replace(self, chunks=1, saturation=None) == own_setting(own)
        cluster = own if is_own else own.with_workers(self.workers, self.nthreads, self.memory_limit)
        if self.saturation is not None:
            cluster = cluster.with_config({SATURATION: self.saturation})
        return SimulationJob(cluster, chunks=self.chunks)


# It has no slots, because to_frame imports late.
@dataclass(frozen=True, repr=False)
class Advice(Shown):
    """Settings for a recorded run, with what each would take.

    Parameters
    ----------
    settings
        By name: ``as it was``, ``fastest``, ``best value`` (the fewest thread-seconds of those within 10 % of the
        fastest) and ``cheapest`` (the fewest of those that take at most 3 % longer than the run as it was). One that
        equals another has the name of the first.
    predictions
        By the same names.
    tried
        Number of settings that were simulated.
    price_per_worker_hour
        Of a worker as it was, any currency; others cost as their threads. None leaves money out.
    notes
        What a trace cannot tell, and other caveats.
    """

    _sections_module: ClassVar[str] = "dask_efficiency.simulation.sections.advice"

    settings: Mapping[str, Setting]
    predictions: Mapping[str, Prediction]
    tried: int
    price_per_worker_hour: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def own(self) -> Prediction:
        """The run as it was, simulated."""
        return self.predictions[AS_IT_WAS]

    @property
    def fastest(self) -> Setting:
        """Setting with the smallest makespan; that of the run if none is faster."""
        return self.settings.get(FASTEST, self.settings[AS_IT_WAS])

    @property
    def cheapest(self) -> Setting:
        """Setting with the fewest thread-seconds of those that take at most 3 % longer."""
        return next(self.settings[name] for name in (CHEAPEST, VALUE, FASTEST, AS_IT_WAS) if name in self.settings)

    def thread_seconds(self, name: str) -> float:
        """Threads times makespan, which is paid for."""
        return self.settings[name].threads * self.predictions[name].makespan_seconds

    def money(self, name: str) -> float | None:
        """Price of a setting from the first graph to the last result; None if no price is given."""
        if self.price_per_worker_hour is None:
            return None
        return self.thread_seconds(name) / self.settings[AS_IT_WAS].nthreads / 3600 * self.price_per_worker_hour

    def saved(self, name: str) -> tuple[float, float, float]:
        """Seconds that a setting saves of the recorded run, and the ends of their interval, 9 times in 10.

        The share by which the simulated run is shorter, of the recorded time: errors that both have cancel out.
        """
        took, own, one = self.own.recorded.makespan_seconds, self.own, self.predictions[name]
        low, high = one.interval
        ends = (high, one.makespan_seconds, low)
        least, seconds, most = (took * (1.0 - end / own.makespan_seconds) for end in ends)
        return seconds, least, most

    def to_frame(self) -> pd.DataFrame:
        """Tabulate the settings. Needs pandas."""
        from dask_efficiency.show.columns import as_frame

        return as_frame(self._from_sections("columns"))


AS_IT_WAS, FASTEST, VALUE, CHEAPEST = "as it was", "fastest", "best value", "cheapest"


def own_setting(own: ClusterSpec) -> Setting:
    """Setting of a run's own cluster, with the least memory of its workers; these have to have as many threads."""
    threads = sorted({worker.nthreads for worker in own.workers})
    if len(threads) > 1:
        raise ValueError(f"workers have {' or '.join(map(str, threads))} threads; expected as many each, for advice")
    limits = [worker.memory_limit for worker in own.workers if worker.memory_limit]
    return Setting(len(own.workers), threads[0], min(limits, default=0))


def times_as_large(trace: RunTrace, own: Setting) -> int:
    """Size that partitions should have, as a multiple, by the tasks of a trace; 0 if they are large enough."""
    runs, prefix = trace.runs, prefix_of_runs(trace)
    rows = np.flatnonzero((runs.start != MISSING) & (runs.stop > runs.start) & (prefix != MISSING))
    if not len(rows):
        return 0
    took, of = (runs.stop - runs.start)[rows] / 1e9, prefix[rows]
    nbytes = np.maximum(trace.tasks.nbytes[runs.task[rows]], 0)
    work, counts = np.bincount(of, took), np.bincount(of)
    is_small = work < SMALL_TASK_SECONDS * counts
    most = int(np.argmax(np.where(is_small, counts, 0) if is_small.any() else work))
    # Tasks of graphs that ran one after the other do not run together.
    rounds = len(np.unique(_round_of_graphs(trace)[trace.tasks.graph[runs.task[rows[of == most]]]]))
    wide = np.isin(of, np.flatnonzero(counts > MOST * counts[most]))
    each = max(float(np.median(nbytes[wide & (of == one)])) for one in np.unique(of[wide]).tolist())
    room = OF_MEMORY * (own.memory_limit or math.inf) / own.nthreads / max(COPIES * each, 1.0)
    return joined(
        float(took.mean()),
        count=int(counts[most]) // rounds,
        median=float(np.median(took[of == most])),
        longest=float(took[wide].max()),
        share=float(took.sum()) / own.threads / rounds,
        threads=own.threads,
        room=room,
    ).times


def _round_of_graphs(trace: RunTrace) -> Int64:
    """By graph: number of its round, which begins once all that was sent before has ended; the last is for no graph."""
    runs, n = trace.runs, len(trace.graphs)
    ends = np.zeros(n + 1, np.int64)
    known = runs.task != MISSING
    np.maximum.at(ends, trace.tasks.graph[runs.task[known]], runs.stop[known])
    begins = trace.graphs.received[1:] >= np.maximum.accumulate(ends[:n])[:-1]
    return np.concatenate([[0], np.cumsum(begins), [0]])[-(n + 1) :]


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of what is tried, so that nothing impossible is advised."""

    #: Threads that have something to run on: cores of the only host, where tasks compute.
    threads: float = math.inf
    #: How many times as large partitions may be, on the cluster of a setting; 0 or 1 if they stay.
    chunks: Callable[[Setting], int] = lambda _: 1
    #: Saturation of the run.
    saturation: float = math.inf
    #: True if all workers are on one host, whose memory they share.
    one_host: bool = True


def limits(trace: RunTrace, own: ClusterSpec) -> Limits:
    """Limits for a run: more threads than cores are no use to tasks that compute."""
    runs, hosts = trace.runs, {worker.host for worker in own.workers}
    ran = (runs.start != MISSING) & (runs.stop > runs.start)
    took, cpu = (runs.stop - runs.start)[ran].sum(), runs.cpu_ns[ran].sum()
    cores = own.cores.get(next(iter(hosts)), math.inf) if len(hosts) == 1 else math.inf
    # Tasks that wait for something else than cores leave these to others.
    waits = trace.core_waits.values()
    computes = cpu / took if took > 0 else 1.0
    computing = computes > MOST or (bool(waits) and max(waits) > MOST)
    given = trace.config.get(SATURATION, own.config.get(SATURATION))
    saturation = float(given) if isinstance(given, int | float) else 1.1
    return Limits(cores if computing else math.inf, partial(times_as_large, trace), saturation, len(hosts) == 1)


#: Seconds of settings that were simulated; infinite where the run does not end, or workers would be killed.
Seconds = Mapping[Setting, float]
#: Yields settings to be simulated, and is sent what they took.
Rounds = Generator[Sequence[Setting], Seconds, Mapping[str, Setting]]


def search(own: Setting, limit: Limits) -> Rounds:
    """Search settings: first each knob alone, then those that help together, on fewer and more workers.

    Returns the chosen ones by name. A change is kept if it saves :data:`WORTH` of the time.
    """
    # On several hosts, a worker cannot be split or merged without regard to where the others are.
    shapes, chunks = _shapes(own, limit) if limit.one_host else [], _chunks(own, limit)
    saturated = [replace(own, saturation=FULL)] if limit.saturation < FULL else []
    took = dict((yield [own, *shapes, *chunks, *saturated]))

    def better(settings: Sequence[Setting]) -> Setting:
        found = min(settings, key=took.__getitem__, default=own)
        return found if took[found] <= (1.0 - WORTH) * took[own] and took[found] < math.inf else own

    shape, larger, queued = better(shapes), better(chunks), better(saturated)
    # Larger partitions leave no round trips to be saved.
    saturation = queued.saturation if larger is own else None
    both = replace(shape, chunks=larger.chunks, saturation=saturation)
    more = [one for base in dict.fromkeys([both, own]) for one in _numbers(base, limit)]
    together = [_fitting(one, limit) for one in (both, *more)]
    took |= yield [one for one in dict.fromkeys(together) if one not in took]
    return choose(own, took)


def choose(own: Setting, took: Seconds) -> dict[str, Setting]:
    """Choose the fastest setting, the best value and the cheapest, of those that end; none takes much longer."""
    found = {AS_IT_WAS: own}
    if took[own] == math.inf:
        return found
    took = {one: seconds for one, seconds in took.items() if seconds < math.inf}
    least = min(took.values())
    # Of those that are as fast, the one that costs least, and changes least.
    fastest = min(
        (one for one in took if took[one] <= (1.0 + WORTH) * least),
        key=lambda one: (one.threads, one.chunks, one.nthreads != own.nthreads, took[one]),
    )
    if took[fastest] <= (1.0 - WORTH) * took[own]:
        found[FASTEST] = fastest

    def cost(one: Setting) -> float:
        return one.threads * took[one]

    def cheaper(longest: float, *others: Setting) -> Setting | None:
        """The cheapest of those within a time and that of the run, if it costs less than all others."""
        longest = min(longest, (1.0 + WORTH) * took[own])
        one = min((one for one in took if took[one] <= longest), key=cost)
        return one if cost(one) < (1.0 - WORTH) * min(map(cost, others)) and one != own else None

    if (value := cheaper((1.0 + NEARLY) * least, fastest)) is not None:
        found[VALUE] = value
    if (cheap := cheaper(math.inf, *found.values())) is not None:
        found[CHEAPEST] = cheap
    return found


def still_better(own: Setting, chosen: Mapping[str, Setting], took: Mapping[str, float]) -> list[str]:
    """Names of those chosen settings that are better than the run as it was by what they take in more simulated runs.

    The fastest has to be faster; the others have to cost less, and to take at most :data:`WORTH` longer.
    """
    whole = took[AS_IT_WAS]
    better = {name: took[name] < whole for name in took}
    for name in (VALUE, CHEAPEST):
        if name in took:
            costs_less = chosen[name].threads * took[name] < own.threads * whole
            better[name] = costs_less and took[name] <= (1.0 + WORTH) * whole
    return [name for name in chosen if name == AS_IT_WAS or better.get(name, False)]


def _shapes(own: Setting, limit: Limits) -> list[Setting]:
    """As many threads in more or fewer processes, with all of the memory; and no more threads than cores."""
    threads = int(min(own.threads, max(limit.threads, 1)))
    found = [
        _with(own, threads // nthreads, nthreads)
        for nthreads in (1, own.nthreads // 2, own.nthreads, 2 * own.nthreads, threads)
        if nthreads and threads % nthreads == 0
    ]
    if 2 * own.threads <= limit.threads:
        found.append(replace(own, nthreads=2 * own.nthreads))
    return [one for one in dict.fromkeys(found) if one != own and _has_room(one)]


def _with(own: Setting, workers: int, nthreads: int) -> Setting:
    return replace(own, workers=workers, nthreads=nthreads, memory_limit=own.memory_limit * own.workers // workers)


def _has_room(one: Setting) -> bool:
    """True if a process without data fits into a third of its memory, so that results have the rest."""
    return not one.memory_limit or one.memory_limit >= 3 * PROCESS


def _chunks(own: Setting, limit: Limits) -> list[Setting]:
    most = limit.chunks(own)
    times = {most, -(-most // 3)} if most > 1 else set()
    return [replace(own, chunks=chunks) for chunks in sorted(times - {1})]


def _fitting(one: Setting, limit: Limits) -> Setting:
    """A setting with partitions that are no larger than memory and threads of its own cluster allow."""
    return replace(one, chunks=max(min(one.chunks, limit.chunks(one)), 1)) if one.chunks > 1 else one


def _numbers(base: Setting, limit: Limits) -> list[Setting]:
    """Other numbers of workers: no more threads than cores, and no more memory than that of the only host's workers."""
    numbers = {max(round(base.workers * multiple), 1) for multiple in MULTIPLES} - {base.workers}
    found = [
        _with(base, n, base.nthreads) if n > base.workers and limit.one_host else replace(base, workers=n)
        for n in sorted(numbers)
        if n * base.nthreads <= limit.threads
    ]
    return [one for one in found if _has_room(one)]
