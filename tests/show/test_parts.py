from hypothesis import given

from dask_efficiency.accounts.buckets import Breakdown
from dask_efficiency.show.parts import finalized_parts, percent_of
from tests.strategies import breakdowns


@given(breakdowns())
def test_the_parts_make_100_percent(breakdown: Breakdown) -> None:
    parts = finalized_parts(breakdown)
    assert sum(part.tenths_of_percent for part in parts) == (1000 if parts else 0)


def test_a_part_that_rounds_to_nothing_is_not_shown_as_nothing() -> None:
    parts = finalized_parts(Breakdown({"thread-cpu": 100_000 * 10**9, "idle": 10**9}))
    assert [percent_of(part) for part in parts] == ["100.0", "<0.1"]
