"""One path over all ranks of a job tiles its window, and leaves collectives through the rank that came last."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_efficiency.runs.path.kinds import KINDS, Kind
from dask_efficiency.torch_traces.kineto.trace import Category, KinetoTrace
from dask_efficiency.torch_traces.path.build import build_graph
from dask_efficiency.torch_traces.path.graph import TorchGraph
from dask_efficiency.torch_traces.path.ranks import JobRanks, job_ranks
from dask_efficiency.torch_traces.path.region import find_region
from dask_efficiency.torch_traces.path.stretches import TorchStretches
from dask_efficiency.torch_traces.path.tiling import tile, tile_ranks
from tests.torch_traces.path.jobs import BEGIN, MILLISECOND, UPDATE, Plan, Recording, job, plans
from tests.torch_traces.path.samples import recorded


def tiled(
    trace: KinetoTrace, annotation: str = "", instance: tuple[int, int] | None = None
) -> tuple[TorchStretches, JobRanks, list[TorchGraph]]:
    """A job's path, and what it was made of; it is checked that it tiles the job's window."""
    graphs = [build_graph(rank, find_region(rank, annotation, instance)) for rank in trace.ranks]
    ranks = job_ranks(trace)
    stretches = tile_ranks(graphs, ranks.collectives.arrivals, ranks.clocks.offset)
    check(stretches, graphs, ranks.clocks.offset)
    assert (stretches.start < stretches.stop).all()
    return stretches, ranks, graphs


def check(stretches: TorchStretches, graphs: Sequence[TorchGraph], offsets: np.ndarray) -> None:
    """The stretches tile the window of a job."""
    regions = [(graph.region, shift) for graph, shift in zip(graphs, offsets.tolist(), strict=True)]
    assert stretches.start[0] == min(region.start + shift for region, shift in regions)
    assert stretches.stop[-1] == max(region.stop + shift for region, shift in regions)
    assert (stretches.start[1:] == stretches.stop[:-1]).all()


@settings(max_examples=20)
@given(plans())
def test_the_path_over_all_ranks_tiles_the_window_of_the_job(plan: Plan):
    tiled(job(plan.recordings()))


@settings(max_examples=20)
@given(plans(max_jitter=0), st.data())
def test_the_path_over_all_ranks_tiles_the_window_of_some_steps(plan: Plan, data: st.DataObject):
    last = len(plan.computing) - 1
    first = data.draw(st.integers(0, last))
    steps = first, data.draw(st.integers(first, last))
    stretches, *_ = tiled(job(plan.recordings()), "ProfilerStep", steps)
    lasts = sum(max(computing) for computing in plan.computing[steps[0] : steps[1] + 1])
    computing = stretches.take(stretches.kind == KINDS.index(Kind.COMPUTE_CPU))
    exact = (computing.stop - computing.start).sum()
    assert abs(exact - lasts) <= (steps[1] - steps[0] + 1) * (UPDATE + 1000 * len(plan.offsets))


@settings(max_examples=20)
@given(plans(max_jitter=0))
def test_each_step_is_with_the_rank_that_computed_longest(plan: Plan):
    stretches, _, graphs = tiled(job(plan.recordings()))
    longest = np.array(plan.arrivals).argmax(axis=1)
    events = [
        graphs[rank].trace.names[graphs[rank].trace.events.name[event]]
        for rank, event in zip(stretches.rank, stretches.event, strict=True)
        if event >= 0
    ]
    computing = stretches.take(stretches.kind == KINDS.index(Kind.COMPUTE_CPU))
    computing = computing.take(computing.stop - computing.start > UPDATE)
    assert computing.rank.tolist() == longest.tolist()
    assert set(events) <= {"aten::mm", "gloo:all_reduce", "aten::add_"}


def test_the_path_is_communication_after_the_last_arrival_and_the_last_ranks_work_before_it():
    plan = Plan((0, 0), ((30 * MILLISECOND, 5 * MILLISECOND),), ((2 * MILLISECOND, 3 * MILLISECOND),))
    stretches, *_ = tiled(job(plan.recordings(host="one")))
    lasts = (stretches.stop - stretches.start) // MILLISECOND
    found = list(zip((KINDS[kind] for kind in stretches.kind), stretches.rank.tolist(), lasts.tolist(), strict=True))
    assert found == [(Kind.COMPUTE_CPU, 0, 30), (Kind.GPU_COMMUNICATION, 1, 3), (Kind.COMPUTE_CPU, 1, 0)]


def test_the_path_of_one_rank_is_that_ranks_own():
    trace = KinetoTrace(recorded("dlrm").trace.ranks[3:4])
    stretches, _, graphs = tiled(trace)
    own = tile(graphs[0])
    for name, column in own.columns().items():
        np.testing.assert_array_equal(getattr(stretches, name), column)


def test_without_collectives_the_path_is_that_of_the_rank_that_ended_last():
    ranks = [Recording(0), Recording(1)]
    for rank, last in zip(ranks, (9, 7), strict=True):
        rank.add(Category.OPERATOR, "aten::mm", BEGIN + last - 5, BEGIN + last)
    stretches, *_ = tiled(job(ranks))
    assert stretches.rank.tolist() == [0, 0]
    # Nothing is known of this rank before its own trace begins.
    assert [KINDS[kind] for kind in stretches.kind] == [Kind.UNATTRIBUTED, Kind.COMPUTE_CPU]


def test_the_walk_ends_if_collectives_contradict_each_other():
    """Each rank waits for the other one at the same time, on different streams."""
    ranks = [Recording(0), Recording(1)]
    for rank in ranks:
        for stream, late in ((7, rank.rank), (20, 1 - rank.rank)):
            start = BEGIN + 10_000 + 100_000 * late
            rank.kernel("ncclDevKernel_AllReduce_Sum", start, BEGIN + 200_000, stream=stream)
        rank.add(Category.RUNTIME, "cudaDeviceSynchronize", BEGIN + 120_000, BEGIN + 201_000)
    stretches, found, _ = tiled(job(ranks))
    assert len(found.collectives) == 2
    assert set(stretches.rank.tolist()) == {0, 1}


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_the_path_tiles_with_any_clocks_and_collectives(seed: int):
    generator = np.random.default_rng(seed)
    trace = job(Plan((0, 0, 0), ((MILLISECOND,) * 3,) * 3, ((MILLISECOND,) * 3,) * 3).recordings())
    graphs = [build_graph(rank, find_region(rank)) for rank in trace.ranks]
    ranks = job_ranks(trace)
    arrivals = ranks.collectives.arrivals
    event = np.array([generator.integers(0, len(trace.ranks[rank].events)) for rank in arrivals.rank])
    columns = {
        "event": event,
        "start": [trace.ranks[rank].events.start[row] for rank, row in zip(arrivals.rank, event, strict=True)],
        "stop": [trace.ranks[rank].events.stop[row] for rank, row in zip(arrivals.rank, event, strict=True)],
    }
    wrong = type(arrivals)(**(arrivals.columns() | {name: np.array(column) for name, column in columns.items()}))
    offset = generator.integers(-5 * MILLISECOND, 5 * MILLISECOND, 3)
    check(tile_ranks(graphs, wrong, offset), graphs, offset)


def test_the_path_of_eight_real_ranks_comes_from_the_one_that_began_last():
    stretches, ranks, _ = tiled(recorded("dlrm").trace)
    first = ranks.late.at[0]
    before = stretches.take(stretches.stop <= first)
    assert set(before.rank.tolist()) == {7}
    assert len(set(stretches.rank.tolist())) > 1
