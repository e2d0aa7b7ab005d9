from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import FunctionType

import pytest
from distributed import shuffle
from distributed.threadpoolexecutor import ThreadPoolExecutor as DaskPool
from hypothesis import given, reject

from dask_efficiency.accounts.details import WindowDetails, decode_details, encode_details
from dask_efficiency.accounts.lines import MAX_DEPTH, SampleRow, blamed, has_nothing_to_do, place_of
from dask_efficiency.accounts.rows import MAX_CACHED as MAX_KNOWN
from dask_efficiency.plugin import stacks
from dask_efficiency.plugin.stacks import MAX_WALKED, Stacks, frames_of_others
from tests.payloads import through_msgpack
from tests.plugin.watch import eventually
from tests.strategies import odd_texts


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
        eventually(lambda: lines and len(Stacks().task(sys._current_frames()[ident])) == 2)
        frame, called = Stacks().task(sys._current_frames()[ident])
    finally:
        event.set()
        future.result()
        pool.shutdown()
    assert called.function == "Event.wait"  # and nothing of what it does
    assert blamed((frame, called)) == frame._replace(function="Event.wait")
    assert frame.function.endswith("task")
    assert os.path.basename(frame.file) == "test_stacks.py"
    assert frame.line == lines[0]


def test_an_event_loop_that_runs_a_process_is_at_work_though_it_waits_by_a_selector():
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def looks():
        frame, found = frames_of_others()[thread.ident], Stacks()
        return found.loop(frame, MAX_WALKED), found.whole(frame)

    def waits_for_the_process(stack):
        return "Popen._communicate" in [frame.function for frame in stack] and stack[-1].file.endswith("selectors.py")

    eventually(lambda: all(map(has_nothing_to_do, looks())))
    with subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        loop.call_soon_threadsafe(process.communicate)
        try:
            eventually(lambda: all(map(waits_for_the_process, looks())))
            assert not any(map(has_nothing_to_do, looks()))
        finally:
            process.kill()
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
    loop.close()


def test_a_thread_that_runs_no_task_is_at_the_line_of_its_pool():
    pool = ThreadPoolExecutor(1)
    pool.submit(int).result()
    (thread,) = pool._threads
    stack = Stacks().task(sys._current_frames()[thread.ident])
    pool.shutdown()
    assert [os.path.basename(os.path.dirname(frame.file)) for frame in stack] == ["concurrent"] or len(stack) == 1


def test_a_task_that_is_dasks_own_is_named_by_its_function():
    event = threading.Event()
    names = {"event": event}
    code = "def wait():\n    event.wait(60)\ndef rechunk_transfer():\n    wait()"
    exec(compile(code, os.path.join(os.path.dirname(shuffle.__file__), "_rechunk.py"), "exec"), names)
    pool = DaskPool(1)
    future = pool.submit(names["rechunk_transfer"])
    try:
        (ident,) = [thread.ident for thread in pool._threads]
        eventually(lambda: Stacks().task(sys._current_frames()[ident])[-1].function == "rechunk_transfer")
    finally:
        event.set()
        future.result()
        pool.shutdown()


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
    (gc.enable if enabled else gc.disable)()
    try:
        assert threading.get_ident() not in frames_of_others()
        assert Stacks().loop(sys._getframe())
        assert set(collects) == {False}
        assert len(collects) > 1
        assert gc.isenabled() == enabled
    finally:
        gc.enable()


@given(odd_texts, odd_texts)
def test_code_in_a_file_of_any_name_is_in_a_profile_that_travels(file: str, function: str) -> None:
    made = eval(compile("lambda look: look()", "made", "eval"))
    try:
        code = made.__code__.replace(co_filename=file, co_qualname=function)
    except ValueError:  # no name of code
        reject()
    (*_, frame) = FunctionType(code, {})(lambda: Stacks().task(sys._getframe(1)))
    window = WindowDetails(profile={SampleRow("thread-cpu", "", "inc", (frame,)): 1})
    found = decode_details(through_msgpack(encode_details(window, limit=9)))
    assert found == window
    assert place_of(frame) or not file
    blamed((frame,))


def test_a_function_of_a_module_that_travelled_by_value_has_the_modules_file() -> None:
    def frame_in(**known):
        names = dict(known)
        exec(compile("import sys\ndef f():\n    return sys._getframe()", "<dynamic-code>", "exec"), names)
        return names["f"]()

    def file(**known):
        return Stacks().task(frame_in(**known))[-1].file

    assert file(__name__="dask.dataframe", __file__="/lib/python3.12/site-packages/dask/dataframe.py").endswith(
        "dataframe.py"
    )
    assert file(__name__="__main__", __file__="/home/me/etl.py") == "<dynamic-code>"
    assert file(__name__="etl") == "<dynamic-code>"


@pytest.mark.parametrize(("way", "interprets"), [("loop", True), ("sort", False), ("sleep", False)])
def test_a_thread_is_known_to_execute_python_and_not_c(way: str, interprets: bool) -> None:
    """Looked at as this thread has taken the GIL from it. Mostly there: a loop around the call has its own turns."""
    over = threading.Event()
    numbers = [str(n) for n in range(300_000)]

    def works() -> None:
        while not over.is_set():
            if way == "sort":
                sorted(numbers)
            elif way == "sleep":
                over.wait(0.01)
            else:
                total = 0
                for n in range(100_000):
                    total += n * n % 7

    thread = threading.Thread(target=works)
    thread.start()
    found, looks = Stacks(), []
    try:
        while len(looks) < 40:
            over.wait(0.006)
            looks.append(found.interprets(frames_of_others().get(thread.ident)))
    finally:
        over.set()
        thread.join()
    assert (sum(looks) > 20) == interprets
    assert not found.interprets(None)
