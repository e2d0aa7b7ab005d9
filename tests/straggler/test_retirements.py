from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.straggler.retirements import DAY_SECONDS, Retirements


def fleet(count: int) -> list[str]:
    return [f"w{i}" for i in range(count)]


@pytest.mark.parametrize(
    ("share", "every", "retired", "count", "at", "wanted", "chosen"),
    [
        (0.1, 0, [], 10, 0, ["away", "w3", "w1"], ("w3", "")),
        (0.1, 0, [], 10, 0, [], (None, "")),
        (0.5, 100, ["w0"], 10, 60, ["w1"], (None, "the last one was retired 60 s ago")),
        (0.5, 100, ["w0"], 10, 100, ["w1"], ("w1", "")),
        (0.1, 0, [], 9, 0, ["w0"], ("w0", "")),  # the share is less than one worker
        (0.1, 0, ["w0"], 9, 1, ["w1"], (None, "1 of 9 were retired within a day; the most is 1")),
        (0.9, 0, [], 2, 0, ["w0"], (None, "0 of 2 were retired within a day; the most is 0")),
        (0.1, 0, ["w0"], 10, DAY_SECONDS - 1, ["w1"], (None, "1 of 10 were retired within a day; the most is 1")),
        (0.1, 0, ["w0"], 10, DAY_SECONDS, ["w1"], ("w1", "")),
    ],
)
def test_the_most_urgent_machine_is_retired_within_the_limits(share, every, retired, count, at, wanted, chosen) -> None:
    limit = Retirements(share=share, every_seconds=every)
    for name in retired:
        limit.retired(name, at=0)
    assert limit.chosen(wanted, [name for name in fleet(count) if name not in retired], at=at) == chosen


@pytest.mark.parametrize("share", [0, 1, -0.1])
def test_a_share_out_of_its_range_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match="expected"):
        Retirements(share=share, every_seconds=0)


@given(size=st.integers(2, 60), share=st.floats(0.01, 0.99), steps=st.integers(1, 80))
def test_never_more_than_the_share_and_never_the_last_two(size: int, share: float, steps: int) -> None:
    limit = Retirements(share=share, every_seconds=1)
    there = fleet(size)
    for at in range(steps):
        name, _ = limit.chosen(there, there, at=at)
        if name is not None:
            there.remove(name)
            limit.retired(name, at=at)
    assert size - len(there) <= max(1, share * size + 1e-6)
    assert len(there) >= 2
