"""Clocks of ranks are aligned by the ends of their collectives."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_efficiency.torch_traces.path.clocks import align_clocks, hosts_of
from dask_efficiency.torch_traces.path.collectives import CollectiveArrivals, CollectiveKind
from dask_efficiency.torch_traces.path.matching import match_collectives
from tests.torch_traces.path.jobs import BEGIN, MILLISECOND, Plan, job, plans

NOWHERE = ["", "", "", ""]


def together(stops, *, kind=CollectiveKind.ALL_REDUCE, members=None):
    """Collectives that ranks leave at given instants, each for a microsecond."""
    rows = [
        (collective, rank, stop)
        for collective, of_ranks in enumerate(stops)
        for rank, stop in zip((members or {}).get(collective, range(len(of_ranks))), of_ranks, strict=True)
    ]
    collective, rank, stop = np.array(rows, np.int64).T
    columns = {"collective": collective, "rank": rank, "start": stop - 1000, "stop": stop}
    return CollectiveArrivals.from_columns(columns | {"kind": np.full(len(rows), kind)})


@settings(max_examples=30)
@given(plans(max_jitter=0))
def test_offsets_are_recovered_exactly_where_all_leave_at_once(plan: Plan):
    trace = job(plan.recordings())
    clocks = align_clocks(match_collectives(trace).arrivals, hosts_of(trace))
    tiny = np.abs(plan.offsets) <= 1000
    np.testing.assert_array_equal(np.where(tiny, 0, clocks.offset), np.where(tiny, 0, plan.offsets))
    assert not clocks.spread.any()
    assert not clocks.violations.any()


@settings(max_examples=30)
@given(plans())
def test_offsets_are_recovered_up_to_how_unevenly_ranks_leave(plan: Plan):
    trace = job(plan.recordings())
    clocks = align_clocks(match_collectives(trace).arrivals, hosts_of(trace))
    assert clocks.offset[0] == 0
    assert np.abs(clocks.offset - plan.offsets).max() <= 4 * MILLISECOND // 10
    assert (clocks.collectives == len(plan.computing)).all()


def test_a_rank_that_sometimes_leaves_late_has_the_same_clock():
    stops = np.arange(1, 12)[:, None] * MILLISECOND + np.zeros((11, 3), np.int64)
    stops[[2, 5, 6, 9], 1] += 40 * MILLISECOND
    assert align_clocks(together(stops + BEGIN), NOWHERE[:3]).offset.tolist() == [0, 0, 0]


def test_an_offset_no_greater_than_the_spread_is_none():
    late = np.array([0, 300, -250, 400, -280, 500, -310, 450]) * 1000
    stops = np.arange(8) * MILLISECOND * 10 + BEGIN
    clocks = align_clocks(together(np.stack([stops, stops - late], axis=1)), NOWHERE[:2])
    assert clocks.offset.tolist() == [0, 0]
    assert 100_000 < clocks.spread[0] < 300_000


def test_offsets_reach_ranks_that_share_collectives_with_some_only():
    shifts = [0, 7_000_000_000, -3_000_000_000, 500_000_000]
    members = {0: (2, 3), 1: (1, 2), 2: (0, 1), 3: (0, 1), 4: (2, 3), 5: (1, 2)}
    stops = [[BEGIN + place * MILLISECOND - shifts[rank] for rank in ranks] for place, ranks in members.items()]
    assert align_clocks(together(stops, members=members), NOWHERE).offset.tolist() == shifts


def test_ranks_without_a_collective_keep_their_clocks():
    clocks = align_clocks(together([[BEGIN, BEGIN - 5_000_000]]), NOWHERE)
    assert clocks.offset.tolist() == [0, 5_000_000, 0, 0]
    assert clocks.collectives.tolist() == [1, 1, 0, 0]
    assert clocks.spread.tolist() == [0, 0, -1, -1]


def test_collectives_that_ranks_leave_one_by_one_do_not_align_clocks():
    stops = [[BEGIN, BEGIN + 80 * MILLISECOND]]
    assert align_clocks(together(stops, kind=CollectiveKind.BROADCAST), NOWHERE[:2]).offset.tolist() == [0, 0]


def test_ranks_of_one_host_have_one_clock():
    stops = [[BEGIN + step, BEGIN + step - MILLISECOND, BEGIN + step - 10**10] for step in range(0, 10**8, 10**7)]
    arrivals = together(stops)
    assert align_clocks(arrivals, ["", "", ""]).offset.tolist() == [0, MILLISECOND, 10**10]
    assert align_clocks(arrivals, ["one", "one", "other"]).offset.tolist() == [0, 0, 10**10]


def test_hosts_of_one_name_whose_clocks_are_far_apart_are_several():
    stops = [[BEGIN + step, BEGIN + step - 10**10] for step in range(0, 10**8, 10**7)]
    assert align_clocks(together(stops), ["localhost", "localhost"]).offset.tolist() == [0, 10**10]


@given(st.lists(st.integers(-(10**6), 10**6), min_size=2, max_size=6))
def test_waits_that_clocks_cannot_explain_are_counted(late: list[int]):
    """The first rank leaves before the second one comes, by so much that no clock lets it be a wait."""
    rows = [[BEGIN + 10**9 * place, BEGIN + 10**9 * place + shift] for place, shift in enumerate(late)]
    arrivals = together(rows)
    clocks = align_clocks(arrivals, NOWHERE[:2])
    start, stop = (column.reshape(-1, 2) + clocks.offset for column in (arrivals.start, arrivals.stop))
    assert clocks.violations.tolist() == (stop < start.max(axis=1)[:, None]).sum(axis=0).tolist()


def test_ranks_of_one_host_have_one_clock_also_where_one_of_them_leaves_unevenly():
    """The second host is 50 us behind, and one of its ranks leaves up to 60 us early or late."""
    uneven = np.resize([60_000, -60_000, 0], 9)
    stops = (np.arange(9) * 10 * MILLISECOND + BEGIN)[:, None] - np.array([0, 50_000, 50_000])
    stops[:, 1] += uneven
    offset = align_clocks(together(stops), ["one", "other", "other"]).offset
    assert offset[1] == offset[2]
