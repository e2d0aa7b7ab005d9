"""Looks at the threads of this process, which are made to do known things."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.lines import place_of
from dask_efficiency.accounts.thread_looks import AWAITING, COMPUTING, LOOP, OTHER, TASK, ThreadLook, decode_looks
from dask_efficiency.plugin.worker import native_stacks as native
from dask_efficiency.plugin.worker.thread_looks import ThreadLooks
from tests.plugin.watch import eventually

needs_causes = pytest.mark.skipif(not Path("/proc/self/syscall").exists(), reason="no cause is known without /proc")


def task(key: str, prefix: str = "load", *, is_coro: bool = False) -> Any:
    return SimpleNamespace(
        key=key, prefix=prefix, run_spec=SimpleNamespace(is_coro=is_coro), start_time=time.time() - 100
    )


@contextmanager
def at_work(function: Callable[[threading.Event], object]) -> Iterator[tuple[Any, ThreadLooks, threading.Thread]]:
    """A worker of which one thread runs a task, until the block is left."""
    stop = threading.Event()
    thread = threading.Thread(target=function, args=(stop,), name="Dask-Default-Threads-1", daemon=True)
    thread.start()
    tasks = {"load-1": task("load-1")}
    state = SimpleNamespace(tasks=tasks, executing=set(), in_flight_workers={"tcp://1": {"x", "y"}})
    worker: Any = SimpleNamespace(active_threads={thread.ident: "load-1"}, state=state)
    threads: Any = SimpleNamespace(live={thread.ident: (time.monotonic_ns() - 4_000_000_000, 0, "load-1")})
    looks: list[ThreadLooks] = []
    loop = threading.Thread(target=lambda: (looks.append(ThreadLooks(worker, threads)), stop.wait()), daemon=True)
    loop.start()
    eventually(lambda: looks)
    try:
        yield worker, looks[0], thread
    finally:
        stop.set()
        thread.join()


def seen(looks: ThreadLooks, **asked: Any) -> dict[str, ThreadLook]:
    """Looks by name of the thread, once a task's is there with a stack."""
    found, _ = decode_looks(looks.look(asked))
    return {look.name or look.key: look for look in found}


def sleep_on(stop: threading.Event) -> None:
    while not stop.is_set():
        time.sleep(0.5)


def compute_on(stop: threading.Event) -> None:
    while not stop.is_set():
        sum(range(1000))


def wait_on(stop: threading.Event) -> None:
    stop.wait()


@needs_causes
@pytest.mark.parametrize(("function", "cause"), [(sleep_on, "sleep"), (compute_on, COMPUTING), (wait_on, "lock")])
def test_a_task_is_seen_with_its_cause_its_time_and_its_stack(function: Any, cause: str) -> None:
    with at_work(function) as (_, looks, thread):
        # On a busy machine a thread that computes may wait for a core all through a look.
        eventually(lambda: seen(looks)[thread.name].cause == cause)
        look = seen(looks)[thread.name]
    assert (look.kind, look.prefix, look.key) == (TASK, "load", "load-1")
    assert look.ns >= 4_000_000_000
    assert function.__name__ in [frame.function for frame in look.stack]


def test_the_event_loop_and_other_threads_are_told_apart_and_the_look_itself_is_left_out() -> None:
    with at_work(wait_on) as (_, looks, _):
        found, _ = decode_looks(looks.look({}))
    kinds = {look.ident: look.kind for look in found}
    assert [*kinds.values()].count(LOOP) == 1
    assert [*kinds.values()].count(TASK) == 1
    assert OTHER in kinds.values() or threading.current_thread().ident not in kinds
    assert threading.get_ident() not in kinds


def test_a_coroutine_is_a_task_without_a_thread_of_its_own() -> None:
    with at_work(wait_on) as (worker, looks, _):
        worker.state.tasks["fetch-1"] = task("fetch-1", "fetch", is_coro=True)
        worker.state.executing = [worker.state.tasks["fetch-1"]]
        look = seen(looks)["fetch-1"]
    assert (look.kind, look.prefix, look.cause, look.stack) == (TASK, "fetch", AWAITING, ())
    assert look.ns >= 99_000_000_000


