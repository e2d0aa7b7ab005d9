from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from dask_efficiency.accounts.slow_worker import Cause, Evidence, SlowWorker
from dask_efficiency.show.finding import Basis
from dask_efficiency.straggler.causes import MEANINGS
from dask_efficiency.straggler.wording import as_finding, how_many

SLOW = SlowWorker("w", "h", Cause.DISK, 2.0, 0.9, 0.0, 1.52)


def test_every_cause_is_a_finding() -> None:
    assert MEANINGS.keys() == set(Cause)
    for cause in Cause:
        assert as_finding(replace(SLOW, cause=cause)).advice.endswith(".")


def test_a_finding_is_two_bounded_lines() -> None:
    first, second = as_finding(replace(SLOW, worker="w" * 10_000, host="h" * 10_000)).lines
    assert first.endswith("www, 1.52x as long for the same work")
    assert second == "Look at where it spills to: another disk, or a full or shared one."
    assert len(first) < 200


@pytest.mark.parametrize(
    ("changes", "kind", "where"),
    [
        ({"effect": None}, "slow-worker", "Worker w"),
        ({"line": "etl.py:88"}, "slow-worker", "Worker w, 1.52x as long for the same work, in etl.py:88"),
        ({"worker": ""}, "slow-host", "Host h, 1.52x as long for the same work"),
    ],
)
def test_a_finding_has_the_effect_and_the_line_that_are_known(changes: dict[str, Any], kind: str, where: str) -> None:
    found = as_finding(replace(SLOW, **changes))
    assert (found.kind, found.where) == (kind, where)


def test_signals_are_evidence_as_far_as_they_are_finite() -> None:
    signals = tuple(Evidence(name, value, 1.0, 1.0, 1.0, 9.0, 5) for name, value in (("disk", 3.0), ("send", math.nan)))
    found = as_finding(replace(SLOW, score=math.inf, evidence=signals))
    assert found.evidence == {"disk": 3.0}
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_saving_is_replayed_or_unknown() -> None:
    assert (as_finding(SLOW).saves_seconds, as_finding(SLOW).basis) == (None, Basis.UNKNOWN)
    known = as_finding(replace(SLOW, seconds_lost=3.0))
    assert (known.saves_seconds, known.basis) == (3.0, Basis.REPLAYED)


@pytest.mark.parametrize(
    ("slow", "headline"),
    [
        ((), "None of 8 workers is slow"),
        ((SLOW,), "1 of 8 workers is slow"),
        ((SLOW, SLOW), "2 of 8 workers are slow"),
        ((replace(SLOW, worker=""),), "1 host of 8 workers is slow"),
        ((replace(SLOW, worker=""), SLOW), "1 host and 1 of 8 workers are slow"),
    ],
)
def test_a_headline_counts_the_slow_ones(slow: tuple[SlowWorker, ...], headline: str) -> None:
    assert how_many(slow, 8) == headline
