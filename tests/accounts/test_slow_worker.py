"""Findings survive JSON, and refuse what is out of range."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.slow_worker import Cause, Evidence, SlowWorker, confidence_of

FINDING = SlowWorker(
    worker="w3",
    host="node-1",
    cause=Cause.DISK,
    score=2.5,
    confidence=0.97,
    since=1.7e9,
    effect=1.4,
    seconds_lost=12.5,
    evidence=(Evidence("duration", 1.4, 1.0, 0.9, 1.1, 6.0, 40), Evidence("disk", 0.2, 0.1, 0.05, 0.12, 5.0, 12)),
    line="etl.py:88",
)


def test_a_finding_survives_json() -> None:
    text = json.dumps(FINDING.to_dict(), allow_nan=False)
    assert SlowWorker.from_dict(json.loads(text)) == FINDING


def test_unknown_figures_survive_json_as_null() -> None:
    content = SlowWorker("w", "", Cause.UNKNOWN, 1.0, 0.5, math.nan, None).to_dict()
    assert content["since"] is content["seconds_lost"] is None
    again = SlowWorker.from_dict(json.loads(json.dumps(content)))
    assert math.isnan(again.since)
    assert again.seconds_lost is again.effect is None


@pytest.mark.parametrize(
    ("name", "value"), [("confidence", 1.5), ("effect", -1.0), ("effect", math.inf), ("score", math.nan)]
)
def test_a_figure_out_of_range_is_refused_by_name(name: str, value: float) -> None:
    given = {"score": 1.0, "confidence": 0.5, "effect": 1.2} | {name: value}
    with pytest.raises(ValueError, match=f"{name} of 'w3' is {value}; expected"):
        SlowWorker("w3", "", Cause.UNKNOWN, since=0.0, **given)


@pytest.mark.parametrize("without", ["worker", "cause", "evidence"])
def test_a_finding_with_a_part_missing_or_an_unknown_cause_is_refused(without: str) -> None:
    content = FINDING.to_dict()
    del content[without]
    with pytest.raises(ValueError, match=f"not a finding: .*{without}"):
        SlowWorker.from_dict(content)
    with pytest.raises(ValueError, match="'gremlins' is not a valid Cause"):
        SlowWorker.from_dict(FINDING.to_dict() | {"cause": "gremlins"})


@given(score=st.floats(0, 1e6), more=st.floats(0, 1e6), wrong=st.floats(0, 1))
def test_the_confidence_grows_with_the_score_from_that_of_a_finding_that_is_barely_flagged(score, more, wrong):
    assert 1 - wrong <= confidence_of(score, wrong=wrong) <= confidence_of(score + more, wrong=wrong) <= 1
    assert confidence_of(1.0, wrong=wrong) == 1 - wrong


@pytest.mark.parametrize("odd", [10**400, 1e301, math.nan, True, "2", [1]])
@pytest.mark.parametrize("name", ["score", "confidence", "since", "effect", "seconds_lost", "z", "tasks"])
def test_a_number_that_is_none_or_far_too_large_is_refused(name: str, odd: object) -> None:
    content = FINDING.to_dict()
    (content["evidence"][0] if name in content["evidence"][0] else content)[name] = odd
    with pytest.raises(ValueError, match="; expected a (whole )?number from"):
        SlowWorker.from_dict(content)


@pytest.mark.parametrize("name", ["worker", "host", "line", "signal"])
def test_a_name_that_is_no_text_is_refused(name: str) -> None:
    content = FINDING.to_dict()
    (content["evidence"][0] if name in content["evidence"][0] else content)[name] = ["a"]
    with pytest.raises(ValueError, match="expected a string"):
        SlowWorker.from_dict(content)
