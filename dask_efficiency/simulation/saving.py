"""Savings: reduction of the recorded run's time if each loss is cured as advised, and if all are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from dask_efficiency.accounts.buckets import GOOD, HELD, Bucket, cause_name
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.report.bounds import CORE, without_others
from dask_efficiency.report.conditions import ROUND_TRIPS
from dask_efficiency.report.conditions_of import conditions_of, saturation_needed
from dask_efficiency.report.kinds import BESIDE, KINDS, OF_SMALL_TASKS
from dask_efficiency.report.lost_time import losses_worth_finding
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.sizes import LARGE_RESULTS, tasks_fit
from dask_efficiency.report.values import ALL, BOUNDS, Saved
from dask_efficiency.report.wall_clock import largest_is_elsewhere
from dask_efficiency.runs.path.bounds import longest_chain, useful_ns
from dask_efficiency.runs.path.scope import whole_scope
from dask_efficiency.runs.replay.durations import prefix_of_runs
from dask_efficiency.runs.trace.errors import EmptyTraceError
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.runs.trace.schema import RunOutcome, values_at
from dask_efficiency.show.progress import progress
from dask_efficiency.simulation.engine.launch import simulate_jobs
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.ensemble import NORMAL_95, Ensemble, SeededJob, SimulationJob, Simulator, Wanted
from dask_efficiency.simulation.model.requirements import (
    SimulationRefusedError,
    UnplaceableError,
    check_cluster,
    check_trace,
)
from dask_efficiency.simulation.model.result import MAX_ERROR, model_error, own_job
from dask_efficiency.simulation.model.run_figures import RunFigures, run_noise
from dask_efficiency.simulation.model.thread_waits import shares_of_others
from dask_efficiency.straggler.wording import as_finding

#: Most seconds that simulations take while a report is made, if nothing else is asked for: a guess about patience.
SECONDS = 5.0
#: Simulated tasks of one cluster per second of that, all its seeds together: the run and a cure then take half the time
#: on an idle machine.
TASKS_PER_SECOND = 1_200
#: Most simulated runs of each cluster; and fewest, as one alone has no spread.
SEEDS, MIN_SEEDS = 3, 2
#: Most simulated cures, of the largest losses; bounds the wait for a report.
MAX_CURES = 3
#: Processes at a time: the cluster that the run was on may be on this machine.
AT_ONCE = 2
#: Causes of waiting that other processes on the cores do not lengthen.
ELSEWHERE = ("sleep", "file", "network", "child-process")
#: Share of waiting that tasks do for each other: at locks, and for the cluster, above which more threads are not
#: simulated, as these would wait for the same; and for the GIL, below which they do not hold it. A guess.
WAITS = 0.05
#: Kinds of findings whose cure has no end, more threads: the simulated one, twice as many, is the least of it.
MORE_THREADS = frozenset(cause_name(Bucket.THREAD_NONCPU, cause) for cause in ("sleep", "network"))
#: Tasks with large results of as many bytes each, from which these are alike: what fills so much memory takes as long
#: each time. A guess.
MANY = 8
#: Most that tasks compute for longer for lack of memory, as a multiple of what spilling takes: a guess above the 1.3 of
#: ``persisted_beyond_memory``.
AS_LONG = 2


@dataclass(frozen=True, slots=True)
class _Share:
    """Time of a cured run as a share of the recorded one, and the factor of its error, 9 times in 10."""

    share: float
    error: float
    #: False if the run may take as little as its ideal runtime, however wrong the share.
    sure: bool = True
    #: Factor of the tasks' computing with the cure, and so of the ideal runtime but for its longest chain.
    computing: float = 1.0
    #: Seconds by which the longest chain of tasks is shorter with the cure.
    of_chain: float = 0.0

    def saved(self, report: EfficiencyReport) -> Saved:
        """Convert to seconds saved in the report; no run takes less than its ideal runtime.

        That tasks compute for less long is an estimate, which the lower end does without.
        """
        took, bounds = report.cluster_seconds, report.ideal_bounds
        chain = bounds.pop("chain", 0.0) - self.of_chain
        ideal = max(chain, *(self.computing * each for each in bounds.values()), 0.0)
        most = max(took - ideal, 0.0)
        gone = (1.0 - self.computing) * report.breakdown[Bucket.THREAD_CPU]
        surely = took - gone / report.mean_threads if gone else took
        ends = (
            surely - took * self.share * self.error,
            took * (1.0 - self.share),
            took * (1.0 - (self.share / self.error if self.sure else 0.0)),
        )
        low, seconds, high = (min(max(saved, 0.0), most) for saved in ends)
        return Saved(seconds, low, high)


def savings(
    report: EfficiencyReport,
    engine: Simulator = simulate_jobs,
    *,
    seconds: float = SECONDS,
    notes: list[str] | None = None,
) -> dict[str, Saved]:
    """Estimate the seconds that the cure of each loss saves, and all together (:data:`ALL`), by kind of finding.

    The run is simulated as it was and with each cure, on cores that its processes share; the saving is the same share
    of the recorded time. Some cures are computed (:data:`COMPUTED`), and the cost of a slow worker, whose name follows
    its kind, comes from a replay. Empty if most of the time was not the cluster's, or the trace is missing; without
    simulated cures if the run's own simulation is off by more than 15 %. Simulations end after so many ``seconds``:
    what is not simulated by then is missing, and ``notes`` gets a sentence that says so.
    """
    trace = report.trace
    if trace is None or not len(trace.tasks) or largest_is_elsewhere(report):
        return {}
    try:
        check_trace(trace, "", force=False)
        recorded = RunFigures.of(trace)
    except (EmptyTraceError, SimulationRefusedError):
        return {}
    computed = dict(_computed(report, recorded))
    simulated, missing = _simulated(report, trace, recorded, engine, seconds)
    if missing and notes is not None:
        notes.append(_not_in_time(missing, seconds))
    sure = [share for kind, share in simulated.items() if kind not in BOUNDS]
    # A worker may be slow because of other processes: do not count both.
    not_simulated = [computed[CORE]] if CORE in computed else computed.values()
    together = _product([*([simulated[ALL]] if ALL in simulated else sure), *not_simulated])
    saved = {kind: share.saved(report) for kind, share in {**simulated, **computed, ALL: together}.items()}
    # That a cure saves nothing is worth knowing: its loss then has no saving, and no bound either.
    return {kind: saving for kind, saving in saved.items() if saving.seconds > 0 or kind != ALL}


def _most(report: EfficiencyReport, lost_ns: int) -> float:
    """Bound the seconds that a cure saves: the lost time, and that of threads without a task."""
    whole = report.breakdown
    idle = whole.total_ns - whole.ns(*HELD, Bucket.NO_WORK) + whole.ns(Bucket.OVERHEAD)
    return (idle + lost_ns) / 1e9 / report.mean_threads


def _product(shares: Sequence[_Share]) -> _Share:
    error = math.exp(math.hypot(*(math.log(share.error) for share in shares)))
    computing = math.prod(share.computing for share in shares)
    sure, of_chain = all(share.sure for share in shares), sum(share.of_chain for share in shares)
    return _Share(math.prod(share.share for share in shares), error, sure, computing, of_chain)


def _computed(report: EfficiencyReport, recorded: RunFigures) -> Iterator[tuple[str, _Share]]:
    figures = (recorded.kinds, recorded.makespan_seconds)
    error = math.exp(NORMAL_95 * math.sqrt(2.0) * run_noise(*figures)) * (1.0 + model_error(0.0, figures))
    for part in losses_worth_finding(report):
        share = COMPUTED[part.kind](report) if part.kind in COMPUTED else None
        if share is not None:
            most = _most(report, part.ns) / report.cluster_seconds
            of_chain = (1.0 - share) * report.cluster_seconds if part.kind == SPLIT and _is_in_chain(report) else 0.0
            yield part.kind, _Share(max(share, 1.0 - most), error, part.kind != CORE, of_chain=of_chain)
    for slow in report.stragglers:
        if slow.seconds_lost:
            share = 1.0 - slow.seconds_lost / report.cluster_seconds
            yield f"{as_finding(slow).kind}/{slow.subject}", _Share(share, error)


def _without_others(report: EfficiencyReport) -> float | None:
    """Estimate the run without other processes: what threads wait for cores because of these is gone.

    Event loops, the hand-over of tasks and the tasks' CPU time shrink, too, by how much is not known: the run may take
    as little as its ideal runtime. (On nine queries of TPC-H beside others' 51 to 81 %, seven saved more than that
    share.) No more is promised than the table of lost time has.
    """
    gone = without_others(report)
    return (
        None
        if gone is None or not report.breakdown.ns(*GOOD, Bucket.THREAD_NONCPU)
        else 1.0 - gone / report.cluster_seconds
    )


#: Kind of finding whose cure is to split the longest task.
SPLIT = cause_name(Bucket.IDLE, "parallelism")


def _is_in_chain(report: EfficiencyReport) -> bool:
    """True if the longest task is that of the longest chain, which is shorter once it is split."""
    trace, longest = report.trace, next(iter(report.long_tail), None)
    if trace is None or longest is None:
        return False
    _, task = longest_chain(trace, *useful_ns(trace, whole_scope(trace)))
    return task != MISSING and trace.keys[task] == longest.key


def _split(report: EfficiencyReport) -> float | None:
    """Estimate the run with the longest task split: all threads with a core share it while nothing else ran."""
    longest = next(iter(report.long_tail), None)
    skew = report.skew.get(longest.prefix) if longest else None
    if longest is None or skew is None or skew.longest_key != longest.key:
        return None
    threads = max(1.0, min(report.threads, report.cores or 1.0))
    alone = min(skew.alone_seconds, longest.seconds - longest.median_seconds)
    return 1.0 - alone * (1.0 - 1.0 / threads) / report.cluster_seconds


#: By kind of finding: computes the run's time with a cure that needs no simulation, as a share of the recorded time.
COMPUTED: Mapping[str, Callable[[EfficiencyReport], float | None]] = {
    CORE: _without_others,
    SPLIT: _split,
}


def _one_thread_each(own: ClusterSpec) -> ClusterSpec:
    threads = sum(worker.nthreads for worker in own.workers)
    memory = sum(worker.memory_limit for worker in own.workers) // threads
    return own.with_workers(threads, nthreads=1, memory_limit=memory)


def _twice_the_threads(own: ClusterSpec) -> ClusterSpec:
    return own.with_workers(len(own.workers), nthreads=2 * max(worker.nthreads for worker in own.workers))


#: By kind of finding: changes the cluster as its cure does. Other cures are not in a trace: larger partitions, locks
#: that are held for less time, or less activity outside Dask.
CLUSTERS: Mapping[str, Callable[[ClusterSpec], ClusterSpec]] = {
    cause_name(Bucket.THREAD_NONCPU, "gil"): _one_thread_each,
    **dict.fromkeys(MORE_THREADS, _twice_the_threads),
}


def _fits(report: EfficiencyReport, trace: RunTrace, kind: str) -> bool:
    """True if the cluster that a kind of finding is cured by has memory for the tasks in its threads."""
    cured = CLUSTERS[kind](ClusterSpec.from_trace(trace))
    return all(tasks_fit(report, worker.nthreads, worker.memory_limit) for worker in cured.workers)


def _saturated(report: EfficiencyReport) -> dict[str, Any]:
    """Settings with tasks queued at the workers; none if something else explains their round trips."""
    needed, facts = saturation_needed(report), conditions_of(report)
    if not needed > facts.saturation or facts.no_scheduling or facts.scheduler_busy:
        return {}
    return {"distributed.scheduler.worker-saturation": needed}


#: By kind of finding: the settings that its cure changes, if it applies.
SETTINGS: Mapping[str, Callable[[EfficiencyReport], Mapping[str, Any]]] = {ROUND_TRIPS: _saturated}

#: Kind of finding whose cure is larger partitions.
SMALL = "small-tasks"


def times_as_large(report: EfficiencyReport) -> int:
    """Size that partitions should have, as a multiple; 1 if tasks are not small, or something else explains waits."""
    facts = conditions_of(report)
    small = facts.small_tasks and not facts.no_scheduling and not facts.one_by_one
    return max(facts.sizes.times, 1) if small else 1


#: By kind of finding: the part that its cure leaves out.
PARTS: Mapping[str, str] = {Bucket.SPILL: "spill", Bucket.WAITING_ON_DATA: "transfer"}


def _simulated(
    report: EfficiencyReport, trace: RunTrace, recorded: RunFigures, engine: Simulator, seconds: float
) -> tuple[dict[str, _Share], list[str]]:
    """Simulate the run with each cure that can be simulated, and with all of them if there are several.

    Also returns the kinds of findings whose cures could not be simulated in time.
    """
    waiting = report.waiting.get("lock", 0.0) + report.waiting.get("cluster", 0.0)
    locked = waiting > WAITS * report.breakdown[Bucket.THREAD_NONCPU]
    # More threads, or processes, would wait at the same locks.
    known = PARTS.keys() if locked else PARTS.keys() | {kind for kind in CLUSTERS if _fits(report, trace, kind)}
    known |= {kind for kind, changed in SETTINGS.items() if changed(report)}
    worth = losses_worth_finding(report)
    lost = {part.kind: part.ns for part in worth if part.kind in known}
    if times_as_large(report) > 1:
        lost[SMALL] = sum(part.ns for part in worth if part.kind in OF_SMALL_TASKS)
        lost = dict(sorted(lost.items(), key=lambda item: -item[1]))
    if not lost:
        return {}, []
    cures = {kind: [kind] for kind in list(lost)[:MAX_CURES]}
    sure = [kind for kind in cures if kind not in BOUNDS]
    if len(sure) > 1:
        cures[ALL] = sure
    if not (most := int(TASKS_PER_SECOND * seconds) // len(trace.tasks)):
        return {}, list(lost)[:MAX_CURES]
    factors, gone_ns = _with_memory(trace, AS_LONG * lost.get(Bucket.SPILL, 0))
    jobs = {name: _cured(report, trace, kinds, factors) for name, kinds in cures.items()}
    seeds = range(min(max(most, MIN_SEEDS), SEEDS))
    try:
        for job in jobs.values():
            check_cluster(trace, job.cluster)
        as_it_was = SeededJob(own_job(trace, next(iter(jobs.values()))), seeds, Wanted.NOTHING)
        alone = {name: replace(job, calls_alone=True) for name, job in jobs.items() if job.chunks > 1}
        all_jobs = [as_it_was, *(SeededJob(job, seeds, Wanted.KINDS) for job in jobs.values())]
        all_jobs += [SeededJob(job, range(1), Wanted.NOTHING) for job in alone.values()]
        with progress("simulating cures", unit="runs", of=len(all_jobs) * len(seeds), within=seconds) as shown:
            own, *cured = engine(trace, all_jobs, processes=AT_ONCE, seconds=seconds, report=shown)
    except (EmptyTraceError, SimulationRefusedError, UnplaceableError):  # the simulation may raise them, too
        return {}, []
    simulated, at_best = dict(zip(cures, cured, strict=False)), dict(zip(alone, cured[len(cures) :], strict=True))
    late = {name for name, runs in at_best.items() if not runs.makespans}
    simulated = {name: runs for name, runs in simulated.items() if name not in late}
    done = {name: runs for name, runs in simulated.items() if min(len(own.makespans), len(runs.makespans)) >= MIN_SEEDS}
    missing = [kind for kind in cures if kind not in done and kind != ALL]
    median = own.median if done else math.nan
    error = median / recorded.makespan_seconds - 1.0
    if not abs(error) <= MAX_ERROR:
        return {}, missing
    shares = {}
    for name, runs in done.items():
        threads = sum(worker.nthreads for worker in jobs[name].cluster.workers)
        gone = min(gone_ns, report.breakdown.ns(Bucket.THREAD_CPU)) if Bucket.SPILL in cures[name] else 0
        computing = 1.0 - gone / report.breakdown.ns(Bucket.THREAD_CPU) if gone else 1.0
        most_seconds = _most(report, gone + sum(lost[kind] for kind in cures[name]))
        most_seconds = min(most_seconds, report.cluster_seconds - computing * _with_chance(report, threads))
        # In the middle between the same work and calls alone, which are this factor away.
        ends = math.sqrt(max(runs.median / at_best[name].median, 1.0)) if name in at_best else 1.0
        shorter = min(recorded.makespan_seconds * (1.0 - runs.median / ends / median), most_seconds)
        share = max(1.0 - shorter / report.cluster_seconds, 0.0)
        no_more = MORE_THREADS.isdisjoint(cures[name])
        shares[name] = _Share(share, _error(recorded, error, runs) * ends, no_more, computing)
    return shares, missing


def _not_in_time(missing: Sequence[str], seconds: float) -> str:
    what = ", ".join((BESIDE if kind == SMALL else KINDS)[kind].title for kind in missing)
    longer = max(60, math.ceil(4 * seconds))
    return (
        f"cures that were not simulated within {seconds:g} s have bounds as savings ({what}); "
        f"savings={longer} with trace=True, or --savings {longer} with --trace, gives them longer"
    )


def _error(recorded: RunFigures, own_error: float, runs: Ensemble) -> float:
    """Factor of the error of a cured run, given that of the run's own simulation."""
    figures = ((recorded.kinds, recorded.makespan_seconds), (runs.kinds, runs.median))
    low, high = runs.spread_with(math.hypot(*(run_noise(*of_run) for of_run in figures)))
    middle = max(runs.median, 1e-9)
    return max(high / middle, middle / low) * (1.0 + model_error(own_error, *figures))


