import asyncio
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.gpu.meter import TaskId
from dask_efficiency.gpu.profilers import PROFILERS, NotProfiled
from dask_efficiency.runs.trace.run_trace import TaskProfile
from dask_efficiency.torch_traces import worker_profiles as profiles
from dask_efficiency.torch_traces.worker_profiles import TaskProfiles

TASK = TaskId(1, 2)


class Profiled:
    """Stands in for a profile of torch's; what goes wrong is set on the class."""

    fails_to_begin: Exception | None = None
    fails_to_end: Exception | None = None
    fails_to_export: Exception | None = None
    may_export = threading.Event()

    def __init__(self) -> None:
        if self.fails_to_begin is not None:
            raise self.fails_to_begin
        self.start, self.started = 100, 1_000_100
        self.stopped: int | None = None

    def stop(self) -> None:
        if self.fails_to_end is not None:
            raise self.fails_to_end
        self.stopped = 200

    def export(self) -> bytes:
        assert self.may_export.wait(30)
        if self.fails_to_export is not None:
            raise self.fails_to_export
        return b"content"


class Scene:
    """A worker's tasks, and what is put around them."""

    def __init__(self) -> None:
        self.around: Any = None
        self.tasks: dict[str, Any] = {}
        self.profiles = TaskProfiles(self.tasks, self.surround)

    def surround(self, around: Any) -> None:
        self.around = around

    def run(self, key: str, *, ends_as: str = "executing") -> bool:
        """Run a task; whether it was profiled."""
        run_id = len(self.tasks)
        self.tasks[key] = SimpleNamespace(prefix=key.split("-")[0], run_id=run_id, state="executing")
        after = self.around(TASK, key) if self.around is not None else None
        self.tasks[key].state = ends_as
        if after is not None:
            after()
        return after is not None

    def taken(self) -> tuple[list[TaskProfile], dict[str, int]]:
        """Profiles once all are written."""
        asyncio.run(self.profiles.catch_up(30))
        return self.profiles.take()


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(profiles, "TorchProfile", Profiled)
    for name in ("fails_to_begin", "fails_to_end", "fails_to_export"):
        monkeypatch.setattr(Profiled, name, None)
    monkeypatch.setattr(Profiled, "may_export", threading.Event())
    Profiled.may_export.set()
    holders = PROFILERS._holders
    scene = Scene()
    yield scene
    scene.profiles.close()
    assert PROFILERS._holders == holders


def test_the_first_tasks_of_a_prefix_are_profiled_and_no_others(scene):
    assert scene.around is None
    scene.profiles.ask({"": {"train": 2}})
    assert [scene.run(key) for key in ("train-1", "load-1", "train-2", "train-3")] == [True, False, True, False]
    assert scene.around is None
    made, left_out = scene.taken()
    assert made == [TaskProfile(run, threading.get_native_id(), 100, 200, 1_000_100, b"content") for run in (0, 2)]
    assert left_out == {}
    assert scene.taken() == ([], {})


def test_a_profiled_task_counts_for_every_request_and_later_requests_get_more(scene):
    scene.profiles.ask({"": {"train": 1}, "window": {"train": 2, "load": 1}})
    assert scene.run("train-1")
    assert scene.run("train-2")
    assert not scene.run("train-3")
    assert scene.run("load-1")
    assert scene.around is None
    scene.profiles.ask({"": {"train": 1}, "window": {"train": 3, "load": 1}})
    assert scene.run("train-4")
    assert scene.around is None
    scene.profiles.ask({"": {"train": 1}, "another": {"train": 1}})
    assert scene.run("train-5")
    scene.profiles.ask({"": {"train": 5}})
    scene.profiles.ask({})
    assert scene.around is None


def test_an_unknown_task_is_left_alone(scene):
    scene.profiles.ask({"": {"train": 1}})
    assert scene.around(TASK, "train-0") is None


def test_tasks_that_cannot_be_profiled_are_counted_by_reason_and_not_as_done(scene, monkeypatch):
    scene.profiles.ask({"": {"train": 1}})
    monkeypatch.setattr(Profiled, "fails_to_begin", NotProfiled("another task was being profiled"))
    assert not scene.run("train-1")
    assert not scene.run("train-2")
    monkeypatch.setattr(Profiled, "fails_to_begin", None)
    assert scene.run("train-3")
    made, left_out = scene.taken()
    assert [profile.run for profile in made] == [2]
    assert left_out == {"another task was being profiled": 2}


def test_a_profile_that_is_too_large_is_counted(scene, monkeypatch):
    scene.profiles.ask({"": {"train": 2}})
    monkeypatch.setattr(Profiled, "fails_to_export", NotProfiled("it is too large"))
    scene.run("train-1")
    assert scene.taken() == ([], {"it is too large": 1})
    monkeypatch.setattr(Profiled, "fails_to_export", None)
    scene.run("train-2")
    assert len(scene.taken()[0]) == 1


def test_a_task_that_seceded_has_no_profile(scene):
    scene.profiles.ask({"": {"train": 1}})
    assert scene.run("train-1", ends_as="long-running")
    assert scene.taken() == ([], {"the task seceded": 1})


@pytest.mark.parametrize("when", ["fails_to_begin", "fails_to_end", "fails_to_export"])
def test_a_failure_is_logged_once_and_ends_the_profiles_while_tasks_go_on(scene, monkeypatch, caplog, when):
    scene.profiles.ask({"": {"train": 3}})
    monkeypatch.setattr(Profiled, when, OSError("no room"))
    scene.run("train-1")
    made, left_out = scene.taken()
    assert (made, left_out) == ([], {"profiling failed: OSError: no room": 1})
    assert scene.around is None
    scene.profiles.ask({"": {"train": 9}})
    assert not scene.run("train-2")
    assert [record.message for record in caplog.records] == ["dask_efficiency profiles no task of this worker any more"]


def test_a_profile_that_runs_when_the_recording_ends_is_ended_and_forgotten(scene):
    scene.profiles.ask({"": {"train": 3}})
    scene.tasks["train-1"] = SimpleNamespace(prefix="train", run_id=1, state="executing")
    after = scene.around(TASK, "train-1")
    scene.profiles.close()
    scene.profiles.close()
    assert scene.around is None
    after()
    assert scene.taken() == ([], {})


def test_profiles_not_yet_written_are_counted_and_lost_with_a_worker_that_closes(scene):
    Profiled.may_export.clear()
    scene.profiles.ask({"": {"train": 3}})
    scene.run("train-1")
    scene.tasks["train-2"] = SimpleNamespace(prefix="train", run_id=1, state="executing")
    after = scene.around(TASK, "train-2")
    assert scene.profiles.take() == ([], {})
    assert scene.profiles.unwritten == 2
    assert scene.profiles.take(closing=True) == ([], {"the worker closed before they were written": 2})
    Profiled.may_export.set()
    after()
    assert len(scene.taken()[0]) == 2
    assert scene.profiles.unwritten == 0


def test_catching_up_waits_for_the_writing_of_profiles_but_not_for_ever(scene):
    Profiled.may_export.clear()
    scene.profiles.ask({"": {"train": 1}})
    scene.run("train-1")
    began = time.monotonic()
    asyncio.run(scene.profiles.catch_up(0.05))
    assert time.monotonic() - began < 20
    assert scene.profiles.take() == ([], {})
    Profiled.may_export.set()
    assert len(scene.taken()[0]) == 1
