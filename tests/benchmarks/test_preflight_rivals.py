"""DLRover's rule, on cases worked out by hand."""

from __future__ import annotations

import pytest

from benchmarks.preflight_rivals import gated, node_check


def check(*compute: float) -> set[str]:
    times = {f"n{i}": seconds for i, seconds in enumerate(compute)}
    return node_check(list(times), gated(times, dict.fromkeys(times, 0.0)))


@pytest.mark.parametrize("slow", [1.5, 2.0, 5.0, 100.0])
def test_one_of_four_is_never_found(slow: float) -> None:
    # Times of the first round are slow, slow, 1, 1: their median is (1 + slow) / 2, and twice that is more than slow.
    assert check(slow, 1.0, 1.0, 1.0) == set()


def test_one_of_six_is_found_beyond_twice_the_median_and_its_partner_cleared() -> None:
    assert check(5.0, 1.0, 1.0, 1.0, 1.0, 1.0) == {"n0"}
    assert check(1.9, 1.0, 1.0, 1.0, 1.0, 1.0) == set()


def test_with_an_odd_number_a_healthy_one_may_be_accused() -> None:
    # n0 and n1 take 5; the three others 1. In the second round n2 is with n1, n3 with n0 and n4 joins them.
    assert check(5.0, 1.0, 1.0, 1.0, 1.0) == {"n0"}
    assert check(1.0, 1.0, 1.0, 1.0, 5.0) == set()  # three of five take 5, and the median is 5


def test_a_single_node_is_compared_with_nobody() -> None:
    assert check(3.0) == set()
