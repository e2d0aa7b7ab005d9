"""Diagnosis: the stragglers of a group of workers while a run goes on, since when, and why."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from dask_efficiency.accounts.slow_worker import Evidence, SlowWorker, confidence_of
from dask_efficiency.accounts.tables import Bool
from dask_efficiency.straggler.causes import BY_DURATION_ALONE, Symptoms, WithPeers, cause_by_heartbeats
from dask_efficiency.straggler.history import History
from dask_efficiency.straggler.live_score import CLEARED, MIN_INTERVALS, MIN_RESIDUAL, NEARLY_ALL, LiveScores
from dask_efficiency.straggler.peers import Floats, Places, beside_peers, median_of_others
from dask_efficiency.straggler.signals import (
    BESIDE_TASKS,
    CORE_WAIT,
    CPU_SHARE,
    DISK,
    DURATION,
    LIVE,
    MEMORY,
    RECEIVE,
    SEND,
    Unit,
)

#: Workers that a host needs to be judged as a whole, and at most half of all workers.
MIN_WORKERS_OF_HOST = 2

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
        least = scores.task_spread[i] * (CLEARED if flagged[i] else 1.0)
        if finding.cause not in BY_DURATION_ALONE or not scores.mean[DURATION, i] < least:
            findings[worker, ""] = finding
    return _with_hosts(group, scores, findings)


def _suspects(scores: LiveScores, flagged: Bool) -> Bool:
    if not flagged.any() and not (scores.z >= scores.limit).any():
        return flagged
    ease = np.where(flagged, CLEARED, 1.0)[None, :]
    with np.errstate(invalid="ignore"):
        effect = scores.mean >= MIN_RESIDUAL[:, None] * ease
        lasting = scores.adverse >= np.where(flagged, CLEARED, NEARLY_ALL)[None, :]
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
    main, cause = cause_by_heartbeats(z / scores.limit, scores.mean[:, i], symptoms, ease=CLEARED)
    score = float(max(z.max() / scores.limit, CLEARED))
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


def _effect(mean: Floats, main: int) -> float | None:
    """Factor by which the work takes longer; None if unknown."""
    if main == MEMORY:
        return float(1.0 / (1.0 - min(max(mean[MEMORY], 0.0), 0.99)))
    return float(np.exp(mean[main])) if np.isfinite(mean[main]) else None


def _evidence(scores: LiveScores, i: int, z: Floats, share: WithPeers) -> tuple[Evidence, ...]:
    """Signals that stand out, each with the figures of the peers."""
    shown = []
    for signal in np.argsort(-z).tolist():
        if not z[signal] >= scores.limit * CLEARED:
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
