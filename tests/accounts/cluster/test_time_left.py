from __future__ import annotations

import math

import pytest

from dask_efficiency.accounts.cluster.time_left import (
    PrefixTasks,
    TimeLeft,
    TimeLeftEstimate,
    decode_left,
    encode_left,
)


def at_work(tasks: int, at: float, *, nthreads: int = 4, seconds: float = 1.0) -> PrefixTasks:
    """A prefix of equal tasks on threads that are always busy, so long after they began."""
    ended = min(tasks, math.floor(at / seconds) * nthreads)
    running = (at % seconds,) * min(nthreads, tasks - ended)
    return PrefixTasks(tasks - ended, running, ended, ended * seconds)


def looked(until: float, *, tasks: int = 400, step: float = 0.5, **more: PrefixTasks) -> TimeLeft | None:
    estimate, found = TimeLeftEstimate(), None
    for number in range(int(until / step) + 1):
        found = estimate.look(number * step, {"step": at_work(tasks, number * step), **more}, 4)
    return found


def test_equal_tasks_take_what_they_took_on_the_threads_that_are_there() -> None:
    found = looked(50)
    assert found is not None
    assert found.seconds == pytest.approx(50, rel=0.02)
    assert 0 < found.least < found.seconds < found.most < 2 * found.seconds


def test_threads_that_were_idle_may_do_what_is_left_sooner() -> None:
    estimate = TimeLeftEstimate()
    for number in range(101):  # half of the threads are idle
        found = estimate.look(number * 0.5, {"step": at_work(400, number * 0.5)}, 8)
    busy = looked(50)
    assert found is not None
    assert busy is not None
    assert found.seconds == pytest.approx(busy.seconds, rel=0.02)
    assert found.least == pytest.approx(busy.least * math.sqrt(0.5), rel=0.05)


def test_a_prefix_whose_tasks_run_one_by_one_takes_as_long_as_it_did() -> None:
    estimate = TimeLeftEstimate()
    for number in range(101):
        at = number * 0.5
        chain = at_work(100, at, nthreads=1)
        found = estimate.look(at, {"step": at_work(200, at, nthreads=3), "chain": chain}, 4)
    assert found is not None
    assert found.seconds < 30.0
    assert found.most == pytest.approx(50.0, rel=0.05)


def test_nothing_is_said_before_enough_tasks_have_ended() -> None:
    assert looked(2) is None  # eight
    assert looked(2.5) is None
    assert looked(3) is not None  # twelve
    assert looked(3, tasks=4_000) is not None


def test_nothing_is_said_while_many_tasks_are_of_prefixes_never_seen() -> None:
    assert looked(50, merge=PrefixTasks(30, (), 0, 0.0)) is None
    few, without = looked(50, merge=PrefixTasks(1, (), 0, 0.0)), looked(50)
    assert few is not None
    assert without is not None
    assert few.most > without.most


def test_threads_that_come_shorten_what_is_left() -> None:
    estimate = TimeLeftEstimate()
    for number in range(100):
        then = estimate.look(number * 0.5, {"step": at_work(400, number * 0.5)}, 4)
    now = estimate.look(50.0, {"step": at_work(400, 50.0)}, 8)
    assert then is not None
    assert now is not None
    assert now.seconds == pytest.approx(then.seconds / 2, rel=0.1)
    assert estimate.look(50.5, {"step": at_work(400, 50.5)}, 0) is None


def test_nothing_is_said_after_a_graph_until_it_is_quiet_for_longer_than_between_graphs() -> None:
    estimate, shown = TimeLeftEstimate(), []
    for number in range(160):
        at = number * 0.5
        shown.append(estimate.look(at, {"step": at_work(400 if at < 20 else 600, at)}, 4) is not None)
    first = next(number for number in range(40, 160) if shown[number])
    assert shown[30]
    assert first * 0.5 == pytest.approx(60, abs=1)


def test_a_task_that_is_computed_again_near_the_end_is_no_graph() -> None:
    estimate = TimeLeftEstimate()
    found = [
        estimate.look(number * 0.5, {"step": at_work(400 + (number > 190), number * 0.5)}, 4) for number in range(198)
    ]
    assert None not in found[150:]


def test_work_that_ends_is_forgotten() -> None:
    estimate = TimeLeftEstimate()
    for number in range(40):
        estimate.look(number * 1.0, {"step": at_work(400, number * 1.0)}, 4)
    assert estimate.look(100.0, {"step": PrefixTasks(0, (), 400, 400.0)}, 4) is None
    again = {"step": PrefixTasks(100, (), 400, 400.0)}
    assert estimate.look(101.0, again, 4) is None
    assert estimate.look(102.0, again, 4) is None


def test_tasks_that_do_not_move_are_not_said_to_end() -> None:
    estimate = TimeLeftEstimate()
    for number in range(100):
        estimate.look(number * 0.5, {"step": at_work(400, number * 0.5)}, 4)
    waiting = {"step": PrefixTasks(200, (), 200, 200.0)}  # none of them runs
    assert [estimate.look(50.0 + number, waiting, 4) for number in range(60)][-1] is None


def test_an_estimate_travels() -> None:
    left = TimeLeft(4.0, 3.0, 6.0)
    assert decode_left(encode_left(left)) == left
    assert decode_left(encode_left(None)) is None
    for odd in ([1.0, 2.0], [1.0, 2.0, -3.0], [1.0, 2.0, math.nan], "abc", 5):
        with pytest.raises(ValueError, match="time left|unpack"):
            decode_left(odd)
