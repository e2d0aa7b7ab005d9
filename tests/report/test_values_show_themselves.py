"""Values that show themselves: they are what every factory returns, and stay so through copies, files and replays."""

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dask_efficiency import CriticalPath, EfficiencyReport, RunTrace, compare, critical_path
from dask_efficiency.report.compare import Comparison
from dask_efficiency.report.files import ReportFileError
from dask_efficiency.runs import compare_paths
from dask_efficiency.runs.path.compare import PathComparison
from tests.report.samples import by_hand
from tests.simulated_traces import transfer_bound

RESULTS: dict[type, Callable[[], Any]] = {
    EfficiencyReport: by_hand,
    RunTrace: transfer_bound,
    CriticalPath: lambda: critical_path(transfer_bound()),
    Comparison: lambda: compare(by_hand(), by_hand(name="b")),
    PathComparison: lambda: compare_paths(critical_path(transfer_bound()), critical_path(transfer_bound())),
}


@pytest.mark.parametrize("kind", RESULTS)
@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, replace, lambda result: pickle.loads(pickle.dumps(result))]
)
def test_a_copy_is_of_the_same_class_and_shows_the_same(kind: type, copied: Callable[[Any], Any]) -> None:
    result = RESULTS[kind]()
    again = copied(result)
    assert type(again) is type(result) is kind
    assert repr(again) == repr(result)


def test_paths_and_reports_mix_and_keep_their_names_and_a_wrong_side_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    by_hand().save(str(path))
    found = compare([path, by_hand(name="b")], str(path))
    assert found.before == (by_hand(), by_hand(name="b"))
    assert (found.names_before, found.names_after) == ((str(path), "b"), (str(path),))
    with pytest.raises(ValueError, match=r"after is \[\]; expected one run at least"):
        compare(by_hand(), [])
    with pytest.raises(TypeError, match="before holds 42; expected an EfficiencyReport or the path of one"):
        compare(42, by_hand())  # type: ignore[arg-type]  # as a caller without a type checker might
    foreign = tmp_path / "foreign.json"
    foreign.write_text("{}")
    with pytest.raises(ReportFileError, match="foreign"):
        compare(foreign, by_hand())
    with pytest.raises(FileNotFoundError, match="nothing"):
        compare(by_hand(), tmp_path / "nothing.json")
