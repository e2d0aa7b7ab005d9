"""Collectives are matched over the ranks of a job, whatever parts of it their profiles recorded."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_efficiency.torch_traces.kineto.load import load_kineto
from dask_efficiency.torch_traces.kineto.trace import Category, KinetoTrace
from dask_efficiency.torch_traces.path.collectives import CollectiveKind, kind_of
from dask_efficiency.torch_traces.path.matching import ALONE, CUT, DIFFERENT, UNPAIRED, match_collectives
from tests.torch_traces.path.jobs import BACKGROUND, BEGIN, EVENTS, MILLISECOND, Plan, Recording, job, plans
from tests.torch_traces.path.samples import RECORDED, dlrm_events

ALL_REDUCE, BROADCAST = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)", "ncclDevKernel_Broadcast_RING_LL(...)"


def matched(trace: KinetoTrace) -> list[tuple[str, str, tuple[int, ...]]]:
    """Kind, group and ranks of each collective."""
    collectives = match_collectives(trace)
    arrivals = collectives.arrivals
    found = []
    for number in range(len(collectives)):
        rows = arrivals.collective == number
        kind, group = CollectiveKind(arrivals.kind[rows][0]).name, collectives.groups[arrivals.group[rows][0]]
        found.append((kind, group, tuple(arrivals.rank[rows].tolist())))
    return found


def kernel(rank: Recording, stop: int, name: str = ALL_REDUCE, *, group: str = "", **columns: object) -> None:
    if group:
        columns |= {"group": rank.name(group), "collective": rank.name("allreduce")}
    rank.kernel(name, stop - MILLISECOND, stop, **columns)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", "ALL_REDUCE"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "REDUCE_SCATTER"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL(...)", "REDUCE"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", "EXCHANGE"),
        ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", "OTHER"),
        ("nccl:all_to_all", "ALL_TO_ALL"),
        ("gloo:all_gather", "ALL_GATHER"),
        ("gloo:gather", "GATHER"),
        ("_allgather_base", "ALL_GATHER"),
        ("gloo:scatter", "SCATTER"),
        ("gloo:barrier", "BARRIER"),
        ("gloo:send", "SEND"),
        ("recv", "RECEIVE"),
    ],
)
def test_a_collectives_kind_is_read_from_names_of_kernels_annotations_and_arguments(name: str, kind: str):
    assert kind_of(name).name == kind


@settings(max_examples=50)
@given(plans(), st.data())
def test_profiles_that_begin_and_end_at_different_steps_are_matched_by_step(plan: Plan, data: st.DataObject):
    steps = len(plan.computing)
    some = st.lists(st.integers(0, steps), min_size=2, max_size=2, unique=True).map(sorted)
    kept = [data.draw(some) for _ in plan.offsets]
    parts = []
    for rank, (first, last) in zip(plan.recordings(), kept, strict=True):
        rank.rows = rank.rows[EVENTS * first : EVENTS * last]
        parts.append(rank)
    collectives = match_collectives(job(parts))
    arrivals = collectives.arrivals
    for number in range(len(collectives)):
        # All are of one step, which is that of the rank's profile, as its row says.
        rows = arrivals.collective == number
        begun = np.array([first for first, _ in kept])[arrivals.rank[rows]]
        assert len(set(begun + arrivals.event[rows] // EVENTS)) == 1
    recorded = Counter(step for first, last in kept for step in range(first, last))
    assert len(arrivals) + sum(collectives.left_out.values()) == sum(recorded.values())
    if max(first for first, _ in kept) < min(last for _, last in kept):
        assert len(arrivals) == sum(count for count in recorded.values() if count > 1)


@pytest.mark.parametrize("cut", [(0, 1), (2, 0), (1, 3)])
def test_without_steps_collectives_that_a_profile_cut_off_are_found_by_the_times_in_between(cut: tuple[int, int]):
    ends = BEGIN + np.cumsum(np.random.default_rng(3).integers(5, 50, 21)) * MILLISECOND
    ranks = [Recording(0), Recording(1, offset=3 * MILLISECOND)]
    for rank, first in zip(ranks, cut, strict=True):
        for stop in ends[first : 18 + first]:
            kernel(rank, int(stop))
    collectives = match_collectives(job(ranks))
    stops = collectives.arrivals.stop.reshape(-1, 2) + np.array([0, 3 * MILLISECOND])
    assert (stops[:, 0] == stops[:, 1]).all()
    assert len(stops) == 18 - abs(cut[0] - cut[1])
    assert collectives.left_out == {CUT: 2 * abs(cut[0] - cut[1])}


def test_process_groups_are_matched_apart():
    ranks = [Recording(number) for number in range(4)]
    for step in range(3):
        for number, rank in enumerate(ranks):
            kernel(rank, BEGIN + 10 * step * MILLISECOND, group="world")
            kernel(rank, BEGIN + (10 * step + 3 + number // 2) * MILLISECOND, group=f"half {number // 2}")
    step = [("ALL_REDUCE", "world", (0, 1, 2, 3)), ("ALL_REDUCE", "half 0", (0, 1)), ("ALL_REDUCE", "half 1", (2, 3))]
    assert matched(job(ranks)) == step * 3


def test_groups_of_one_name_differ_by_their_members():
    ranks = [Recording(number, groups={"mesh": ((0, 1), (2, 3))[number // 2]}) for number in range(4)]
    for number, rank in enumerate(ranks):
        kernel(rank, BEGIN + number // 2 * MILLISECOND, group="mesh")
    assert matched(job(ranks)) == [("ALL_REDUCE", "mesh", (0, 1)), ("ALL_REDUCE", "mesh", (2, 3))]


def test_a_group_of_which_no_other_rank_is_there_is_left_out():
    ranks = [Recording(0), Recording(1)]
    for number, rank in enumerate(ranks):
        kernel(rank, BEGIN, group=f"group {number}")
    assert match_collectives(job(ranks)).left_out == {ALONE: 2}


def test_sizes_tell_collectives_of_a_group_apart():
    ranks = [Recording(0), Recording(1)]
    for rank, sizes in zip(ranks, [(10, 20, 30, 40), (20, 30, 40, 50)], strict=True):
        for place, elements in enumerate(sizes):
            stop = BEGIN + (100 * rank.rank + 10 * place) * MILLISECOND
            columns = {"elements_in": elements, "elements_out": elements, "element_type": rank.name("Float")}
            kernel(rank, stop, group="world", **columns)
    collectives = match_collectives(job(ranks))
    assert collectives.arrivals.nbytes.reshape(-1, 2).tolist() == [[80, 80], [120, 120], [160, 160]]
    assert collectives.left_out == {CUT: 2}


def test_nameless_groups_on_one_stream_differ_by_the_ends_of_their_collectives():
    """Two of 128 ranks, as in HTA's test data: most of their collectives are with ranks that are not there."""
    generator = np.random.default_rng(5)
    shared = BEGIN + np.sort(generator.integers(0, 2000, 6)) * MILLISECOND
    ranks = [Recording(0), Recording(1, offset=700 * MILLISECOND)]
    for rank in ranks:
        own = BEGIN + generator.integers(0, 2000, 6) * MILLISECOND + 500_000
        for stop in sorted({*shared.tolist(), *own.tolist()}):
            kernel(rank, stop)
    collectives = match_collectives(job(ranks))
    assert collectives.arrivals.stop[::2].tolist() == sorted(set(shared.tolist()))
    assert set(collectives.left_out) <= {DIFFERENT, CUT}


