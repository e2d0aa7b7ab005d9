"""Stragglers of a finished run: from a recorded trace, or from a table of any tasks."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dask_efficiency.accounts.slow_worker import Cause, Evidence, SlowWorker, confidence_of
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.runs.replay.changes import Changes
from dask_efficiency.runs.replay.replay import replay
from dask_efficiency.runs.stragglers.long_tail import LongTask, long_tail
from dask_efficiency.runs.stragglers.tables import ObservedRun, run_of_table, run_of_trace
from dask_efficiency.runs.trace.run_trace import RunTrace
from dask_efficiency.show.finding import Finding
from dask_efficiency.show.log import logger
from dask_efficiency.straggler.causes import REPLAYED, cause_of_run
from dask_efficiency.straggler.disk import AT_THE_DISK, DiskVerdict, judge_disks
from dask_efficiency.straggler.observations import Observations, medians
from dask_efficiency.straggler.peers import beside_peers, healthy_spread, limit
from dask_efficiency.straggler.score import Scores, Usual, score, usual_of
from dask_efficiency.straggler.signals import FINISHED, LONGER, Unit
from dask_efficiency.straggler.wording import as_finding

if TYPE_CHECKING:
    from typing import TypeAlias

    import pandas as pd

    RunOrTable: TypeAlias = RunTrace | pd.DataFrame

#: Default multiple of :func:`~dask_efficiency.straggler.peers.limit` above which a worker is reported.
FACTOR = 1.0
#: Confidence of a finding that blames one of several workers that wait for a host's disk, when nothing tells which one
#: holds it up: the share of such findings that were right on FlowBench.
CONFIDENCE_OF_SUSPECT = 0.5
#: Fewest hosts of which one can be blamed, and the share of its workers that must be slow.
MIN_HOSTS = 3
MIN_SLOW_OF_HOST = 0.8
#: Findings whose cost is replayed; each takes as long as a replay of the run.
REPLAYS = 10


@dataclass(frozen=True, slots=True)
class Judgement:
    """Judgement of the workers of a run: stragglers, workers that ran too little, caveats, and long tasks."""

    slow_workers: tuple[SlowWorker, ...]
    workers: int
    insufficient: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    long_tasks: tuple[LongTask, ...] = ()

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings of the slow workers, then of the long tasks."""
        return (*map(as_finding, self.slow_workers), *(task.finding() for task in self.long_tasks))


def find_stragglers(
    source: RunOrTable, *, history: RunOrTable | Iterable[RunOrTable] | Mapping[str, Usual] = (), factor: float = FACTOR
) -> list[SlowWorker]:
    """Find workers that took longer than their peers for the same work.

    Parameters
    ----------
    source
        A recorded run, or a table with a row for each task: columns ``worker``, ``prefix``, ``start`` and ``stop`` in
        seconds (``stop`` is NaN for a task that has not ended); where known ``cpu_seconds``, ``io_wait_seconds``
        (blocked on the disk), ``disk_seconds`` and ``transfer_seconds`` (moving data, before start or after stop),
        ``input_bytes``, ``group`` (only workers of one group are compared), ``host`` and ``key``.
    history
        Healthy runs of the same kind, or what :func:`usual` made of them. With them a slow worker is found among two,
        and where most workers are slow. If ``cpu_seconds``, ``io_wait_seconds`` and ``disk_seconds`` are known, the
        worker that holds up a host's disk is distinguished from those that wait for it.
    factor
        Multiple of the threshold, above 0; a larger one makes fewer findings. 1.0 is where the most extreme of the
        healthy workers is expected.

    Returns
    -------
    list of SlowWorker
        The most certain first. ``seconds_lost`` comes from a replay of the run with the worker as fast as its peers. It
        is None for a table, which has no dependencies, and where something else than computing is slow.

    Raises
    ------
    TableError
        If a column is missing, or holds an impossible value.
    ValueError
        If the factor is not a positive number.
    """
    return list(judge(source, history=history, factor=factor).slow_workers)


def judge(
    source: RunOrTable, *, history: RunOrTable | Iterable[RunOrTable] | Mapping[str, Usual] = (), factor: float = FACTOR
) -> Judgement:
    """Judge all workers: :func:`find_stragglers` with the workers that could not be judged, and notes."""
    if not (isinstance(factor, int | float) and 0 < factor < math.inf):
        raise ValueError(f"factor is {factor!r}; expected a number above 0, such as 1.0")
    judgement = judge_run(_run(source), history if isinstance(history, Mapping) else usual(history), factor)
    if not isinstance(source, RunTrace):
        return judgement
    # The event loop of a worker with one thread lags, but no other thread holds the lock.
    alone = {(worker.name, Cause.GIL) for worker in source.workers if worker.nthreads == 1}
    causes = (
        Cause.UNKNOWN if (finding.worker, finding.cause) in alone else finding.cause
        for finding in judgement.slow_workers
    )
    slow = (replace(finding, cause=cause) for finding, cause in zip(judgement.slow_workers, causes, strict=True))
    return replace(judgement, slow_workers=with_cost(source, slow), long_tasks=long_tail(source))


