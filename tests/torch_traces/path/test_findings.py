import re
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings

from dask_efficiency.runs.path.parts import headline
from dask_efficiency.show.figures import lower_first
from dask_efficiency.show.finding import MAX_HEADLINE, MAX_TITLE, Basis, Finding
from dask_efficiency.torch_traces import critical_path as torch_critical_path
from dask_efficiency.torch_traces.kineto.trace import KinetoTrace
from dask_efficiency.torch_traces.path import findings
from dask_efficiency.torch_traces.path.findings import BETTER, MEMBERS, ON_CPU, TITLES, parts
from dask_efficiency.torch_traces.path.known import Grounds
from dask_efficiency.torch_traces.path.stretches import in_figures
from dask_efficiency.torch_traces.sections import improvements
from tests.torch_traces.path.jobs import MILLISECOND, Plan, job, plans
from tests.torch_traces.path.programs import on_cpu, rank_of, written
from tests.torch_traces.path.samples import RECORDED, recorded


def path_of(kinds: dict[str, float], names: dict[str, float] | None = None, meanwhile: float | None = 0.0) -> Any:
    """A path of one rank and 4 s; ``meanwhile`` is the GPU's work during the CPU's time, None without a GPU."""
    path = SimpleNamespace(window_seconds=4.0, has_gpu=meanwhile is not None, graphs=[SimpleNamespace(trace="rank 0")])
    path.grounds = Grounds()
    calls = {"seconds": lambda by: kinds, "seconds_of": lambda members: names or {}}
    vars(path).update(calls | {"gpu_seconds_during": lambda kind: meanwhile})
    return path


def headline_of(path: Any) -> str:
    return headline(parts(path), in_figures(path.window_seconds), "the window")


def first(*given: Any) -> Finding:
    return parts(path_of(*given))[0][0]


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "has_waits", lambda trace: True)


@pytest.mark.parametrize("kind", MEMBERS)
def test_the_kind_that_took_most_is_the_first_finding_and_the_headline(kind: str) -> None:
    kinds = {str(MEMBERS[kind][-1]): 3.0}
    title = TITLES[kind][0] if kind != ON_CPU else "On the CPU, GPU idle for nearly all of that"
    assert first(kinds).kind == kind
    assert headline_of(path_of(kinds)) == f"4 s; 75 % of the window is {lower_first(title)}"


def test_the_window_is_shorter_by_its_seconds_at_most() -> None:
    assert first({"gpu-compute": 3.0}, {"gemm": 2.0}).lines == (
        "Computing on the GPU: saves up to 3.0 s. `gemm` first, 50 % of the window",
        "Make these kernels faster.",
    )
    unknown = first({"unattributed": 3.0})
    assert unknown.lines == ("Time that nothing recorded explains. 75 % of the window",)
    assert (unknown.saves_seconds, unknown.basis) == (None, Basis.UNKNOWN)


@pytest.mark.parametrize(
    ("names", "meanwhile", "advice"),
    [
        ({"aten::add": 0.4}, 0.0, TITLES[ON_CPU][1]),
        ({"cudaLaunchKernel": 3.0}, 0.0, TITLES[ON_CPU][1]),
        ({"-": 3.0, "aten::add": 1.0}, 0.0, BETTER["between operators"]),
        ({"-": 3.0, "aten::add": 1.0}, None, BETTER["between operators, no GPU"]),
        ({"aten::empty": 3.0}, 0.0, BETTER["one name"]),
        ({"aten::add": 1.0}, 3.0, BETTER["GPU works"]),
        ({"aten::add": 1.0}, None, "Make these operators faster."),
    ],
)
def test_advice_follows_the_names_that_took_the_cpus_time(names: Any, meanwhile: float | None, advice: str) -> None:
    assert first({"compute-cpu": 4.0}, names, meanwhile).advice == advice


@pytest.mark.parametrize(
    ("meanwhile", "expected"),
    [
        (0.01, "GPU idle for nearly all of that"),
        (1.0, "GPU idle for 75 % of that"),
        (3.6, "GPU at work for 90 % of that"),
    ],
)
def test_findings_have_the_gpus_state_during_the_cpus_time(meanwhile: float, expected: str) -> None:
    assert first({"compute-cpu": 4.0}, {}, meanwhile).where == expected
    assert headline_of(path_of({"compute-cpu": 4.0}, {}, meanwhile)).endswith(f"on the CPU, {expected}")


def test_there_is_no_advice_where_a_gpu_worked_and_no_wait_was_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(findings, "has_waits", lambda trace: False)
    found = first({"compute-cpu": 4.0}, {"aten::empty": 3.0}, 1.0)
    assert (found.title, found.saves_seconds, found.advice) == ("On the CPU as far as is known", None, "")
    assert found.where == "no call that waits for the GPU was recorded; GPU idle for 75 % of that"
    assert first({"compute-cpu": 4.0}, {}, 0.01).advice


