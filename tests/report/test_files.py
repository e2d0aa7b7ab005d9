import json
import math
import os
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from dask_efficiency import EfficiencyReport, load_report
from dask_efficiency.accounts.facts import Facts, facts_to_lists
from dask_efficiency.report.files import ReportFileError, from_dict, save, to_dict
from dask_efficiency.report.turnover import Arrival
from tests.report.samples import SECOND, by_hand, report_of, reports, skew, with_gpus

#: A worker that spilled for 3 ns.
FACTS = facts_to_lists(Facts.of_views({}, {}))
FACTS |= {name: [0] for name in FACTS} | {"names": ["", "a", "spill"], "worker": [1], "bucket": [2], "value": [3]}


@given(reports)
def test_a_report_comes_back_from_its_json_as_it_was(report: EfficiencyReport) -> None:
    text = json.dumps(to_dict(report), allow_nan=False)
    found = from_dict(json.loads(text))
    assert found.facts == report.facts
    # A straggler's `since` may be NaN, which equals itself in containers only.
    others = [{**asdict(each), "facts": None} for each in (found, report)]
    assert others[0] == others[1]


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


def test_facts_are_in_whole_nanoseconds_and_the_head_is_not_read() -> None:
    data = to_dict(by_hand())
    facts = data["report"]["facts"]
    names = facts["names"]
    rows = zip(facts["worker"], facts["bucket"], facts["value"], strict=True)
    of_a = {names[bucket]: ns for worker, bucket, ns in rows if names[worker] == "a" and ns}
    assert of_a == {"thread-cpu": 6_000_000_000, "spill": 3_000_000_000, "idle": 1_000_000_000}
    assert data["head"]["efficiency"] == 10 / 17
    assert data["head"]["losses"][0]["bucket"] == "spill"
    assert data["head"]["factors"]["memory"] == 13 / 16
    assert data["head"]["gpu"] is None
    data["head"] = "anything"
    assert from_dict(data) == by_hand()
    gpu = to_dict(with_gpus())["head"]["gpu"]
    assert gpu["activity_ns"] == {"kernels": 6 * SECOND, "copies": 1 * SECOND, "idle": 13 * SECOND}
    assert gpu["parallel_efficiency"] == 0.3


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("facts", FACTS | {"value": [2**62 + 1]}, "'facts': facts.value holds 4611686018427387905; expected"),
        ("tasks", {"succeeded": 10**400}, "'tasks.succeeded' is 1000000"),
        ("nthreads", {"a": -1}, "'nthreads.a' is -1; expected a whole number from 0 to 2**62"),
        ("cluster_seconds", 1e301, "'cluster_seconds' is 1e+301; expected a number from -1e+300 to 1e+300"),
        ("cores", 10**400, "'cores' is 10000000"),
        ("cores", True, "'cores' is True; expected a number"),
    ],
    ids=lambda part: str(part)[:20],
)
def test_a_number_beyond_what_a_run_has_is_refused_by_name(name: str, value: Any, expected: str) -> None:
    data = to_dict(by_hand())
    data["report"][name] = value
    with pytest.raises(ReportFileError, match=re.escape(expected)):
        from_dict(data)


def test_nan_is_null_and_only_times_of_arrivals_may_be_unknown(tmp_path: Path) -> None:
    save(report_of(arrivals=(Arrival("a", math.nan, 1.0, math.nan),)), tmp_path / "r.json")
    text = (tmp_path / "r.json").read_text()
    assert "NaN" not in text
    assert json.loads(text)["head"]["efficiency"] is None
    (arrival,) = load_report(tmp_path / "r.json").arrivals
    assert math.isnan(arrival.asked)
    assert arrival.joined == 1.0
    (tmp_path / "r.json").write_text(text.replace('"cluster_seconds": 4.5', '"cluster_seconds": null'))
    with pytest.raises(ReportFileError, match="'cluster_seconds' is None; expected a number from"):
        load_report(tmp_path / "r.json")


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


CLIENT = {"activity": "wait", "stack": [], "ns": 9, "idle_ns": 9, "held_ns": 0}
TIMELINE = {"bin_ns": 5, "elapsed_ns": 9, "activity": {}, "causes": {}}


@pytest.mark.parametrize(
    ("field", "value", "where"),
    [
        ("name", 3, "'name'"),
        ("started", "now", "'started'"),
        ("started", True, "'started'"),
        ("cluster_seconds", 10**400, "'cluster_seconds'"),
        ("facts", [], "'facts': facts is"),
        ("facts", FACTS | {"value": [1.5]}, "'facts': facts.value holds 1.5"),
        (
            "facts",
            FACTS | {"value": [-1]},
            "'facts': facts have -1 ns of 'spill'; expected 0",
        ),
        ("facts", FACTS | {"names": ["", "a", "lunch"]}, "'facts': facts have time in 'lunch'"),
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
        (
            "repeats",
            {"sum": {"tasks": -3, "times": 4, "name": "", "within": ""}},
            "'repeats.sum.tasks' is -3; expected a whole number",
        ),
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


@pytest.mark.parametrize(
    ("field", "value", "where"),
    [
        ("sent_by", {"a.py:3": {"graphs": 3}}, "'sent_by.a.py:3' lacks 'rounds'"),
        ("client", [CLIENT | {"activity": "lunch"}], r"'client\.activity' is 'lunch'; expected one of compute"),
        ("client", [CLIENT | {"idle_ns": 10}], r"'client\.idle_ns' is 10; expected at most its ns, 9"),
        ("client", [CLIENT | {"held_ns": 10}], r"'client\.held_ns' is 10; expected at most its ns, 9"),
    ],
)
def test_fields_that_older_files_lack_are_checked_where_they_are(field: str, value: Any, where: str) -> None:
    data = to_dict(by_hand())
    del data["report"][field]
    assert from_dict(data) == by_hand()
    data["report"][field] = value
    with pytest.raises(ReportFileError, match=where):
        from_dict(data)
