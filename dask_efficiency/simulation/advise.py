"""advise: the fastest and the cheapest setting for a recorded run, by simulation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.show.figures import format_bytes
from dask_efficiency.simulation import calls
from dask_efficiency.simulation.model.advice import (
    Advice,
    Limits,
    Setting,
    choose,
    limits,
    own_setting,
    search,
)
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.ensemble import Ensemble, SeededJob, Wanted, check_seeds
from dask_efficiency.simulation.model.requirements import UnplaceableError, check_cluster
from dask_efficiency.simulation.model.result import SelfReplay, own_job, predict
from dask_efficiency.simulation.model.run_figures import RunFigures

#: Default seeds of each setting that is shown; and of those of runs of more than so many tasks, so that a search takes
#: two minutes.
SEEDS, FEWER, MANY_TASKS = 6, 4, 3_000
#: Most seeds for the lower end of larger partitions: it needs no spread of its own.
FEW = 2


def advise(
    trace: RunTrace,
    *,
    price_per_worker_hour: float | None = None,
    seeds: int | Sequence[int] | None = None,
    force: bool = False,
) -> Advice:
    """Search the settings with which a recorded run is fastest, and those with which it is cheapest.

    Numbers of workers, their threads and memory, the size of partitions or chunks, and the scheduler's saturation: a
    dozen settings are simulated once, as by :func:`~dask_efficiency.simulate`, a knob at a time, and the best of them
    several times.

    Parameters
    ----------
    trace, force
        As of :func:`~dask_efficiency.simulate`.
    price_per_worker_hour
        Of a worker as it was, any currency; workers with other threads cost in proportion. None leaves money out.
    seeds
        Simulated runs, or their seeds, of each setting that is shown; by default 6, or 4 of runs of many tasks.

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
    many = len(trace.tasks) > MANY_TASKS
    chosen = check_seeds((FEWER if many else SEEDS) if seeds is None else seeds)
    if price_per_worker_hour is not None and not 0 <= price_per_worker_hour < math.inf:
        raise ValueError(f"price_per_worker_hour is {price_per_worker_hour!r}; expected 0 or more")
    notes = calls.checked(trace, force=force)
    cluster = ClusterSpec.from_trace(trace)
    own, limit = own_setting(cluster), limits(trace, cluster)
    as_it_was, replayed = SeededJob(own.job(cluster), chosen), SeededJob(own_job(trace), chosen)
    # Beside others on its cores, the run is judged with them, and compared without.
    first = [replayed] if replayed == as_it_was else [replayed, as_it_was]
    rounds, settings = search(own, limit), dict[str, Setting]()
    jobs = _jobs(trace, cluster, next(rounds))
    with calls.simulated(trace, [*first, *filter(None, jobs.values())]) as ensembles:
        judged = calls.trusted(SelfReplay(RunFigures.of(trace), next(ensembles)), force=force)
        runs = next(ensembles) if len(first) > 1 else judged.runs
        tried = {own: runs.median} | _took(jobs, ensembles)
    while not settings:
        try:
            jobs = _jobs(trace, cluster, rounds.send(tried))
        except StopIteration as found:
            settings |= found.value
        else:
            with calls.simulated(trace, [*filter(None, jobs.values())]) as ensembles:
                tried |= _took(jobs, ensembles)
    predictions = {own: predict(trace, as_it_was.job, runs, judged, notes)}
    best = {setting: setting.job(cluster) for setting in settings.values() if setting != own}
    alone = {setting: replace(job, calls_alone=True) for setting, job in best.items() if setting.chunks > 1}
    shown = [SeededJob(job, chosen, may_stand_still=True) for job in best.values()]
    shown += [SeededJob(job, chosen[:FEW], Wanted.NOTHING, may_stand_still=True) for job in alone.values()]
    with calls.simulated(trace, shown) as ensembles:
        simulated, shortest = (dict(zip(of, ensembles, strict=False)) for of in (best, alone))
    for setting, runs in simulated.items():
        if not (runs.stands_still or runs.overfull):
            least = shortest.get(setting, runs)
            share = min(least.median / runs.median, 1.0) if least.makespans else 1.0
            one = predict(trace, best[setting], runs, judged, notes)
            predictions[setting] = replace(one, calls_alone=share)
    # More simulated runs may not confirm what one promised.
    settings = choose(own, {setting: one.makespan_seconds for setting, one in predictions.items()})
    return Advice(
        settings,
        {name: predictions[setting] for name, setting in settings.items()},
        limit.tasks,
        len(tried),
        price_per_worker_hour,
        (*_unknown(cluster, own, limit, settings.values()), *predictions[own].notes),
    )


#: By setting: its job; None if tasks cannot be placed.
_Jobs = Mapping[Setting, SeededJob | None]


def _jobs(trace: RunTrace, cluster: ClusterSpec, settings: Sequence[Setting]) -> _Jobs:
    """Jobs of settings that are tried, with one simulated run each."""
    jobs = dict[Setting, SeededJob | None](dict.fromkeys(settings))
    for setting in settings:
        job = setting.job(cluster)
        with suppress(UnplaceableError):
            check_cluster(trace, job.cluster)
            jobs[setting] = SeededJob(job, range(1), Wanted.NOTHING, may_stand_still=True)
    return jobs


def _took(jobs: _Jobs, ensembles: Iterator[Ensemble]) -> dict[Setting, float]:
    """Seconds of each setting; infinite where it cannot be placed, the run does not end, or workers are killed."""
    took = dict.fromkeys(jobs, math.inf)
    for setting in filter(jobs.__getitem__, jobs):
        runs = next(ensembles)
        if not runs.stands_still and not runs.overfull:
            took[setting] = runs.median
    return took


def _unknown(cluster: ClusterSpec, own: Setting, limit: Limits, shown: Iterable[Setting]) -> list[str]:
    """Caveats on what the trace does not tell, a sentence each."""
    notes = []
    if len({worker.host for worker in cluster.workers}) > 1 or not cluster.cores:
        notes.append("Workers that are added are taken to have cores of their own, as fast as those that were there.")
    elif limit.threads < math.inf:
        notes.append(
            f"No more threads than the {limit.threads:g} cores of the host were tried, as tasks compute on these; "
            "workers on other hosts would have their own: `simulate --cores` tries them."
        )
    if limit.memory > own.memory_limit and limit.one_host:
        notes.append(
            f"Workers spilled, and would not with {format_bytes(limit.memory)} each; a trace does not tell whether the "
            "host has it."
        )
    if any(one.has_more_memory(own) for one in shown):
        notes.append("Cost is that of threads: the price of more memory for each of them is not known.")
    if limit.tasks.times(own) > 1:
        notes.append(
            "A trace does not tell how much of a small task's time is what its call costs: the interval of larger "
            "partitions goes from all of it, so that a task takes no longer, to nothing; the time is between."
        )
    if all(worker.nthreads == 1 for worker in cluster.workers):
        notes.append("Workers had one thread: how tasks wait for Python's lock (GIL) beside others is not known.")
    notes.append("What tasks need of memory while they run is not in a trace; a report's finding on memory has it.")
    return notes
