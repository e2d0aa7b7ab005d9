import json
import math
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from dask_efficiency import EfficiencyReport, load_report
from dask_efficiency.report.files import ReportFileError, from_dict, save, to_dict
from tests.report.samples import SECOND, by_hand, report_of, reports, skew, with_gpus


@given(reports)
def test_a_report_comes_back_from_its_json_as_it_was(report: EfficiencyReport) -> None:
    text = json.dumps(to_dict(report), allow_nan=False)
    # A straggler's `since` may be NaN, which equals itself in containers only.
    assert asdict(from_dict(json.loads(text))) == asdict(report)


@pytest.mark.parametrize("name", ["report.json", "report.json.gz", "report.json.bz2", "report.json.xz"])
def test_a_saved_report_is_loaded_as_it_was(tmp_path: Path, name: str) -> None:
    report = by_hand(price_per_worker_hour=0.1, notes=("größe",), name="\ud800")
    save(report, tmp_path / name)
    assert load_report(tmp_path / name) == report
    assert os.listdir(tmp_path) == [name]
    # through a symbolic link, its target is replaced
    (tmp_path / f"link-{name}").symlink_to(tmp_path / name)
    save(by_hand(), tmp_path / f"link-{name}")
    assert (tmp_path / f"link-{name}").is_symlink()
    assert load_report(tmp_path / name) == by_hand()


def test_a_report_travels_through_fsspec(tmp_path: Path) -> None:
    for url in ("memory://reports/one.json", "memory://reports/one.json.gz", "simplecache::memory://reports/two.json"):
        by_hand().save(url)
        assert load_report(url) == by_hand()
    save(by_hand(), f"file://{tmp_path}/new/r.json", auto_mkdir=True)
    assert load_report(tmp_path / "new" / "r.json") == by_hand()


def test_breakdowns_are_in_whole_nanoseconds_and_the_summary_is_not_read() -> None:
    data = to_dict(by_hand())
    whole_ns = {"thread-cpu": 6_000_000_000, "spill": 3_000_000_000, "idle": 1_000_000_000}
    assert data["report"]["by_worker"]["a"] == whole_ns
    assert data["summary"]["efficiency"] == 10 / 17
    assert data["summary"]["losses"][0]["bucket"] == "spill"
    assert data["summary"]["factors"]["memory"] == 13 / 16
    assert data["summary"]["gpu"] is None
    data["summary"] = "anything"
    assert from_dict(data) == by_hand()
    gpu = to_dict(with_gpus())["summary"]["gpu"]
    assert gpu["activity_ns"] == {"kernels": 6 * SECOND, "copies": 1 * SECOND, "idle": 13 * SECOND}
    assert gpu["parallel_efficiency"] == 0.3


def test_nan_is_null(tmp_path: Path) -> None:
    save(report_of(cluster_seconds=math.nan), tmp_path / "r.json")
    text = (tmp_path / "r.json").read_text()
    assert "NaN" not in text
    assert json.loads(text)["summary"]["efficiency"] is None
    assert math.isnan(load_report(tmp_path / "r.json").cluster_seconds)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "no valid JSON"),
        (b"\x80\x04\x95pickle", "no valid JSON"),
        (b'{"format": "dask-efficiency-report", "vers', "no valid JSON"),
        (b'{"format": NaN}', "NaN is no JSON"),
        (b"[" * 100_000, "no valid JSON"),
        (b"[]", "found a list"),
        (b"null", "found a null"),
        (b'{"a": 1}', "found format None"),
        (b'{"format": "chrome-trace"}', "found format 'chrome-trace'"),
    ],
)
def test_a_foreign_or_damaged_file_is_refused_by_name(tmp_path: Path, content: bytes, found: str) -> None:
    path = tmp_path / "r.json"
    path.write_bytes(content)
    with pytest.raises(ReportFileError, match=found) as caught:
        load_report(path)
    assert str(caught.value).startswith(str(path))
    assert "expected" in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("name", ["r.json.gz", "r.json.bz2", "r.json.xz", "r.json.zip"])
