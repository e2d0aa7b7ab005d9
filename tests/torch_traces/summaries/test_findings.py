from dataclasses import replace

import pytest

from dask_efficiency.torch_traces import TorchSummary, summary
from dask_efficiency.torch_traces.kineto.trace import KinetoTrace, RankTrace
from dask_efficiency.torch_traces.summaries import losses
from dask_efficiency.torch_traces.summaries.losses import TorchLoss
from dask_efficiency.torch_traces.summaries.merged import TaskSummaries
from dask_efficiency.torch_traces.summaries.rank import rank_summary
from tests.torch_traces.path.programs import call, on_cpu, rank_of, work, written
from tests.torch_traces.path.samples import RECORDED


def of(text: str) -> TorchSummary:
    return summary(KinetoTrace((rank_of(written(text)),)))


def saved(text: str) -> dict[str, int]:
    """Microseconds that each finding could save."""
    return {each.kind: round(1e6 * (each.saves_seconds or 0)) for each in of(text).findings}


_BUSY = "cudaLaunchKernel 0-5 #1, a 10-100 #1, cudaLaunchKernel 890-895 #9, z 900-1000 #9"
AROUND = f"aten::mm 0-20, aten::add 880-1000, {_BUSY}"
HOST, PAGEABLE, SYNC = TorchLoss.HOST, TorchLoss.PAGEABLE, TorchLoss.SYNC_COPIES
TO_GPU, TO_HOST = "Memcpy_HtoD_(Pageable_->_Device) 300-800 #2", "Memcpy_DtoH_(Device_->_Pinned) 300-800 #2"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("aten::mm 0-1", {HOST: 800}),
        (f"cudaMemcpyAsync 200-800 #2, {TO_GPU}", {PAGEABLE: 600, HOST: 300}),
        # its replay leaves the copy, for which the next kernel waits
        (f"cudaMemcpy 200-810 #2, {TO_HOST}", {HOST: 300, SYNC: 200}),
        ("enumerate(DataLoader)#_next 200-800", {TorchLoss.DATA: 600, HOST: 200}),
        ("gloo:all_reduce 200-800 @9", {TorchLoss.CPU_COLLECTIVES: 600, HOST: 200}),
    ],
)
def test_findings_are_bounded_by_what_the_gpu_did_not_do(text: str, expected: dict[TorchLoss, int]) -> None:
    assert saved(f"{AROUND}, {text}") == expected


def test_many_tiny_kernels_are_named() -> None:
    launches = ", ".join(
        f"cudaLaunchKernel {i}-{i + 3} #{i + 1}, k {i + 5}-{i + 8} #{i + 1}" for i in range(0, 900, 30)
    )
    (finding,) = of(f"aten::mm 0-900, {launches}").findings
    assert finding.kind == TorchLoss.TINY_KERNELS
    assert "30 of 30 kernels are below 10 us" in finding.where
    assert "CUDA graphs" in finding.advice


def test_exposed_communication_saves_what_a_replay_without_it_does() -> None:
    text = (
        "aten::mm 0-20, cudaLaunchKernel 0-5 #1, a 10-100 #1, cudaLaunchKernel 6-8 #2, ncclAllReduce 100-500 #2 @8, "
        "cudaDeviceSynchronize 30-500 #4, cudaLaunchKernel 510-515 #3, z 520-1000 #3"
    )
    assert saved(text)["torch/exposed-communication"] == 400


def test_the_rank_that_the_others_waited_for_is_named() -> None:
    (late,) = (each for each in summary(RECORDED["dlrm"]).findings if each.kind == "torch/late-rank")
    assert late.where.startswith("rank 7, last at ")
    assert late.saves_seconds is not None
    waits = summary(RECORDED["dlrm"]).to_frame("waits").set_index("rank")
    caused = waits.loc[7].filter(like="caused").iloc[0]
    assert caused / 7 <= late.saves_seconds < caused


def all_reduce(rank: int, arrives: int, group: list[int]) -> RankTrace:
    """A rank of a job of two groups that comes to its group's only collective, which ends at 450 us."""
    kernel = work("ncclDevKernel_AllReduce_Sum_f32", arrives, 450, 1)
    said = {"Collective name": "allreduce", "In msg nelems": 9, "Out msg nelems": 9, "dtype": "Float"}
    kernel["args"] |= said | {"Group size": 2, "Process Group Name": str(group), "Process Group Ranks": str(group)}
    asked = call("cudaLaunchKernel", arrives - 10, arrives - 5, 1)
    return replace(rank_of([on_cpu("aten::mm", 0, 1000), asked, kernel]), rank=rank)


