from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

import numpy as np
import pytest

from dask_efficiency.accounts.gpu import KernelTotals
from dask_efficiency.straggler.columns import MAX_COLUMNS
from dask_efficiency.straggler.history import MAX_WAIT_NS
from dask_efficiency.straggler.kernels import TOP, KernelComparison

WORKERS = np.arange(4)
MS = 1_000_000


def gemm(launches: int, ms: float, prefix: str = "train", name: str = "gemm") -> KernelTotals:
    """So many launches of so many milliseconds each."""
    return KernelTotals(prefix, name, launches, round(launches * ms * MS))


def reported(*rows: list[KernelTotals], comparison: KernelComparison | None = None, at: int = 0) -> KernelComparison:
    comparison = comparison or KernelComparison(len(WORKERS))
    for row, kernels in enumerate(rows):
        comparison.receive(row, kernels, at=at)
    return comparison


def compared(comparison: KernelComparison) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    found: list[Any] = []

    def drain() -> Generator[int, None, None]:
        found[:] = yield from comparison.compare(WORKERS[: comparison._now.shape[2]])

    list(drain())
    mean, variance, launches = found
    return mean, variance, launches


def test_a_launch_is_compared_with_the_median_of_the_others() -> None:
    comparison = reported([gemm(10, 2)], [gemm(100, 2)], [gemm(20, 2)], [gemm(10, 3)])
    mean, variance, launches = compared(comparison)
    assert np.exp(mean) == pytest.approx([1, 1, 1, 1.5])
    assert list(launches) == [10, 100, 20, 10]
    assert variance == pytest.approx(0.2**2 * (1 + math.pi / 2 / 3) / np.array([10, 100, 20, 10]))


def test_only_the_growth_since_the_last_comparison_counts() -> None:
    comparison = reported(*[[gemm(10, 2)]] * 4)
    compared(comparison)
    reported(*[[gemm(20, 2)]] * 3, [gemm(20, 3.5)], comparison=comparison)  # of which the last ten took 5 ms
    assert np.exp(compared(comparison)[0]) == pytest.approx([1, 1, 1, 2.5])
    assert np.isnan(compared(comparison)[0]).all()


def test_few_launches_wait_until_there_are_more() -> None:
    few = 2
    comparison = reported([gemm(few, 2)], [gemm(few, 2)], [gemm(10, 2)], [gemm(10, 2)])
    assert np.isnan(compared(comparison)[0]).all()
    reported([gemm(2 * few, 4)], [gemm(2 * few, 2)], comparison=comparison)
    mean, _, launches = compared(comparison)
    assert math.exp(mean[0]) == pytest.approx(2)
    assert list(launches) == [2 * few, 2 * few, 10, 10]


def test_the_same_name_in_another_prefix_is_another_kernel() -> None:
    comparison = reported(*[[gemm(10, 2), gemm(10, 50, "infer")]] * 3, [gemm(10, 2)])
    assert np.exp(compared(comparison)[0]) == pytest.approx([1, 1, 1, 1])


def test_kernels_count_by_the_time_that_they_take_the_peers() -> None:
    healthy = [gemm(10, 9), gemm(10, 1, name="relu")]
    comparison = reported(*[healthy] * 3, [gemm(10, 9), gemm(10, 2, name="relu")])
    mean, variance, _ = compared(comparison)
    assert mean[3] == pytest.approx(0.1 * math.log(2))
    # they disagree, so that says less than what all kernels say
    agreeing = reported(*[healthy] * 3, [gemm(10, 9.5), gemm(10, 1.06, name="relu")])
    assert variance[3] > compared(agreeing)[1][3]


def test_sums_of_several_kernels_and_of_running_tasks_are_not_compared() -> None:
    several = [gemm(10, 2, name="(other)"), gemm(10, 2, "(running)"), gemm(10, 2, "(other)", "(other)")]
    comparison = reported(*[several] * 4)
    assert np.isnan(compared(comparison)[0]).all()
    assert not comparison.any


def test_a_total_that_begins_anew_or_another_workers_counts_from_nothing() -> None:
    comparison = reported(*[[gemm(100, 2)]] * 4)
    compared(comparison)
    reported(*[[gemm(110, 2)]] * 3, [gemm(10, 4)], comparison=comparison)
    assert np.exp(compared(comparison)[0]) == pytest.approx([1, 1, 1, 2])
    comparison = reported(*[[gemm(100, 2)]] * 4)
    comparison.reset(3)
    reported(*[[gemm(110, 2)]] * 3, [gemm(20, 3)], comparison=comparison)
    mean, _, launches = compared(comparison)
    assert math.exp(mean[3]) == pytest.approx(1.5)
    assert launches[3] == 20


def test_more_workers_change_nothing_for_those_that_are_there() -> None:
    comparison = reported([gemm(10, 2)], [gemm(10, 2)], [gemm(10, 2)], comparison=KernelComparison(3))
    before = comparison.nbytes
    comparison.grow(4)
    assert comparison.nbytes > before
    comparison.receive(3, [gemm(10, 6)], at=0)
    assert np.exp(compared(comparison)[0]) == pytest.approx([1, 1, 1, 3])


def test_of_many_kernels_the_largest_are_compared() -> None:
    comparison = reported(*[[gemm(10, 20 - i, name=f"k{i}") for i in range(17)]] * 4)
    assert compared(comparison)[2].tolist() == [160] * 4


def test_reading_totals_counts_as_a_piece_of_work() -> None:
    comparison = KernelComparison(245)
    comparison.receive(0, [gemm(10, 2)], at=0)
    assert list(comparison.compare(np.arange(245))) == [3000, 3000, 245]


def test_the_quiet_kernels_go_if_there_is_no_room_for_all() -> None:
    comparison = KernelComparison(len(WORKERS))
    for first in range(0, MAX_COLUMNS, TOP):
        reported(*[[gemm(10, 2, name=f"k{first + i}") for i in range(TOP)]] * 4, comparison=comparison)
        assert compared(comparison)[2].tolist() == [TOP * 10] * 4
    reported(*[[gemm(10, 2, name="late")]] * 4, comparison=comparison, at=MAX_WAIT_NS - 1)
    assert np.isnan(compared(comparison)[0]).all()
    # Those that go on stay, and a quiet one makes room.
    reported(*[[gemm(20, 2, name=f"k{i}") for i in range(TOP)]] * 4, comparison=comparison, at=MAX_WAIT_NS)
    assert compared(comparison)[2].tolist() == [TOP * 10] * 4
    reported(*[[gemm(10, 2, name="late")]] * 3, [gemm(10, 4, name="late")], comparison=comparison, at=MAX_WAIT_NS)
    assert math.exp(compared(comparison)[0][3]) == pytest.approx(2)
    reported(*[[gemm(30, 2, name=f"k{i}") for i in range(TOP)]] * 4, comparison=comparison, at=MAX_WAIT_NS)
    assert compared(comparison)[2].tolist() == [TOP * 10] * 4
