from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.cluster.account import ACTIVITIES
from dask_efficiency.live.last_seconds import DetailsNow, window_of
from dask_efficiency.live.tab_view import TabView, binned, tab_view
from dask_efficiency.plugin.scheduler.accounts import Moment
from tests.live.bokeh.meter import SECOND, Meter

WIDTH = 5 * SECOND


@st.composite
def any_polls(draw: st.DrawFn) -> list[Moment]:
    """Polls of a cluster: time that comes in lumps, or not at all, and threads that come and go."""
    at = draw(st.integers(0, 10**18))
    activity = dict.fromkeys(ACTIVITIES, 0)
    polls = []
    for _ in range(draw(st.integers(0, 40))):
        at += draw(st.sampled_from([0, 1, SECOND // 2, 7 * SECOND]) | st.integers(0, 20 * SECOND))
        for name in draw(st.lists(st.sampled_from(ACTIVITIES), max_size=3)):
            activity[name] += draw(st.sampled_from([1, 30 * SECOND]) | st.integers(0, 10**15))
        polls.append(Moment(at, dict(activity), draw(st.integers(0, 100)), {}))
    return polls


@given(any_polls(), st.just(WIDTH) | st.integers(1, 30 * SECOND))
def test_the_stack_covers_all_of_the_time_and_reaches_exactly_to_the_threads(polls: list[Moment], width: int) -> None:
    found = binned(polls, width=width)
    assert (found.threads >= 0).all()
    assert np.isfinite(found.threads).all()
    assert found.threads.sum(axis=1) == pytest.approx(found.nthreads, rel=1e-9)
    if len(found.start):
        assert (found.start[0], found.stop[-1]) == (polls[0].at, polls[-1].at)
        assert (found.start[1:] == found.stop[:-1]).all()
        assert (found.stop > found.start).all()
        there = sum((b.at - a.at) * b.nthreads for a, b in pairwise(polls))
        assert ((found.stop - found.start) * found.nthreads).sum() == pytest.approx(there)
    if len(found.start) > 1:  # no bin is too short for a report of each worker
        assert (found.stop - found.start >= width * 2 / 3).all()


def test_workers_that_report_in_turn_make_a_level_stack() -> None:
    """Two workers of one thread report every 2 s, 1 s apart; each poll sees the report of one."""
    polls = [Moment(i * SECOND, {"thread-cpu": 2 * i * SECOND, "idle": 0}, 2) for i in range(31)]
    found = binned(polls, width=WIDTH)
    assert found.start.tolist() == [0, 5e9, 10e9, 15e9, 20e9, 25e9]
    assert found.nthreads.tolist() == [2] * 6
    assert found.threads[:, ACTIVITIES.index("thread-cpu")].tolist() == [2] * 6


def test_a_bin_without_a_report_is_joined_to_the_next() -> None:
    """A worker's event loop is blocked for 8 s; then it reports 3 s of CPU time and 5 s of idle."""
    reports = [1, 2, 3, 4, 5, 5, 5, 5, 5, 5, 5, 5, 5]
    polls = [Moment(i * SECOND, {"thread-cpu": cpu * SECOND}, 1) for i, cpu in enumerate([0, *reports])]
    polls.append(Moment(14 * SECOND, {"thread-cpu": 8 * SECOND, "idle": 6 * SECOND}, 1))
    polls.append(Moment(15 * SECOND, {"thread-cpu": 9 * SECOND, "idle": 6 * SECOND}, 1))
    found = binned(polls, width=WIDTH)
    assert found.stop.tolist() == [5e9, 15e9]
    assert found.threads[:, ACTIVITIES.index("thread-cpu")].tolist() == [1, 0.4]
    assert found.threads[:, ACTIVITIES.index("idle")].tolist() == [0, 0.6]


def test_bins_that_are_past_stay_as_they_are() -> None:
    polls = [Moment(i * SECOND, {"thread-cpu": 2 * i * SECOND, "idle": i * i}, 2) for i in range(40)]
    then, now = (binned(polls[:n], width=WIDTH) for n in (33, 40))
    assert then.start[:5].tolist() == now.start[:5].tolist()
    assert then.threads[:5].tolist() == now.threads[:5].tolist()


def test_the_window_is_five_minutes_and_begins_on_the_grid() -> None:
    polls = [Moment(i * SECOND, {}, 1) for i in range(1000)]
    window = window_of(polls, width=7 * SECOND)
    assert window[-1].at == 999 * SECOND
    assert window[0].at == 693 * SECOND
    assert window_of([], width=WIDTH) == []


def view(meter: Any, *, start: int, stop: int) -> TabView:
    """At ``stop`` seconds, with details since ``start``."""
    meter.run_until(start)
    then = DetailsNow(start * SECOND, meter.cluster).read()
    meter.run_until(stop)
    return tab_view(meter, then, now=0.0, heartbeat_seconds=1.0)


def test_activity_covers_five_minutes_and_the_parts_the_time_since_the_details() -> None:
    found = view(Meter(), start=290, stop=600)
    assert (found.at, found.last.seconds, found.seconds_by_part) == (600 * SECOND, 300, 310)
    assert found.last.did.total_ns == 4 * 300 * SECOND
    assert found.last.workers.nanoseconds.sum() == 4 * 310 * SECOND


def test_figures_are_read_once_and_only_if_a_page_shows_them() -> None:
    meter = Meter()
    found = view(meter, start=0, stop=20)
    assert found.last.prefixes.seconds.sum() == 40
    meter.run_until(30)
    assert found.last.prefixes.seconds.sum() == 40
    assert found.last.did.total_ns == 4 * 20 * SECOND
    assert "workers" not in vars(found.last.now)
