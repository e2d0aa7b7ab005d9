"""The lines of code on which the tasks of stragglers sleep, or wait for locks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.causes import name_of
from dask_efficiency.accounts.lines import blamed, place_of
from dask_efficiency.accounts.profile import Place
from dask_efficiency.accounts.slow_worker import Cause, SlowWorker

#: By what slows a worker: what its tasks wait for. What else slows workers is in their machines.
WAITING: dict[Cause, str] = {Cause.SLEEP: "sleep", Cause.LOCK: "lock"}


def line_of(cause: Cause, rows: Iterable[tuple[Place, int]]) -> str:
    """The line on which tasks waited most of what slows their worker: ``"etl.py:88"``; empty where none is known."""
    waiting, found = WAITING.get(cause), Counter[str]()
    for row, ns in rows:
        if row.stack and (row.bucket, row.cause) == (Bucket.THREAD_NONCPU, waiting):
            found[place_of(blamed(row.stack))] += ns
    return next((line for line, _ in found.most_common(1)), "")


def with_lines(
    findings: Sequence[SlowWorker], causes: Mapping[str, Mapping[str, int]], profile: Iterable[tuple[Place, int]]
) -> tuple[SlowWorker, ...]:
    """Findings of a report, each with its line where most of that waiting of all workers was the straggler's.

    Parameters
    ----------
    findings
        With the causes that breakdowns show.
    causes
        By worker and :func:`~dask_efficiency.accounts.causes.name_of`, nanoseconds.
    profile
        Nanoseconds of all workers together.
    """
    rows = list(profile)

    def is_most(finding: SlowWorker) -> bool:
        name = name_of(Bucket.THREAD_NONCPU, WAITING.get(finding.cause, ""))
        waited = {worker: row.get(name, 0) for worker, row in causes.items()}
        return 2 * waited.get(finding.worker, 0) > sum(waited.values())

    return tuple(replace(one, line=line_of(one.cause, rows)) if is_most(one) else one for one in findings)
