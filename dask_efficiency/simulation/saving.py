"""Saving: how long the recorded run takes once its largest loss is cured as the advice says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from dask_efficiency.accounts.buckets import GOOD, Bucket
from dask_efficiency.accounts.causes import name_of
from dask_efficiency.report.advice import OTHERS
from dask_efficiency.report.largest import Largest, largest_losses
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.wall_clock import largest_is_elsewhere
from dask_efficiency.runs.trace.errors import EmptyTraceError
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.simulation.engine.launch import simulate_seeds
from dask_efficiency.simulation.model.accuracy import MAX_ERROR, SimulationRefusedError, own_job
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.ensemble import Engine, ensemble
from dask_efficiency.simulation.model.job import Job
from dask_efficiency.simulation.model.makespan import makespan_seconds
from dask_efficiency.simulation.model.requirements import UnplaceableError, check_cluster, check_trace

#: Simulated tasks of one cluster, all its seeds together, that are worth waiting for as a report is made: some 3 s.
MAX_TASKS = 6_000

#: Simulated runs of each cluster, at most.
SEEDS = 3

#: What tasks wait for as long with other processes on their cores as without.
ELSEWHERE = ("sleep", "file", "network", "child-process")

#: Where tasks wait at locks for more than this share of their waiting, no simulation knows what else they wait for.
MAX_LOCKED = 0.1

#: Below this share of their time in threads, the waiting of a prefix's tasks for the GIL says that they share it.
SHARES_GIL = 0.05


def saving(report: EfficiencyReport, engine: Engine = simulate_seeds) -> float | None:
    """How long the cluster takes for the recorded run once its largest loss is cured.

    The run is simulated as it was and with its cure, on cores that its processes share. What the cure saves is
    taken from the recorded time, in proportion. Two cures need no simulation: without other processes, tasks that wait
    for cores take the share less that these had of them, but for what they sleep or wait elsewhere; and of a task for
    which all others waited, what was beyond its like is divided by the threads that can compute.

    Parameters
    ----------
    report
        With its trace.
    engine
        What simulates.

    Returns
    -------
    float or None
        Seconds, between ``report.ideal_seconds`` and ``report.cluster_seconds``. None where most of the time was not
        the cluster's, where there is no trace or it is too long, where the cure is nothing that can be simulated, where
        the run's own simulation is off by more than 15 %, and where nothing is saved.
    """
    losses, trace = largest_losses(report), report.trace
    if trace is None or not 0 < len(trace.tasks) <= MAX_TASKS or not losses or largest_is_elsewhere(report):
        return None
    if losses[0].cause in COMPUTED:
        return COMPUTED[losses[0].cause](report)
    try:
        check_trace(trace, "", force=False)
        cured = _cured(report, trace, losses[0])
        if cured is None:
            return None
        check_cluster(trace, cured.cluster)
        recorded = makespan_seconds(trace)
        seeds = range(min(max(MAX_TASKS // len(trace.tasks), 1), SEEDS))
        simulated = partial(ensemble, partial(engine, processes=1), trace, seeds=seeds, traced=False)
        with ThreadPoolExecutor(2) as pool:
            own, after = (runs.median for runs in pool.map(simulated, (own_job(trace, cured), cured)))
    except (EmptyTraceError, SimulationRefusedError, UnplaceableError):  # it may be raised by what is simulated, too
        return None
    if not abs(own / recorded - 1.0) <= MAX_ERROR or not after < own:
        return None
    return max(report.cluster_seconds - recorded * (1.0 - after / own), report.ideal_seconds)


def _without_others(report: EfficiencyReport) -> float | None:
    share, in_threads = report.others_share or 0.0, report.breakdown.ns(*GOOD, Bucket.THREAD_NONCPU) / 1e9
    if share < OTHERS or not in_threads:
        return None
    stays = sum(report.waiting.get(cause, 0.0) for cause in ELSEWHERE) / in_threads
    return max(report.cluster_seconds * (1.0 - share * (1.0 - stays)), report.ideal_seconds)


def _split(report: EfficiencyReport) -> float | None:
    """With the longest task in pieces: while nothing else ran, all threads that have a core could have."""
    for one in report.long_tail[:1]:
        skew = report.skew.get(one.prefix)
        if skew is None or skew.longest_key != one.key:
            break
        beside = max(1.0, min(report.threads, report.cores or 1.0))
        alone = min(skew.alone_seconds, one.seconds - one.median_seconds)
        return max(report.cluster_seconds - alone * (1.0 - 1.0 / beside), report.ideal_seconds)
    return None


def _one_thread_each(own: ClusterSpec) -> ClusterSpec:
    threads = sum(worker.nthreads for worker in own.workers)
    memory = sum(worker.memory_limit for worker in own.workers) // threads
    return own.with_workers(threads, nthreads=1, memory_limit=memory)


def _twice_the_threads(own: ClusterSpec) -> ClusterSpec:
    return own.with_workers(len(own.workers), nthreads=2 * max(worker.nthreads for worker in own.workers))


#: By cause of the largest loss: what the run takes with a cure that needs no simulation.
COMPUTED: Mapping[str, Callable[[EfficiencyReport], float | None]] = {"core": _without_others, "parallelism": _split}

#: By loss: what its cure makes of the cluster. Others are cured by what no trace can tell of: by larger partitions, by
#: locks that are held for less, or by less that goes on beside Dask.
CURES: Mapping[tuple[str, str], Callable[[ClusterSpec], ClusterSpec]] = {
    (Bucket.THREAD_NONCPU, "gil"): _one_thread_each,
    (Bucket.THREAD_NONCPU, "sleep"): _twice_the_threads,
    (Bucket.THREAD_NONCPU, "network"): _twice_the_threads,
    (Bucket.SPILL, ""): lambda own: own,
}


def _cured(report: EfficiencyReport, trace: RunTrace, largest: Largest) -> Job | None:
    """The run with its cure; None where nobody can simulate that."""
    if (largest.bucket, largest.cause) not in CURES:
        return None
    if report.waiting.get("lock", 0.0) > MAX_LOCKED * report.breakdown[Bucket.THREAD_NONCPU]:
        return None  # more threads, or processes, wait at the same locks
    change = CURES[largest.bucket, largest.cause]
    without = frozenset({"spill"} if largest.bucket is Bucket.SPILL else ())
    return Job(change(ClusterSpec.from_trace(trace)), without, gil=_without_gil(report, trace))


def _without_gil(report: EfficiencyReport, trace: RunTrace) -> dict[str, float]:
    """The prefixes whose tasks were seen not to wait for the GIL, where several could have: they do not hold it."""
    if report.not_sampled or all(worker.nthreads == 1 for worker in trace.workers):
        return {}
    waited = name_of(Bucket.THREAD_NONCPU, "gil")
    in_threads = {prefix: row.ns(*GOOD, Bucket.THREAD_NONCPU) for prefix, row in report.by_prefix.items()}
    rows = report.causes_by_prefix
    return {
        prefix: 0.0
        for prefix in trace.prefixes
        if in_threads.get(prefix) and rows.get(prefix, {}).get(waited, 0) < SHARES_GIL * in_threads[prefix]
    }