def test_a_late_rank_of_one_of_several_groups_costs_what_its_group_waited() -> None:
    ranks = [all_reduce(rank, 400 if rank == 1 else 100, [0, 1] if rank < 2 else [2, 3]) for rank in range(4)]
    (late,) = (each for each in summary(KinetoTrace(tuple(ranks))).findings if each.kind == "torch/late-rank")
    assert late.saves_seconds == pytest.approx(300e-6)
    assert late.where == "rank 1, last at 1 of 1 collectives; up to 30 % of the time of another rank"


def test_idle_time_at_the_start_of_steps_that_overlap_counts_once() -> None:
    steps = ", ".join(f"ProfilerStep#{i} {10 + 10 * i}-{9000 + 10 * i} @{i}" for i in (1, 2, 3))
    text = f"cudaLaunchKernel 0-2 #1, a 5-15 #1, {steps}, cudaLaunchKernel 8990-8995 #2, b 9000-10000 #2"
    assert saved(text)["torch/idle-at-step-start"] == 8980


def test_what_overlapping_steps_took_longer_counts_once() -> None:
    steps = [*((100 * i, 100 * i + 100) for i in range(8)), (800, 1800), (800, 1800)]
    ranges = ", ".join(f"ProfilerStep#{i} {start}-{stop} @{i}" for i, (start, stop) in enumerate(steps))
    assert saved(f"aten::mm 0-1800, {ranges}")["torch/long-steps"] == 900


def test_the_median_of_an_even_number_of_steps_is_that_of_the_table_of_steps() -> None:
    at, texts = 0, []
    for number, length in enumerate([1000] * 4 + [1400] * 4 + [9000, 1000]):
        texts.append(f"ProfilerStep#{number} {at}-{at + length}, aten::mm {at}-{at + length}")
        at += length
    (found,) = (each for each in of(", ".join(texts)).findings if each.kind == "torch/long-steps")
    assert found.where.endswith("above the median of 1.2 ms")


DATA_ON_A_CPU = "aten::mm 0-100, enumerate(DataLoader)#_next 100-1000, aten::mm 1000-1100"


def test_without_a_gpu_none_is_said_to_have_waited_for_data() -> None:
    (found,) = of(DATA_ON_A_CPU).findings
    assert found.kind == TorchLoss.DATA
    assert "GPU" not in found.title
    # nothing is known of a device whose events are not
    unknown = on_cpu("graph", 100, 1000, cat="hpu_op")
    assert summary(KinetoTrace((rank_of([*written(DATA_ON_A_CPU), unknown]),))).findings == ()


def test_a_long_event_that_says_nothing_stops_no_replay() -> None:
    text = f"{AROUND}, enumerate(DataLoader)#_next 200-800"
    beside = on_cpu("python", 0, 1e8, cat="overhead")
    found = [summary(KinetoTrace((rank_of([*written(text), *more]),))).ranks[0].losses for more in ([], [beside])]
    assert found[0].replayed
    assert found[0].replayed.keys() == found[1].replayed.keys()


def test_profiled_tasks_are_not_called_ranks() -> None:
    tasks = [rank_of(written(text)) for text in ("aten::mm 0-9", DATA_ON_A_CPU)]
    found = TorchSummary(TaskSummaries(rank_summary(replace(trace, rank=at)) for at, trace in enumerate(tasks)))
    assert [each.where for each in found.findings] == ["profiled task 1: 82 % of its time"]


def test_nothing_is_found_where_much_is_not_known() -> None:
    lost = ", ".join(f"cudaLaunchKernel {i}-{i + 1} #{i}" for i in range(500, 520))
    assert of(f"{AROUND}, {lost}").findings == ()
    assert "20 of 22 launches have no work in the trace" in " ".join(str(of(f"{AROUND}, {lost}")).split())


def test_a_trace_that_is_too_large_is_not_replayed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(losses, "MAX_REPLAYED", 10)
    assert not any(rank.losses.replayed for rank in summary(RECORDED["dlrm"]).ranks)


@pytest.mark.parametrize("name", [*RECORDED])
def test_savings_of_recorded_traces_are_within_the_ranks_time_and_in_order(name: str) -> None:
    found = summary(RECORDED[name])
    savings = [each.saves_seconds for each in found.findings if each.saves_seconds is not None]
    assert savings == sorted(savings, reverse=True)
    assert all(0 < saving <= found.seconds for saving in savings)