def test_where_ranks_use_different_streams_their_places_count():
    ranks = [Recording(0), Recording(1)]
    for rank, streams in zip(ranks, [(7, 20), (13, 26)], strict=True):
        kernel(rank, BEGIN, stream=streams[0])
        kernel(rank, BEGIN + 5 * MILLISECOND, BROADCAST, stream=streams[1])
    assert [(kind, ranks) for kind, _, ranks in matched(job(ranks))] == [("ALL_REDUCE", (0, 1)), ("BROADCAST", (0, 1))]


def test_a_kernels_kind_is_that_of_the_annotation_around_its_call():
    ranks = [Recording(0), Recording(1)]
    for rank in ranks:
        rank.add(Category.ANNOTATION, "nccl:all_to_all", BEGIN - MILLISECOND - 1000, BEGIN)
        kernel(rank, BEGIN, "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*)")
    assert [kind for kind, *_ in matched(job(ranks))] == ["ALL_TO_ALL"]


def test_sends_and_receives_of_two_ranks_are_paired_in_order():
    ranks = [Recording(0), Recording(1)]
    for place in range(5):
        sent = BEGIN + 10 * place * MILLISECOND
        ranks[0].add(Category.ANNOTATION, "gloo:send", sent, sent + MILLISECOND)
        # All are asked for at once, and the last ones waited for when all are there.
        received = max(sent + MILLISECOND, BEGIN + 31 * MILLISECOND)
        ranks[1].add(Category.ANNOTATION, "gloo:recv", BEGIN + place, received)
    arrivals = match_collectives(job(ranks)).arrivals
    assert arrivals.event.reshape(-1, 2).tolist() == [[0, 0], [1, 1], [2, 2], [3, 3], [4, 4]]
    assert arrivals.kind.reshape(-1, 2).tolist() == [[CollectiveKind.SEND, CollectiveKind.RECEIVE]] * 5