def test_another_cause_comes_first_where_the_gpu_worked_while_the_cpu_took_the_time() -> None:
    kinds = {"compute-cpu": 2.8, "data-loading": 1.2}
    assert [one.kind for one, _ in parts(path_of(kinds, {}, 2.4))] == ["torch/data-loading", "torch/cpu"]
    assert [one.kind for one, _ in parts(path_of(kinds, {}, 1.5))] == ["torch/cpu", "torch/data-loading"]
    little = {"compute-cpu": 3.9, "data-loading": 0.1}
    assert first(little, {}, 3.9).kind == "torch/cpu"


def test_one_rank_alone_cannot_tell_exchanging_from_waiting() -> None:
    assert first({"gpu-communication": 4.0}).advice == BETTER["one rank"]


def test_no_sentence_names_a_gpu_if_there_is_none() -> None:
    for kind in ("compute-cpu", "gpu-communication", "data-loading"):
        for names in ({"-": 3.9}, {"aten::mm": 3.9}, {}):
            path = path_of({kind: 3.9}, names, None)
            assert not re.search("GPU|CUDA", f"{headline_of(path)} {parts(path)[0][0]}")


def test_a_name_of_any_length_and_kind_is_cut_and_harmless() -> None:
    found = first({"gpu-compute": 4.0}, {"\x1b[31m" + "k" * 10_000: 4.0})
    assert found.where.isprintable()
    assert len(found.where) < 100


def test_a_rank_that_others_wait_for_is_named_with_cause_and_cost() -> None:
    """The first step waits 99 ms for rank 1, the second one 9 ms for rank 0."""
    trace = job(
        Plan((0, 0), ((MILLISECOND, 100 * MILLISECOND), (10 * MILLISECOND, MILLISECOND)), ((0, 0),) * 2).recordings()
    )
    path = torch_critical_path(trace, annotation="ProfilerStep", instance=1)
    (slow,) = (one for one in path.findings if one.kind == "slow-rank")
    assert slow.title == "Slow rank, it computed for longer"
    assert slow.where == "rank 0; the others waited 9 ms, 90 % of their time"
    assert slow.saves_seconds == pytest.approx(0.009)


def test_a_rank_that_began_late_comes_first_and_only_once() -> None:
    path = recorded("dlrm")
    assert path.headline == "20.9 ms; 36 % of the window is before rank 7 began"
    assert [one.kind for one in path.findings] == ["torch/late-start", "torch/cpu", "torch/data-loading"]
    first_line = "A rank, or its profiler, began late: saves up to 7.5 ms. Rank 7, 7.51 ms after the first one"
    assert path.findings[0].lines == (first_line, "See why it began so late.")


@pytest.mark.parametrize("name", RECORDED)
def test_a_recorded_path_is_explained_by_its_largest_kind(name: str) -> None:
    path = recorded(name)
    kind = {"simple_add": "compute-noncpu", "cpu_only": "gpu-communication", "dlrm": "unattributed"}
    assert 0 < len(path.headline) <= MAX_HEADLINE
    assert path.findings[0].saves_seconds == pytest.approx(path.seconds()[kind.get(name, "compute-cpu")])


@given(plans())
@settings(deadline=None, max_examples=30)
def test_the_path_of_any_job_has_a_headline_of_one_line_and_findings_within_the_window(plan: Plan) -> None:
    path = torch_critical_path(job(plan.recordings()))
    assert 0 < len(path.headline) <= MAX_HEADLINE
    for one in path.findings:
        assert len(one.title) <= MAX_TITLE
        assert one.saves_seconds is None or one.saves_seconds <= path.window_seconds


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0.009571, "9.57 ms"), (0.09999, "100 ms"), (0.9998, "1 s"), (43.42, "43.4 s"), (4321.0, "4321 s")],
)
def test_durations_have_figures_enough_to_compare_them(seconds: float, expected: str) -> None:
    assert in_figures(seconds) == expected


def made(kinds: dict[str, float], grounds: Grounds) -> dict[str, Any]:
    """Findings by kind, of a window of 10 s."""
    path: Any = SimpleNamespace(
        window_seconds=10.0, has_gpu=True, graphs=[SimpleNamespace(trace=None)], grounds=grounds
    )
    vars(path).update(seconds=lambda by: kinds, seconds_of=lambda members: {}, gpu_seconds_during=lambda kind: 0.0)
    return {one.kind: one for one, _ in parts(path)}


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
