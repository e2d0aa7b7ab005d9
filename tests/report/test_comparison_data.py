import json

import pytest
from hypothesis import given

from dask_efficiency import compare
from tests.report.comparison_samples import sides
from tests.report.samples import by_hand, causes, report_of, seconds, waiting_for_the_gil

SPILLS = compare(by_hand(), by_hand(by_worker={"a": seconds(thread_cpu=10, spill=8)}, environment={"dask": "2"}))


def test_the_data_are_exact_and_in_nanoseconds() -> None:
    data = SPILLS.to_dict()
    assert (data["format"], data["version"]) == ("dask-efficiency-comparison", 1)
    assert data["causes_ns"]["spill"] == {"before": 3 * 10**9, "after": 8 * 10**9, "change": 5 * 10**9, "spread": None}
    assert data["lost_ns"]["change"] == 10**9
    assert data["environment"] == {"dask": {"before": [""], "after": ["2"]}}
    assert data["headline"] == SPILLS.headline
    assert data["findings"] == [one.to_dict() for one in SPILLS.findings]
    assert data["prefixes"]["load"]["lost_ns"]["before"] == 3 * 10**9
    from_nothing = compare(report_of(seconds(thread_cpu=1)), report_of(seconds(thread_cpu=1, spill=1))).to_dict()
    assert (from_nothing["lost_rise"], from_nothing["lost_ns"]["change"]) == (None, 10**9)


def test_causes_within_a_bucket_are_in_the_data() -> None:
    after = waiting_for_the_gil(causes_by_worker={w: causes(**{"idle/graph": 14}) for w in "ab"})
    parts = compare(waiting_for_the_gil(), after).to_dict()["parts_ns"]
    assert parts["idle/graph"]["change"] == 28 * 10**9
    assert not any(name.startswith("thread-noncpu") for name in parts)


@given(sides, sides)
def test_the_data_of_any_comparison_are_json_and_add_up(before, after):
    data = json.loads(json.dumps(compare(before, after).to_dict(), allow_nan=False))
    causes = sum(cause["after"] for cause in data["causes_ns"].values())
    assert causes + data["not_by_cause_ns"]["after"] == data["lost_ns"]["after"]


def test_a_frame_has_the_causes_the_prefixes_or_the_findings() -> None:
    pytest.importorskip("pandas")
    causes = SPILLS.to_frame()
    assert [*causes.columns] == ["before", "after", "change"]
    assert causes.index.name == "cause"
    assert [*causes.loc["spill"]] == [3.0, 8.0, 5.0]
    assert causes["before"].sum() == by_hand().thread_seconds
    prefixes = SPILLS.to_frame(by="prefix")
    assert prefixes.loc["load", "lost_before"] == 3.0
    assert compare(report_of(), report_of()).to_frame("prefix").empty
    assert list(SPILLS.to_frame("finding").kind) == [one.kind for one in SPILLS.findings]
    with pytest.raises(ValueError, match="by='worker'; expected 'cause', 'prefix' or 'finding'"):
        SPILLS.to_frame("worker")