def _with_chance(report: EfficiencyReport, threads: int) -> float:
    """Seconds that the cores need for the tasks' computing, if threads arrive at random; 0.0 for unknown cores.

    The simulation mixes computing and waiting evenly, which fills cores; here, cores idle while too many threads wait
    (the machine repairman's queue; A. L. Scherr, An Analysis of Time-Shared Computer Systems, 1967).
    """
    computes = report.breakdown.ns(Bucket.THREAD_CPU, Bucket.LIBRARY_THREADS) / 1e9
    waits = sum(report.waiting.get(cause, 0.0) for cause in ELSEWHERE)
    cores = int(report.cores or 0)
    if not cores or not computes:
        return 0.0
    if not waits:
        return computes / min(threads, cores)
    weights = [1.0]
    for busy in range(threads):
        weights.append(weights[-1] * (threads - busy) * computes / (min(busy + 1, cores) * waits))
    whole = sum(weights)
    return computes / sum(weight / whole * min(busy, cores) for busy, weight in enumerate(weights))


def _cured(
    report: EfficiencyReport, trace: RunTrace, kinds: Sequence[str], factors: Mapping[str, float]
) -> SimulationJob:
    """Make the job of the run with some cures."""
    cluster = ClusterSpec.from_trace(trace)
    for kind in kinds:
        cluster = CLUSTERS[kind](cluster) if kind in CLUSTERS else cluster
        cluster = cluster.with_config(SETTINGS[kind](report)) if kind in SETTINGS else cluster
    without = frozenset(PARTS[kind] for kind in kinds if kind in PARTS)
    others = bool(shares_of_others(trace))
    times = times_as_large(report) if SMALL in kinds else 1
    prefixes, gil = factors if Bucket.SPILL in kinds else {}, _without_gil(report, trace)
    return SimulationJob(cluster, without, prefixes=prefixes, gil=gil, others=others, chunks=times)


