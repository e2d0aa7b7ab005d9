from __future__ import annotations

import logging

import pytest

from dask_efficiency.plugin.guard import MAX_REASON, Guard


def boom(*args: object) -> None:
    raise ValueError(*args)


@pytest.fixture
def guard():
    return Guard("the part", "we go on without the part")


def test_what_works_is_called_with_its_arguments(guard):
    called = []
    guard(lambda *args, **kwargs: called.append((args, kwargs)), 1, two=2)
    assert called == [((1,), {"two": 2})]
    assert guard.off is None


def test_the_first_failure_is_logged_and_nothing_is_called_after_it(caplog):
    ended, called = [], []
    guard = Guard("the part", "we go on without the part", lambda: ended.append(True))
    with caplog.at_level(logging.ERROR):
        guard(boom, "injected")
        guard(boom, "another")
        guard.fail(RuntimeError("a third"))
        guard(called.append, 1)
    assert guard.off == "the part failed: ValueError: injected"
    assert (ended, called) == ([True], [])
    (record,) = caplog.records
    assert record.getMessage() == "we go on without the part"
    assert record.exc_info is not None


def test_a_long_reason_is_cut(guard):
    guard(boom, "x" * 10_000)
    assert len(guard.off) == MAX_REASON


def test_who_interrupts_is_not_held_up(guard):
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guard(interrupt)


def test_once_closed_it_calls_nothing_and_has_not_failed(guard):
    guard.close()
    guard(boom)
    assert guard.off is None
