"""advise: the fastest and the cheapest setting for a recorded run, by simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence

from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.simulation import calls
from dask_efficiency.simulation.model.advice import (
    AS_IT_WAS,
    Advice,
    Limits,
    Setting,
    limits,
    own_setting,
    search,
    still_better,
)
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.ensemble import SeededJob, Wanted, check_seeds
from dask_efficiency.simulation.model.requirements import UnplaceableError, check_cluster
from dask_efficiency.simulation.model.result import Prediction, SelfReplay, predict, self_replay_job
from dask_efficiency.simulation.model.run_figures import RunFigures

#: Simulated runs of each setting that is tried; one of runs of so many tasks, so that a search takes two minutes.
TRIES, MANY_TASKS = 2, 3_000


def advise(
    trace: RunTrace,
    *,
    price_per_worker_hour: float | None = None,
    seeds: int | Sequence[int] = 6,
    force: bool = False,
) -> Advice:
    """Search the settings with which a recorded run is fastest, and those with which it is cheapest.

    Numbers of workers, their threads and memory, the size of partitions or chunks, and the scheduler's saturation: a
    dozen or two settings are simulated, as by :func:`~dask_efficiency.simulate`; what helps alone is tried together.

    Parameters
    ----------
    trace, force
        As of :func:`~dask_efficiency.simulate`.
    price_per_worker_hour
        Of a worker as it was, any currency; workers with other threads cost in proportion. None leaves money out.
    seeds
        Simulated runs, or their seeds, of each setting that is shown.

    Returns
    -------
    Advice
        It shows itself, with the lines to change. None of its settings takes more than 3 % longer than the run
        as it was.

    Raises
    ------
    ValueError
        If the price is below 0, or workers differ in their threads; and whatever :func:`~dask_efficiency.simulate`
        refuses.

    Examples
    --------
    >>> advise(load_trace("run.trace"), price_per_worker_hour=0.4)  # doctest: +SKIP
    """
    chosen = check_seeds(seeds)
    if price_per_worker_hour is not None and not 0 <= price_per_worker_hour < math.inf:
        raise ValueError(f"price_per_worker_hour is {price_per_worker_hour!r}; expected 0 or more")
    notes = calls.checked(trace, force=force)
    cluster = ClusterSpec.from_trace(trace)
    own, limit = own_setting(cluster), limits(trace, cluster)
    recorded = RunFigures.of(trace)
    with calls.simulated(trace, [self_replay_job(trace, own.job(cluster))]) as ensembles:
        judged = calls.trusted(SelfReplay(recorded, next(ensembles)), force=force)
    rounds = search(own, limit)
    tries = range(1 if len(trace.tasks) > MANY_TASKS else TRIES)
    tried, asked = dict[Setting, float](), next(rounds)
    while True:
        tried |= _simulate(trace, cluster, asked, tries)
        if tried[own] == math.inf:  # it did end
            tried[own] = recorded.makespan_seconds
        try:
            asked = rounds.send(tried)
        except StopIteration as found:
            settings: dict[str, Setting] = found.value
            break
    jobs = {name: setting.job(cluster) for name, setting in settings.items()}
    predictions = dict[str, Prediction]()
    seeded = [SeededJob(job, chosen, may_stand_still=name != AS_IT_WAS) for name, job in jobs.items()]
    with calls.simulated(trace, seeded) as ensembles:
        for (name, job), runs in zip(jobs.items(), ensembles, strict=True):
            if name == AS_IT_WAS or not (runs.stands_still or runs.overfull):
                predictions[name] = predict(trace, job, runs, judged, notes)
    left = still_better(own, settings, {name: one.makespan_seconds for name, one in predictions.items()})
    settings = {name: settings[name] for name in left}
    predictions = {name: predictions[name] for name in left}
    unknown = (*_unknown(cluster, own, limit), *predictions[AS_IT_WAS].notes)
    return Advice(settings, predictions, len(tried), price_per_worker_hour, unknown)


def _simulate(
    trace: RunTrace, cluster: ClusterSpec, settings: Sequence[Setting], seeds: Sequence[int]
) -> dict[Setting, float]:
    """Seconds of each setting; infinite where tasks cannot be placed, the run does not end, or workers are killed."""
    took, jobs = dict.fromkeys(settings, math.inf), dict[Setting, SeededJob]()
    for setting in settings:
        job = setting.job(cluster)
        try:
            check_cluster(trace, job.cluster)
        except UnplaceableError:
            continue
        jobs[setting] = SeededJob(job, seeds, Wanted.NOTHING, may_stand_still=True)
    with calls.simulated(trace, [*jobs.values()]) as ensembles:
        for setting, runs in zip(jobs, ensembles, strict=True):
            if not runs.stands_still and not runs.overfull:
                took[setting] = runs.median
    return took


def _unknown(cluster: ClusterSpec, own: Setting, limit: Limits) -> list[str]:
    """Caveats on what the trace does not tell, a sentence each."""
    notes = []
    if len({worker.host for worker in cluster.workers}) > 1 or not cluster.cores:
        notes.append("Workers that are added are taken to have cores of their own, as fast as those that were there.")
    elif limit.threads < math.inf:
        notes.append(
            f"No more threads than the {limit.threads:g} cores of the host were tried, as tasks compute on these; "
            "workers on other hosts would have their own: `simulate --cores` tries them."
        )
    if limit.chunks(own) > 1:
        notes.append("Larger partitions are simulated at the same work: what each call of a library costs stays.")
    if all(worker.nthreads == 1 for worker in cluster.workers):
        notes.append("Workers had one thread: how tasks wait for Python's lock (GIL) beside others is not known.")
    notes.append("What tasks need of memory while they run is not in a trace; a report's finding on memory has it.")
    return notes
