from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.presence import ACTIVITIES
from dask_efficiency.report import recent

SECOND = 1_000_000_000
WIDTH = 5 * SECOND


@dataclass(frozen=True)
class Moment:
    at: int
    activity: Mapping[str, int]
    nthreads: int


@st.composite
def polls(draw: st.DrawFn) -> list[Moment]:
    """Polls of a cluster: time that comes in lumps, or not at all, and threads that come and go."""
    at = draw(st.integers(0, 10**18))
    activity = dict.fromkeys(ACTIVITIES, 0)
    moments = []
    for _ in range(draw(st.integers(0, 40))):
        at += draw(st.sampled_from([0, 1, SECOND // 2, 7 * SECOND]) | st.integers(0, 20 * SECOND))
        for name in draw(st.lists(st.sampled_from(ACTIVITIES), max_size=3)):
            activity[name] += draw(st.sampled_from([1, 30 * SECOND]) | st.integers(0, 10**15))
        moments.append(Moment(at, dict(activity), draw(st.integers(0, 100))))
    return moments


@given(polls(), st.integers(1, 30 * SECOND))
def test_the_stack_is_never_negative_and_reaches_exactly_to_the_threads(moments: list[Moment], width: int) -> None:
    found = recent.timeline(moments, width=width)
    assert (found.threads >= 0).all()
    assert np.isfinite(found.threads).all()
    assert found.threads.sum(axis=1) == pytest.approx(found.nthreads, rel=1e-9)


@given(polls(), st.integers(1, 30 * SECOND))
def test_the_bins_cover_all_of_the_time_without_a_gap(moments: list[Moment], width: int) -> None:
    found = recent.timeline(moments, width=width)
    if len(found.start):
        assert found.start[0] == moments[0].at
        assert found.stop[-1] == moments[-1].at
        assert (found.start[1:] == found.stop[:-1]).all()
        assert (found.stop > found.start).all()


@given(polls())
def test_no_bin_is_too_short_for_a_report_of_each_worker(moments: list[Moment]) -> None:
    found = recent.timeline(moments, width=WIDTH)
    if len(found.start) > 1:
        assert (found.stop - found.start >= WIDTH * 2 / 3).all()


@given(polls())
def test_the_threads_are_a_mean_over_the_bin(moments: list[Moment]) -> None:
    found = recent.timeline(moments, width=WIDTH)
    if len(found.start):
        there = sum((b.at - a.at) * b.nthreads for a, b in pairwise(moments))
        assert ((found.stop - found.start) * found.nthreads).sum() == pytest.approx(there)


def test_workers_that_report_in_turn_make_a_level_stack() -> None:
    """Two workers of one thread report every 2 s, 1 s apart; each poll sees the report of one."""
    moments = [Moment(i * SECOND, {"thread-cpu": 2 * i * SECOND, "idle": 0}, 2) for i in range(31)]
    found = recent.timeline(moments, width=WIDTH)
    assert found.start.tolist() == [0, 5e9, 10e9, 15e9, 20e9, 25e9]
    assert found.nthreads.tolist() == [2] * 6
    assert found.threads[:, ACTIVITIES.index("thread-cpu")].tolist() == [2] * 6


def test_a_bin_without_a_report_is_joined_to_the_next() -> None:
    """A worker's event loop is blocked for 8 s; then it reports 3 s of CPU time and 5 s of idle."""
    reports = [1, 2, 3, 4, 5, 5, 5, 5, 5, 5, 5, 5, 5]
    moments = [Moment(i * SECOND, {"thread-cpu": cpu * SECOND}, 1) for i, cpu in enumerate([0, *reports])]
    moments.append(Moment(14 * SECOND, {"thread-cpu": 8 * SECOND, "idle": 6 * SECOND}, 1))
    moments.append(Moment(15 * SECOND, {"thread-cpu": 9 * SECOND, "idle": 6 * SECOND}, 1))
    found = recent.timeline(moments, width=WIDTH)
    assert found.stop.tolist() == [5e9, 15e9]
    assert found.threads[:, ACTIVITIES.index("thread-cpu")].tolist() == [1, 0.4]
    assert found.threads[:, ACTIVITIES.index("idle")].tolist() == [0, 0.6]


def test_bins_that_are_past_stay_as_they_are() -> None:
    moments = [Moment(i * SECOND, {"thread-cpu": 2 * i * SECOND, "idle": i * i}, 2) for i in range(40)]
    then, now = (recent.timeline(moments[:n], width=WIDTH) for n in (33, 40))
    assert then.start[:5].tolist() == now.start[:5].tolist()
    assert then.threads[:5].tolist() == now.threads[:5].tolist()


def test_the_window_is_five_minutes_and_begins_on_the_grid() -> None:
    moments = [Moment(i * SECOND, {}, 1) for i in range(1000)]
    window = recent.window_of(moments, width=7 * SECOND)
    assert window[-1].at == 999 * SECOND
    assert window[0].at == 693 * SECOND
    assert recent.window_of([], width=WIDTH) == []


def test_what_was_gained_is_the_difference_of_the_ends() -> None:
    moments = [Moment(0, {"idle": 1, "spill": 5}, 1), Moment(1, {"idle": 9}, 1), Moment(2, {"idle": 3, "spill": 5}, 1)]
    assert recent.gained(moments) == {"idle": 2}
    assert recent.gained([]) == {}


def test_the_sentence_says_what_was_useful_and_what_the_largest_loss_is() -> None:
    ns = {"thread-cpu": 6 * SECOND, "idle": 3 * SECOND, "spill": SECOND, "no-work": 50 * SECOND}
    assert recent.sentence(ns, {}) == (
        "60 % efficient: 6.0 of 10.0 thread-seconds were useful; the largest loss is idle, 3.0 thread-seconds."
    )


def test_spans_are_said_in_words() -> None:
    assert [recent.span_of(s) for s in (0.0, 59.6, 119.0, 300.2)] == ["0 s", "60 s", "119 s", "5 min"]
