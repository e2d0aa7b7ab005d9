"""Diagnosis: the stragglers of a group of workers while a run goes on, since when, and why."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dask_efficiency.accounts.slow_worker import Cause, Evidence, SlowWorker, confidence_of
from dask_efficiency.accounts.tables import Bool
from dask_efficiency.straggler.history import History
from dask_efficiency.straggler.live_score import CLEARED, MIN_INTERVALS, MIN_RESIDUAL, PERSISTENT, LiveScores
from dask_efficiency.straggler.peers import Floats, Places, beside_peers, median_of_others
from dask_efficiency.straggler.signals import (
    BESIDE_TASKS,
    CORE_WAIT,
    CPU_SHARE,
    DISK,
    DURATION,
    GPU_KERNEL,
    LIVE,
    MEMORY,
    RECEIVE,
    SEND,
    Unit,
)

#: Least relative drop of the share of CPU time below the peers' that counts; a guess.
FLAT_SHARE = 0.08
#: Share of CPU time below which tasks wait for something else than the CPU; a guess.
COMPUTING_SHARE = 0.5
#: Least wait for a core, as a share of the time in which threads want one, and least CPU use outside tasks for which
#: they wait for the GIL, both above the peers'.
MUCH_WAIT, MUCH_BESIDE = (float(MIN_RESIDUAL[signal]) for signal in (CORE_WAIT, BESIDE_TASKS))

#: Least ratio of the time of a turn of the event loop to the peers' that counts as lag; a guess.
LAGGING = 1.25


#: A worker's number, and the median of its peers'; NaN if unknown.
WithPeers = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Symptoms:
    """Figures of a worker whose tasks take longer; NaN if unknown."""

    #: Share of its tasks' time on the CPU; and seconds between two turns of its event loop.
    share: WithPeers = (math.nan, math.nan)
    lag: WithPeers = (math.nan, math.nan)
    #: Beyond the peers: wait for a core as a share of the time in which threads want one, and CPU seconds a second that
    #: its process uses outside its tasks.
    core_wait: float = math.nan
    beside_tasks: float = math.nan
    #: Whether its disk, or its transfers, stand out too.
    disk: bool = False
    network: bool = False


def cause_of_slow_tasks(symptoms: Symptoms) -> Cause:
    """Cause of a worker's slow tasks: a slow CPU if they compute for as much of their time as the peers'.

    Otherwise the CPU is taken from them: from inside, if something else in the process computes; from outside, if
    threads wait for a core or the whole process stands still.
    """
    share, usual = symptoms.share
    lower = usual - share > FLAT_SHARE * usual
    if not lower and usual >= COMPUTING_SHARE:
        return Cause.SLOW_CPU
    taken = who_takes_the_cpu(symptoms)
    if taken is not None:
        return taken
    if lower and symptoms.lag[0] >= LAGGING * symptoms.lag[1]:
        return Cause.CONTENTION
    if symptoms.disk:
        return Cause.DISK
    return Cause.NETWORK if symptoms.network else Cause.UNKNOWN


def who_takes_the_cpu(symptoms: Symptoms) -> Cause | None:
    """Cause that takes the CPU from a process's tasks, however little they compute; None if nothing does."""
    if symptoms.beside_tasks >= MUCH_BESIDE:
        return Cause.GIL
    return Cause.CONTENTION if symptoms.core_wait >= MUCH_WAIT else None


#: A flagged worker is cleared below this part of the threshold, so that a finding does not flicker; a guess.
HYSTERESIS = 0.5
#: Slower kernels explain slower tasks from this part of their residual on, as a task's other parts are not slower.
GPU_EXPLAINS = 0.8
#: Workers that a host needs to be judged as a whole, and at most half of all workers.
MIN_WORKERS_OF_HOST = 2

#: Most by which lack of the CPU slows disk and transfers more than tasks, as the logarithm of a ratio. A held GIL slows
#: them without bounds, as each call waits for it again.
SLOWED_WITH_TASKS = {Cause.CONTENTION: math.log(2.5), Cause.SLOW_CPU: math.log(2.5), Cause.GIL: math.inf}

#: Causes for which only the tasks' duration speaks. The distribution of tasks is not always chance, so such a worker
#: must differ by more than one standard deviation of the tasks of a prefix.
BY_DURATION_ALONE = frozenset({Cause.SLOW_CPU, Cause.UNKNOWN})

