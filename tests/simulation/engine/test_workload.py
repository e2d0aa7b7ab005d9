from typing import Any

import pytest
from dask.utils import key_split
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.simulation.engine.workload import Workload, parse_key
from tests import simulated_traces

parts = st.one_of(st.text(max_size=8), st.integers(), st.tuples(st.text(max_size=3), st.integers()))


@given(st.one_of(st.text(max_size=20), st.lists(parts, min_size=1, max_size=4).map(tuple)))
def test_a_key_comes_back_from_its_text(key: Any) -> None:
    found = parse_key(str(key))
    assert str(found) == str(key)
    if isinstance(key, tuple):
        assert found == key
        assert key_split(found) == key_split(key)


@pytest.mark.parametrize("text", ["(", "('x', ", "('x',  0)", "(1)", "('x', open('y'))", "(" * 3000])
def test_a_text_that_is_no_tuple_stays_a_text(text: str) -> None:
    assert parse_key(text) == text


def test_a_graph_waits_for_as_many_results_as_its_client_had_heard_of() -> None:
    trace = simulated_traces.two_computations()
    first, second = Workload(trace).graphs
    assert (first.after, second.after) == (0, len(first.wanted))
    assert second.delay > 0
    assert sorted(first.tasks + second.tasks) == list(range(len(trace.tasks)))
