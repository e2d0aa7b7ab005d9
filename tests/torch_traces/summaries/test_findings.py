import pytest

from dask_efficiency.torch_traces import TorchSummary, summary
from dask_efficiency.torch_traces.kineto.trace import KinetoTrace
from dask_efficiency.torch_traces.summaries import losses
from dask_efficiency.torch_traces.summaries.losses import TorchLoss
from tests.torch_traces.path.programs import rank_of, written
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
    assert late.saves_seconds == pytest.approx(waits.loc[7].filter(like="caused").iloc[0] / 7)


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