def test_it_is_told_from_whom_inputs_are_being_fetched() -> None:
    with at_work(wait_on) as (_, looks, _):
        assert looks.look({})["fetching"] == {"tcp://1": 2}


def test_only_tasks_of_a_prefix_are_seen_if_one_is_asked_for() -> None:
    with at_work(wait_on) as (_, looks, thread):
        assert [*seen(looks, prefix="load")] == [thread.name]
        assert seen(looks, prefix="other") == {}


def test_the_source_of_the_users_line_is_told_only_where_it_may_be() -> None:
    with at_work(wait_on) as (_, looks, _):
        _, code = decode_looks(looks.look({"source": True}))
        assert "stop.wait()" in code.values()
        assert {place_of(frame).partition(":")[0] for frame in code} == {Path(__file__).name}
        assert decode_looks(looks.look({"source": False}))[1] == {}


@pytest.mark.parametrize("asked", [{"prefix": 1}, {"source": "yes"}, {"native": 1}, {"anything": ""}])
def test_an_odd_question_is_refused(asked: dict[str, Any]) -> None:
    with at_work(wait_on) as (_, looks, _), pytest.raises(RefusedPayload):
        looks.look(asked)


# -- native frames -------------------------------------------------------------------------------


def program(folder: Path, script: str) -> None:
    """Put a program in the place of py-spy, first on the path."""
    file = folder / "py-spy"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(native.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_native_frames_take_the_place_of_a_threads_stack(on_path: Path) -> None:
    with at_work(wait_on) as (_, looks, thread):
        frames = (
            '[{"name": "futex_wait", "filename": "futex.c", "module": "libc.so", "line": 0},'
            ' {"name": "wait_on", "filename": "job.py", "module": null, "line": 3}]'
        )
        program(on_path, f'echo \'[{{"os_thread_id": {thread.native_id}, "frames": {frames}}}]\'')
        look = seen(looks, native=True)[thread.name]
    assert look.is_native
    assert [(frame.function, frame.file, frame.line) for frame in look.stack] == [
        ("wait_on", "job.py", 3),
        ("futex_wait", "futex.c", 0),
    ]


REFUSED_ONCE = 'if test -e {0}/tried; then echo "[]"; else touch {0}/tried; exit 1; fi'


@pytest.mark.parametrize(
    ("scope", "loaded", "calls", "missing"),
    [
        ("1", "", 2, ""),
        ("1", "mpi4py", 0, "py-spy may not look at its parent, and mpi4py may have let others look"),
        ("0", "", 0, "py-spy failed: exit code 1"),
    ],
)
def test_py_spy_is_let_look_only_where_it_was_refused_and_no_library_lets_others(
    on_path: Path, monkeypatch: pytest.MonkeyPatch, scope: str, loaded: str, calls: int, missing: str
) -> None:
    let: list[int] = []
    (on_path / "scope").write_text(f"{scope}\n")
    monkeypatch.setattr(native, "_SCOPE", str(on_path / "scope"))
    monkeypatch.setattr(native, "_LET_OTHERS", (loaded,))
    monkeypatch.setattr(native, "_let_look", let.append)
    if loaded:
        monkeypatch.setitem(native.sys.modules, loaded, native)
    program(on_path, REFUSED_ONCE.format(on_path))
    assert native.native_stacks() == ({}, missing)
    assert len(let) == calls
    assert let[1:] == [0][:calls]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (None, "py-spy is not installed"),
        ("echo 'Permission Denied: try sudo' >&2; exit 1", "py-spy failed: Permission Denied: try sudo"),
        ("exit 3", "py-spy failed: exit code 3"),
        ("echo no json", "py-spy failed: JSONDecodeError"),
        ("echo '[{}]'", "py-spy failed: KeyError"),
    ],
)
def test_it_is_said_why_there_are_no_native_frames(on_path: Path, script: str | None, said: str) -> None:
    if script is None:
        (on_path / "py-spy").unlink(missing_ok=True)
    else:
        program(on_path, script)
    with at_work(wait_on) as (_, looks, _):
        answer = looks.look({"native": True})
        assert answer["not_native"].startswith(said)
        assert not any(look.is_native for look in decode_looks(answer)[0])
