import math

import pytest

from dask_efficiency.pytest_plugin.limits import EfficiencyLimits
from tests.histories.nights import night
from tests.report.samples import by_hand, waiting_for_the_gil


def test_a_report_within_its_limits_breaks_none() -> None:
    given = {"max_seconds": 5, "min_efficiency": 0.5, "max_memory": "2 GiB", "no": ["recomputed", "thread-noncpu/gil"]}
    assert list(EfficiencyLimits.of(given).broken(by_hand())) == []
    assert list(EfficiencyLimits.of({}).broken(by_hand())) == []
    assert list(EfficiencyLimits.of({"no": None, "max_seconds": None}).broken(by_hand())) == []


@pytest.mark.parametrize(
    ("given", "clause"),
    [
        ({"max_seconds": 4}, "5.0 s of wall clock; max_seconds is 4.0 s"),
        ({"max_seconds": "900 ms"}, "5.0 s of wall clock; max_seconds is 900 ms"),
        ({"min_efficiency": 0.9}, "an efficiency of 59 %; min_efficiency is 90 %"),
        ({"no": ["spill"]}, "3.0 s of thread time in spill, and there may be none"),
        ({"no": "failed"}, "1.0 s of thread time in failed, and there may be none"),
    ],
)
def test_each_limit_is_held(given: dict[str, object], clause: str) -> None:
    assert list(EfficiencyLimits.of(given).broken(by_hand())) == [clause]


def test_memory_and_causes_are_held() -> None:
    (clause,) = EfficiencyLimits(max_memory="1 GiB").broken(night(0, peak=3 << 30))
    assert clause == "3.0 GiB in one worker's process; max_memory is 1.0 GiB"
    (clause,) = EfficiencyLimits(no=["thread-noncpu/gil"]).broken(waiting_for_the_gil())
    assert clause == "17.2 s of thread time in thread-noncpu/gil, and there may be none"


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"max_second": 4}, r"efficiency\(max_second=...\) is unknown; there is: 'max_seconds'"),
        ({"max_seconds": "soon"}, r"efficiency\(max_seconds='soon'\): expected a number"),
        ({"max_seconds": [1]}, r"efficiency\(max_seconds=\[1\]\): expected a number"),
        ({"max_memory": (1,)}, r"efficiency\(max_memory=\(1,\)\): expected a number"),
        ({"no": 5}, r"efficiency\(no=5\): expected names"),
        ({"max_memory": "2 apples"}, r"max_memory='2 apples'"),
        ({"no": ["spil"]}, r"efficiency\(no='spil'\): there is: 'spill'"),
    ],
)
def test_what_is_no_limit_is_refused_by_name(given: dict[str, object], wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        EfficiencyLimits.of(given)


def test_what_is_not_known_breaks_no_limit() -> None:
    assert list(EfficiencyLimits(max_memory=1, min_efficiency=1.0).broken(night(0, spill=0.0))) == []
    assert math.isnan(by_hand(by_worker={}, by_prefix={}).efficiency)
    assert list(EfficiencyLimits(min_efficiency=1.0).broken(by_hand(by_worker={}, by_prefix={}))) == []
