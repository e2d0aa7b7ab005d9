"""Which ranks of a job made the others wait, by how much and why: made-up jobs, and eight real ranks read by hand."""

from statistics import median

import numpy as np
import pytest
from hypothesis import given, settings

from dask_efficiency.torch_traces.kineto.load import load_kineto
from dask_efficiency.torch_traces.kineto.trace import Category
from dask_efficiency.torch_traces.path.lateness import LatenessCause
from dask_efficiency.torch_traces.path.ranks import job_ranks
from tests.torch_traces.path.jobs import BACKGROUND, BEGIN, MILLISECOND, Plan, Recording, job, plans
from tests.torch_traces.path.samples import RECORDED, dlrm_events

DLRM = RECORDED["dlrm"]
MS = MILLISECOND


@settings(max_examples=30)
@given(plans())
def test_waits_suffered_are_waits_caused_in_sum(plan: Plan):
    ranks = job_ranks(job(plan.recordings()))
    assert ranks.waits.suffered.sum() == ranks.waits.caused.sum() == ranks.late.waits.sum()
    assert ranks.stragglers.waits.sum() == ranks.late.waits.sum()
    assert (ranks.waits.suffered >= 0).all()
    assert ranks.waits.last.sum() == len(ranks.collectives)


@settings(max_examples=30)
@given(plans(max_jitter=0))
def test_the_rank_that_computes_longest_is_the_straggler_of_its_step(plan: Plan):
    ranks = job_ranks(job(plan.recordings()))
    arrivals = np.array(plan.arrivals)
    assert ranks.stragglers.rank.tolist() == arrivals.argmax(axis=1).tolist()
    assert set(ranks.stragglers.cause.tolist()) == {LatenessCause.COMPUTE}
    assert ranks.stragglers.step.tolist() == list(range(len(arrivals)))
    waits = (arrivals.max(axis=1)[:, None] - arrivals).sum(axis=1)
    # That a clock is off by up to a microsecond is not seen, and two may be off to either side.
    assert np.abs(ranks.late.waits - waits).max() <= 2000 * len(plan.offsets)
    second = np.sort(arrivals, axis=1)[:, -2]
    assert np.abs(ranks.stragglers.behind - (arrivals.max(axis=1) - second)).max() <= 2000


def late_by(cause: LatenessCause, *, late: int = 2) -> list[Recording]:
    """Three ranks that meet, and meet again; in between one has 50 milliseconds more of something."""
    ranks = [Recording(number) for number in range(4)]
    for number, rank in enumerate(ranks):
        more = 50 * MS if number == late else 0
        rank.add(Category.ANNOTATION, "ProfilerStep#4", BEGIN, BEGIN + 10 * MS)
        rank.add(Category.ANNOTATION, "gloo:all_reduce", BEGIN + 8 * MS, BEGIN + 9 * MS, thread=BACKGROUND)
        step = at = BEGIN + 10 * MS + more * (cause == LatenessCause.LATE_START)
        for name, category, its in (
            ("enumerate(DataLoader)#_", Category.ANNOTATION, LatenessCause.DATA_LOADING),
            ("aten::mm", Category.OPERATOR, LatenessCause.COMPUTE),
            ("gloo:send", Category.ANNOTATION, LatenessCause.COMMUNICATION),
        ):
            until = at + 4 * MS + more * (cause == its)
            rank.add(category, name, at, until)
            rank.add(Category.OPERATOR, "aten::stack", at, at + MS) if its == LatenessCause.DATA_LOADING else None
            at = until
        at += more * (cause == LatenessCause.UNKNOWN)
        rank.add(Category.ANNOTATION, "gloo:all_reduce", at, BEGIN + 80 * MS, thread=BACKGROUND)
        rank.add(Category.ANNOTATION, "ProfilerStep#5", step, BEGIN + 80 * MS)
    return ranks


@pytest.mark.parametrize("cause", LatenessCause)
def test_a_rank_came_late_for_the_cause_of_which_it_had_more(cause: LatenessCause):
    ranks = job_ranks(job(late_by(cause)))
    assert ranks.stragglers.step.tolist() == [4, 5]
    assert ranks.stragglers.rank[1] == ranks.straggler == 2
    assert LatenessCause(ranks.stragglers.cause[1]) == cause
    assert ranks.stragglers.caused[1] == 150 * MS
    assert ranks.stragglers.behind[1] == 50 * MS
    late = ranks.late
    assert (late.behind_median[1], late.behind_second[1]) == (50 * MS, 50 * MS)
    assert late.excess()[1].tolist() == [50 * MS * (one == cause) for one in LatenessCause]


def test_work_on_a_gpu_is_computing_even_while_its_thread_waits():
    ranks = [Recording(number) for number in range(3)]
    for number, rank in enumerate(ranks):
        took = 30 * MS if number == 1 else 3 * MS
        launch = rank.add(Category.RUNTIME, "cudaLaunchKernel", BEGIN, BEGIN + 1)
        rank.add(Category.KERNEL, "gemm", BEGIN + 10, BEGIN + 10 + took, stream=7, device=0, call=launch)
        rank.add(Category.OPERATOR, "aten::item", BEGIN + 2, BEGIN + 40 * MS)
        rank.add(Category.RUNTIME, "cudaStreamSynchronize", BEGIN + 2, BEGIN + 40 * MS)
        launch = rank.add(Category.RUNTIME, "cudaLaunchKernel", BEGIN + 1, BEGIN + 2)
        kernel = {"stream": 20, "device": 0, "call": launch}
        rank.add(Category.KERNEL, "ncclDevKernel_AllReduce_Sum", BEGIN + 10 + took, BEGIN + 40 * MS, **kernel)
    late = job_ranks(job(ranks)).late
    assert late.rank.tolist() == [1]
    assert late.compute.tolist() == [27 * MS]


