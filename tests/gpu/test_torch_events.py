import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.gpu.meter import MeterRefused, TaskId
from dask_efficiency.gpu.torch_events import TorchEventMeter
from tests.gpu.conftest import stub, stub_directory

__all__ = ["stub", "stub_directory"]


class Event:
    """An event, which has not happened if ``happened`` is false."""

    made: list["Event"]
    device = 0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.at = -1.0
        self.happened = True
        self.made.append(self)

    def record(self) -> None:
        self.at = 1.5 * len(self.made)

    def query(self) -> bool:
        return self.happened

    def elapsed_time(self, end: "Event") -> float:
        return end.at - self.at


@pytest.fixture
def events(stub: ModuleType, monkeypatch: pytest.MonkeyPatch) -> type[Event]:
    Event.made = []
    Event.device = 0
    cuda = SimpleNamespace(Event=Event, current_device=lambda: Event.device, is_initialized=lambda: True)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, __version__="9.9"))
    return Event


def run(meter: TorchEventMeter, *starts: int) -> None:
    for start in starts:
        meter.around(TaskId(1, start))()


def test_the_bound_of_a_task_is_the_time_between_its_events_once_the_device_is_done(events: Any):
    meter = TorchEventMeter(task_threads=1)
    run(meter, 100, 200, 300)
    events.made[3].happened = False
    batch = meter.flush()
    assert batch.bounds == {TaskId(1, 100): 1_500_000}
    assert batch.known_until == 200
    events.made[3].happened = True
    before = time.monotonic_ns()
    batch = meter.flush()
    assert batch.bounds == {TaskId(1, 200): 1_500_000, TaskId(1, 300): 1_500_000}
    assert batch.known_until >= before
    assert meter.flush().bounds == {}


def test_no_event_is_made_on_a_device_that_has_no_context(stub: ModuleType, events: Any):
    meter = TorchEventMeter(task_threads=1)
    events.device = 3
    run(meter, 100)
    assert events.made == []
    assert meter.flush().bounds == {}


def test_an_event_that_fails_costs_its_task_the_bound_and_nothing_else(events: Any, monkeypatch: pytest.MonkeyPatch):
    def fail(self: Event, end: Event) -> float:
        raise RuntimeError("CUDA error")

    meter = TorchEventMeter(task_threads=1)
    run(meter, 100)
    monkeypatch.setattr(Event, "elapsed_time", fail)
    assert meter.flush().bounds == {}
    assert meter.dropped == 1
    monkeypatch.setattr(Event, "record", lambda self: fail(self, self))
    run(meter, 200)


def test_after_closing_it_makes_no_events(events: Any):
    meter = TorchEventMeter(task_threads=1)
    run(meter, 100)
    events.made[1].happened = False
    assert meter.close().bounds == {}
    assert meter.dropped == 1
    run(meter, 200)
    assert len(events.made) == 2


def test_several_task_threads_or_no_cuda_are_refused(stub: ModuleType, events: Any, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(MeterRefused, match="this one has 2"):
        TorchEventMeter(task_threads=2)
    monkeypatch.setattr(sys.modules["torch"].cuda, "is_initialized", lambda: False)
    with pytest.raises(MeterRefused, match="has not initialised CUDA"):
        TorchEventMeter(task_threads=1)
