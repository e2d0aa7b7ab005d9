"""Predictions of a recorded run: on another cluster, on several, under other placements, and without overheads."""

from __future__ import annotations

import importlib.metadata
import math
import os
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import PurePath

from dask_efficiency.runs.replay.changes import changes
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.show.progress import progress, until_stopped
from dask_efficiency.simulation.engine.launch import SimulationError, simulate_jobs
from dask_efficiency.simulation.engine.settings import simulated_settings
from dask_efficiency.simulation.memory_limits import parse_memory, parse_memory_limits
from dask_efficiency.simulation.model.cluster import ClusterSpec
from dask_efficiency.simulation.model.ensemble import Ensemble, SeededJob, SimulationJob, Simulator, Wanted, check_seeds
from dask_efficiency.simulation.model.ladder import IdealLadder, ladder, ladder_jobs
from dask_efficiency.simulation.model.placements import Placement, Placements, ranked
from dask_efficiency.simulation.model.requirements import UnplaceableError, check_cluster, check_trace
from dask_efficiency.simulation.model.result import (
    Prediction,
    SelfReplay,
    SimulationWarning,
    predict,
    self_replay_job,
)
from dask_efficiency.simulation.model.run_figures import RunFigures
from dask_efficiency.simulation.model.sweeps import Sweep, parse_sizes
from dask_efficiency.simulation.model.thread_waits import check_shares

#: The simulator; tests replace it.
engine: Simulator = simulate_jobs

#: Default seeds of each cluster where several are compared: half of those of one prediction.
SEEDS = 8


def simulate(
    trace: RunTrace,
    cluster: ClusterSpec | None = None,
    *,
    workers: int | None = None,
    memory_limit: float | str | None = None,
    seeds: int | Sequence[int] = 16,
    speed_up: Mapping[str, float] | None = None,
    without: Collection[str] = (),
    gil: Mapping[str, float] | None = None,
    force: bool = False,
    validate: bool = False,
) -> Prediction:
    """Predict a recorded run on a cluster.

    Dask's own scheduler and workers run the recorded graph again in virtual time, in separate processes: tasks compute
    for the recorded time, and the scheduler decides again where and when they run.

    Parameters
    ----------
    trace
        A recorded run: ``report.trace``, or what :func:`~dask_efficiency.load_trace` reads.
    cluster
        The cluster; by default the recorded one.
    workers
        Number of workers of that cluster; by default its own.
    memory_limit
        Of each worker, in bytes or as a text such as ``"4 GiB"``; by default its own.
    seeds
        Number of simulated runs, or their seeds. The same seed gives the same run.
    speed_up
        Prefix to speed of its tasks' computing; 2.0 is half the time.
    without
        Parts that take no time: ``transfer`` (moving results between workers), ``spill`` (disk, both ways),
        ``scheduler`` (messages to and from it, and its own time).
    gil
        Prefix to the share of its tasks' time, alone on a worker, in which they hold Python's lock (GIL), in [0, 1]. By
        default it is read from the trace, and noted: a run with one thread a worker shows little of it.
    force
        Predict although the run's own simulation is off by more than 15 %, or although parts of the trace are missing.
    validate
        Have Dask check its own state after every step; slow.

    Returns
    -------
    Prediction
        It shows itself. Its ``trace`` is a run like any other: with a critical path, for Perfetto, to be saved.

    Raises
    ------
    SimulationRefusedError
        If the run's own simulation is off by more than 15 %, or if tasks, runs or graphs are missing in the trace.
    UnplaceableError
        If tasks may run on no worker of the cluster.
    EmptyTraceError
        If no task ended in the trace.
    UnknownNameError
        If a prefix is not in the trace, or a part cannot be left out.
    ValueError
        If the cluster is to have no workers, or a speed-up or a number of seeds is not above 0.

    Warns
    -----
    SimulationWarning
        If the run's own simulation is off by more than 5 %.

    Examples
    --------
    >>> simulate(trace, workers=16)  # doctest: +SKIP
    >>> simulate(trace, memory_limit="4 GiB")  # doctest: +SKIP
    >>> cluster = ClusterSpec.from_trace(trace)  # doctest: +SKIP
    >>> simulate(trace, cluster.with_workers(16, nthreads=2))  # doctest: +SKIP
    """
    chosen = check_seeds(seeds)
    notes = checked(trace, force=force)
    changed = changes(trace, speed_up or {}, without, ())
    given = _cluster_or_recorded(trace, cluster)
    given = given if workers is None else given.with_workers(workers)
    if memory_limit is not None:
        given = given.with_workers(len(given.workers), memory_limit=parse_memory(memory_limit))
    check_shares(trace, gil or {})
    job = SimulationJob(given, frozenset(changed.parts), dict(changed.prefixes) or None, validate, gil or {})
    _check_cluster(trace, given)
    own, recorded = self_replay_job(trace, job), RunFigures.of(trace)
    is_own = job.to_dict() | {"validate": False} == own.job.to_dict()
    jobs = [SeededJob(job, chosen)] if is_own else [own, SeededJob(job, chosen)]
    with simulated(trace, jobs) as ensembles:
        judged = trusted(SelfReplay(recorded, next(ensembles)), force=force)
        runs = judged.runs if is_own else next(ensembles)
    return predict(trace, job, runs, judged, notes)


