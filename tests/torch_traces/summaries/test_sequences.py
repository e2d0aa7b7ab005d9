from dask_efficiency.torch_traces.kineto.trace import KinetoTrace
from dask_efficiency.torch_traces.summaries.sequences import KernelSequence, SequenceTime
from dask_efficiency.torch_traces.summaries.summary import summary
from dask_efficiency.torch_traces.summaries.work import merged_work, work_of
from tests.torch_traces.path.programs import Event, call, on_cpu, rank_of, work


def layer(at: int, *kernels: str) -> list[Event]:
    """A call of 100 us of an operator, in which another one launches kernels of 10 us."""
    events = [on_cpu("aten::linear", at, at + 100), on_cpu("aten::addmm", at + 5, at + 95)]
    for place, name in enumerate(kernels):
        asked, number = at + 10 + 20 * place, at + place + 1
        events += [call("cudaLaunchKernel", asked, asked + 2, number), work(name, asked + 5, asked + 15, number)]
    return events


PROGRAM = [*layer(0, "gemm", "bias"), *layer(200, "gemm", "bias"), *layer(400, "bias", "gemm"), *layer(600, "gemm")]
FOUND = {
    KernelSequence("aten::linear", ("gemm", "bias")): SequenceTime(2, 40_000, 200_000),
    KernelSequence("aten::linear", ("bias", "gemm")): SequenceTime(1, 20_000, 100_000),
}


def test_kernels_of_an_outermost_operators_calls_are_counted_in_their_order() -> None:
    assert work_of(rank_of(PROGRAM)).sequences == FOUND


def test_sequences_of_ranks_add_up() -> None:
    both = merged_work([work_of(rank_of(PROGRAM))] * 2).sequences
    assert both == {name: SequenceTime(*(2 * one for one in time)) for name, time in FOUND.items()}


def test_work_of_no_operator_has_no_sequence() -> None:
    bare = [call("cudaLaunchKernel", at, at + 2, at) for at in (10, 20)] + [
        work("k", at + 5, at + 9, at) for at in (10, 20)
    ]
    assert not work_of(rank_of(bare)).sequences
    assert not work_of(rank_of([on_cpu("aten::mm", 0, 10)])).sequences


def test_a_frame_has_whole_names() -> None:
    frame = summary(KinetoTrace((rank_of(PROGRAM),))).to_frame("sequences")
    assert [*frame["sequence"]] == ["gemm -> bias", "bias -> gemm"]


def test_a_long_sequence_is_cut_in_the_table() -> None:
    launched = [event for number in range(40) for event in layer(0, "gemm", "bias")[2 if number else 0 :]]
    frame = summary(KinetoTrace((rank_of(launched),))).to_frame("sequences")
    assert frame["kernels"][0] == 80
    assert frame["sequence"][0].count(" -> ") == 32
