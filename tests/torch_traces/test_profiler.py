import gzip
import json
import signal
import subprocess
import sys
import textwrap
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest

from dask_efficiency.gpu.profilers import PROFILERS, NotProfiled
from dask_efficiency.torch_traces import profiler as torch_profile
from dask_efficiency.torch_traces.profiler import TorchProfile

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.needs("torch")

FUNCTIONS = ("_prepare_profiler", "_enable_profiler", "_disable_profiler")


def functions() -> list[Any]:
    return [getattr(torch.autograd.profiler, name) for name in FUNCTIONS]


@pytest.fixture(autouse=True)
def held() -> Iterator[None]:
    before = functions()
    PROFILERS.hold()
    yield
    PROFILERS.release()
    assert functions() == before


def add() -> None:
    torch.ones(3).add_(1)


def profiled(work: Callable[[], object]) -> bytes:
    profile = TorchProfile()
    work()
    profile.stop()
    return profile.export()


def operators(content: bytes) -> list[dict[str, Any]]:
    events = json.loads(gzip.decompress(content))["traceEvents"]
    return [event for event in events if event.get("cat") == "cpu_op"]


def users(**kwargs: Any) -> Any:
    return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], **kwargs)


def names(profile: Any) -> set[str]:
    return {event.name for event in profile.events()}


def test_a_profile_has_the_operators_of_its_thread_on_the_wall_clock():
    other = threading.Thread(target=lambda: torch.ones(5).mul_(2))

    def work() -> None:
        other.start()
        add()
        other.join()

    profile = TorchProfile()
    work()
    profile.stop()
    content = profile.export()
    found = operators(content)
    assert {event["name"] for event in found} >= {"aten::ones", "aten::add_"}
    assert "aten::mul_" not in {event["name"] for event in found}
    assert {event["tid"] for event in found} == {threading.get_native_id()}
    base = json.loads(gzip.decompress(content))["baseTimeNanoseconds"]
    starts = [base + round(event["ts"] * 1000) for event in found]
    assert profile.stopped is not None
    lasted = profile.stopped - profile.start
    assert profile.started - 100_000 <= min(starts) <= max(starts) <= profile.started + lasted + 100_000


def test_one_profile_is_made_at_a_time_and_then_the_next():
    profile = TorchProfile()
    with pytest.raises(NotProfiled, match="another task was being profiled"):
        TorchProfile()
    profile.stop()
    profile.stop()
    assert operators(profiled(add))


@pytest.mark.parametrize("warms_up", [False, True])
def test_a_users_profiler_that_is_at_work_is_left_alone(warms_up: bool):
    profiled(add)  # what torch calls is watched from the first profile on
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=1) if warms_up else None
    with users(schedule=schedule) as theirs:
        with pytest.raises(NotProfiled, match="of the user's own was at work"):
            TorchProfile()
        theirs.step() if warms_up else None
        add()
    assert "aten::add_" in names(theirs)
    assert operators(profiled(add))


def test_a_users_profiler_in_the_same_thread_ends_ours_before():
    profile = TorchProfile()
    add()
    with users() as theirs:
        torch.ones(3).mul_(2)
        profile.stop()  # their task ends with theirs still going on: theirs is not stopped
        torch.ones(3).div_(2)
    assert names(theirs) >= {"aten::mul_", "aten::div_"}
    ours = {event["name"] for event in operators(profile.export())}
    assert "aten::add_" in ours
    assert not ours & {"aten::mul_", "aten::div_"}


def test_the_end_of_a_users_profiler_is_noticed_though_no_more_profiles_are_wanted():
    before = functions()
    profile = TorchProfile()
    PROFILERS.release()  # the last one that was asked for is at work
    try:
        with users() as theirs:
            profile.stop()
            add()
        assert "aten::add_" in names(theirs)
        assert functions() == before
    finally:
        PROFILERS.hold()
    assert operators(profiled(add))


def test_torchs_functions_are_only_replaced_while_a_profile_is_wanted():
    PROFILERS.hold()
    before = functions()
    profile = TorchProfile()
    assert all(now is not then for now, then in zip(functions(), before, strict=True))
    PROFILERS.release()
    PROFILERS.release()
    try:
        assert all(now is not then for now, then in zip(functions(), before, strict=True)), "a profile is at work"
        profile.stop()
        assert functions() == before
    finally:
        PROFILERS.hold()


def test_a_later_replacement_of_torchs_function_stays():
    module = torch.autograd.profiler
    original = module._prepare_profiler
    profiled(add)
    ours = module._prepare_profiler
    theirs = module._prepare_profiler = lambda *args, **kwargs: ours(*args, **kwargs)
    try:
        PROFILERS.release()
        assert module._prepare_profiler is theirs
        with users() as profile:
            add()
        assert "aten::add_" in names(profile)
        PROFILERS.hold()
        assert operators(profiled(add))
        PROFILERS.release()
        assert module._prepare_profiler is theirs
    finally:
        PROFILERS.hold()
        module._prepare_profiler = original


