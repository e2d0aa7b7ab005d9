import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.torch_traces import TorchCriticalPath
from dask_efficiency.torch_traces.path.chrome import CRITICAL, ROUNDING_NS, NestedSlices, nested
from tests.runs.trace.perfetto import FAULTS, query_each
from tests.torch_traces.path.samples import recorded


def of(*slices: tuple[int, int]) -> NestedSlices:
    rows = np.array(slices, np.int64).reshape(len(slices), 2)
    return nested(rows[:, 0], rows[:, 1])


def test_nested_and_successive_slices_share_a_track() -> None:
    assert of((0, 50_000), (0, 20_000), (20_000, 50_000), (50_000, 60_000)).track.tolist() == [0, 0, 0, 0]


def test_an_overlap_by_rounding_is_cut_off() -> None:
    found = of((0, 50_000), (20_000, 51_000), (49_500, 90_000))
    assert found.track.tolist() == [0, 0, 0]
    assert found.stop.tolist() == [49_500, 49_500, 90_000]


@given(st.lists(st.tuples(st.integers(0, 20_000), st.integers(0, 9_000)), max_size=20))
def test_slices_of_a_track_nest(pairs: list[tuple[int, int]]) -> None:
    start = np.array([at for at, _ in pairs], np.int64)
    stop = start + np.array([length for _, length in pairs], np.int64)
    found = nested(start, stop)
    assert (np.abs(found.stop - stop) <= 2 * ROUNDING_NS).all()
    assert (found.stop >= found.start).all()
    rows = list(zip(found.track.tolist(), found.start.tolist(), found.stop.tolist(), strict=True))
    for track, since, until in rows:
        for other, at, end in rows:
            assert track != other or not since < at < until < end


COUNTS = ("select count(*) from slice", "select count(*) from flow", "select count(*) from counter", FAULTS)
WHOLE = {"only_critical": False, "all_edges": True}


def events(name: str | TorchCriticalPath, path: Path, **asked: bool) -> list[dict[str, Any]]:
    (recorded(name) if isinstance(name, str) else name).to_chrome(path, **asked)
    found: list[dict[str, Any]] = json.loads(path.read_bytes())["traceEvents"]
    return found


def flows(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in found if event["ph"] == "s" and event["cat"].startswith("critical_path_")]


def critical(found: list[dict[str, Any]]) -> int:
    return sum(event["ph"] == "X" and event.get("args", {}).get("critical", 0) for event in found)


def test_marked_events_and_arrows_are_as_many_as_htas_own_test_counts(tmp_path: Path) -> None:
    whole, few = events("simple_add", tmp_path / "whole", **WHOLE), events("simple_add", tmp_path / "few")
    assert critical(whole) == critical(few) == 159
    assert sum(flow["name"] == CRITICAL for flow in flows(whole)) == 314
    assert len(flows(few)) == 21
    assert {flow["cat"] for flow in flows(few)} <= {
        "critical_path_dependency",
        "critical_path_kernel_launch_delay",
        "critical_path_sync_dependency",
    }


@pytest.mark.parametrize("name", ["simple_add", "event_sync", "h100", "mi300", "dlrm"])
def test_no_edge_is_left_out(tmp_path: Path, name: str) -> None:
    graph = recorded(name).graph
    launches = (graph.edges.kind == 2) & (graph.edges.weight == 0)
    drawn = [flow for flow in flows(events(name, tmp_path / "a", **WHOLE)) if flow["cat"] != "critical_path_rank"]
    assert len(drawn) == len(graph.edges) - int(launches.sum())


def test_perfetto_finds_all_that_was_written_and_no_fault(tmp_path: Path) -> None:
    written = {}
    for name in ("simple_add", "event_sync", "h100", "mi300", "cpu_only", "dlrm"):
        for asked in ({}, WHOLE):
            file = tmp_path / f"{name}-{len(asked)}.json"
            written[file] = recorded(name).to_chrome(file, **asked)
    found = query_each(list(written), *COUNTS)
    for (file, wrote), (slices, arrows, counters, faults) in zip(written.items(), found, strict=True):
        assert (slices, arrows, counters) == ([[wrote.slices]], [[wrote.flows]], [[wrote.counters]]), file.name
        assert faults == [], file.name


def test_the_walk_has_a_track_of_its_own_and_covers_the_window(tmp_path: Path) -> None:
    path = recorded("dlrm")
    walk = [event for event in events("dlrm", tmp_path / "a") if event.get("cat") == "critical-path"]
    assert len(walk) == len(path.stretches)
    assert sum(event["dur"] for event in walk) == pytest.approx(1e6 * path.window_seconds)
    assert {event["args"]["rank"] for event in walk} == {int(rank) for rank in path.seconds("rank")}


def test_only_annotations_and_python_stay_with_critical_events(tmp_path: Path) -> None:
    kept = Counter(
        event["cat"]
        for event in events("h100", tmp_path / "a")
        if event["ph"] == "X" and not event.get("args", {}).get("critical") and event["cat"] != "critical-path"
    )
    assert set(kept) <= {"user_annotation", "python_function"}


def test_a_changed_path_is_drawn_at_its_new_times(tmp_path: Path) -> None:
    path = recorded("event_sync")
    before, after = (
        {e["dur"] for e in events(one, tmp_path / "a", **WHOLE) if e.get("cat") == "kernel" and "spin_ker" in e["name"]}
        for one in (path, path.what_if(speed_up={"spin_kernel": 2.0}))
    )
    assert after == {length / 2 for length in before}
