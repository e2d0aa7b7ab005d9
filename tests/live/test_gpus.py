from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.cluster.gpus import own_gpus
from dask_efficiency.accounts.cluster.presence import Presence
from dask_efficiency.accounts.gpu.totals import DeviceTotals, GpuTotals
from dask_efficiency.accounts.wire.heartbeats import Received, encode, read
from dask_efficiency.accounts.wire.wire import Snapshot
from dask_efficiency.accounts.worker.ledger import Ledger
from dask_efficiency.live.gpus import GpuCounters, GpuTimes
from tests.report.samples import HOSTILE_NAMES
from tests.strategies import any_gpu_totals


def presence(name: str, *devices: DeviceTotals, joined: int = 0) -> Presence:
    received = read(encode(Snapshot("x", 1, Ledger(1, at=0).balance(at=0), gpu=GpuTotals("cupti"))))
    assert isinstance(received, Received)
    assert received.gpu is not None
    # More than can travel: years of many.
    held = replace(received.gpu, totals=GpuTotals("cupti", devices=devices))
    return Presence(f"tcp://{name}", name, 1, joined, received=received._replace(gpu=held))


def device(uuid: str, kernels: int, copies: int, idle: int) -> DeviceTotals:
    return DeviceTotals(
        f"GPU-{uuid}", "", kernels + copies + idle, kernels, copies, idle, unattributed=kernels + copies
    )


def times(here: list[Presence], then: list[Presence] | None = None) -> GpuTimes:
    return GpuTimes.between(None if then is None else GpuCounters.of(then), GpuCounters.of(here))


def labels(found: GpuTimes, at_most: int = 100) -> list[str]:
    return [found.gpus[gpu].label for gpu in found.shown(at_most)]


def test_without_gpus_there_are_no_rows() -> None:
    found = times([Presence("tcp://a", "a", 1, 0), presence("b")])
    assert (found.gpus, found.shown(5), math.isnan(found.idle)) == ((), [], True)


def test_a_gpu_counts_from_the_earlier_instant_or_from_when_it_was_watched() -> None:
    then = [presence("a", device("1", 5, 0, 5)), presence("b", device("2", 9, 0, 0))]
    # b is another worker of that name
    here = [presence("a", device("1", 6, 1, 7), device("3", 1, 0, 0)), presence("b", device("2", 1, 0, 3), joined=8)]
    found = times(here, then)
    assert labels(found) == ["a GPU-1", "a GPU-3", "b GPU-2"]
    assert found.shares.tolist() == [[0.25, 0.25, 0.5], [1, 0, 0], [0.25, 0, 0.75]]
    assert found.shares_of_all == {"kernels": 3 / 9, "copies": 1 / 9, "idle": 5 / 9}


def test_few_gpus_are_in_the_order_of_their_workers() -> None:
    here = [presence(name, device("2", 1, 0, 0), device("1", 1, 0, 0)) for name in ("w10", "w9")]
    assert labels(times(here)) == ["w9 GPU-1", "w9 GPU-2", "w10 GPU-1", "w10 GPU-2"]


def test_of_many_gpus_those_that_are_idle_most_are_shown() -> None:
    found = times([presence(f"w{i}", device(str(i), 40 - i, 0, i)) for i in range(40)])
    assert labels(found, at_most=2) == ["w39 GPU-39", "w38 GPU-38"]


def test_a_gpu_of_several_workers_is_flagged_and_in_no_sum() -> None:
    found = times([presence("a", device("1", 1, 0, 1)), presence("b", device("1", 0, 0, 2))])
    assert found.shared == (True, True)
    assert math.isnan(found.idle)


def test_the_time_of_many_gpus_over_years_is_summed_exactly() -> None:
    century = 2**62
    found = times([presence(f"w{i}", device(str(i), century, 0, century)) for i in range(10)])
    assert found.idle == 0.5


def test_a_live_view_has_the_gpus_that_are_one_workers_alone() -> None:
    found = own_gpus([presence("a", device("1", 1, 0, 1), device("2", 3, 4, 5)), presence("b", device("1", 0, 0, 2))])
    assert found == {"tcp://a 0 GPU-2": {"kernels": 3, "copies": 4, "idle": 5}}


def test_names_are_short_and_harmless() -> None:
    for name in HOSTILE_NAMES:
        (shown,) = labels(times([presence(name, DeviceTotals(name, name, 1, 1, unattributed=1))]))
        assert shown.isprintable()
        assert len(shown) < 70


@given(st.lists(any_gpu_totals(), max_size=3), st.lists(any_gpu_totals(), max_size=3))
def test_shares_are_of_a_whole_whatever_was_before(before: list[GpuTotals], now: list[GpuTotals]) -> None:
    then = [presence(f"w{i}", *totals.devices) for i, totals in enumerate(before)]
    here = [presence(f"w{i}", *totals.devices) for i, totals in enumerate(now)]
    found = times(here, then)
    assert ((found.shares >= 0) & (found.shares <= 1)).all()
    for row in found.shares.tolist():
        assert sum(row) in (0, pytest.approx(1))
