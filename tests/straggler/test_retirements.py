"""Retirements: one at a time, and never more than a part of the fleet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.straggler.retirements import FORGET_SECONDS, Retirements


def fleet(count: int) -> list[str]:
    return [f"w{i}" for i in range(count)]


def test_the_most_urgent_one_that_is_there_is_retired() -> None:
    limit = Retirements(share=0.1, every_seconds=0)
    assert limit.chosen(["away", "w3", "w1"], fleet(10), at=0) == ("w3", "")
    assert limit.chosen([], fleet(10), at=0) == (None, "")


def test_the_next_one_waits() -> None:
    limit = Retirements(share=0.5, every_seconds=100)
    limit.retired("w0", at=0)
    assert limit.chosen(["w1"], fleet(10)[1:], at=60) == (None, "the last one was retired 60 s ago")
    assert limit.chosen(["w1"], fleet(10)[1:], at=100) == ("w1", "")


def test_a_share_that_is_less_than_one_worker_retires_one() -> None:
    limit = Retirements(share=0.1, every_seconds=0)
    assert limit.chosen(["w0"], fleet(9), at=0) == ("w0", "")
    limit.retired("w0", at=0)
    assert limit.chosen(["w1"], fleet(9)[1:], at=1) == (None, "1 of 9 were retired within a day; the most is 1")


def test_of_two_nobody_is_retired() -> None:
    limit = Retirements(share=0.9, every_seconds=0)
    assert limit.chosen(["w0"], fleet(2), at=0) == (None, "0 of 2 were retired within a day; the most is 0")


def test_retirements_are_forgotten_after_a_day() -> None:
    limit = Retirements(share=0.1, every_seconds=0)
    limit.retired("w0", at=0)
    assert limit.chosen(["w1"], fleet(10)[1:], at=FORGET_SECONDS - 1)[0] is None
    assert limit.chosen(["w1"], fleet(10), at=FORGET_SECONDS)[0] == "w1"


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
