"""An order in which every edge leads forward."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.torch_traces.path.graph import topological_ranks

#: Edges from higher to lower numbers, so that there is no cycle.
acyclic = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(lambda pair: pair[0] > pair[1]))


@given(acyclic, st.lists(st.integers(0, 3), min_size=10, max_size=10))
def test_every_edge_leads_forward_at_any_times(edges: list[tuple[int, int]], at: list[int]) -> None:
    source = np.array([pair[0] for pair in edges], np.int32)
    target = np.array([pair[1] for pair in edges], np.int32)
    ranks = topological_ranks(np.array(sorted(at), np.int64), source, target)
    assert sorted(ranks.tolist()) == list(range(10))
    assert all(ranks[source] < ranks[target])


def test_nodes_keep_their_order_in_time_where_only_equal_times_are_out_of_order() -> None:
    at = np.array([0, 5, 5, 5, 9])
    source, target = np.array([0, 3, 2], np.int32), np.array([3, 2, 1], np.int32)
    assert topological_ranks(at, source, target).tolist() == [0, 3, 2, 1, 4]