def with_cost(trace: RunTrace, findings: Iterable[SlowWorker]) -> tuple[SlowWorker, ...]:
    """Add to each finding the time that it cost the recorded run, where a replay can tell."""
    names = {name for worker in trace.workers for name in (worker.name, worker.host)}
    known = list(findings)
    for i, finding in enumerate(known[:REPLAYS]):
        if finding.cause in REPLAYED and (finding.worker or finding.host) in names:
            try:
                known[i] = replace(finding, seconds_lost=seconds_lost(trace, finding))
            except Exception:  # the finding must not be lost with its cost
                logger.exception("dask_efficiency could not replay the run without %r", finding.worker or finding.host)
    return tuple(known)


def usual(history: RunOrTable | Iterable[RunOrTable]) -> dict[str, Usual]:
    """Measure what is usual in healthy runs, by signal."""
    sources = [history] if isinstance(history, RunTrace) or hasattr(history, "columns") else history
    by_signal: dict[str, list[tuple[Observations, int]]] = {}
    for run in map(_run, sources):
        for observations in run.observations:
            by_signal.setdefault(observations.signal, []).append((observations, len(run.workers)))
    return {signal: usual_of(runs) for signal, runs in by_signal.items()}


def _run(source: RunOrTable) -> ObservedRun:
    return run_of_trace(source) if isinstance(source, RunTrace) else run_of_table(source)


def judge_run(run: ObservedRun, usuals: Mapping[str, Usual], factor: float) -> Judgement:
    """Judge the workers of a run by all signals."""
    count = len(run.workers)
    compared = [observations for observations in run.observations if not FINISHED[observations.signal].against_usual]
    scores = {scored.signal: scored for scored in (score(r, count, usuals.get(r.signal)) for r in compared)}
    enough = np.zeros(count, np.bool_)
    for scored in scores.values():
        enough |= scored.enough
    lacking = tuple(name for name, judged in zip(run.workers, enough.tolist(), strict=True) if not judged)
    if count <= 2 and not usuals:
        return Judgement((), count, (), _note_on_two(run))
    accusing = sum(not FINISHED[signal].only_evidence for signal in scores)
    judged = int(enough.sum())
    first = factor * limit(judged * accusing)
    behind = scores["disk"].level if "disk" in scores else np.zeros(count)
    disks = judge_disks(
        {observations.signal: observations for observations in run.observations}, run.hosts, usuals, behind, first
    )
    if disks is not None:
        scores = scores | {scored.signal: scored for scored in disks.scores}
    # Each further worker needs less, but at a disk, where some only wait for others.
    limits, slow, flagged = dict.fromkeys(scores, first), list[SlowWorker](), -1
    while True:
        every = (_finding(run, worker, scores, limits, disks) for worker in range(count))
        more = [finding for finding in every if finding is not None]
        if (number := sum(finding.cause is not Cause.DISK for finding in more)) <= flagged:
            break
        slow, flagged = more, number
        lower = factor * limit(judged * accusing, named=flagged)
        limits = {signal: first if signal in AT_THE_DISK else lower for signal in scores}
    findings = _with_hosts(run, scores, slow, factor)
    return Judgement(tuple(sorted(findings, key=lambda finding: -finding.score)), count, lacking)


def _finding(
    run: ObservedRun, worker: int, scores: Mapping[str, Scores], limits: Mapping[str, float], disks: DiskVerdict | None
) -> SlowWorker | None:
    waits_for_disk = disks is not None and bool(disks.waiting[worker])
    spared = {s for s in scores if FINISHED[s].only_evidence or (waits_for_disk and FINISHED[s].rises_with_disk)}
    high = {
        s: float(scored.z[worker]) for s, scored in scores.items() if scored.z[worker] >= limits[s] and s not in spared
    }
    levels = {signal: float(scored.level[worker]) for signal, scored in scores.items() if scored.enough[worker]}
    # Being off the CPU for longer is no slowdown by itself.
    slowed = high.keys() - {"non_cpu"} | ({"duration", "cpu_share"} if "non_cpu" in high else set())
    if max((levels.get(signal, 0.0) for signal in slowed), default=-math.inf) < LONGER:
        return None
    lagging = "loop_lag" in scores and float(scores["loop_lag"].z[worker]) >= limits["loop_lag"]
    at_the_disk = AT_THE_DISK & high.keys()
    strongest = max(at_the_disk if at_the_disk and disks is not None else high, key=high.__getitem__)
    above = high[strongest] / limits[strongest]
    return SlowWorker(
        worker=run.workers[worker],
        host=run.hosts[worker],
        cause=cause_of_run(high, levels, lagging=lagging),
        score=above,
        confidence=confidence_of(above) if strongest != "blocked" else CONFIDENCE_OF_SUSPECT,
        since=_since(run.observed(strongest), worker, levels[strongest]),
        effect=disks.effect(worker) if at_the_disk and disks is not None else _effect(high, levels),
        evidence=_evidence(worker, scores),
    )