def test_a_rank_that_waits_in_several_collectives_at_once_waits_once():
    ranks = [Recording(0), Recording(1)]
    for stream in (7, 20):
        for rank, start in zip(ranks, (BEGIN, BEGIN + 10 * MS), strict=True):
            kernel = {"stream": stream, "device": rank.rank}
            rank.add(Category.KERNEL, "ncclDevKernel_AllReduce_Sum", start + stream, BEGIN + 12 * MS, **kernel)
    waits = job_ranks(job(ranks)).waits
    assert waits.suffered.tolist() == [10 * MS + 13, 0]
    assert waits.caused.tolist() == [0, 10 * MS + 13]
    assert waits.suffered_seconds[0] == waits.caused_seconds[1] == pytest.approx(0.010000013)


def test_a_receive_that_was_asked_for_early_is_waited_for_while_nothing_else_is():
    ranks = [Recording(0), Recording(1)]
    ranks[0].add(Category.ANNOTATION, "gloo:all_reduce", BEGIN + 10 * MS, BEGIN + 12 * MS, thread=BACKGROUND)
    ranks[0].add(Category.ANNOTATION, "gloo:send", BEGIN + 15 * MS, BEGIN + 20 * MS)
    ranks[1].add(Category.ANNOTATION, "gloo:recv", BEGIN, BEGIN + 20 * MS)
    ranks[1].add(Category.ANNOTATION, "gloo:all_reduce", BEGIN + 2 * MS, BEGIN + 12 * MS, thread=BACKGROUND)
    assert job_ranks(job(ranks)).late.waits.tolist() == [8 * MS, 7 * MS]


def test_a_rank_that_may_leave_before_the_last_one_comes_waits_until_it_leaves():
    ranks = [Recording(0), Recording(1), Recording(2)]
    for rank, (start, stop) in zip(ranks, [(0, 3), (2, 3), (9, 10)], strict=True):
        rank.add(Category.ANNOTATION, "gloo:broadcast", BEGIN + start * MS, BEGIN + stop * MS)
    assert job_ranks(job(ranks)).waits.suffered.tolist() == [3 * MS, MS, 0]


@pytest.mark.parametrize("count", [0, 1])
def test_without_a_second_rank_there_are_no_waits(count: int):
    ranks = job_ranks(job(Plan((0,), ((MS,),), ((MS,),)).recordings()[:count]))
    assert ranks.straggler is None
    assert ranks.waits.caused.tolist() == [0] * count
    assert len(ranks.late) == len(ranks.stragglers) == 0


def by_hand() -> list[list[dict[str, float]]]:
    """Kernels of each collective of the eight ranks by rank, from their JSON, in milliseconds."""
    kernels = [[e for e in dlrm_events(rank) if e["cat"] == "kernel" and "nccl" in e["name"]] for rank in range(8)]
    in_order = (sorted(of_rank, key=lambda event: event["ts"]) for of_rank in kernels)
    return [list(together) for together in zip(*in_order, strict=True)]


def test_eight_real_ranks_wait_as_in_their_json():
    ranks = job_ranks(load_kineto(DLRM))
    suffered, caused, last = [0] * 8, [0] * 8, []
    for kernels in by_hand():
        start = [kernel["ts"] for kernel in kernels]
        late = start.index(max(start))
        last.append(late)
        for rank in range(8):
            suffered[rank] += start[late] - start[rank]
            caused[late] += start[late] - start[rank]
    assert ranks.late.rank.tolist() == last == [7, 7, 7, 7, 7, 5, 5, 4]
    assert (ranks.waits.suffered // 1000).tolist() == suffered
    assert (ranks.waits.caused // 1000).tolist() == caused
    assert ranks.waits.last.tolist() == [last.count(rank) for rank in range(8)]
    for kernels, second, middle in zip(
        by_hand(), ranks.late.behind_second.tolist(), ranks.late.behind_median.tolist(), strict=True
    ):
        *others, late = sorted(kernel["ts"] for kernel in kernels)
        assert (second, middle) == ((late - others[-1]) * 1000, (late - median(others)) * 1000)


def test_eight_real_ranks_have_one_clock_as_in_their_json():
    """They ran on one host. No two leave a collective more than a few microseconds apart."""
    clocks = job_ranks(load_kineto(DLRM)).clocks
    apart = [
        [kernel["ts"] + kernel["dur"] - median(other["ts"] + other["dur"] for other in kernels) for kernel in kernels]
        for kernels in by_hand()
    ]
    for rank in range(8):
        assert abs(median(row[rank] for row in apart)) <= 3
    assert clocks.offset.tolist() == [0] * 8
    assert (clocks.spread <= 2000).all()
    assert not clocks.violations.any()


def test_of_eight_real_ranks_the_one_that_began_its_step_last_made_the_others_wait():
    """Rank 7's step begins 0.6 to 7.5 ms after the others', and it comes to the first collective 0.5 to 7.6 ms late."""
    ranks = job_ranks(load_kineto(DLRM))
    assert ranks.straggler == 7
    assert ranks.stragglers.step.tolist() == [10]
    assert LatenessCause(ranks.stragglers.cause[0]) == LatenessCause.LATE_START
    steps = (event for rank in range(8) for event in dlrm_events(rank) if event["name"] == "ProfilerStep#10")
    began = [event["ts"] for event in steps]
    assert ranks.late.late_start[0] == (began[7] - median(began[:7])) * 1000
