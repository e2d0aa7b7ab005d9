from __future__ import annotations

from types import SimpleNamespace

import pytest

from dask_efficiency.accounts.profile import Frame, Hold
from dask_efficiency.plugin import loop_blocks
from dask_efficiency.plugin.loop_blocks import LoopBlocks


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(at=100.0)
    monkeypatch.setattr(loop_blocks, "time", lambda: now.at)
    return now


def worker(**ticks):
    return SimpleNamespace(_last_tick=100.0, periodic_callbacks={"tick": SimpleNamespace(callback_time=20)}, **ticks)


def test_a_missing_tick_is_reported_with_what_the_loop_was_at_mostly(clock):
    server, found, stacks = worker(), [], iter("abbc")
    blocks = LoopBlocks(server, lambda: (Frame(next(stacks), "x.py", 1),), found.append)
    for at in (100.1, 100.2, 100.3):
        clock.at = at
        blocks.look(wanted=True)
    assert not found
    clock.at = server._last_tick = 100.4
    blocks.look(wanted=True)
    assert found == [Hold(pytest.approx(380_000_000), "(event loop)", (Frame("b", "x.py", 1),))]
    blocks.look(wanted=True)
    assert len(found) == 1


def test_a_tick_that_is_a_little_late_is_no_block(clock):
    server, found = worker(), []
    blocks = LoopBlocks(server, tuple, found.append)
    clock.at = 100.09
    blocks.look(wanted=True)
    clock.at = server._last_tick = 100.1
    blocks.look(wanted=True)
    assert not found


def test_nothing_breaks_where_upstream_has_no_such_tick(clock):
    clock.at = 200.0
    LoopBlocks(SimpleNamespace(), tuple, print).look(wanted=True)


def test_a_loop_that_was_seen_at_no_work_of_its_own_was_blocked_by_nothing_that_is_known(clock):
    server, found = worker(), []
    blocks = LoopBlocks(server, lambda: None, found.append)
    for at in (100.1, 100.2):
        clock.at = at
        blocks.look(wanted=True)
    clock.at = server._last_tick = 100.3
    blocks.look(wanted=True)
    assert [hold.stack for hold in found] == [()]
