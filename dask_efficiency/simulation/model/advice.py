"""Advice: a run under other settings of its cluster and its partitions, and the search for the best of these."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from dask_efficiency.accounts.skew import Skew
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.report.memory_needs import MARGIN
from dask_efficiency.report.sizes import OF_MEMORY, PROCESS, Larger, larger_partitions
from dask_efficiency.runs.replay.durations import prefix_of_runs
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.show.finding import MOST
from dask_efficiency.show.shown import Shown
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.coarser import rounds_of_graphs
from dask_efficiency.simulation.model.ensemble import SimulationJob
from dask_efficiency.simulation.model.result import Prediction

if TYPE_CHECKING:
    import pandas as pd

SATURATION = "distributed.scheduler.worker-saturation"
#: Shares of a memory limit from which Dask spills results, by size and by its process's memory, unless a trace's
#: configuration has others, or False.
SPILLS_FROM = {"target": 0.6, "spill": 0.7}
#: Saturation with which each thread has its next task at hand.
FULL = 2.0
#: Share of the time, or of the cost, that a change must save to be advised: what runs of one setting differ by.
WORTH = 0.03


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

    def has_more_memory(self, own: Setting) -> bool:
        """True if each thread has more memory than in the run's own setting: at a price that is not known."""
        return self.memory_limit * own.nthreads > own.memory_limit * self.nthreads

    def job(self, own: ClusterSpec) -> SimulationJob:
        """Make the job of a run, given its own cluster."""
        is_own = replace(self, chunks=1, saturation=None) == own_setting(own)
        cluster = own if is_own else own.with_workers(self.workers, self.nthreads, self.memory_limit)
        if self.saturation is not None:
            cluster = cluster.with_config({SATURATION: self.saturation})
        return SimulationJob(cluster, chunks=self.chunks)


@dataclass(frozen=True, slots=True)
class TasksByPrefix:
    """Tasks of a run, as far as the size of its partitions depends on them."""

    by_prefix: Mapping[str, Skew]
    #: Seconds of all together, and number of graphs that ran one after the other.
    seconds: float
    rounds: int

    @classmethod
    def of(cls, trace: RunTrace) -> TasksByPrefix:
        """Read them from a trace."""
        runs, prefix = trace.runs, prefix_of_runs(trace)
        ran = np.flatnonzero((runs.start != MISSING) & (runs.stop > runs.start) & (prefix != MISSING))
        took, found = (runs.stop - runs.start) / 1e9, dict[str, Skew]()
        ran = ran[np.argsort(prefix[ran], kind="stable")]
        numbers, begins = np.unique(prefix[ran], return_index=True)
        for number, rows in zip(numbers.tolist(), np.split(ran, begins[1:]), strict=True):
            longest = rows[np.argmax(took[rows])]
            median, most = np.quantile(took[rows], (0.5, 0.95)).tolist()
            key, nbytes = trace.keys[runs.task[longest]], np.maximum(trace.tasks.nbytes[runs.task[rows]], 0)
            found[trace.prefixes[number]] = Skew(
                len(rows), median, most, float(took[longest]), key, median_bytes=float(np.median(nbytes))
            )
        # Tasks of graphs that ran one after the other do not run together.
        rounds = len(np.unique(rounds_of_graphs(trace)[trace.tasks.graph[runs.task[ran]]]))
        return cls(found, float(took[ran].sum()), max(rounds, 1))

    def larger(self, on: Setting) -> Larger | None:
        """Partitions that a setting's memory and threads allow; None without any task."""
        if not self.by_prefix:
            return None
        return larger_partitions(
            self.by_prefix,
            seconds=self.seconds / sum(one.count for one in self.by_prefix.values()),
            share=self.seconds / on.threads / self.rounds,
            threads=on.threads,
            rounds=self.rounds,
            memory=OF_MEMORY * (on.memory_limit or math.inf) / on.nthreads,
        )

    def times(self, on: Setting) -> int:
        """Size that partitions should have, as a multiple; 0 if they are large enough."""
        larger = self.larger(on)
        return larger.times if larger else 0


#: Of a run of which nothing is known.
NO_TASKS = TasksByPrefix({}, 0.0, 1)


