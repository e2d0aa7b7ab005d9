from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.cluster.account import ACTIVITIES
from dask_efficiency.accounts.cluster.presence import Presence
from dask_efficiency.live.workers import QUANTILES, WorkerCounters, WorkerTimes, spread
from tests.payloads import account_of


def presence(name: str, *, joined: int = 0, **activity: int) -> Presence:
    named = {key.replace("_", "-"): ns for key, ns in activity.items()}
    return Presence(f"tcp://{name}", name, 2, joined, account_of({"activity": named}))


def times(here: list[Presence], then: list[Presence] | None = None) -> WorkerTimes:
    return WorkerTimes.between(None if then is None else WorkerCounters.of(then), WorkerCounters.of(here))


def names(workers: WorkerTimes, at_most: int) -> list[str]:
    return [workers.names[worker] for worker in workers.shown(at_most)]


def test_shares_are_of_the_time_while_there_was_work() -> None:
    found = times([presence("w10", idle=1, thread_cpu=3, no_work=96), presence("w2", no_work=5)])
    assert names(found, 2) == ["w2", "w10"]
    assert found.shares.sum(axis=1).tolist() == [1, 0]
    assert found.shares[0, ACTIVITIES.index("thread-cpu")] == 0.75
    assert found.useful[0] == 0.75
    assert math.isnan(found.useful[1])


def test_the_largest_loss_leaves_out_what_was_useful_and_the_time_without_work() -> None:
    found = times(
        [presence("a", thread_cpu=4, idle=1, spill=3, no_work=9), presence("b", gpu=1), presence("c", no_work=1)]
    )
    assert [found.largest_loss(i) for i in range(3)] == [(Bucket.SPILL, 3 / 8), None, None]


def test_of_many_workers_the_least_useful_are_shown() -> None:
    here = [presence(f"w{i}", idle=100 - i, gpu=i) for i in range(50)]
    found = times([presence("without-work", no_work=9), *here])
    assert names(found, 20) == [f"w{i}" for i in range(20)]
    assert names(found, 50)[-1] == "w49"
    assert "without-work" in names(found, 51)


def test_a_workers_time_counts_from_the_earlier_instant_or_from_its_joining() -> None:
    then = [presence("a", idle=10), presence("b", idle=10)]
    found = times([presence("a", idle=11, thread_cpu=3), presence("b", joined=5, idle=1, thread_cpu=1)], then)
    assert found.shares[:, ACTIVITIES.index("thread-cpu")].tolist() == [0.75, 0.5]


def test_the_spread_over_workers_by_hand() -> None:
    here = [presence(f"w{i}", thread_cpu=i, idle=10 - i) for i in range(11)]
    found = spread(times([*here, presence("without-work", no_work=5)]))
    assert found.activities == ("thread-cpu", "idle")
    assert found.quantiles.tolist() == [pytest.approx([0, 0.1, 0.5, 0.9, 1])] * 2
    assert (found.least, found.most) == (("w0", "w10"), ("w10", "w0"))


def test_a_spread_counts_from_the_earlier_instant() -> None:
    found = spread(times([presence("a", idle=10, spill=5)], [presence("a", idle=10)]))
    assert found.activities == ("spill",)
    assert found.quantiles.tolist() == [[1] * len(QUANTILES)]


activities = st.dictionaries(st.sampled_from(ACTIVITIES), st.integers(0, 10**15))


@given(st.lists(activities, max_size=12), st.lists(activities, max_size=3))
def test_any_spread_is_in_order_and_between_the_workers(rows: list[dict[str, int]], known_before: list[object]) -> None:
    here = [Presence(f"tcp://{i}", f"w{i}", 1, 0, account_of({"activity": row})) for i, row in enumerate(rows)]
    found = spread(times(here, here[: len(known_before)]))
    assert found.quantiles.shape == (len(found.activities), len(QUANTILES))
    assert (np.diff(found.quantiles, axis=1) >= -1e-12).all()
    assert ((found.quantiles >= 0) & (found.quantiles <= 1 + 1e-12)).all()
    assert len(found.least) == len(found.most) == len(found.activities)


def test_nobody_has_no_spread() -> None:
    assert spread(times([])).activities == ()
    assert times([]).shown(3) == []
