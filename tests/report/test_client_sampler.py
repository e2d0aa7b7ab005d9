"""What a client does, by stacks and by real threads."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import dask
import distributed
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.lines import MAX_ROWS, Frame, Stack, blamed, place_of
from dask_efficiency.plugin.stacks import folder_of
from dask_efficiency.report import client_sampler
from dask_efficiency.report.client_sampler import ClientSampler, ClientWindow, Threads, activity_of
from dask_efficiency.report.values import DASK_ACTIVITIES, OWN_ACTIVITIES, ClientRow
from tests.plugin.watch import eventually
from tests.plugin.worker.threads_in_states import needs_threads
from tests.strategies import SECOND

DASK, DISTRIBUTED = folder_of(dask), folder_of(distributed)
LIBRARY = "/opt/lib/python3.12/site-packages/xarray/backends/api.py"
USER = Frame("load", "/home/me/load.py", 12)
WAITS = Frame("Condition.wait", "/opt/lib/python3.12/threading.py", 320)
COMPUTE = Frame("DaskMethodsMixin.compute", f"{DASK}base.py", 370)
GET = Frame("Client.get", f"{DISTRIBUTED}client.py", 3500)
HASH = Frame("tokenize", f"{DASK}tokenize.py", 70)
OPTIMIZE = Frame("Expr.optimize", f"{DASK}_expr.py", 440)
LOWER = Frame("Expr.lower_once", f"{DASK}_expr.py", 500)
MAP = Frame("map_partitions", f"{DASK}dataframe/core.py", 40)
SYNC = Frame("sync", f"{DISTRIBUTED}utils.py", 400)
#: As it is seen of any call that waits for the client's event loop.
IN_SYNC = SYNC, Frame("sync.<locals>.wait", f"{DISTRIBUTED}utils.py", 430), WAITS


@pytest.mark.parametrize(
    ("inner", "waits", "expected", "length"),
    [
        ((), False, "", 1),
        ((Frame("read_csv", "/opt/lib/python3.12/site-packages/pandas/io.py", 5),), False, "", 2),
        # what a library of the user's calls is Dask's
        ((Frame("open_mfdataset", LIBRARY, 1600), COMPUTE, GET, SYNC, WAITS), True, "wait", 6),
        ((Frame("Client.run", f"{DISTRIBUTED}client.py", 3000), SYNC, WAITS), True, "call", 4),
        ((Frame("Client.scatter", f"{DISTRIBUTED}client.py", 2700), SYNC, WAITS), True, "send", 4),
        ((Frame("Client.restart", f"{DISTRIBUTED}client.py", 3900), *IN_SYNC), True, "call", 5),
        ((Frame("Client.scatter", f"{DISTRIBUTED}client.py", 2700), *IN_SYNC), True, "send", 5),
        ((Frame("Client.gather", f"{DISTRIBUTED}client.py", 2500), *IN_SYNC), True, "wait", 5),
        ((Frame("wait", f"{DISTRIBUTED}client.py", 5500), *IN_SYNC), True, "wait", 5),
        ((Frame("as_completed.__next__", f"{DISTRIBUTED}client.py", 5700), WAITS), True, "wait", 3),
        ((Frame("Delayed.__call__", f"{DASK}delayed.py", 700),), False, "build", 2),
        # the outermost function that tells counts
        ((Frame("from_array", f"{DASK}array/core.py", 3500), HASH), False, "hash", 3),
        ((COMPUTE, OPTIMIZE, HASH), False, "optimize", 4),
        # what Dask does by recursion stands once
        ((COMPUTE, OPTIMIZE, *20 * (LOWER, MAP), HASH), False, "optimize", 6),
        ((COMPUTE, GET, Frame("serialize", f"{DISTRIBUTED}protocol/serialize.py", 260)), False, "pickle", 4),
        ((COMPUTE, Frame("get_async", f"{DASK}local.py", 400), WAITS), True, "local", 4),
        # thousands of futures that go as a function returns, also while a graph is built
        ((Frame("Future.__del__", f"{DISTRIBUTED}client.py", 624), WAITS), False, "release", 3),
        ((MAP, Frame("Future.__del__", f"{DISTRIBUTED}client.py", 624)), False, "release", 3),
        # a function of the user's that Dask calls to learn what it makes
        ((MAP, Frame("clean", "/home/me/load.py", 3)), False, "build", 3),
    ],
)  # fmt: skip
def test_an_activity_is_that_of_the_outermost_call_of_dask_which_tells_it(
    inner: Stack, waits: bool, expected: str, length: int
) -> None:
    activity, stack = activity_of((Frame("<module>", "/opt/bin/job", 1), USER, *inner), waits=waits)
    assert (activity, len(stack)) == (expected, length + 1)
    assert not activity or activity in DASK_ACTIVITIES


def test_the_blamed_line_is_the_users_and_its_call_the_librarys() -> None:
    _, stack = activity_of((USER, Frame("open_mfdataset", LIBRARY, 1600), COMPUTE, GET, SYNC, WAITS), waits=True)
    assert blamed(stack) == USER._replace(function="open_mfdataset")


def test_of_a_function_that_dask_calls_the_line_that_called_dask_is_kept() -> None:
    inside = [Frame(f"step{n}", "/home/me/model.py", n) for n in range(12)]
    activity, stack = activity_of((USER, MAP, Frame("emulate", f"{DASK}dataframe/core.py", 9), *inside), waits=False)
    assert (activity, stack[:2], stack[-1]) == ("build", (USER, MAP), inside[-1])


def window_at(began: int) -> ClientWindow:
    window = ClientWindow(SimpleNamespace(futures={}), threading.get_ident())
    window._began = began
    return window


@given(
    st.lists(st.tuples(st.sampled_from(["wait", "compute"]), st.integers(0, 9)), min_size=1),
    st.lists(st.integers(-5, 60), unique=True, max_size=8).map(sorted),
    st.integers(0, 60),
    st.integers(1, 8),
)
def test_samples_tile_the_window_and_are_divided_by_the_work_on_the_cluster(
    samples: list[tuple[str, int]], edges: list[int], stopped: int, most: int
) -> None:
    busy = list(zip(edges[::2], edges[1::2], strict=False))
    window, at, expected = window_at(0), 0, [0, 0]
    found = []
    for activity, later in samples:
        at += later
        window.add(activity, (USER,), at)
        found.append((activity, at))
    rows = {row.activity: row for row in window.rows(stopped, busy)}
    # The last sample stands for all until the end; each instant is in the first sample after it.
    found[-1] = found[-1][0], max(stopped, found[-1][1])
    for instant in range(stopped):
        activity = next(name for name, end in found if instant < end)
        row = rows[activity]
        expected[0] += 1
        expected[1] += not any(a <= instant < b for a, b in busy)
        assert row.ns >= row.idle_ns >= 0
    assert [sum(row.ns for row in rows.values()), sum(row.idle_ns for row in rows.values())] == expected


def test_beyond_the_bounds_samples_stand_for_more_and_stacks_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_sampler, "MAX_SAMPLES", 4)
    window = window_at(0)
    for at in range(1, 101):
        window.add("wait", (USER,), at)
    assert len(window._ends) <= 4
    (row,) = window.rows(100, [(0, 50)])
    assert row == ClientRow("wait", (USER,), 100, 50, 0)
    for line in range(MAX_ROWS + 9):
        window.add("wait", (USER._replace(line=line),), 101 + line)
    assert len(window._known) == MAX_ROWS + 1


class OneThread(Threads):
    """A thread at a stack; it, and the client's event loop, computed for so many nanoseconds since the last look."""

    def __init__(self, stack: Stack, own: int = 0, loop: int = 0, servant: Stack = ()) -> None:
        self._at, self._servant = stack, servant
        self._ns = {1: own, threading.get_ident(): loop}

    def stack(self, ident: int) -> Stack:
        return self._at if ident == 1 else self._servant

    def state(self, ident: int) -> str:
        return "running"

    def computed(self, *idents: int) -> int:
        return sum(self._ns[ident] for ident in idents)

    def servants(self, loop: int) -> list[int]:
        return [loop]


