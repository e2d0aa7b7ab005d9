"""Runs to compare: small ones, quickly drawn."""

from hypothesis import strategies as st

from dask_efficiency.accounts.causes import NAMES
from tests.report.samples import breakdowns, report_of

#: One run; every one has a price.
runs = st.builds(
    report_of,
    breakdowns,
    breakdowns,
    cluster_seconds=st.floats(0.001, 1e6),
    by_prefix=st.dictionaries(st.sampled_from(["load", "sum", "<b>"]), breakdowns),
    price_per_worker_hour=st.just(2.0),
    nthreads=st.just({"w0": 2}),
)

#: The runs of one side.
sides = st.lists(runs, min_size=1, max_size=3)

#: The same with causes, which need not agree with the buckets.
causes = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 10**15), max_size=8)
explained_runs = st.builds(
    report_of,
    breakdowns,
    breakdowns,
    cluster_seconds=st.floats(0.001, 1e6),
    causes_by_worker=st.fixed_dictionaries({"w0": causes, "w1": causes}),
    price_per_worker_hour=st.just(2.0),
    nthreads=st.just({"w0": 2}),
)
explained_sides = st.lists(explained_runs, min_size=1, max_size=3)
