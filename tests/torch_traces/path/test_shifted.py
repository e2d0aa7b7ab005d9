from __future__ import annotations

import numpy as np

from dask_efficiency.torch_traces.kineto.trace import Category
from tests.torch_traces.path.samples import recorded


def test_what_comes_after_a_region_moves_with_its_end_and_what_was_before_stays() -> None:
    path = recorded("simple_add")
    again = path.what_if(speed_up={"cudaMalloc": 2.0})
    region = path.graph.region
    later = again.graph.region.stop - region.stop
    assert later < 0
    was, now = path.trace.ranks[0].events, again.trace.ranks[0].events
    of_graph = np.isin(np.arange(len(was)), path.graph.nodes.event)
    after, before = (was.start >= region.stop) & ~of_graph, was.stop <= region.start
    assert after.any()
    assert before.any()
    assert (now.start[after] - was.start[after] == later).all()
    assert np.array_equal(now.stop[before], was.stop[before])


def test_events_without_nodes_stay_around_those_that_they_were_around() -> None:
    path = recorded("simple_add")
    again = path.what_if(speed_up={"cudaMalloc": 2.0})
    was, now = path.trace.ranks[0].events, again.trace.ranks[0].events
    around = np.flatnonzero(
        (was.category == Category.ANNOTATION)
        & (was.start <= path.graph.region.start)
        & (was.stop >= path.graph.region.stop)
    )
    assert len(around)
    for row in around.tolist():
        assert now.start[row] <= again.graph.region.start
        assert now.stop[row] >= again.graph.region.stop
    assert (now.stop >= now.start).all()