@pytest.mark.parametrize("half_imported", [False, True])
def test_torch_is_not_imported_for_a_profile(monkeypatch: pytest.MonkeyPatch, half_imported: bool):
    monkeypatch.delitem(sys.modules, "torch.autograd.profiler")
    if half_imported:  # by another thread
        half = ModuleType("torch")
        half.__spec__ = ModuleSpec("torch", None)
        half.__spec__._initializing = True  # type: ignore[attr-defined]  # as importlib sets it
        monkeypatch.setitem(sys.modules, "torch", half)
        monkeypatch.setitem(sys.modules, "torch.autograd.profiler", ModuleType("torch.autograd.profiler"))
    with pytest.raises(NotProfiled, match="torch was not imported yet"):
        TorchProfile()
    assert half_imported or "torch.autograd.profiler" not in sys.modules


def test_only_the_beginning_of_a_profile_waits_while_none_may_begin():
    ended = threading.Event()

    def hold_and_release() -> None:
        PROFILERS.hold()
        PROFILERS.release()
        ended.set()

    begun: list[bytes] = []
    another = threading.Thread(target=hold_and_release, daemon=True)
    begins = threading.Thread(target=lambda: begun.append(profiled(add)))
    with PROFILERS.resting() as resting:
        assert resting
        begins.start()
        another.start()
        assert ended.wait(10)
        assert not begun
    begins.join()
    assert operators(begun[0])


def test_a_profile_that_does_not_fit_on_the_disk_is_refused(monkeypatch: pytest.MonkeyPatch):
    def export(self: Any, path: str) -> None:
        with open(path, "w") as file:
            file.write('{"traceEvents": [{"name": "aten::a')

    monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace", export)
    with pytest.raises(NotProfiled, match="could not be written whole"):
        profiled(add)


def test_compressing_a_profile_takes_little_memory(tmp_path: Any):
    (tmp_path / "profile.json").write_bytes(b"{" + b" " * (40 << 20) + b"}\n")
    tracemalloc.start()
    try:
        content = torch_profile._compressed(str(tmp_path / "profile.json"))
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert len(gzip.decompress(content)) == (40 << 20) + 3


def test_a_start_that_fails_leaves_room_for_the_next(monkeypatch: pytest.MonkeyPatch):
    with monkeypatch.context() as context:
        context.setattr(torch.profiler, "profile", lambda **kwargs: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            TorchProfile()
    assert operators(profiled(add))


@pytest.mark.parametrize(("limit", "of"), [("MAX_JSON_BYTES", "of JSON"), ("MAX_PROFILE_BYTES", "compressed")])
def test_a_profile_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch, limit: str, of: str):
    monkeypatch.setattr(torch_profile, limit, 100)
    with pytest.raises(NotProfiled, match=f"larger than 0 MiB.*{of}"):
        profiled(add)


def in_a_process_of_its_own(program: str) -> "subprocess.CompletedProcess[str]":
    beginning = """
        import threading, time, torch
        from dask_efficiency.gpu import profilers
        from dask_efficiency.gpu.profilers import PROFILERS, NotProfiled
        from dask_efficiency.torch_traces.profiler import TorchProfile

        def users():
            return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])

        def work():
            for _ in range(50):
                torch.ones(3).add_(1)

        def together(*functions):
            threads = [threading.Thread(target=function) for function in functions]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
    """
    text = textwrap.dedent(beginning) + textwrap.dedent(program)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=200)


def test_two_profiles_in_two_threads_crash_a_process():
    done = in_a_process_of_its_own(
        """
        began, ended = threading.Event(), threading.Event()

        def first():
            profile = users()
            profile.start()
            began.set()
            ended.wait()
            profile.stop()

        def second():
            began.wait()
            with users():
                work()
            ended.set()

        together(first, second)
        """
    )
    assert done.returncode == -signal.SIGSEGV, "torch has changed: is there still a reason for the lock?"


def test_neither_many_threads_nor_a_users_profiler_in_another_one_crash_a_process():
    done = in_a_process_of_its_own(
        """
        PROFILERS.hold()
        kept = []

        def task():
            for _ in range(7):
                while True:
                    try:
                        profile = TorchProfile()
                        break
                    except NotProfiled:
                        time.sleep(0.001)
                work()
                profile.stop()
                kept.append(len(profile.export()))

        together(task, task, task)
        assert len(kept) == 21

        # The user's waits for ours in another thread.
        began, counts = threading.Event(), []

        def first():
            profile = TorchProfile()
            began.set()
            work()
            profile.stop()
            counts.append(len(profile.export()))

        def second():
            began.wait()
            with users() as profile:
                work()
            counts.append(len(profile.events()))

        together(first, second)
        assert min(counts) > 100, counts

        # It waits no longer than this, and ours is lost then.
        profilers.MAX_WAIT_SECONDS = 0.2
        began, ended = threading.Event(), threading.Event()

        def long():
            profile = TorchProfile()
            began.set()
            ended.wait()
            work()
            profile.stop()
            try:
                profile.export()
            except NotProfiled as why:
                print(why)
            work()

        def impatient():
            began.wait()
            with users() as profile:
                work()
            assert len(profile.events()) > 100
            ended.set()

        together(long, impatient)
        with users() as profile:
            work()
        assert len(profile.events()) > 100
        try:
            TorchProfile()
        except NotProfiled as why:
            print(why)
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("could not wait") == 2
