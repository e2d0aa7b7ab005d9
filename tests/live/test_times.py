import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.cluster.account import ACTIVITIES
from dask_efficiency.accounts.cluster.presence import Presence, own_gpus
from dask_efficiency.accounts.gpu import DeviceTotals
from dask_efficiency.accounts.rows import OTHER
from dask_efficiency.accounts.worker.balance import TASK_BUCKETS
from dask_efficiency.live.times import (
    QUANTILES,
    GpuTimes,
    Times,
    WorkerTimes,
    gpu_label,
    prefix_times,
    shares_of,
    spread,
)
from tests.payloads import account_of
from tests.report.samples import HOSTILE_NAMES
from tests.strategies import names, rows

Table = dict[str, tuple[int, int]]


def table(rows: Table) -> Times:
    return Times(tuple(rows), np.array([*rows.values()], np.int64).reshape(-1, 2))


tables = st.dictionaries(st.sampled_from("abcd"), st.tuples(st.integers(0, 10**15), st.integers(0, 10**15)))


@given(tables, tables)
def test_each_row_gains_the_growth_of_its_own_counters_and_its_shares_add_up(then: Table, more: Table) -> None:
    now = {key: (a + then.get(key, (0, 0))[0], b + then.get(key, (0, 0))[1]) for key, (a, b) in more.items()}
    found = table(now).since(table(then)).nanoseconds
    assert dict(zip(now, map(tuple, found.tolist()), strict=True)) == more
    assert table({"a": (3, 4)}).since(table({"a": (5, 1)})).nanoseconds.tolist() == [[0, 3]]
    for row, share in zip(more.values(), shares_of(found).tolist(), strict=True):
        assert sum(share) == (pytest.approx(1) if any(row) else 0)


def presence(name: str, *, joined: int = 0, **activity: int) -> Presence:
    named = {key.replace("_", "-"): ns for key, ns in activity.items()}
    return Presence(f"tcp://{name}", name, 2, joined, account_of({"activity": named}))


def times(*here: Presence, then: tuple[Presence, ...] = ()) -> WorkerTimes:
    return WorkerTimes.of(here).since(WorkerTimes.of(then))


def shown_names(workers: WorkerTimes, at_most: int) -> list[str]:
    return [workers.names[worker] for worker in workers.shown(at_most)]


def test_shares_are_of_the_time_while_there_was_work() -> None:
    found = times(presence("w10", idle=1, thread_cpu=3, no_work=96), presence("w2", no_work=5))
    assert shown_names(found, 2) == ["w2", "w10"]
    assert found.shares.sum(axis=1).tolist() == [1, 0]
    assert found.shares[0, ACTIVITIES.index("thread-cpu")] == found.useful[0] == 0.75
    assert math.isnan(found.useful[1])


def test_the_largest_loss_leaves_out_useful_time_and_time_without_work() -> None:
    lost = presence("a", thread_cpu=4, idle=1, spill=3, no_work=9)
    found = times(lost, presence("b", gpu=1), presence("c", no_work=1))
    assert [found.largest_loss(i) for i in range(3)] == [(Bucket.SPILL, 3 / 8), None, None]


def test_of_many_workers_the_least_useful_are_shown() -> None:
    here = [presence(f"w{i}", idle=100 - i, gpu=i) for i in range(50)]
    found = times(presence("without-work", no_work=9), *here)
    assert shown_names(found, 20) == [f"w{i}" for i in range(20)]
    assert shown_names(found, 50)[-1] == "w49"
    assert "without-work" in shown_names(found, 51)


def test_a_workers_time_counts_from_the_earlier_instant_or_from_its_joining() -> None:
    then = presence("a", idle=10), presence("b", idle=10)
    found = times(presence("a", idle=11, thread_cpu=3), presence("b", joined=5, idle=1, thread_cpu=1), then=then)
    assert found.shares[:, ACTIVITIES.index("thread-cpu")].tolist() == [0.75, 0.5]


def test_the_spread_over_workers_by_hand() -> None:
    here = [presence(f"w{i}", thread_cpu=i, idle=10 - i) for i in range(11)]
    found = spread(times(*here, presence("without-work", no_work=5)))
    assert found.activities == ("thread-cpu", "idle")
    assert found.quantiles.tolist() == [pytest.approx([0, 0.1, 0.5, 0.9, 1])] * 2
    assert (found.least, found.most) == (("w0", "w10"), ("w10", "w0"))
    assert spread(times()).activities == ()
    assert times().shown(3) == []


activities = st.dictionaries(st.sampled_from(ACTIVITIES), st.integers(0, 10**15))


@given(st.lists(activities, max_size=12), st.integers(0, 3))
def test_any_spread_is_in_order_and_between_the_workers(rows: list[dict[str, int]], known_before: int) -> None:
    here = [Presence(f"tcp://{i}", f"w{i}", 1, 0, account_of({"activity": row})) for i, row in enumerate(rows)]
    found = spread(times(*here, then=(*here[:known_before],)))
    assert found.quantiles.shape == (len(found.activities), len(QUANTILES))
    assert (np.diff(found.quantiles, axis=1) >= -1e-12).all()
    assert ((found.quantiles >= 0) & (found.quantiles <= 1 + 1e-12)).all()
    assert len(found.least) == len(found.most) == len(found.activities)


def gpu_presence(name: str, *devices: DeviceTotals, joined: int = 0) -> Presence:
    received: Any = SimpleNamespace(gpu=SimpleNamespace(devices=devices))
    return Presence(f"tcp://{name}", name, 1, joined, received=received)