_NAMES = tuple(LIVE)
_ONLY_WITH_DURATION = [row for row, signal in enumerate(LIVE.values()) if signal.only_with_duration]
_OF_HOSTS = [row for row, signal in enumerate(LIVE.values()) if signal.of_hosts]

#: Findings by worker and host, of which one is empty.
Findings = dict[tuple[str, str], SlowWorker]


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Workers that are compared with each other, in the order of the arrays."""

    workers: list[str]
    hosts: list[str]
    rows: Places

    def only(self, some: Bool) -> Group:
        """Some of the workers."""
        picked = np.flatnonzero(some).tolist()
        return Group([self.workers[i] for i in picked], [self.hosts[i] for i in picked], self.rows[some])


def findings_of(
    group: Group, scores: LiveScores, history: History, known: Findings, *, at: int, now: float
) -> Findings:
    """Stragglers among the workers of a group at the end of an interval, in monotonic ns and by the epoch."""
    flagged = np.array(
        [(worker, "") in known or ("", host) in known for worker, host in zip(group.workers, group.hosts, strict=True)]
    )
    findings: Findings = {}
    for i in np.flatnonzero(_suspects(scores, flagged)).tolist():
        worker = group.workers[i]
        finding = _finding(group, scores, history, i, known.get((worker, "")), at, now)
        least = scores.task_spread[i] * (HYSTERESIS if flagged[i] else 1.0)
        if finding.cause not in BY_DURATION_ALONE or not scores.mean[DURATION, i] < least:
            findings[worker, ""] = finding
    return _with_hosts(group, scores, findings)


def _suspects(scores: LiveScores, flagged: Bool) -> Bool:
    if not flagged.any() and not (scores.z >= scores.limit).any():
        return flagged
    ease = np.where(flagged, HYSTERESIS, 1.0)[None, :]
    with np.errstate(invalid="ignore"):
        effect = scores.mean >= MIN_RESIDUAL[:, None] * ease
        lasting = scores.adverse >= np.where(flagged, CLEARED, PERSISTENT)[None, :]
        stands_out: Bool = (scores.z >= scores.limit * ease) & effect & lasting
        stands_out[_ONLY_WITH_DURATION] &= effect[DURATION]
    return np.asarray(stands_out.any(axis=0))


def _finding(
    group: Group, scores: LiveScores, history: History, i: int, known: SlowWorker | None, at: int, now: float
) -> SlowWorker:
    z = np.where(scores.mean[:, i] >= MIN_RESIDUAL / 2, scores.z[:, i], -np.inf)
    if not scores.mean[DURATION, i] > 0:
        z[_ONLY_WITH_DURATION] = -np.inf
    z = np.nan_to_num(z, nan=-np.inf)
    symptoms = _symptoms(history, group.rows, i, z >= scores.limit)
    main, cause = _cause(z, scores.mean[:, i], scores.limit, symptoms)
    score = float(max(z.max() / scores.limit, HYSTERESIS))
    began = history.since(int(group.rows[i]), main, float(MIN_RESIDUAL[main]) / 2, at=at)
    since = now - (at - began) / 1e9 if known is None else known.since
    return SlowWorker(
        worker=group.workers[i],
        host=group.hosts[i],
        cause=cause,
        score=score,
        confidence=confidence_of(score),
        since=since,
        effect=_effect(scores.mean[:, i], main),
        evidence=_evidence(scores, i, z, symptoms.share),
    )


def _symptoms(history: History, rows: Places, i: int, stands_out: Bool) -> Symptoms:
    def with_peers(means: Floats) -> WithPeers:
        return float(means[i]), float(median_of_others(means[None, :])[0, i])

    def lately(signal: int) -> float:
        known = history.residual[history.newest(MIN_INTERVALS), signal, rows[i]]
        known = known[np.isfinite(known)]
        return float(known.mean()) if len(known) else math.nan

    return Symptoms(
        share=with_peers(history.recent_means(history.on_cpu, rows, MIN_INTERVALS)),
        lag=with_peers(history.recent_means(history.loop_lag, rows, MIN_INTERVALS)),
        core_wait=lately(CORE_WAIT),
        beside_tasks=lately(BESIDE_TASKS),
        disk=bool(stands_out[DISK]),
        network=bool(stands_out[RECEIVE] or stands_out[SEND]),
    )


def _cause(z: Floats, mean: Floats, limit: float, symptoms: Symptoms) -> tuple[int, Cause]:
    """Signal to report, and the deepest of several causes: a full memory, or a lack of the CPU, slows other things."""
    of_tasks = max(z[DURATION], *z[_ONLY_WITH_DURATION])
    if z[GPU_KERNEL] >= limit * HYSTERESIS and mean[GPU_KERNEL] >= GPU_EXPLAINS * mean[DURATION]:
        return DURATION, Cause.GPU
    of_cpu = cause_of_slow_tasks(symptoms) if of_tasks >= limit * HYSTERESIS else who_takes_the_cpu(symptoms)
    expected = max(mean[DURATION], 0.0) + SLOWED_WITH_TASKS[of_cpu] if of_cpu in SLOWED_WITH_TASKS else 0.0
    if z[DISK] >= limit and mean[DISK] >= expected:
        return DISK, Cause.DISK
    if z[MEMORY] >= limit:
        return MEMORY, Cause.MEMORY
    network = RECEIVE if z[RECEIVE] >= z[SEND] else SEND
    if z[network] >= limit and mean[network] >= expected and of_tasks < limit:
        return network, Cause.NETWORK
    if of_cpu is not None and max(of_tasks, z[DISK], z[network]) > -math.inf:
        return DURATION, of_cpu
    others = (DISK, Cause.DISK), (MEMORY, Cause.MEMORY), (network, Cause.NETWORK), (DURATION, Cause.UNKNOWN)
    return max(others, key=lambda other: z[other[0]])


def _effect(mean: Floats, main: int) -> float | None:
    """Factor by which the work takes longer; None if unknown."""
    if main == MEMORY:
        return float(1.0 / (1.0 - min(max(mean[MEMORY], 0.0), 0.99)))
    return float(np.exp(mean[main])) if np.isfinite(mean[main]) else None


def _evidence(scores: LiveScores, i: int, z: Floats, share: WithPeers) -> tuple[Evidence, ...]:
    """Signals that stand out, each with the figures of the peers."""
    shown = []
    for signal in np.argsort(-z).tolist():
        if not z[signal] >= scores.limit * HYSTERESIS:
            break
        figures = scores.mean[signal]
        if signal == CPU_SHARE:
            figures = np.clip((share[1] if math.isfinite(share[1]) else 0.0) - figures, 0.0, 1.0)
        elif LIVE[_NAMES[signal]].unit is Unit.TIMES_AS_LONG:
            figures = np.exp(figures)
        else:
            figures = np.maximum(figures, 0.0)
        tasks = int(scores.tasks[signal, i])
        shown.append(beside_peers(_NAMES[signal], figures, i, z=float(scores.z[signal, i]), tasks=tasks))
    return tuple(shown)


def _with_hosts(group: Group, scores: LiveScores, findings: Findings) -> Findings:
    """Replace the findings of workers by one for their host, where all of its workers are slow."""
    of_host: dict[str, list[int]] = {}
    for i, host in enumerate(group.hosts):
        of_host.setdefault(host, []).append(i)
    if len(of_host) < 2:
        return findings
    result = dict(findings)
    for host in {finding.host for finding in findings.values()}:
        own = of_host[host]
        if len(own) < MIN_WORKERS_OF_HOST or 2 * len(own) > len(group.workers):
            continue
        signals = [signal for signal in _OF_HOSTS if (scores.adverse[signal, own] >= CLEARED).all()]
        if not signals or not np.isfinite(scores.mean[signals[0], own]).all():
            continue
        flagged = [findings[group.workers[i], ""] for i in own if (group.workers[i], "") in findings]
        if 2 * len(flagged) < len(own):
            continue
        strongest = max(flagged, key=lambda finding: finding.score)
        for finding in flagged:
            del result[finding.worker, ""]
        effect = float(np.exp(np.mean(scores.mean[DURATION, own]))) if DURATION in signals else strongest.effect
        result["", host] = replace(strongest, worker="", effect=effect, since=min(finding.since for finding in flagged))
    return result
