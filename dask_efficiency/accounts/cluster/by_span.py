"""A window's time by span: what its tasks held, and its share of the time of free slots; exact."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from dask_efficiency.accounts.buckets import Bucket, scale_down
from dask_efficiency.accounts.causes import UNKNOWN, fit, name_of, of_bucket
from dask_efficiency.accounts.cluster.span_shares import NOBODY, SHARED, SpanShares
from dask_efficiency.accounts.cluster.windows import OwnPart, WindowAccounts

#: Between the names of a span and of a span in it.
SEPARATOR = "/"

_UNKNOWN = name_of(Bucket.IDLE, UNKNOWN)

#: By row, nanoseconds by bucket or by cause.
Rows = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class BySpan:
    """All time of a window by span id, and its causes; nobody's is under :data:`NOBODY`."""

    spans: Rows
    causes: Rows
    #: The own spans' part, by worker and prefix, where the window keeps it.
    own: OwnPart | None = field(default=None)


def divide(accounts: WindowAccounts, shares: SpanShares, is_own: Callable[[str], bool]) -> BySpan:
    """A closed window's time by span.

    Returns
    -------
    BySpan
        ``spans`` add up to ``accounts.workers``, bucket by bucket. Nobody's are ``no-work``, ``lost-worker``,
        ``unmeasured``, and what tasks held whose spans no answer named.
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
        parts = shares.divide(name, sum(of_workers)) if bucket in SHARED else {NOBODY: sum(of_workers)}
        for span, ns in parts.items():
            add(spans, span, bucket, ns)
            if name not in (bucket, _UNKNOWN):
                add(causes, span, name, ns)
        if own is not None:
            mine = sum(ns for span, ns in parts.items() if is_own(span))
            for worker, ns in zip(free, scale_down(of_workers, mine), strict=True):
                if ns:
                    add(own.workers, worker, bucket, ns)
                    if name not in (bucket, _UNKNOWN):
                        add(own.worker_causes, worker, name, ns)
    return BySpan(spans, causes, own)


def _free(row: Mapping[str, int], in_spans: Mapping[str, int], causes: Mapping[str, int]) -> dict[str, int]:
    """Subtract what tasks of known spans held; the rest by bucket and, of ``idle``, by cause."""
    rest = {bucket: max(0, ns - in_spans.get(bucket, 0)) for bucket, ns in row.items()}
    idle = rest.pop(Bucket.IDLE, 0)
    return {
        **{bucket: ns for bucket, ns in rest.items() if ns},
        **fit(of_bucket(causes, Bucket.IDLE), Bucket.IDLE, idle),
    }


def rolled_up(rows: Mapping[str, Mapping[str, int]], paths: Mapping[str, str]) -> Rows:
    """Sum rows by path, each with all below it; those at the top add up to the whole.

    Parameters
    ----------
    rows
        By span id.
    paths
        Of each span, such as ``"outer/inner"``; several may have the same.
    """
    found: Rows = {}
    for span, row in rows.items():
        path = paths[span]
        for above in (*reversed(parents(path)), path):
            for name, ns in row.items():
                add(found, above, name, ns)
            found.setdefault(above, {})
    return found


def parents(path: str) -> list[str]:
    """The paths above one, the nearest first."""
    steps = path.split(SEPARATOR)
    return [SEPARATOR.join(steps[:i]) for i in range(len(steps) - 1, 0, -1)]


def add(rows: Rows, row: str, name: str, ns: int) -> None:
    """Add to a cell."""
    cells = rows.setdefault(row, {})
    cells[name] = cells.get(name, 0) + ns
