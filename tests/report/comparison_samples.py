"""Runs to compare: small ones, quickly drawn."""

from typing import Any

from hypothesis import strategies as st

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.buckets import CAUSE_NAMES
from tests.report.samples import breakdowns, causes, report_of, seconds


def run(wall: float = 10.0, *, prefixes: Any = None, fields: Any = None, **buckets: float) -> EfficiencyReport:
    """A run of some seconds, with these thread-seconds by bucket."""
    return report_of(seconds(**buckets), cluster_seconds=wall, by_prefix=prefixes or {}, **(fields or {}))


def waited(**by_cause: float) -> EfficiencyReport:
    """A run whose threads waited for these thread-seconds by cause."""
    row = causes(**{f"thread-noncpu/{cause}": value for cause, value in by_cause.items()})
    whole = seconds(thread_cpu=10, thread_noncpu=sum(by_cause.values()))
    by = {"by_prefix": {"clean": whole}, "causes_by_prefix": {"clean": row}, "causes_by_worker": {"w0": row}}
    return report_of(whole, cluster_seconds=10.0, **by)


_by_cause = st.dictionaries(st.sampled_from(CAUSE_NAMES), st.integers(0, 10**15), max_size=8)
_by_prefix = st.dictionaries(st.sampled_from(["load", "sum", "<b>"]), breakdowns)


def _runs(**fields: Any) -> st.SearchStrategy[EfficiencyReport]:
    """Any run of two workers; every one has a price."""
    priced = {"price_per_worker_hour": st.just(2.0), "nthreads": st.just({"w0": 2})}
    return st.builds(report_of, breakdowns, breakdowns, cluster_seconds=st.floats(0.001, 1e6), **priced, **fields)


#: The runs of one side, and any; also with causes, which need not agree with the buckets.
Side = list[EfficiencyReport]
sides = st.lists(_runs(by_prefix=_by_prefix), min_size=1, max_size=3)
explained_sides = st.lists(
    _runs(causes_by_worker=st.fixed_dictionaries({"w0": _by_cause, "w1": _by_cause})), min_size=1, max_size=3
)
