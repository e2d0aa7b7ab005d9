import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from dask_efficiency.gpu.cupti import meter
from dask_efficiency.gpu.cupti.meter import KinetoWatch

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.needs("torch")


class Calls:
    """Calls of torch's functions and of the watch, in order."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.watch = KinetoWatch(lambda: self.order.append("about to"))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[Calls]:
    module = torch.autograd.profiler
    for name in ("_prepare_profiler", "_disable_profiler"):
        original = getattr(module, name)

        def noted(*args: Any, _name: str = name, _original: Any = original, **kwargs: Any) -> Any:
            calls.order.append(_name)
            return _original(*args, **kwargs)

        monkeypatch.setattr(module, name, noted)
    calls = Calls()
    yield calls
    calls.watch.close()


def profile(*activities: Any) -> Any:
    return torch.profiler.profile(activities=activities, acc_events=True)


CPU = torch.profiler.ProfilerActivity.CPU


@pytest.fixture
def cpu_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the CPU's activities were CUDA's, which torch leaves out where there is no GPU."""
    monkeypatch.setattr(meter, "_uses_cuda", lambda activities: True)


@pytest.mark.usefixtures("cpu_counts")
def test_the_watch_is_called_before_kineto_prepares_and_notices_its_end(calls: Calls):
    with profile(CPU):
        assert calls.watch.running
        torch.ones(3).sum()
    assert calls.order == ["about to", "_prepare_profiler", "_disable_profiler"]
    assert not calls.watch.running


@pytest.mark.usefixtures("cpu_counts")
def test_a_profiler_that_warms_up_counts_as_running(calls: Calls):
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=1, repeat=1)
    with torch.profiler.profile(activities=[CPU], schedule=schedule, acc_events=True) as profiled:
        assert not calls.watch.running
        profiled.step()
        assert calls.watch.running  # warming up: torch's own flag is not raised yet
        profiled.step()
        assert calls.watch.running
        profiled.step()
        assert not calls.watch.running


def test_a_profile_without_cuda_does_not_matter(calls: Calls):
    with profile(CPU) as profiled:
        assert not calls.watch.running
        torch.ones(3).sum()
    assert calls.order == ["_prepare_profiler", "_disable_profiler"]
    assert any("sum" in event.key for event in profiled.key_averages())


@pytest.mark.usefixtures("cpu_counts")
def test_a_failure_to_give_way_is_logged_and_the_profiler_goes_on(caplog: pytest.LogCaptureFixture):
    def fail() -> None:
        raise ZeroDivisionError

    watch = KinetoWatch(fail)
    try:
        with caplog.at_level(logging.ERROR, "dask_efficiency"), profile(CPU) as profiled:
            torch.ones(3).sum()
        assert any("sum" in event.key for event in profiled.key_averages())
        assert "could not give way" in caplog.text
    finally:
        watch.close()


@pytest.mark.parametrize(
    ("activities", "uses"),
    [({"ProfilerActivity.CUDA"}, True), ({torch.profiler.ProfilerActivity.CUDA}, True), ({CPU}, False), (None, True)],
)
def test_activities_use_cuda_or_not(activities: Any, uses: bool):
    assert meter._uses_cuda(activities) is uses


def test_a_wrapper_that_came_later_is_left_in_place(calls: Calls, monkeypatch: pytest.MonkeyPatch):
    module = torch.autograd.profiler
    ours = module._prepare_profiler

    def later(*args: Any, **kwargs: Any) -> Any:
        return ours(*args, **kwargs)

    monkeypatch.setattr(module, "_prepare_profiler", later)
    calls.watch.close()
    assert module._prepare_profiler is later


def test_without_torch_there_is_nothing_to_watch(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(sys.modules, "torch.autograd.profiler")
    watch = KinetoWatch(lambda: None)
    assert not watch.running
    assert not watch.monitored
    watch.close()
