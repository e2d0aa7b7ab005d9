from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from distributed.threadpoolexecutor import ThreadPoolExecutor as DaskPool

from dask_efficiency.accounts.lines import MAX_DEPTH, Frame, Holdup
from dask_efficiency.plugin import stacks
from dask_efficiency.plugin.stacks import MAX_KNOWN, LoopBlocks, Stacks, frames_of_others
from tests.plugin.watch import eventually


def own_line():
    return sys._getframe(1).f_lineno


def test_a_tasks_stack_is_without_its_callers_and_waits_on_its_behalf():
    event, lines = threading.Event(), []

    def task():
        lines.append(own_line() + 1)
        event.wait(60)

    pool = DaskPool(1)
    future = pool.submit(task)
    try:
        (ident,) = [thread.ident for thread in pool._threads]
        eventually(lambda: lines and len(Stacks().task(sys._current_frames()[ident])) == 1)
        (frame,) = Stacks().task(sys._current_frames()[ident])
    finally:
        event.set()
        future.result()
        pool.shutdown()
    assert frame.function.endswith("task")
    assert os.path.basename(frame.file) == "test_stacks.py"
    assert frame.line == lines[0]


def test_a_thread_that_runs_no_task_is_at_the_line_of_its_pool():
    pool = ThreadPoolExecutor(1)
    pool.submit(int).result()
    (thread,) = pool._threads
    stack = Stacks().task(sys._current_frames()[thread.ident])
    pool.shutdown()
    assert [os.path.basename(os.path.dirname(frame.file)) for frame in stack] == ["concurrent"] or len(stack) == 1


def test_a_deep_stack_is_cut_at_its_outer_end():
    def deep(n):
        return deep(n - 1) if n else Stacks().task(sys._getframe())

    stack = deep(200)
    assert len(stack) == MAX_DEPTH
    assert stack[-1].function.endswith("deep")


def test_a_loops_stack_begins_at_the_function_that_it_called():
    async def main():
        return Stacks().loop(sys._getframe())

    assert [frame.function.rpartition(".")[2] for frame in asyncio.run(main())] == ["main"]


def test_no_frame_is_no_stack():
    assert Stacks().task(None) == Stacks().loop(None) == ()


def test_the_cache_of_lines_is_bounded():
    stacks = Stacks()
    for i in range(MAX_KNOWN + 10):
        if i < 20 or i > MAX_KNOWN - 10:
            code = compile("stack = stacks.task(frame())", f"file-{i}", "exec")
            exec(code, {"stacks": stacks, "frame": sys._getframe})
        else:
            stacks._known[(i, 0)] = stacks._known[next(iter(stacks._known))]
    assert len(stacks._known) <= MAX_KNOWN


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="making an object of a frame collects no garbage")
@pytest.mark.parametrize("enabled", [True, False])
def test_no_garbage_is_collected_while_frames_of_other_threads_become_objects(monkeypatch, enabled):
    collects = []

    def noting(function):
        return lambda *given: collects.append(gc.isenabled()) or function(*given)

    monkeypatch.setattr(sys, "_current_frames", noting(sys._current_frames))
    monkeypatch.setattr(stacks, "Frame", noting(stacks.Frame))
    if not enabled:
        gc.disable()
    try:
        assert threading.get_ident() not in frames_of_others()
        assert Stacks().loop(sys._getframe())
        assert set(collects) == {False}
        assert len(collects) > 1
        assert gc.isenabled() == enabled
    finally:
        gc.enable()


@pytest.fixture
def clock(monkeypatch):
    now = SimpleNamespace(at=100.0)
    monkeypatch.setattr(stacks, "time", lambda: now.at)
    return now


class Loop:
    """A worker whose event loop is looked at, and the blocks that are found."""

    def __init__(self, clock, *functions):
        self.clock, self.functions = clock, iter(functions)
        self.server = SimpleNamespace(_last_tick=100.0, periodic_callbacks={"tick": SimpleNamespace(callback_time=20)})
        self.found = []
        self._blocks = LoopBlocks(self.server, self._stack, self.found.append)

    def _stack(self):
        function = next(self.functions, None)
        return None if function is None else (Frame(function, "x.py", 1),)

    def look(self, *instants, ticks=False):
        for at in instants:
            self.clock.at = at
            if ticks:
                self.server._last_tick = at
            self._blocks.look(wanted=True)


@pytest.mark.parametrize(
    ("at_work", "looks", "tick", "ns", "stack"),
    [
        ("abbc", (100.1, 100.2, 100.3), 100.4, 380_000_000, (Frame("b", "x.py", 1),)),
        ("", (100.1, 100.2), 100.3, 280_000_000, ()),
        ("", (100.09,), 100.1, 0, ()),
    ],
    ids=["has the most frequent stack", "without work of the loop's own has no stack", "is not there: a little late"],
)
def test_a_block_of_the_loop_lasts_until_the_missing_tick_and(clock, at_work, looks, tick, ns, stack):
    loop = Loop(clock, *at_work)
    loop.look(*looks)
    assert not loop.found
    loop.look(tick, tick, ticks=True)
    assert loop.found == ([Holdup(pytest.approx(ns), "(event loop)", stack)] if ns else [])


def test_nothing_breaks_where_upstream_has_no_such_tick(clock):
    clock.at = 200.0
    LoopBlocks(SimpleNamespace(), tuple, print).look(wanted=True)
