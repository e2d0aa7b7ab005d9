"""Savings: reduction of the recorded run's time if each loss is cured as advised, and if all are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from dask_efficiency.accounts.buckets import GOOD, HELD, Bucket, cause_name
from dask_efficiency.report.kinds import OTHERS
from dask_efficiency.report.lost_time import losses_worth_finding
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.values import ALL, BOUNDS, Saved
from dask_efficiency.report.wall_clock import largest_is_elsewhere
from dask_efficiency.runs.trace.errors import EmptyTraceError
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.simulation.engine.launch import simulate_seeds
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.ensemble import NORMAL_95, Ensemble, Simulated, SimulationJob, Simulator
from dask_efficiency.simulation.model.requirements import (
    SimulationRefusedError,
    UnplaceableError,
    check_cluster,
    check_trace,
)
from dask_efficiency.simulation.model.result import MAX_ERROR, model_error, own_job
from dask_efficiency.simulation.model.run_figures import RunFigures, run_noise
from dask_efficiency.straggler.wording import as_finding

#: Most simulated tasks of one cluster, all its seeds together, while a report is made: some 3 s for the run and a cure.
MAX_TASKS = 6_000
#: Most simulated runs of each cluster; and fewest, as one alone has no spread.
SEEDS, MIN_SEEDS = 3, 2
#: Most simulated cures, of the largest losses; bounds the wait for a report.
MAX_CURES = 3
#: Causes of waiting that other processes on the cores do not lengthen.
ELSEWHERE = ("sleep", "file", "network", "child-process")
#: Share of waiting at locks above which more threads are not simulated, as these would wait at the same locks: a guess.
MAX_LOCKED = 0.1
#: Share of their time in threads that a prefix's tasks wait for the GIL, below which they do not hold it: a guess.
SHARES_GIL = 0.05

_CORE = cause_name(Bucket.THREAD_NONCPU, "core")


@dataclass(frozen=True, slots=True)
class _Share:
    """Time of a cured run as a share of the recorded one, and the factor of its error, 9 times in 10."""

    share: float
    error: float

    def saved(self, report: EfficiencyReport) -> Saved:
        """Convert to seconds saved in the report; no run takes less than its ideal runtime."""
        took = report.cluster_seconds
        most = max(took - report.ideal_seconds, 0.0)
        ends = (took * (1.0 - self.share * factor) for factor in (self.error, 1.0, 1.0 / self.error))
        low, seconds, high = (min(max(saved, 0.0), most) for saved in ends)
        return Saved(seconds, low, high)


def savings(report: EfficiencyReport, engine: Simulator = simulate_seeds) -> dict[str, Saved]:
    """Estimate the seconds that the cure of each loss saves, and all together (:data:`ALL`), by kind of finding.

    The run is simulated as it was and with each cure, on cores that its processes share; the saving is the same share
    of the recorded time. Some cures are computed (:data:`COMPUTED`), and the cost of a slow worker, whose name follows
    its kind, comes from a replay. Empty if most of the time was not the cluster's, or the trace is missing or too long;
    without simulated cures if the run's own simulation is off by more than 15 %.
    """
    trace = report.trace
    if trace is None or not 0 < len(trace.tasks) <= MAX_TASKS or largest_is_elsewhere(report):
        return {}
    try:
        check_trace(trace, "", force=False)
        recorded = RunFigures.of(trace)
    except (EmptyTraceError, SimulationRefusedError):
        return {}
    computed, simulated = dict(_computed(report, recorded)), _simulated(report, trace, recorded, engine)
    sure = [share for kind, share in simulated.items() if kind not in BOUNDS]
    # A worker may be slow because of other processes: do not count both.
    not_simulated = [computed[_CORE]] if _CORE in computed else computed.values()
    together = _product([*([simulated[ALL]] if ALL in simulated else sure), *not_simulated])
    saved = {kind: share.saved(report) for kind, share in {**simulated, **computed, ALL: together}.items()}
    return {kind: one for kind, one in saved.items() if one.seconds > 0}


def _most(report: EfficiencyReport, lost_ns: int) -> float:
    """Bound the seconds that a cure saves: the lost time, and that of threads without a task."""
    whole = report.breakdown
    idle = whole.total_ns - whole.ns(*HELD, Bucket.NO_WORK) + whole.ns(Bucket.OVERHEAD)
    return (idle + lost_ns) / 1e9 / report.mean_threads


def _product(shares: Sequence[_Share]) -> _Share:
    error = math.exp(math.hypot(*(math.log(one.error) for one in shares)))
    return _Share(math.prod(one.share for one in shares), error)


def _computed(report: EfficiencyReport, recorded: RunFigures) -> Iterator[tuple[str, _Share]]:
    figures = (recorded.kinds, recorded.makespan_seconds)
    error = math.exp(NORMAL_95 * math.sqrt(2.0) * run_noise(*figures)) * (1.0 + model_error(0.0, figures))
    for part in losses_worth_finding(report):
        share = COMPUTED[part.kind](report) if part.kind in COMPUTED else None
        if share is not None:
            yield part.kind, _Share(max(share, 1.0 - _most(report, part.ns) / report.cluster_seconds), error)
    for one in report.stragglers:
        if one.seconds_lost:
            share = 1.0 - one.seconds_lost / report.cluster_seconds
            yield f"{as_finding(one).kind}/{one.subject}", _Share(share, error)


def _without_others(report: EfficiencyReport) -> float | None:
    """Estimate the run without other processes: tasks that wait for cores get the others' share."""
    share, in_threads = report.others_share or 0.0, report.breakdown.ns(*GOOD, Bucket.THREAD_NONCPU) / 1e9
    if share < OTHERS or not in_threads:
        return None
    stays = sum(report.waiting.get(cause, 0.0) for cause in ELSEWHERE) / in_threads
    return 1.0 - share * (1.0 - stays)


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
    _CORE: _without_others,
    cause_name(Bucket.IDLE, "parallelism"): _split,
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
    cause_name(Bucket.THREAD_NONCPU, "sleep"): _twice_the_threads,
    cause_name(Bucket.THREAD_NONCPU, "network"): _twice_the_threads,
}

