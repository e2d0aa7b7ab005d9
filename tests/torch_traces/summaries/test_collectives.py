import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.torch_traces.kineto.load import load_kineto
from dask_efficiency.torch_traces.kineto.trace import RankTrace
from dask_efficiency.torch_traces.path.collectives import CollectiveKind, RankExchanges
from dask_efficiency.torch_traces.path.ranks import job_ranks
from dask_efficiency.torch_traces.summaries.collectives import merged_collectives
from tests.torch_traces.path.jobs import Plan, job, plans
from tests.torch_traces.path.programs import rank_of, work
from tests.torch_traces.path.samples import RECORDED, recorded_rank

#: Bytes of 1,000,000 floats.
NBYTES = 4_000_000


def ranks_of(
    name: str, arrivals: list[list[int]], stops: list[int], *, ranks: int = 2, sizes: str = ""
) -> list[RankTrace]:
    """Ranks that take part in collectives of 1,000,000 floats, in microseconds: arrivals by rank and collective."""
    group = {"Process Group Name": "0", "Process Group Ranks": str([*range(ranks)]), "dtype": "Float"}
    found = []
    for rank, of_rank in enumerate(arrivals):
        events = []
        for at, stop in zip(of_rank, stops, strict=True):
            event = work(f"ncclDevKernel_{name}", at, stop, 0)
            event["args"] |= group | {"Collective name": name, "In msg nelems": 1_000_000, "Out msg nelems": 1_000_000}
            events.append(event)
        found.append(replace(rank_of(events), rank=rank))
    return found


@pytest.mark.parametrize(
    ("name", "kind", "ranks", "factor"),
    [
        ("allreduce", CollectiveKind.ALL_REDUCE, 2, 1.0),
        ("allreduce", CollectiveKind.ALL_REDUCE, 4, 1.5),
        ("_allgather_base", CollectiveKind.ALL_GATHER, 4, 0.75),
        ("_reduce_scatter_base", CollectiveKind.REDUCE_SCATTER, 4, 0.75),
        ("all_to_all", CollectiveKind.ALL_TO_ALL, 4, 0.75),
        ("broadcast", CollectiveKind.BROADCAST, 4, 1.0),
    ],
)
def test_bandwidth_is_from_the_last_arrival_on_and_as_nccls_tests_have_it(
    name: str, kind: CollectiveKind, ranks: int, factor: float
) -> None:
    arrivals = [[100 - rank, 1000, 2000 - rank] for rank in range(ranks)]
    found = merged_collectives(
        [RankExchanges.of(rank) for rank in ranks_of(name, arrivals, [200, 1100, 2100], ranks=ranks)]
    )
    (row,) = range(len(found.sums))
    sums = found.sums
    assert (sums.kind[row], sums.nbytes[row], sums.size[row]) == (kind, NBYTES, ranks)
    assert (sums.calls[row], sums.matched[row], sums.whole[row]) == (3 * ranks, 3, 3)
    assert math.isclose(sums.algorithm_bandwidth[row], 3 * NBYTES / 300e-6)
    assert math.isclose(sums.bus_bandwidth[row], factor * 3 * NBYTES / 300e-6)
    assert sums.worst_skew[row] == (ranks - 1) * 1000
    assert (sums.last[row], sums.last_count[row]) == (0, 3)


def test_bandwidth_needs_all_ranks_of_the_group_and_skew_two() -> None:
    ranks = ranks_of("allreduce", [[10, 500], [50, 500], [20, 500]], [100, 600], ranks=4)
    sums = merged_collectives([RankExchanges.of(rank) for rank in ranks]).sums
    assert math.isnan(sums.algorithm_bandwidth[0])
    assert math.isnan(sums.bus_bandwidth[0])
    assert math.isclose(sums.mean_skew_seconds[0], 20e-6)
    alone = merged_collectives([RankExchanges.of(ranks[0])]).sums
    assert (alone.calls[0], alone.total[0], alone.matched[0], alone.last[0]) == (2, 190_000, 0, MISSING)
    assert math.isnan(alone.mean_skew_seconds[0])


def test_a_large_group_whose_members_were_cut_has_its_size() -> None:
    trace = recorded_rank("nccl")
    cut = replace(trace, groups={})
    assert merged_collectives([RankExchanges.of(cut)]).sums.size.tolist() == [2]


@given(plans())
def test_waits_and_last_ranks_are_those_of_the_path(plan: Plan) -> None:
    trace = job(plan.recordings())
    found = merged_collectives([RankExchanges.of(rank) for rank in trace.ranks])
    expected = job_ranks(trace)
    for name, column in expected.waits.columns().items():
        assert np.array_equal(getattr(found.waits, name), column)
    steps = len(plan.arrivals)
    assert found.sums.matched.tolist() == [steps]
    assert found.sums.total.sum() == sum(int((t.events.stop - t.events.start)[3::4].sum()) for t in trace.ranks)
    last = np.bincount([int(np.argmax(arrivals)) for arrivals in plan.arrivals])
    assert found.sums.last_count.tolist() == [last.max()]


def test_eight_recorded_ranks_have_a_late_one() -> None:
    found = merged_collectives([RankExchanges.of(rank) for rank in load_kineto(RECORDED["dlrm"]).ranks])
    assert found.sums.kind.tolist() == [CollectiveKind.ALL_TO_ALL, CollectiveKind.ALL_REDUCE]
    assert found.sums.last.tolist() == [7, 7]
    assert found.waits.suffered.sum() == found.waits.caused.sum()
