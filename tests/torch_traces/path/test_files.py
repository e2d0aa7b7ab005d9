from pathlib import Path
from typing import Any

import pytest

from dask_efficiency import load_trace
from dask_efficiency.runs.trace.files import TraceFileError
from dask_efficiency.torch_traces import TorchCriticalPath
from dask_efficiency.torch_traces import load_critical_path as load_path
from dask_efficiency.torch_traces.path.files import PathFileError
from tests.runs.trace.archives import Change, archive, forged, set_to
from tests.runs.trace.equal import assert_same
from tests.torch_traces.path.public import path_of
from tests.torch_traces.path.samples import recorded, with_execution


@pytest.mark.parametrize("name", ["simple_add", "event_sync", "cpu_only", "dlrm"])
def test_a_path_is_loaded_as_it_was_saved(tmp_path: Path, name: str) -> None:
    recorded(name).save(tmp_path / "step.path")
    loaded = load_path(tmp_path / "step.path")
    assert isinstance(loaded, TorchCriticalPath)
    assert_same(recorded(name), loaded)
    assert str(loaded) == str(recorded(name))


def test_data_that_operators_read_are_kept(tmp_path: Path) -> None:
    with_execution().save(tmp_path / "step.path")
    loaded = load_path(tmp_path / "step.path")
    assert_same(with_execution(), loaded)
    assert loaded.data_flow().floor_seconds == with_execution().data_flow().floor_seconds > 0


def test_a_changed_path_is_loaded_and_can_be_changed_again() -> None:
    path = recorded("event_sync").what_if(without=["kernel-launch"])
    path.save("memory://paths/step.path")
    loaded = load_path("memory://paths/step.path")
    assert loaded.changes == ("With no kernel-launch",)
    assert_same(path.what_if(speed_up={"aten::": 2.0}), loaded.what_if(speed_up={"aten::": 2.0}))


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("paths") / "step.path"
    recorded("event_sync").save(path)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("foreign", "found"),
    [
        (archive(trace_json="{}"), "without 'path.json'; expected a 'dask-efficiency-torch-path' file"),
        (archive(path_json='{"format": "dask-efficiency-trace"}'), "found format 'dask-efficiency-trace'; expected"),
        (archive(path_json='{"format": "dask-efficiency-torch-path", "version": 2}'), "found version 2 .* another"),
    ],
)
def test_an_archive_of_another_kind_or_version_is_refused_by_name(tmp_path: Path, foreign: bytes, found: str) -> None:
    path = tmp_path / "step.path"
    path.write_bytes(foreign)
    with pytest.raises(PathFileError, match=found) as caught:
        load_path(path)
    assert str(caught.value).startswith(str(path))
    assert len(str(caught.value)) < 500


def test_a_path_is_no_recorded_run(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "step.path").write_bytes(content)
    with pytest.raises(TraceFileError, match=r"is an archive without 'trace.json'"):
        load_trace(tmp_path / "step.path")


def _shifted(group: str, column: str) -> Change:
    """Every number of a column is a million more."""

    def change(described: dict[str, Any], members: dict[str, bytes]) -> None:
        packing = described["columns"][group]["columns"][column]
        packing[2 if packing[0] == "<" else 3] += 1_000_000

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (set_to("chosen", to=3), "'chosen' is 3; expected the position of one of 1 graphs"),
        (set_to("chosen", to="x"), "'chosen' is 'x'; expected int"),
        (set_to("question", "instance", to="x"), "'question.instance' is 'x'; expected a number, two, or none"),
        (set_to("question", "instance", to=[1]), "'question.instance' is [1]"),
        (set_to("question", "rank", to=1.5), "'question.rank' is 1.5"),
        (set_to("question", "data_loading", to=[3]), "'data_loading' holds 3; expected str"),
        (set_to("ranks", 0, "threads", to=[[1]]), "'ranks.threads' holds [1]; expected a process, a thread and a name"),
        (set_to("ranks", 0, "groups", to={"0": ["a"]}), "'ranks.groups' holds 'a'; expected int"),
        (set_to("ranks", 0, "notes", to=[3]), "'ranks.notes' holds 3; expected str"),
        (set_to("ranks", 0, "notes", to="x"), "'ranks.notes' is 'x'; expected list"),
        (set_to("ranks", 0, "world_size", to="two"), "'ranks.world_size' is 'two'"),
        (set_to("ranks", 0, "rank", to=5), "'graphs.rank' is 0; expected 5"),
        (set_to("graphs", 0, "start", to=None), "'graphs.start' is None; expected int"),
        (_shifted("graphs/0/nodes", "event"), "'graphs/0/nodes/event' has "),
        (_shifted("graphs/0/edges", "target"), "'graphs/0/edges/target' has "),
        (_shifted("graphs/0/region", "rows"), "'graphs/0/region/rows' has "),
        (_shifted("ranks/0/events", "name"), "'ranks/0/events/name' has "),
        (_shifted("longest", "nodes"), "'longest/nodes' has "),
        (_shifted("ranks/0/name_offsets", "offsets"), "'ranks/0/name_offsets' do not rise from 0"),
    ],
)
def test_a_forged_file_is_refused(tmp_path: Path, content: bytes, change: Change, message: str) -> None:
    path = tmp_path / "step.path"
    path.write_bytes(forged(content, "path.json", change))
    with pytest.raises(PathFileError) as caught:
        load_path(path)
    assert message in str(caught.value)


def test_a_saved_path_keeps_what_was_changed_and_what_is_not_known(tmp_path: Path) -> None:
    for name in ("01-work-ends-2us-after-its-wait", "02-launches-without-kernels", "08-ascend-trace-view"):
        path = path_of(name)
        path.save(tmp_path / "step.path")
        again = load_path(tmp_path / "step.path")
        assert str(again) == str(path)
        assert again.trace.ranks[0].notes == path.trace.ranks[0].notes