#: By kind of finding: the part that its cure leaves out.
PARTS: Mapping[str, str] = {Bucket.SPILL: "spill", Bucket.WAITING_ON_DATA: "transfer"}


def _simulated(report: EfficiencyReport, trace: RunTrace, recorded: RunFigures, engine: Simulator) -> dict[str, _Share]:
    """Simulate the run with each cure that can be simulated, and with all of them if there are several."""
    locked = report.waiting.get("lock", 0.0) > MAX_LOCKED * report.breakdown[Bucket.THREAD_NONCPU]
    # More threads, or processes, would wait at the same locks.
    known = PARTS.keys() if locked else PARTS.keys() | CLUSTERS.keys()
    lost = {part.kind: part.ns for part in losses_worth_finding(report) if part.kind in known}
    if not lost:
        return {}
    cures = {kind: [kind] for kind in list(lost)[:MAX_CURES]}
    sure = [kind for kind in cures if kind not in BOUNDS]
    if len(sure) > 1:
        cures[ALL] = sure
    jobs = {name: _cured(report, trace, kinds) for name, kinds in cures.items()}
    seeds = range(min(max(MAX_TASKS // len(trace.tasks), MIN_SEEDS), SEEDS))
    run = partial(engine, trace, seeds=seeds, processes=1)
    try:
        for job in jobs.values():
            check_cluster(trace, job.cluster)
        with ThreadPoolExecutor(2) as pool:
            own, *cured = pool.map(run, (own_job(trace, next(iter(jobs.values()))), *jobs.values()))
    except (EmptyTraceError, SimulationRefusedError, UnplaceableError):  # the simulation may raise them, too
        return {}
    median = Ensemble.of(own).median
    error = median / recorded.makespan_seconds - 1.0
    if not abs(error) <= MAX_ERROR:
        return {}
    found = {}
    for (name, kinds), runs in zip(cures.items(), cured, strict=True):
        threads = sum(worker.nthreads for worker in jobs[name].cluster.workers)
        most = _most(report, sum(lost[kind] for kind in kinds))
        most = min(most, report.cluster_seconds - _with_chance(report, threads))
        simulated, factor = Ensemble.of(runs), _error(recorded, error, runs)
        shorter = min(recorded.makespan_seconds * (1.0 - simulated.median / median), most)
        found[name] = _Share(max(1.0 - shorter / report.cluster_seconds, 0.0), factor)
    return found


def _error(recorded: RunFigures, own_error: float, cured: Sequence[Simulated]) -> float:
    """Factor of the error of a cured run, given that of the run's own simulation."""
    runs = Ensemble.of(cured)
    kinds = next(one.kinds for one in cured if one.seed == runs.nearest)
    figures = ((recorded.kinds, recorded.makespan_seconds), (kinds, runs.median))
    low, high = runs.spread_with(math.hypot(*(run_noise(*one) for one in figures)))
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


def _cured(report: EfficiencyReport, trace: RunTrace, kinds: Sequence[str]) -> SimulationJob:
    """Make the job of the run with some cures."""
    cluster = ClusterSpec.from_trace(trace)
    for kind in kinds:
        cluster = CLUSTERS[kind](cluster) if kind in CLUSTERS else cluster
    without = frozenset(PARTS[kind] for kind in kinds if kind in PARTS)
    return SimulationJob(cluster, without, gil=_without_gil(report, trace))


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
        if in_threads.get(prefix) and rows.get(prefix, {}).get(waited, 0) < SHARES_GIL * in_threads[prefix]
    }
