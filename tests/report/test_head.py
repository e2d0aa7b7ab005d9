import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from dask_efficiency import EfficiencyReport
from dask_efficiency.report.files import MAX_HEAD, ReportFileError, head_from_dict, read_head, save, to_dict
from dask_efficiency.report.head import MAX_LABELS, RunHead, given_labels, run_head, schema
from tests.report.samples import by_hand, reports, with_gpus

TYPES = {"string": str, "integer": int, "number": (int, float), "object": dict, "array": list, "null": type(None)}


def wrong(value: Any, rule: dict[str, Any], where: str = "") -> list[str]:
    """Places that the schema does not allow; the part of JSON Schema that ours uses."""
    assert rule.keys() <= {
        *("$schema", "title", "description", "type", "const", "required", "properties", "additionalProperties", "items")
    }
    if "const" in rule:
        return [] if value == rule["const"] else [where]
    kinds = rule["type"] if isinstance(rule["type"], list) else [rule["type"]]
    if isinstance(value, bool) or not any(isinstance(value, TYPES[kind]) for kind in kinds):
        return [where]
    found = []
    if isinstance(value, dict):
        found += [f"{where}.{name}" for name in rule.get("required", ()) if name not in value]
        known = rule.get("properties", {})
        for name, each in value.items():
            if one := known.get(name) or rule.get("additionalProperties"):
                found += wrong(each, one, f"{where}.{name}")
    if isinstance(value, list):
        found += [place for i, each in enumerate(value) for place in wrong(each, rule["items"], f"{where}[{i}]")]
    return found


def first_line(path: Path) -> Any:
    with path.open() as file:
        return json.loads(file.readline().rstrip().removesuffix(",") + "}")


@given(reports)
def test_the_head_of_any_report_is_as_the_schema_says_and_comes_back_as_it_was(report: EfficiencyReport) -> None:
    data = json.loads(json.dumps(to_dict(report)))
    del data["report"]
    assert wrong(data, schema()) == []
    assert head_from_dict(data) == run_head(report)


def test_the_schema_describes_every_field_of_a_head_and_no_other() -> None:
    described = schema()["properties"]["head"]
    assert list(described["properties"]) == described["required"] == list(to_dict(with_gpus())["head"])
    assert all(one["description"] for one in described["properties"].values())
    assert schema()["properties"].keys() | {"report"} == to_dict(by_hand()).keys()


def test_the_schema_refuses_what_is_not_as_it_says() -> None:
    data = to_dict(by_hand())
    assert wrong(data | {"version": 2}, schema()) == [".version"]
    assert wrong(data | {"head": data["head"] | {"workers": "two"}}, schema()) == [".head.workers"]


def test_the_first_line_of_a_file_is_its_head(tmp_path: Path) -> None:
    report = by_hand(name="größe", labels={"branch": "main"}, environment={"dask": "1", "commit": "ab", "more": "x"})
    save(report, tmp_path / "r.json")
    assert wrong(first_line(tmp_path / "r.json"), schema()) == []
    with (tmp_path / "r.json").open("rb") as file:
        assert read_head(file, "r.json") == run_head(report)
    assert run_head(report).versions == {"dask": "1", "commit": "ab"}
    assert run_head(report).labels == {"branch": "main"}


@pytest.mark.parametrize("name", [*RunHead.__slots__])
def test_each_field_of_a_head_is_checked(name: str) -> None:
    data = to_dict(by_hand())
    for odd in (float("nan"), True, [1], 10**400):
        with pytest.raises(ReportFileError, match=name):
            head_from_dict(data | {"head": data["head"] | {name: odd}})
    del data["head"][name]
    with pytest.raises(ReportFileError, match=name):
        head_from_dict(data)


def test_a_head_of_a_report_of_many_names_is_no_longer_than_is_read() -> None:
    labels = {f"{i}" + "\ud800" * 300: "\ud800" * 300 for i in range(MAX_LABELS)}
    data = to_dict(by_hand(labels=given_labels(labels)))
    del data["report"]
    assert len(json.dumps(data)) < MAX_HEAD / 10


def test_labels_are_few_short_texts() -> None:
    assert given_labels({"run": 7}) == {"run": "7"}  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="21 names; expected at most 20"):
        given_labels(dict.fromkeys(map(str, range(21)), ""))
    with pytest.raises(TypeError, match="expected texts by name"):
        given_labels("main")  # type: ignore[arg-type]