def test_sends_and_receives_of_many_ranks_are_paired_by_their_ends():
    """A pipeline: each rank sends to the next one, and the last one's send was not received by any that is there."""
    ranks = [Recording(number) for number in range(4)]
    for number, rank in enumerate(ranks):
        sent = BEGIN + 10 * number * MILLISECOND
        rank.add(Category.ANNOTATION, "gloo:send", sent, sent + MILLISECOND)
        if number:
            rank.add(Category.ANNOTATION, "gloo:recv", BEGIN, sent - 9 * MILLISECOND + 1000, thread=BACKGROUND)
    collectives = match_collectives(job(ranks))
    assert collectives.arrivals.rank.reshape(-1, 2).tolist() == [[0, 1], [1, 2], [2, 3]]
    assert collectives.left_out == {UNPAIRED: 1}


def test_ranks_that_exchange_nothing_have_no_collectives():
    ranks = [Recording(0), Recording(1)]
    for rank in ranks:
        rank.add(Category.OPERATOR, "aten::mm", BEGIN, BEGIN + MILLISECOND)
    assert len(match_collectives(job(ranks))) == 0
    assert len(match_collectives(job([]))) == 0


def test_the_collectives_of_eight_real_ranks_are_those_that_are_read_one_by_one():
    """NCCL on V100s, of 2023: kernels do not say their group, nor what they are for."""
    ranks = {}
    for number in range(8):
        kernels = [e for e in dlrm_events(number) if e["cat"] == "kernel" and e["name"].startswith("nccl")]
        ranks[number] = [(event["ts"] * 1000, (event["ts"] + event["dur"]) * 1000) for event in kernels]
    collectives = match_collectives(load_kineto(RECORDED["dlrm"]))
    arrivals = collectives.arrivals
    kinds = ["ALL_TO_ALL"] * 4 + ["ALL_REDUCE", "ALL_TO_ALL", "ALL_REDUCE", "ALL_REDUCE"]
    assert [CollectiveKind(kind).name for kind in arrivals.kind[::8]] == kinds
    for number in range(8):
        mine = arrivals.rank == number
        assert list(zip(arrivals.start[mine].tolist(), arrivals.stop[mine].tolist(), strict=True)) == ranks[number]
    assert arrivals.collective.tolist() == [number for number in range(8) for _ in range(8)]
    assert set(arrivals.step.tolist()) == {10}
    assert not collectives.left_out
