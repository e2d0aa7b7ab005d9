import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.torch_traces.path.retime import NodeWaits, earliest, topological, unexplained_ns


def waits(*rows: tuple[int, int, int]) -> NodeWaits:
    source, target, lag = np.array(rows, np.int64).reshape(len(rows), 3).T
    return NodeWaits(source, target, lag)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[np.ndarray, NodeWaits]:
    at = np.array(sorted(draw(st.lists(st.integers(0, 1000), min_size=2, max_size=12))))
    ends = st.tuples(st.integers(0, len(at) - 2), st.integers(1, len(at) - 1))
    pairs = sorted({pair for pair in draw(st.lists(ends, max_size=30)) if pair[0] < pair[1]})
    lags = [draw(st.integers(0, int(at[target] - at[source]))) for source, target in pairs]
    return at, waits(*((source, target, lag) for (source, target), lag in zip(pairs, lags, strict=True)))


@given(graphs())
def test_without_a_change_everything_is_when_it_was(graph: tuple[np.ndarray, NodeWaits]) -> None:
    at, before = graph
    order = topological(at, before)
    assert earliest(at, unexplained_ns(at, before), before, order).tolist() == at.tolist()


@given(graphs(), st.integers(0, 3))
def test_less_to_wait_for_makes_nothing_later(graph: tuple[np.ndarray, NodeWaits], divisor: int) -> None:
    at, before = graph
    after = NodeWaits(before.source, before.target, before.lag // divisor if divisor else np.zeros_like(before.lag))
    found = earliest(at, unexplained_ns(at, before), after, topological(at, after))
    assert (found <= at).all()
    assert (found[after.target] >= found[after.source] + after.lag).all()


def test_an_edge_back_in_time_is_no_circle_by_itself() -> None:
    at = np.array([0, 10, 20])
    order = topological(at, waits((2, 1, 0), (0, 2, 5)))
    assert order.tolist() == [0, 2, 1]
