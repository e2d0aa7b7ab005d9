from __future__ import annotations

import json

import pytest

from dask_efficiency.torch_traces.sections.data import to_dict
from tests.torch_traces.path.samples import recorded


@pytest.mark.parametrize("name", ["simple_add", "cpu_only", "dlrm"])
def test_the_figures_of_a_path_are_ready_for_json(name: str) -> None:
    path = recorded(name)
    found = json.loads(json.dumps(to_dict(path), allow_nan=False))
    assert found["headline"] == path.headline
    assert sum(found["seconds_by_kind"].values()) == pytest.approx(found["window_seconds"])
    assert sum(found["summary"].values()) == pytest.approx(1.0)
    assert found["ranks"] == [graph.trace.rank for graph in path.graphs]
    assert found["rank"] == path.rank


def test_stragglers_are_named_by_their_numbers() -> None:
    found = to_dict(recorded("dlrm"))
    assert found["stragglers"][0]["rank"] == 7
    assert [row["rank"] for row in found["waits"]] == list(range(8))
    assert sum(row["caused_seconds"] for row in found["waits"]) == pytest.approx(
        sum(row["suffered_seconds"] for row in found["waits"])
    )