def _effect(high: Collection[str], levels: Mapping[str, float]) -> float:
    """Ratio of the tasks' time to the peers', or else of the signal that stands out most."""
    tasks = [levels[signal] for signal in ("duration", "cpu_share") if signal in high]
    others = [levels[signal] for signal in high if FINISHED[signal].unit is Unit.TIMES_AS_LONG]
    return math.exp(max(tasks or others or [levels.get("duration", 0.0), 0.0]))


def _since(observations: Observations | None, worker: int, level: float) -> float:
    """Find when the worker became slow: the start of the interval with the largest sum above half of its level."""
    if observations is None:
        return math.nan
    middle = medians(observations.value, observations.work, len(observations.kinds))
    rows = np.flatnonzero(observations.worker == worker)
    rows = rows[np.argsort(observations.at[rows], kind="stable")]
    above = observations.value[rows] - middle[observations.work[rows]] - level / 2
    total = np.concatenate([[0.0], np.cumsum(np.clip(above, -abs(level), abs(level)))])
    lowest = np.minimum.accumulate(total)
    end = int(np.argmax(total - lowest))
    start = int(np.argmin(total[: end + 1]))
    return float(observations.at[rows[min(start, len(rows) - 1)]]) if len(rows) else math.nan


def _evidence(worker: int, scores: Mapping[str, Scores]) -> tuple[Evidence, ...]:
    evidence = []
    for signal, scored in scores.items():
        if scored.enough[worker] and scored.enough.sum() > 1:
            figures = np.exp(np.where(scored.enough, scored.level, np.nan))
            z, tasks = float(scored.z[worker]), int(scored.observations[worker])
            evidence.append(beside_peers(signal, figures, worker, z=z, tasks=tasks))
    return tuple(sorted(evidence, key=lambda item: -item.z))


def _note_on_two(run: ObservedRun) -> tuple[str, ...]:
    longest = run.observed("duration")
    if len(run.workers) < 2 or longest is None:
        return ("There is one worker, and nobody to compare it with.",) if run.workers else ()
    level = score(longest, 2, Usual()).level
    slow = int(np.argmax(level))
    slower, faster = (run.workers[worker][:80] for worker in (slow, 1 - slow))
    ratio = f"{math.exp(float(level[slow])):.2f} times as long as {faster!r} for the same work"
    end = "A third worker, or an earlier run, would tell which of them is normal."
    return (f"Of two workers, {slower!r} takes {ratio}. {end}",)


def _with_hosts(
    run: ObservedRun, scores: Mapping[str, Scores], slow: list[SlowWorker], factor: float
) -> list[SlowWorker]:
    """Replace the findings of a host's workers by one for the host if the whole host is slow."""
    names = sorted({host for host in run.hosts if host})
    of_host = {name: np.array([host == name for host in run.hosts]) for name in names}
    for name in names if len(names) >= MIN_HOSTS else ():
        blamed = [finding for finding in slow if finding.host == name and finding.worker]
        if len(blamed) < max(MIN_SLOW_OF_HOST * of_host[name].sum(), 2):
            continue
        scored = scores[blamed[0].evidence[0].signal]
        # Distance of each host's median worker from the median of the hosts, and the spread of the healthy ones.
        judged = [scored.level[host & scored.enough] for host in of_host.values()]
        middle = np.array([float(np.median(level)) if len(level) else 0.0 for level in judged])
        level = middle - float(np.median(middle))
        scale = math.hypot(healthy_spread(level), FINISHED[scored.signal].floor)
        above = level[names.index(name)] / scale / (factor * limit(len(names) * len(scores)))
        if above >= 1.0:
            worst = max(blamed, key=lambda finding: finding.score)
            effect = math.exp(float(np.mean([math.log(finding.effect or 1.0) for finding in blamed])))
            since = min(finding.since for finding in blamed)
            host = replace(worst, worker="", score=above, confidence=confidence_of(above), since=since, effect=effect)
            slow = [finding for finding in slow if finding not in blamed] + [host]
    return slow


def seconds_lost(trace: RunTrace, finding: SlowWorker) -> float:
    """Replay a run with a worker, or all of a host, as fast as its peers; returns the seconds saved."""
    on_host = (spec.name for spec in trace.workers if spec.host == finding.host)
    repaired = Changes(repaired=frozenset([finding.worker] if finding.worker else on_host))
    return max(_makespan(replay(trace)) - _makespan(replay(trace, repaired)), 0.0)


def _makespan(trace: RunTrace) -> float:
    reported, assigned = (column[column != MISSING] for column in (trace.runs.reported, trace.runs.assigned))
    return float(reported.max() - assigned.min()) / 1e9 if len(reported) else 0.0