def test_a_truncated_or_foreign_compressed_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    save(by_hand(), path)
    whole = path.read_bytes()
    for content in (whole[: len(whole) // 2], b"not compressed at all"):
        path.write_bytes(content)
        with pytest.raises(ReportFileError, match="expected") as caught:
            load_report(path)
        assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("version", [2, 0, "1", True, None])
def test_another_version_is_refused(version: Any) -> None:
    with pytest.raises(ReportFileError, match=r"found version .* expected 1"):
        from_dict(to_dict(by_hand()) | {"version": version})


TIMELINE = {"bin_ns": 5, "elapsed_ns": 9, "activity": {}, "causes": {}}


@pytest.mark.parametrize(
    ("field", "value", "where"),
    [
        ("name", 3, "'name'"),
        ("started", "now", "'started'"),
        ("started", True, "'started'"),
        ("cluster_seconds", 10**400, "'cluster_seconds'"),
        ("by_worker", [], "'by_worker'"),
        ("by_worker", {"a": {"spill": 1.5}}, r"'by_worker\.a\.spill'"),
        ("by_worker", {"a": {"spill": -1}}, r"'by_worker\.a\.spill'"),
        ("by_worker", {"a": {"lunch": 1}}, r"'by_worker\.a'.*'lunch'"),
        ("tasks", {"failed": 1.0}, r"'tasks\.failed'"),
        ("nthreads", {"a": None}, r"'nthreads\.a'"),
        ("phases", {"run": "1"}, r"'phases\.run'"),
        ("notes", "one", "'notes'"),
        ("notes", [1], "'notes'"),
        ("price_per_worker_hour", "much", "'price_per_worker_hour'"),
        ("code", "x = 1", "'code'"),
        ("gpu", [], "'gpu'"),
        ("gpu", {"a": {}}, r"gpu\.a\.meter is None"),
        ("repeats", [], r"'repeats' is \[\]; expected an object"),
        ("repeats", {"sum": 3}, "'repeats.sum' is 3; expected an object"),
        ("repeats", {"sum": {"tasks": 3}}, "'repeats.sum' lacks 'times'"),
        ("repeats", {"sum": {"tasks": -3, "times": 4}}, "'repeats.sum.tasks' is -3; expected a whole number"),
        ("skew", [], "'skew' is"),
        ("skew", {"join": 3}, "'skew.join' is 3; expected an object"),
        ("skew", {"join": {"count": 3}}, "lacks 'median_seconds'"),
        ("skew", {"join": asdict(skew()) | {"longest_key": 5}}, "skew.join.longest_key' is 5"),
        ("skew", {"join": asdict(skew()) | {"count": -1}}, "skew.join.count' is -1"),
        ("timeline", [], "'timeline'"),
        ("timeline", {"bin_ns": 10}, r"'timeline' lacks 'elapsed_ns', 'activity'"),
        ("timeline", TIMELINE | {"bin_ns": 0}, r"'timeline\.bin_ns'"),
        ("timeline", TIMELINE | {"bin_ns": 1, "elapsed_ns": 10**18}, r"'timeline\.bin_ns'"),
        ("timeline", TIMELINE | {"activity": {"lunch": [1, 2]}}, r"'timeline\.activity'.*'lunch'"),
        ("timeline", TIMELINE | {"activity": {"idle": [1]}}, "has 1 bins; expected 2"),
        ("timeline", TIMELINE | {"activity": {"idle": [1, -1]}}, r"'timeline\.activity\.idle'"),
        ("timeline", TIMELINE | {"activity": {"idle": 1}}, r"'timeline\.activity\.idle'"),
    ],
)
def test_a_field_that_is_missing_or_of_a_wrong_type_is_refused_by_name(field: str, value: Any, where: str) -> None:
    data = to_dict(by_hand())
    data["report"][field] = value
    with pytest.raises(ReportFileError, match=where):
        from_dict(data)
    del data["report"][field]
    with pytest.raises(ReportFileError, match=f"lacks '{field}'"):
        from_dict(data)
    with pytest.raises(ReportFileError, match="'report' is a null"):
        from_dict(data | {"report": None})
