from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.gpu.totals import DeviceTotals, GpuTotals
from dask_efficiency.ledger import Ledger
from dask_efficiency.presence import Presence
from dask_efficiency.report.recent_gpus import Gpus, gpus, gpus_moment, own_gpus
from dask_efficiency.wire import Snapshot
from tests.report.samples import HOSTILE_NAMES
from tests.strategies import any_gpu_totals


def presence(name: str, *devices: DeviceTotals, joined: int = 0) -> Presence:
    snapshot = Snapshot("x", 1, Ledger(1, at=0).balance(at=0), gpu=GpuTotals("cupti", devices=devices))
    return Presence(f"tcp://{name}", name, 1, joined, snapshot=snapshot)


def device(uuid: str, kernels: int, copies: int, idle: int) -> DeviceTotals:
    return DeviceTotals(
        f"GPU-{uuid}", "", kernels + copies + idle, kernels, copies, idle, unattributed=kernels + copies
    )


def shares(found: Gpus) -> dict[str, tuple[float, ...]]:
    return {row.name: row.shares for row in found.rows}


def test_without_gpus_there_are_no_rows() -> None:
    found = gpus([Presence("tcp://a", "a", 1, 0), presence("b")])
    assert (found.rows, found.number, math.isnan(found.idle)) == ((), 0, True)


def test_a_gpu_counts_from_the_moment_kept_or_from_when_it_was_watched() -> None:
    then = gpus_moment([presence("a", device("1", 5, 0, 5)), presence("b", device("2", 9, 0, 0))])
    # b is another worker of that name
    here = [presence("a", device("1", 6, 1, 7), device("3", 1, 0, 0)), presence("b", device("2", 1, 0, 3), joined=8)]
    found = gpus(here, then)
    assert shares(found) == {"a GPU-1": (0.25, 0.25, 0.5), "a GPU-3": (1, 0, 0), "b GPU-2": (0.25, 0, 0.75)}
    assert found.idle == pytest.approx(5 / 9)
    assert found.title == "3 GPUs, idle 56 % of the time"


def test_few_gpus_are_in_the_order_of_their_workers() -> None:
    here = [presence(name, device("2", 1, 0, 0), device("1", 1, 0, 0)) for name in ("w10", "w9")]
    assert [row.name for row in gpus(here).rows] == ["w9 GPU-1", "w9 GPU-2", "w10 GPU-1", "w10 GPU-2"]


def test_of_many_gpus_those_that_are_idle_most_are_shown() -> None:
    found = gpus([presence(f"w{i}", device(str(i), 40 - i, 0, i)) for i in range(40)], at_most=2)
    assert list(shares(found)) == ["w39 GPU-39", "w38 GPU-38"]
    assert found.number == 40
    assert found.title == "The 2 of 40 GPUs, idle 49 % of the time, that are idle most"


def test_a_gpu_of_several_workers_is_flagged_and_in_no_sum() -> None:
    found = gpus([presence("a", device("1", 1, 0, 1)), presence("b", device("1", 0, 0, 2))])
    assert all(row.shared for row in found.rows)
    assert math.isnan(found.idle)
    assert found.title == "2 GPUs"


def test_a_live_view_has_the_gpus_that_are_one_workers_alone() -> None:
    found = own_gpus([presence("a", device("1", 1, 0, 1), device("2", 3, 4, 5)), presence("b", device("1", 0, 0, 2))])
    assert found == {"tcp://a 0 GPU-2": {"kernels": 3, "copies": 4, "idle": 5}}


def test_names_are_short_and_harmless() -> None:
    for name in HOSTILE_NAMES:
        (row,) = gpus([presence(name, DeviceTotals(name, name, 1, 1, unattributed=1))]).rows
        assert row.name.isprintable()
        assert len(row.name) < 70


@given(st.lists(any_gpu_totals(), max_size=3), st.lists(any_gpu_totals(), max_size=3))
def test_shares_are_of_a_whole_whatever_was_before(before: list[GpuTotals], now: list[GpuTotals]) -> None:
    then = [presence(f"w{i}", *totals.devices) for i, totals in enumerate(before)]
    here = [presence(f"w{i}", *totals.devices) for i, totals in enumerate(now)]
    for row in gpus(here, gpus_moment(then)).rows:
        assert sum(row.shares) in (0, pytest.approx(1))
        assert all(0 <= share <= 1 for share in row.shares)
