from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.presence import ACTIVITIES, Presence
from dask_efficiency.report.recent_workers import QUANTILES, WorkersMoment, spread, workers


def presence(name: str, *, joined: int = 0, **activity: int) -> Presence:
    named = {key.replace("_", "-"): ns for key, ns in activity.items()}
    return Presence(f"tcp://{name}", name, 2, joined, activity=named)


def test_few_workers_are_shown_by_name() -> None:
    here = [presence("w10", idle=1, thread_cpu=3, no_work=96), presence("w2")]
    found = workers(here)
    assert found.names == ("w2", "w10")
    assert found.shares.sum(axis=1).tolist() == [0, 1]
    assert found.shares[1, ACTIVITIES.index("thread-cpu")] == 0.75


def test_of_many_workers_the_least_useful_are_shown_and_the_title_says_so() -> None:
    here = [presence(f"w{i}", idle=100 - i, gpu=i) for i in range(50)] + [presence("without-work", no_work=9)]
    found = workers(here)
    assert found.names == tuple(f"w{i}" for i in range(20))
    assert found.title == (
        "The 20 of 51 workers whose time was useful least (of all, least 0 %, median 24 %, most 49 %)"
    )


def test_a_workers_time_counts_from_the_moment_kept_or_from_its_joining() -> None:
    then = WorkersMoment.of([presence("a", idle=10), presence("b", idle=10)])
    found = workers([presence("a", idle=11, thread_cpu=3), presence("b", joined=5, idle=1, thread_cpu=1)], then)
    assert found.shares[:, ACTIVITIES.index("thread-cpu")].tolist() == [0.75, 0.5]


def test_the_spread_over_workers_by_hand() -> None:
    here = [presence(f"w{i}", thread_cpu=i, idle=10 - i) for i in range(11)]
    found = spread([*here, presence("without-work", no_work=5)])
    assert found.activities == ("thread-cpu", "idle")
    assert found.quantiles.tolist() == [pytest.approx([0, 0.1, 0.5, 0.9, 1])] * 2
    assert (found.least, found.most) == (("w0", "w10"), ("w10", "w0"))
    assert (found.judged, found.number) == (11, 12)


def test_a_spread_counts_from_the_moment_kept() -> None:
    then = WorkersMoment.of([presence("a", idle=10)])
    found = spread([presence("a", idle=10, spill=5)], then)
    assert found.activities == ("spill",)
    assert found.quantiles.tolist() == [[1] * len(QUANTILES)]


activities = st.dictionaries(st.sampled_from(ACTIVITIES), st.integers(0, 10**15))


@given(st.lists(activities, max_size=12), st.lists(activities, max_size=3))
def test_any_spread_is_in_order_and_between_the_workers(rows: list[dict[str, int]], joined_later: list[object]) -> None:
    here = [Presence(f"tcp://{i}", f"w{i}", 1, 0, activity=row) for i, row in enumerate(rows)]
    found = spread(here, WorkersMoment.of(here[: len(joined_later)]))
    assert found.quantiles.shape == (len(found.activities), len(QUANTILES))
    assert (np.diff(found.quantiles, axis=1) >= -1e-12).all()
    assert ((found.quantiles >= 0) & (found.quantiles <= 1 + 1e-12)).all()
    assert len(found.least) == len(found.most) == len(found.activities)


def test_nobody_has_no_spread() -> None:
    assert spread([]).activities == ()
    assert workers([]).names == ()
