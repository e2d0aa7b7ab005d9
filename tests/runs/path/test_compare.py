import re

import pytest

from dask_efficiency import critical_path
from dask_efficiency.runs import compare_paths
from tests.simulated_traces import MS, SAMPLES, Graph, simulate


def test_moves_off_the_path_and_onto_it_are_named() -> None:
    # 50 ms beside 40 ms; the longer one five times as fast leaves the path to the other.
    graph = Graph(["long", "short", "both"], [[], [], [0, 1]], [50 * MS, 40 * MS, 10 * MS], [1, 1, 1], {2})
    before = critical_path(simulate(graph))
    comparison = compare_paths(before, before.what_if(speed_up={"long": 5.0}))
    frame = comparison.to_frame("prefix")
    assert frame.moved["short"] == "onto"
    # Its result still has to be fetched.
    assert frame.change["long"] < -0.049
    assert frame.before["both"] == pytest.approx(frame.after["both"], abs=0.001)


def test_the_changes_add_up_to_the_makespans() -> None:
    comparison = compare_paths(critical_path(SAMPLES["tree"]()), critical_path(SAMPLES["spilling"]()))
    grown = comparison.after.makespan_seconds - comparison.before.makespan_seconds
    for by in ("kind", "prefix"):
        assert comparison.to_frame(by).change.sum() == pytest.approx(grown)
    assert comparison.to_frame("kind").moved["spill"] == "onto"


def test_the_headline_names_the_kind_that_made_most_of_it() -> None:
    path = critical_path(SAMPLES["spilling"]())
    headline = compare_paths(path, path.what_if(without=["spill"])).headline
    assert re.fullmatch(r"\S+ % shorter: 0\.\d+ -> 0\.\d+ s, mostly unspill \(-\S+ s\), in sum \(-\S+ s\)", headline)
    # a long name leaves it short and harmless
    graph = Graph(["\x1b" + "x" * 200], [[]], [5 * MS], [1], {0})
    headline = compare_paths(path, critical_path(simulate(graph))).headline
    assert headline.isprintable()
    assert len(headline) <= 100


def test_equal_runs_have_no_difference() -> None:
    path = critical_path(SAMPLES["tree"]())
    comparison = compare_paths(path, path)
    assert comparison.headline == "No difference: both took 0.434 s"
    with pytest.raises(ValueError, match="by is 'worker'; expected one of kind, prefix"):
        comparison.to_frame("worker")