def device(uuid: str, kernels: int, copies: int, idle: int) -> DeviceTotals:
    work = kernels + copies
    return DeviceTotals(f"GPU-{uuid}", "", work + idle, kernels, copies, idle, unattributed=work)


def gpu_times(*here: Presence, then: tuple[Presence, ...] = ()) -> GpuTimes:
    return GpuTimes.of(here).since(GpuTimes.of(then))


def labels(found: GpuTimes, at_most: int = 100) -> list[str]:
    return [gpu_label(found.gpus[gpu]) for gpu in found.shown(at_most)]


def test_a_gpu_counts_from_the_earlier_instant_or_from_when_it_was_watched() -> None:
    then = gpu_presence("a", device("1", 5, 0, 5)), gpu_presence("b", device("2", 9, 0, 0))
    a = gpu_presence("a", device("1", 6, 1, 7), device("3", 1, 0, 0))
    another_b = gpu_presence("b", device("2", 1, 0, 3), joined=8)
    found = gpu_times(a, another_b, then=then)
    assert labels(found) == ["a GPU-1", "a GPU-3", "b GPU-2"]
    assert found.shares.tolist() == [[0.25, 0.25, 0.5], [1, 0, 0], [0.25, 0, 0.75]]
    assert found.shares_of_all == {"kernels": 3 / 9, "copies": 1 / 9, "idle": 5 / 9}


def test_few_gpus_are_in_the_order_of_their_workers_and_of_many_the_idlest_are_shown() -> None:
    here = [gpu_presence(name, device("2", 1, 0, 0), device("1", 1, 0, 0)) for name in ("w10", "w9")]
    assert labels(gpu_times(*here)) == ["w9 GPU-1", "w9 GPU-2", "w10 GPU-1", "w10 GPU-2"]
    found = gpu_times(*(gpu_presence(f"w{i}", device(str(i), 40 - i, 0, i)) for i in range(40)))
    assert labels(found, at_most=2) == ["w39 GPU-39", "w38 GPU-38"]
    found = gpu_times(Presence("tcp://a", "a", 1, 0), gpu_presence("b"))
    assert (found.gpus, found.shown(5), found.shares_of_all) == ((), [], {})


def test_a_gpu_of_several_workers_is_flagged_and_in_no_sum() -> None:
    here = gpu_presence("a", device("1", 1, 0, 1), device("2", 3, 4, 5)), gpu_presence("b", device("1", 0, 0, 2))
    found = gpu_times(*here)
    assert found.shared == (True, False, True)
    assert found.shares_of_all == {"kernels": 3 / 12, "copies": 4 / 12, "idle": 5 / 12}
    assert own_gpus(here) == {"tcp://a 0 GPU-2": {"kernels": 3, "copies": 4, "idle": 5}}


def test_the_time_of_many_gpus_over_years_is_summed_exactly() -> None:
    century = 2**62
    found = gpu_times(*(gpu_presence(f"w{i}", device(str(i), century, 0, century)) for i in range(10)))
    assert found.shares_of_all["idle"] == 0.5


def test_names_are_short_and_harmless() -> None:
    for name in HOSTILE_NAMES:
        (shown,) = labels(gpu_times(gpu_presence(name, DeviceTotals(name, name, 1, 1, unattributed=1))))
        assert shown.isprintable()
        assert len(shown) < 70


SECOND = 1_000_000_000


def row(cpu: int = 0, failed: int = 0) -> tuple[int, ...]:
    given = {"thread-cpu": cpu * SECOND, "failed": failed * SECOND}
    return tuple(given.get(bucket, 0) for bucket in TASK_BUCKETS)


def test_the_prefixes_come_by_the_time_they_took_since() -> None:
    now = {"a": row(50), "b": row(3, 4), "c": row(1)}
    found = prefix_times({"a": row(45), "c": row(1)}, now)
    assert found.names == ("b", "a")
    assert found.seconds.sum(axis=1).tolist() == [7, 5]
    assert found.seconds[0, TASK_BUCKETS.index("failed")] == 4
    assert prefix_times({}, {}).names == ()
    assert prefix_times({"a": row(1)}, {"a": row(1)}).seconds.shape == (0, len(TASK_BUCKETS))


def test_prefixes_beyond_the_limit_are_the_last_row_with_those_the_ledger_folded() -> None:
    now = {f"p{i}": row(i) for i in range(1, 6)} | {OTHER: row(100)}
    found = prefix_times({}, now, at_most=2)
    assert found.names == ("p5", "p4", OTHER)
    assert found.seconds.sum(axis=1).tolist() == [5, 4, 106]


books = st.dictionaries(names | st.just(OTHER), rows(), max_size=8)


@given(books, books, st.integers(1, 4))
def test_no_time_is_lost(then: dict[str, tuple[int, ...]], gain: dict[str, tuple[int, ...]], at_most: int) -> None:
    nothing = (0,) * len(TASK_BUCKETS)
    both = {name: zip(then.get(name, nothing), gain.get(name, nothing), strict=True) for name in then | gain}
    found = prefix_times(then, {name: tuple(map(sum, pairs)) for name, pairs in both.items()}, at_most=at_most)
    assert len(found.names) <= at_most + 1
    assert (found.seconds >= 0).all()
    expected = np.array([*gain.values(), nothing], dtype=object).sum(axis=0) / 1e9
    assert found.seconds.sum(axis=0).tolist() == pytest.approx(expected.tolist())
