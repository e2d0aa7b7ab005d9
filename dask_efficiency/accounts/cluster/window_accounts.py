"""WindowAccounts: a closed window's exact time by worker, prefix and span."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from dask_efficiency.accounts.buckets import UNKNOWN, Bucket, cause_name, causes_of, fit_causes
from dask_efficiency.accounts.cluster.span_shares import NOBODY, SHARED, SpanShares
from dask_efficiency.accounts.details import MergedProfiles
from dask_efficiency.accounts.gpu import GpuTotals
from dask_efficiency.accounts.rows import add, scale_down


@dataclass(frozen=True, slots=True)
class OwnPart:
    """Part of a window's time and causes: nanoseconds by worker and by prefix."""

    workers: dict[str, dict[str, int]] = field(default_factory=dict)
    prefixes: dict[str, dict[str, int]] = field(default_factory=dict)
    worker_causes: dict[str, dict[str, int]] = field(default_factory=dict)
    prefix_causes: dict[str, dict[str, int]] = field(default_factory=dict)

    def copy(self) -> OwnPart:
        """Copy it, to be added to."""
        return OwnPart(**asdict(self))


@dataclass(slots=True)
class WindowAccounts:
    """Accounts of a closed window, in nanoseconds; its length is the mean of the workers' own, over their threads."""

    elapsed: int
    #: Part of it with work outstanding, and the part of that without any worker.
    outstanding: int
    no_workers: int = 0
    workers: dict[str, dict[str, int]] = field(default_factory=dict)
    nthreads: dict[str, int] = field(default_factory=dict)
    prefixes: dict[str, dict[str, int]] = field(default_factory=dict)
    #: By span id; names are known where Dask is.
    spans: dict[str, dict[str, int]] = field(default_factory=dict)
    tasks: dict[str, int] = field(default_factory=dict)
    outside: dict[str, int] = field(default_factory=dict)
    details: dict[str, int] = field(default_factory=dict)
    amounts: dict[str, int] = field(default_factory=dict)
    attendance: dict[str, int] = field(default_factory=dict)
    losses: list[dict[str, Any]] = field(default_factory=list)
    not_measured: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    #: By worker name, between its snapshots at the window's ends, or the last that came.
    gpu: dict[str, GpuTotals] = field(default_factory=dict)
    #: Known causes of workers', prefixes' and spans' time.
    worker_causes: dict[str, dict[str, int]] = field(default_factory=dict)
    prefix_causes: dict[str, dict[str, int]] = field(default_factory=dict)
    span_causes: dict[str, dict[str, int]] = field(default_factory=dict)
    in_spans: dict[str, dict[str, int]] = field(default_factory=dict)
    own: OwnPart | None = None
    others_share: float | None = None
    profiles: MergedProfiles = field(default_factory=MergedProfiles)


#: Between the names of a span and of a span in it.
SEPARATOR = "/"
_UNKNOWN = cause_name(Bucket.IDLE, UNKNOWN)
#: By row, nanoseconds by bucket or by cause.
Rows = dict[str, dict[str, int]]


def divide(
    accounts: WindowAccounts, shares: SpanShares, is_own: Callable[[str], bool]
) -> tuple[Rows, Rows, OwnPart | None]:
    """A closed window's time by span id, its causes, and the own part if the window keeps one.

    The time adds up to ``accounts.workers``, bucket by bucket, with that of no span under :data:`NOBODY`.
    """
    spans = {span: dict(row) for span, row in accounts.spans.items()}
    causes = {span: dict(row) for span, row in accounts.span_causes.items()}
    free = {
        worker: _free(row, accounts.in_spans.get(worker, {}), accounts.worker_causes.get(worker, {}))
        for worker, row in accounts.workers.items()
    }
    own = None if accounts.own is None else accounts.own.copy()
    for name in dict.fromkeys(name for row in free.values() for name in row):
        of_workers = [row.get(name, 0) for row in free.values()]
        bucket = name.partition("/")[0]
        is_cause = name not in (bucket, _UNKNOWN)
        parts = shares.divide(name, sum(of_workers)) if bucket in SHARED else {NOBODY: sum(of_workers)}
        for span, ns in parts.items():
            add(spans.setdefault(span, {}), {bucket: ns})
            if is_cause:
                add(causes.setdefault(span, {}), {name: ns})
        if own is not None:
            mine = sum(ns for span, ns in parts.items() if is_own(span))
            for worker, ns in zip(free, scale_down(of_workers, mine), strict=True):
                if ns:
                    add(own.workers.setdefault(worker, {}), {bucket: ns})
                    if is_cause:
                        add(own.worker_causes.setdefault(worker, {}), {name: ns})
    return spans, causes, own


def _free(row: Mapping[str, int], in_spans: Mapping[str, int], causes: Mapping[str, int]) -> dict[str, int]:
    """Subtract what tasks of known spans held; the rest by bucket and, of ``idle``, by cause."""
    rest = {bucket: max(0, ns - in_spans.get(bucket, 0)) for bucket, ns in row.items()}
    idle = rest.pop(Bucket.IDLE, 0)
    return {
        **{bucket: ns for bucket, ns in rest.items() if ns},
        **fit_causes(causes_of(causes, Bucket.IDLE), Bucket.IDLE, idle),
    }


def rolled_up(rows: Mapping[str, Mapping[str, int]], paths: Mapping[str, str]) -> Rows:
    """Sum rows of spans by path, such as ``"outer/inner"``, each with all below it; the top adds up to the whole."""
    found: Rows = {}
    for span, row in rows.items():
        path = paths[span]
        for above in (*reversed(parents(path)), path):
            add(found.setdefault(above, {}), row)
    return found


def parents(path: str) -> list[str]:
    """The paths above one, the nearest first."""
    steps = path.split(SEPARATOR)
    return [SEPARATOR.join(steps[:i]) for i in range(len(steps) - 1, 0, -1)]
