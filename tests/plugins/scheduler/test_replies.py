"""What a scheduler sends of a window, of tasks that ran alone by hand."""

from __future__ import annotations

from dask_efficiency.checks import MAX_NAME_LENGTH
from dask_efficiency.idle import Alone
from dask_efficiency.plugins.scheduler.replies import _alone


def alone(**ns: int) -> dict[str, Alone]:
    return {key: Alone("join", n) for key, n in ns.items()}


def test_a_task_ran_alone_for_what_was_gained_since_the_window_was_opened():
    assert _alone(alone(a=7, b=5, c=3), alone(a=2, b=5)) == {"a": 5, "c": 3}


def test_a_task_that_was_forgotten_and_is_known_again_ran_alone_for_no_negative_time():
    assert _alone(alone(a=1), alone(a=9)) == {}


def test_keys_are_named_as_workers_name_them():
    now = {("join", 1): Alone("join", 4), "x" * 5000: Alone("x", 5), 1: Alone("int", 6), "1": Alone("1", 2)}
    assert _alone(now, {}) == {"('join', 1)": 4, "x" * MAX_NAME_LENGTH: 5, "1": 6}