def sweep(
    trace: RunTrace,
    workers: str | Sequence[int] | None = None,
    *,
    memory_limit: str | Sequence[float | str] | None = None,
    cluster: ClusterSpec | None = None,
    nthreads: int | None = None,
    price_per_worker_hour: float | None = None,
    seeds: int | Sequence[int] = SEEDS,
    force: bool = False,
) -> Sweep:
    """Predict a recorded run, and its cost, with other numbers of workers, or with other memory of each.

    Parameters
    ----------
    trace, seeds, force
        As of :func:`simulate`.
    workers
        Numbers of workers, or a text as of ``--sweep``: ``"2..64"``, ``"4,6,12"``; by default ``"2..32"``.
    memory_limit
        Memory limits of each worker instead, on the cluster's number of workers: in bytes or with units, or a text as
        of ``--sweep``: ``"2..16GiB"``, ``"3,6GiB"``. Memory that tasks take while they run counts as in the
        recorded run's median.
    cluster
        Template of the workers and the network; by default the recorded cluster.
    nthreads
        Threads of each worker; by default those of the cluster's workers.
    price_per_worker_hour
        Any currency; None leaves money out.

    Returns
    -------
    Sweep
        It shows itself, with a plot on a page and in a notebook. Ctrl-C ends it early, with the sizes that were
        simulated; ``not_simulated`` lists the others. ``impossible`` says of sizes why the run does not end with them,
        such as too little memory.

    Raises
    ------
    ValueError
        If a number of workers is less than 1, or the price is below 0; and whatever :func:`simulate` refuses.
    SimulationError
        If the run does not end with any of the sizes.
    """
    chosen, of_memory = check_seeds(seeds), memory_limit is not None
    if memory_limit is None:
        sizes = parse_sizes("2..32" if workers is None else workers)
    else:
        _check_only_memory(workers, price_per_worker_hour)
        sizes = parse_memory_limits(memory_limit)
    if price_per_worker_hour is not None and not 0 <= price_per_worker_hour < math.inf:
        raise ValueError(f"price_per_worker_hour is {price_per_worker_hour!r}; expected 0 or more")
    notes = checked(trace, force=force)
    given = _cluster_or_recorded(trace, cluster)
    jobs, impossible = {}, dict[int, str]()
    for size in sizes:
        asked = (len(given.workers), nthreads, size) if of_memory else (size, nthreads)
        jobs[size] = SimulationJob(given.with_workers(*asked))
        try:
            _check_cluster(trace, jobs[size].cluster)
        except UnplaceableError as error:
            if not of_memory or size == sizes[-1]:
                raise
            impossible[size] = str(error)
    left = [size for size in sizes if size not in impossible]
    own = self_replay_job(trace, SimulationJob(given))
    seeded = [SeededJob(jobs[size], chosen, may_stand_still=True) for size in left]
    with simulated(trace, [own, *seeded]) as ensembles:
        judged = trusted(SelfReplay(RunFigures.of(trace), next(ensembles)), force=force)

        def predicted(size: int) -> Prediction | None:
            runs = next(ensembles)
            if runs.stands_still:
                impossible[size] = runs.stands_still
                return None
            return predict(trace, jobs[size], runs, judged, notes)

        found = until_stopped(predicted, left, "memory limits" if of_memory else "numbers of workers")
    predictions = tuple(prediction for prediction in found if prediction is not None)
    if not predictions:
        raise SimulationError(impossible[left[0]])
    return Sweep(predictions, price_per_worker_hour, tuple(left[len(found) :]), of_memory, impossible)


def _check_only_memory(workers: object, price: float | None) -> None:
    """Refuse a sweep of memory and of something else, or with a price that memory would change."""
    if workers is not None:
        raise ValueError(
            "workers and memory_limit are given; expected one, and cluster=cluster.with_workers(n) for the other"
        )
    if price is not None:
        raise ValueError("price_per_worker_hour is not for memory_limit, of which a worker's price depends")


