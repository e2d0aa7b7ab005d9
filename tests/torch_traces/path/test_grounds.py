"""A finding of whose ground more than a tenth is not known is not made."""

from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.torch_traces import critical_path as torch_critical_path
from dask_efficiency.torch_traces.kineto.trace import KinetoTrace
from dask_efficiency.torch_traces.path import findings
from dask_efficiency.torch_traces.path.findings import parts
from dask_efficiency.torch_traces.path.grounds import Grounds
from dask_efficiency.torch_traces.sections import improvements
from tests.torch_traces.path.programs import on_cpu, rank_of, written


def made(kinds: dict[str, float], grounds: Grounds) -> dict[str, Any]:
    """Findings by kind, of a window of 10 s."""
    path: Any = SimpleNamespace(
        window_seconds=10.0, has_gpu=True, graphs=[SimpleNamespace(trace=None)], grounds=grounds
    )
    vars(path).update(seconds=lambda by: kinds, seconds_of=lambda members: {}, gpu_seconds_during=lambda kind: 0.0)
    return {one.kind: one for one, _ in parts(path)}


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "has_waits", lambda trace: True)


@pytest.mark.parametrize(("lost", "idle"), [(10, True), (11, False)])
def test_a_gpu_is_idle_only_if_nine_of_ten_launches_have_their_work(lost: int, idle: bool) -> None:
    grounds = Grounds(launches=100, lost=lost)
    found = made({"compute-cpu": 4.0, "gpu-compute": 3.0, "kernel-gap": 2.0, "gpu-sync": 1.0}, grounds)
    assert {"torch/kernel-gaps", "torch/gpu-sync"} <= set(found) if idle else "torch/gpu-sync" not in found
    assert ("torch/cpu" in found) == idle
    assert ("torch/cpu-unknown" in found) == (not idle)
    assert "torch/gpu-compute" in found


@pytest.mark.parametrize(("unattributed", "known"), [(0.3, True), (0.4, False)])
def test_waits_are_idle_time_only_if_nine_tenths_of_them_are_known(unattributed: float, known: bool) -> None:
    found = made({"gpu-sync": 3.0, "unattributed": unattributed}, Grounds(not_recorded=unattributed))
    assert ("torch/gpu-sync" in found) == known
    assert found["torch/not-recorded"].saves_seconds is None


@pytest.mark.parametrize(("unknown", "known"), [(0.8, True), (1.2, False)])
def test_a_thread_computes_only_if_nine_tenths_of_its_time_are_known(unknown: float, known: bool) -> None:
    found = made({"compute-cpu": 8.0, "unattributed": unknown}, Grounds(unknown=unknown))
    assert ("torch/cpu" in found) == known
    assert "torch/unattributed" not in found


def test_first_calls_are_no_time_of_the_cpu() -> None:
    found = made({"compute-cpu": 8.0}, Grounds(set_up={"cudaGetDeviceProperties": 5.0, "cudaLaunchKernel": 2.0}))
    assert found["torch/set-up"].where == "`cudaGetDeviceProperties` first, 50 % of the window"
    assert found["torch/cpu"].saves_seconds == pytest.approx(1.0)


def test_nothing_is_found_in_a_trace_of_which_a_tenth_cannot_be_read() -> None:
    events = [on_cpu("aten::mm", 10 * at, 10 * at + 9) for at in range(18)]
    good, bad = (
        torch_critical_path(KinetoTrace((rank_of([*events, *[{"ph": "X", "ts": 1}] * count]),))) for count in (1, 3)
    )
    assert [one.kind for one in good.findings] == ["torch/cpu-only"]
    assert [one.kind for one in bad.findings] == ["torch/unreadable"]
    assert bad.findings[0].where == "3 events cannot be read, 18 can"
    assert "no duration: 3" in " ".join(str(bad).split())


def test_the_page_says_no_saving_of_an_idle_gpu_that_is_not_known() -> None:
    launch, then = "cudaLaunchKernel 0-2 #1, gemm 5-20 #1, cudaDeviceSynchronize 6-25 #2", "aten::mm 30-60"
    known = torch_critical_path(KinetoTrace((rank_of(written(f"{launch}, {then}")),)))
    lost = torch_critical_path(KinetoTrace((rank_of(written(f"{launch}, {then}, cudaGraphLaunch 26-28 #3")),)))
    assert "no gpu-sync" in str(improvements(known))
    assert "no gpu-sync" not in str(improvements(lost))
