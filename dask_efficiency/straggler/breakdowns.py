"""Causes and lines of stragglers from what their threads waited for, compared with their peers'."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.buckets import CAUSES, GOOD, UNKNOWN, Breakdown, Bucket, cause_name
from dask_efficiency.accounts.cluster.account import place
from dask_efficiency.accounts.lines import SampleRow, blamed, place_of
from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.straggler.causes import BY_WAITING, IN_CODE, MUCH_WAIT, OPEN
from dask_efficiency.straggler.live_score import SPREAD_LEARNING

#: Buckets of tasks that succeeded. Waiting is a part of their sum.
WORKED = (*GOOD, Bucket.THREAD_NONCPU, Bucket.SPILL, Bucket.OVERHEAD)

_WAITING = [cause_name(Bucket.THREAD_NONCPU, cause) for cause in CAUSES[Bucket.THREAD_NONCPU] if cause != UNKNOWN]
_CAUSES = [BY_WAITING.get(cause) for cause in CAUSES[Bucket.THREAD_NONCPU] if cause != UNKNOWN]
_WORKED = [place("finalized", bucket) for bucket in WORKED]
_PLACES = [place("causes", name) for name in _WAITING]


class RecentWaiting:
    """Waiting of each worker's tasks by cause, of which older intervals fade."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        #: By row, nanoseconds of all tasks and then by cause: since the accounts began, and recently.
        self._totals = self._recent = np.zeros((0, 1 + len(_PLACES)))

    def follow(self, accounts: Mapping[str, NDArray[np.int64]]) -> None:
        """Add a finished interval, from the accounts of the workers that are present."""
        if not accounts:
            return
        every = np.stack(list(accounts.values()))
        totals = np.column_stack([every[:, _WORKED].sum(axis=1), every[:, _PLACES]]).astype(float)
        before = np.array([self._rows.get(worker, -1) for worker in accounts])
        known = before >= 0
        recent = np.zeros_like(totals)
        recent[known] = (
            (1 - SPREAD_LEARNING) * self._recent[before[known]] + totals[known] - self._totals[before[known]]
        )
        self._rows = {worker: row for row, worker in enumerate(accounts)}
        self._totals, self._recent = totals, recent

    def cause(self, worker: str) -> Cause | None:
        """Cause that a worker's tasks wait for more than its peers' do; None if none stands out."""
        row = self._rows.get(worker)
        return None if row is None else _cause(self._recent[:, 1:], self._recent[:, 0], row)


def explained(
    findings: Sequence[SlowWorker], causes: Mapping[str, Mapping[str, int]], by_worker: Mapping[str, Breakdown]
) -> tuple[SlowWorker, ...]:
    """Give findings the causes that a report's breakdowns show; of ``causes``, nanoseconds by worker and name."""
    workers = [worker for worker in by_worker if causes.get(worker)]
    if not workers:
        return tuple(findings)
    waited = np.array([[causes[worker].get(name, 0) for name in _WAITING] for worker in workers], float)
    worked = np.array([by_worker[worker].ns(*WORKED) for worker in workers], float)
    likely = {worker: _cause(waited, worked, row) for row, worker in enumerate(workers)}
    return tuple(decided(finding, likely.get(finding.worker)) for finding in findings)


def decided(finding: SlowWorker, cause: Cause | None) -> SlowWorker:
    """Give a finding with an open cause the one that breakdowns show, if any."""
    return finding if cause is None or finding.cause not in OPEN else replace(finding, cause=cause)


def _cause(waited: NDArray[np.float64], worked: NDArray[np.float64], row: int) -> Cause | None:
    any_work = worked > 0
    if not any_work[row] or any_work.sum() < 2:
        return None
    shares = waited[any_work] / worked[any_work, None]
    own = int(any_work[:row].sum())
    excess = shares[own] - np.median(np.delete(shares, own, axis=0), axis=0)
    most = int(np.argmax(excess))
    return _CAUSES[most] if excess[most] >= MUCH_WAIT else None


def line_of(cause: Cause, rows: Iterable[tuple[SampleRow, int]]) -> str:
    """Line where tasks waited most for the cause of their worker, such as ``"etl.py:88"``; empty if unknown."""
    waiting, by_line = IN_CODE.get(cause), Counter[str]()
    for row, ns in rows:
        if row.stack and (row.bucket, row.cause) == (Bucket.THREAD_NONCPU, waiting):
            by_line[place_of(blamed(row.stack))] += ns
    return next((line for line, _ in by_line.most_common(1)), "")


def with_lines(
    findings: Sequence[SlowWorker], causes: Mapping[str, Mapping[str, int]], profile: Iterable[tuple[SampleRow, int]]
) -> tuple[SlowWorker, ...]:
    """Give each finding its line in the profile of all workers, if most of their waiting (ns) was the straggler's."""
    rows, named = list(profile), []
    for finding in findings:
        name = cause_name(Bucket.THREAD_NONCPU, IN_CODE.get(finding.cause, ""))
        waited = {worker: row.get(name, 0) for worker, row in causes.items()}
        is_most = 2 * waited.get(finding.worker, 0) > sum(waited.values())
        named.append(replace(finding, line=line_of(finding.cause, rows)) if is_most else finding)
    return tuple(named)