def place(
    trace: RunTrace,
    file: str | os.PathLike[str],
    hostfiles: Sequence[str | os.PathLike[str]],
    *,
    seeds: int | Sequence[int] = SEEDS,
    force: bool = False,
) -> Placements:
    """Rank placements of workers on hosts for a recorded run.

    Parameters
    ----------
    trace, seeds, force
        As of :func:`simulate`.
    file
        A description of hosts, switches and links, as :meth:`ClusterSpec.from_file` reads it.
    hostfiles
        Placements: each gives the workers or slots of its hosts.

    Returns
    -------
    Placements
        It shows itself, the fastest first. Ctrl-C ends it early, with the placements that were simulated;
        ``not_simulated`` lists the others.

    Raises
    ------
    ValueError
        If there is no hostfile; and whatever :meth:`ClusterSpec.from_file` and :func:`simulate` refuse.
    """
    chosen = check_seeds(seeds)
    if isinstance(hostfiles, str | os.PathLike):
        hostfiles = (hostfiles,)
    if not hostfiles:
        raise ValueError("hostfiles is empty; expected at least one placement")
    notes = checked(trace, force=force)
    names = _short_names(hostfiles)
    clusters = [ClusterSpec.from_file(file, hostfile) for hostfile in hostfiles]
    for cluster in clusters:
        _check_cluster(trace, cluster)
    recorded, jobs = RunFigures.of(trace), dict(zip(names, map(SimulationJob, clusters), strict=True))
    # All of them are on the same network.
    own = self_replay_job(trace, jobs[names[0]])
    with simulated(trace, [own, *(SeededJob(job, chosen) for job in jobs.values())]) as ensembles:
        judged = trusted(SelfReplay(recorded, next(ensembles)), force=force)
        placed = until_stopped(
            lambda name: Placement(name, predict(trace, jobs[name], next(ensembles), judged, notes)),
            list(jobs),
            "placements",
        )
    return ranked(placed, tuple(jobs)[len(placed) :])


@contextmanager
def simulated(trace: RunTrace, jobs: Sequence[SeededJob]) -> Iterator[Iterator[Ensemble]]:
    """Simulate jobs with a progress bar; gives their ensembles, each as soon as it is done."""
    runs = sum(seeded.runs(trace) for seeded in jobs)
    # Leaving the block early ends what is still simulated.
    with (
        progress("simulating", unit="runs", of=runs) as report,
        closing(engine(trace, jobs, report=report)) as ensembles,
    ):
        yield ensembles


def _short_names(paths: Sequence[str | os.PathLike[str]]) -> list[str]:
    """Shorten files to their names without folder and ending; equal ones stay as given."""
    stems = [PurePath(path).stem for path in paths]
    return [stem if stems.count(stem) == 1 else os.fspath(path) for stem, path in zip(stems, paths, strict=True)]


def ideal_ladder(trace: RunTrace, *, seeds: int | Sequence[int] = SEEDS, force: bool = False) -> IdealLadder:
    """Remove one overhead after the other from a recorded run, down to its lower bounds, and value each step.

    The steps are: measured; simulated as it was; without spilling; also without transfers; also without a scheduler,
    each the median over the seeds. Below these are bounds that need no simulation: all slots full from start to end;
    any number of workers (the longest chain of tasks that need one another); that chain without any waiting in tasks.

    Parameters
    ----------
    trace, seeds, force
        As of :func:`simulate`.

    Returns
    -------
    IdealLadder
        From the simulated run on, no step is above the one before it or below its bound: with less to do, a simulated
        run can take longer, as a real one can (Graham's anomalies); such a step is worth nothing.

    Raises
    ------
    SimulationRefusedError, EmptyTraceError, ValueError
        As :func:`simulate`.
    """
    chosen = check_seeds(seeds)
    notes = checked(trace, force=force)
    jobs = ladder_jobs(trace)
    _check_cluster(trace, jobs[0].cluster)
    recorded = RunFigures.of(trace)
    with simulated(trace, [SeededJob(job, chosen, Wanted.NOTHING) for job in jobs]) as ensembles:
        judged = trusted(SelfReplay(recorded, next(ensembles)), force=force)
        return ladder(trace, judged, ensembles, notes)


def checked(trace: RunTrace, *, force: bool) -> tuple[str, ...]:
    """Check that a trace can be simulated; returns its caveats."""
    if not isinstance(trace, RunTrace):
        raise TypeError(
            f"trace is {trace!r:.80}; expected a recorded run, such as report.trace or load_trace('run.trace')"
        )
    return check_trace(trace, importlib.metadata.version("distributed"), force=force)


def _cluster_or_recorded(trace: RunTrace, cluster: ClusterSpec | None) -> ClusterSpec:
    """Check the cluster that was asked for, or take the recorded one."""
    given = ClusterSpec.from_trace(trace) if cluster is None else cluster
    if not isinstance(given, ClusterSpec):
        raise TypeError(
            f"cluster is {given!r:.80}; expected a ClusterSpec, such as ClusterSpec.from_trace(trace).with_workers(8)"
        )
    return given


def _check_cluster(trace: RunTrace, cluster: ClusterSpec) -> None:
    simulated_settings(trace.config, cluster.config)
    check_cluster(trace, cluster)


def trusted(judged: SelfReplay, *, force: bool) -> SelfReplay:
    """Refuse or warn if the run's own simulation is off."""
    judged.require(force=force)
    if judged.doubt:
        warnings.warn(judged.doubt, SimulationWarning, stacklevel=3)
    return judged