def _with_memory(trace: RunTrace, most_ns: int) -> tuple[dict[str, float], int]:
    """Factors of the tasks' time in threads by prefix where memory is not short, and the CPU time that goes.

    While results are spilled, a task that fills new memory takes up to five times as much CPU time, as that has to be
    taken from others, and cleared: 2.1 s of CPU time for 96 tasks that took 1.0 s with enough of it, and 3.3 for .6,
    of which the quickest quarter in the run that spilled say .9 and .6 (``public_reports``, ``centred_series`` and
    ``persisted_beyond_memory``). So tasks that are alike, of one prefix and as many bytes of results, are taken for as
    quick as their quickest quarter. At most ``most_ns``, as tasks may differ by what is in their data, too.
    """
    if most_ns <= 0:  # nothing was spilled
        return {}, 0
    runs, prefixes = trace.runs, prefix_of_runs(trace)
    nbytes = values_at(trace.tasks.nbytes, runs.task)
    large = (
        (runs.outcome == RunOutcome.SUCCEEDED) & (runs.cpu_ns > 0) & (prefixes != MISSING) & (nbytes >= LARGE_RESULTS)
    )
    rows = np.flatnonzero(large)[np.lexsort((runs.cpu_ns[large], nbytes[large], prefixes[large]))]
    spent = runs.cpu_ns[rows]
    changes = np.flatnonzero(np.diff(prefixes[rows]) | np.diff(nbytes[rows])) + 1
    gone = np.zeros(len(trace.prefixes))
    for start, stop in pairwise((0, *changes.tolist(), len(rows))):
        if stop - start >= MANY:
            quick = spent[start + (stop - start) // 4]
            gone[prefixes[rows[start]]] += np.maximum(spent[start:stop] - quick, 0).sum()
    if not gone.sum():
        return {}, 0
    gone *= min(1.0, most_ns / gone.sum())
    known = prefixes != MISSING
    in_threads = np.bincount(prefixes[known], (runs.stop - runs.start)[known], len(trace.prefixes))
    found = np.flatnonzero(gone).tolist()
    factors = {trace.prefixes[i]: max(0.0, 1.0 - float(gone[i] / in_threads[i])) for i in found if in_threads[i] > 0}
    return factors, round(float(gone.sum()))


def _without_gil(report: EfficiencyReport, trace: RunTrace) -> dict[str, float]:
    """Select prefixes whose tasks do not hold the GIL: they did not wait for it, though several threads could have."""
    if report.not_sampled or all(worker.nthreads == 1 for worker in trace.workers):
        return {}
    waited = cause_name(Bucket.THREAD_NONCPU, "gil")
    in_threads = {prefix: row.ns(*GOOD, Bucket.THREAD_NONCPU) for prefix, row in report.by_prefix.items()}
    rows = report.causes_by_prefix
    return {
        prefix: 0.0
        for prefix in trace.prefixes
        if in_threads.get(prefix) and rows.get(prefix, {}).get(waited, 0) < WAITS * in_threads[prefix]
    }