GATHERS = (USER, COMPUTE, GET, SYNC, WAITS)
LOADS = (Frame("read", f"{DISTRIBUTED}comm/tcp.py", 200), Frame("loads", f"{DISTRIBUTED}protocol/pickle.py", 90))
OF_SCHEDULER = (Frame("Scheduler.update_graph", f"{DISTRIBUTED}scheduler.py", 4000), *LOADS)


@pytest.mark.parametrize(
    ("thread", "pending", "late", "expected", "held"),
    [
        (OneThread(GATHERS), True, 0, "wait", 0),
        (OneThread(GATHERS), False, 0, "receive", 0),
        (OneThread(GATHERS, servant=LOADS), True, 0, "unpickle", 0),
        # the loop of a LocalCluster's scheduler is the client's
        (OneThread(GATHERS, servant=OF_SCHEDULER), True, 0, "wait", 0),
        # somebody kept the GIL for long, and does something else by now
        (OneThread(GATHERS, loop=2 * SECOND), False, 2 * SECOND, "unpickle", 0),
        (OneThread(GATHERS, own=2 * SECOND), True, 2 * SECOND, "compute", 2 * SECOND),
        (OneThread((USER,), own=2 * SECOND), True, 2 * SECOND, "compute", 2 * SECOND),
        (OneThread((USER,), own=SECOND // 2), True, 2 * SECOND, "compute", 0),
        (OneThread((USER,), own=SECOND // 20), True, SECOND // 20, "compute", 0),
    ],
)
def test_a_wait_is_what_others_do_for_it_and_a_long_hold_of_the_gil_is_its_holders(
    thread: OneThread, pending: bool, late: int, expected: str, held: int
) -> None:
    futures = {1: SimpleNamespace(status="pending")} if pending else {}
    window = ClientWindow(SimpleNamespace(futures=futures), 1)
    window._began = 0
    window.look(thread, 3 * SECOND, late)
    (row,) = window.rows(3 * SECOND, [])
    assert (row.activity, row.ns, row.held_ns) == (expected, 3 * SECOND, held)
    place = blamed(row.stack)
    assert place[1:] == USER[1:]
    if expected == "compute" and thread.stack(1) is GATHERS:  # it was at another line
        assert place.function == "(just before)"


def is_at(look: Callable[[], tuple[str, Stack]], expected: str) -> bool:
    return look()[0] == expected


@contextmanager
def looking_at(do: Callable[[], object], client: Any = None) -> Iterator[Callable[[], tuple[str, Stack]]]:
    """A function that says what a thread does now."""
    thread = threading.Thread(target=do, daemon=True)
    thread.start()
    with ExitStack() as opened:
        threads = Threads(opened)
        window = ClientWindow(client or SimpleNamespace(futures={}), thread.ident or 0)

        def look() -> tuple[str, Stack]:
            threads.look()
            try:
                return window._thread_now(threads, thread.ident or 0)
            finally:
                threads.forget()

        yield look


@needs_threads
def test_the_users_own_code_sleeps_and_waits_for_another_thread_and_computes() -> None:
    done = threading.Event()

    def sleeps() -> None:
        while not done.is_set():
            time.sleep(0.5)

    def spin() -> None:
        while not done.is_set():
            pass

    def waits() -> None:
        done.wait()

    for do, expected in ((sleeps, "sleep"), (waits, "lock"), (spin, "compute")):
        with looking_at(do) as look:
            eventually(partial(is_at, look, expected))
            activity, stack = look()
            assert activity in OWN_ACTIVITIES
            assert place_of(blamed(stack)).startswith("test_client_sampler.py:")
        if do is waits:
            done.set()
            done = threading.Event()
    done.set()


def test_without_the_kernels_word_own_code_is_not_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_sampler, "why_not", lambda: "not Linux")
    done = threading.Event()
    with looking_at(lambda: [time.sleep(0.5) for _ in iter(done.is_set, True)]) as look:
        eventually(lambda: look()[0] == "own")
    done.set()


def test_an_asyncio_task_that_awaits_is_at_its_own_line() -> None:
    async def load() -> tuple[str, Stack]:
        task = asyncio.ensure_future(sleeps())
        await asyncio.sleep(0)
        with ExitStack() as opened:
            threads = Threads(opened)
            return await asyncio.to_thread(look, threads, task)

    def look(threads: Threads, task: asyncio.Task[Any]) -> tuple[str, Stack]:
        window = ClientWindow(SimpleNamespace(futures={}), loop_ident, task)
        found: tuple[str, Stack] = ("", ())

        def once() -> bool:
            nonlocal found
            threads.look()
            found = window._task_now(threads)
            threads.forget()
            return found[0] == "sleep"

        eventually(once)
        task.cancel()
        return found

    async def sleeps() -> None:
        await asyncio.sleep(60)

    loop_ident = threading.get_ident()
    activity, stack = asyncio.run(load())
    assert activity == "sleep"
    assert blamed(stack).function == "sleep"
    assert place_of(blamed(stack)).startswith("test_client_sampler.py:")


def test_reports_share_one_thread_which_ends_with_the_last_of_them() -> None:
    sampler = ClientSampler()
    first, second = window_at(time.monotonic_ns()), window_at(time.monotonic_ns())
    sampler.open(first)
    thread = sampler._thread
    sampler.open(second)
    assert sampler._thread is thread is not None
    eventually(lambda: first._ends and second._ends)
    sampler.close(first)
    assert thread.is_alive()
    sampler.close(second)
    thread.join(60)
    assert not thread.is_alive()
    # and another one begins again
    third = window_at(time.monotonic_ns())
    sampler.open(third)
    eventually(lambda: third._ends)
    sampler.close(third)
    assert [first.off, second.off, third.off] == [None] * 3


def test_a_failure_ends_the_samples_alone_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    sampler = ClientSampler()
    broken = window_at(0)
    broken.look = None  # type: ignore[assignment, method-assign]
    sampler.open(broken)
    thread = sampler._thread
    assert thread is not None
    thread.join(60)
    sampler.close(broken)
    assert broken.off is not None
    assert broken.off.startswith("the sampler failed: TypeError")
    later = window_at(0)
    sampler.open(later)
    assert later.off == broken.off


def test_a_process_that_was_forked_meanwhile_begins_anew() -> None:
    sampler, window = ClientSampler(), window_at(0)
    sampler.open(window)
    thread = sampler._thread
    with sampler._lock:  # the lock of a look that nobody ends in the child
        sampler.begin()
    assert thread is not None
    thread.join(60)  # in the child there is none
    later = window_at(0)
    sampler.open(later)
    eventually(lambda: later._ends)
    sampler.close(later)


def test_without_a_gil_nothing_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_sampler, "has_gil", lambda: False)
    sampler, window = ClientSampler(), window_at(0)
    sampler.open(window)
    sampler.close(window)
    assert (window.off, sampler._thread) == ("this Python has no GIL", None)
    assert window.rows(9, []) == ()