# It has no slots, because to_frame imports late.
@dataclass(frozen=True, repr=False)
class Advice(Shown):
    """Settings for a recorded run, with what each would take.

    Parameters
    ----------
    settings
        By name: ``as it was``, ``fastest``, and ``cheapest`` (the fewest thread-seconds of those that take at most 3 %
        longer than the run as it was) if that costs less.
    predictions
        By the same names.
    tasks
        Tasks of the run, by which partitions are made larger.
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
    tasks: TasksByPrefix
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
        return next(self.settings[name] for name in (CHEAPEST, FASTEST, AS_IT_WAS) if name in self.settings)

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


AS_IT_WAS, FASTEST, CHEAPEST = "as it was", "fastest", "cheapest"


def own_setting(own: ClusterSpec) -> Setting:
    """Setting of a run's own cluster, with the least memory of its workers; these have to have as many threads."""
    threads = sorted({worker.nthreads for worker in own.workers})
    if len(threads) > 1:
        raise ValueError(f"workers have {' or '.join(map(str, threads))} threads; expected as many each, for advice")
    limits = [worker.memory_limit for worker in own.workers if worker.memory_limit]
    return Setting(len(own.workers), threads[0], min(limits, default=0))


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of what is tried, so that nothing impossible is advised."""

    #: Threads that have something to run on: cores of the only host, where tasks compute.
    threads: float = math.inf
    #: Tasks, of which the size of partitions depends.
    tasks: TasksByPrefix = NO_TASKS
    #: Saturation of the run.
    saturation: float = math.inf
    #: Bytes of each worker with which it spills nothing, if one spilled, else 0.
    memory: int = 0
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
    threads, memory = cores if computing else math.inf, _without_spilling(trace)
    return Limits(threads, TasksByPrefix.of(trace), saturation, memory, len(hosts) == 1)


def _without_spilling(trace: RunTrace) -> int:
    """Memory limit with which the fullest worker would not have spilled, by its heartbeats; 0 if none did."""
    spilled = np.nan_to_num(trace.series.spilled)
    peak = float(np.max(np.nan_to_num(trace.series.memory) + spilled, initial=0.0, where=spilled > 0))
    given = (trace.config.get(f"distributed.worker.memory.{name}", share) for name, share in SPILLS_FROM.items())
    from_share = min((float(share) for share in given if isinstance(share, int | float) and share), default=1.0)
    return int((1.0 + MARGIN) * peak / from_share) >> 20 << 20


#: Seconds of settings that were simulated; infinite where the run does not end, or workers would be killed.
Seconds = Mapping[Setting, float]
#: Yields settings to be simulated, and is sent what they and the run as it was took.
Rounds = Generator[Sequence[Setting], Seconds, Mapping[str, Setting]]


def search(own: Setting, limit: Limits) -> Rounds:
    """Search settings, a knob at a time, each on the best of those before.

    Partitions are first, as larger ones are fewer tasks to simulate, with saturation beside them; then threads and
    processes; then fewer and more workers, on as long as that does no harm. A change is kept if it saves :data:`WORTH`
    of the time. Returns the chosen settings by name.
    """
    chunks, saturated = _chunks(own, limit), [replace(own, saturation=FULL)] if limit.saturation < FULL else []
    took = dict((yield [*chunks, *saturated]))

    def better(settings: Sequence[Setting], than: Setting) -> Setting:
        found = min(settings, key=took.__getitem__, default=than)
        return found if took[found] <= (1.0 - WORTH) * took[than] and took[found] < math.inf else than

    base = better(chunks, own)
    # Larger partitions leave no round trips to be saved.
    base = better(saturated, own) if base == own else base
    # On several hosts, a worker cannot be split or merged without regard to where the others are; but may have more.
    more_memory = [replace(base, memory_limit=limit.memory)] if 0 < base.memory_limit < limit.memory else []
    shapes = [_fitting(one, limit) for one in _shapes(base, limit)] if limit.one_host else more_memory
    took |= yield shapes
    base = better(shapes, base)
    fewer, more = ([_fitting(one, limit) for one in _numbers(base, by, limit)] for by in ((0.5, 0.25), (2.0, 4.0)))
    took |= yield [one for one in (*fewer[:1], *more[:1]) if one not in took]
    further = [one for one in fewer[1:] if took[fewer[0]] <= (1.0 + WORTH) * took[own]]
    further += [one for one in more[1:] if better(more[:1], base) != base]
    took |= yield [one for one in further if one not in took]
    return choose(own, took)


def choose(own: Setting, took: Seconds) -> dict[str, Setting]:
    """Choose the fastest and the cheapest setting of those that end; the cheapest does not take much longer."""
    found = {AS_IT_WAS: own}
    ends = {one: seconds for one, seconds in took.items() if seconds < math.inf}
    if own not in ends:
        return found
    most = min((1.0 + WORTH) * min(ends.values()), (1.0 - WORTH) * ends[own])
    if near := [one for one in ends if ends[one] <= most]:
        # Of those that are as fast, the one that costs least, and changes least.
        found[FASTEST] = min(near, key=lambda one: (one.threads, one.chunks, one.nthreads != own.nthreads, ends[one]))
    paid = {
        one: one.threads * ends[one]
        for one in ends
        if ends[one] <= (1.0 + WORTH) * ends[own]
        and not (one.has_more_memory(own) and one.workers * one.memory_limit > own.workers * own.memory_limit)
    }
    cheapest = min(paid, key=paid.__getitem__)
    if paid[cheapest] < (1.0 - WORTH) * min(paid[one] for one in found.values() if one in paid):
        found[CHEAPEST] = cheapest
    return found


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
    most = limit.tasks.times(own)
    times = {most, -(-most // 3)} if most > 1 else set()
    return [replace(own, chunks=chunks) for chunks in sorted(times - {1})]


def _fitting(one: Setting, limit: Limits) -> Setting:
    """A setting with partitions that are no larger than memory and threads of its own cluster allow."""
    return replace(one, chunks=max(min(one.chunks, limit.tasks.times(one)), 1)) if one.chunks > 1 else one


def _numbers(base: Setting, multiples: Sequence[float], limit: Limits) -> list[Setting]:
    """Other numbers of workers: no more threads than cores, and no more memory than that of the only host's workers."""
    numbers = dict.fromkeys(max(round(base.workers * multiple), 1) for multiple in multiples)
    found = [
        _with(base, n, base.nthreads) if n > base.workers and limit.one_host else replace(base, workers=n)
        for n in numbers
        if n != base.workers and n * base.nthreads <= limit.threads
    ]
    return [one for one in found if _has_room(one)]
