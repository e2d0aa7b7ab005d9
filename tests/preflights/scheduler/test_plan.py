"""Plans of preflights: one arrives as it was made, and an odd one is answered with the field that is odd."""

from __future__ import annotations

from typing import Any

import pytest

from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.plugin import names
from dask_efficiency.preflights.scheduler.plan import Plan, plan_of
from tests.plugin.loops import within
from tests.plugin.scheduler.test_open_windows import cluster
from tests.plugin.scheduler.test_questions import LONG, check_refused, without

BEGIN: dict[str, Any] = {"step": names.BEGIN_TEST, "client": "me", "plan": {"test": "t"}}


def planned(**odd: Any) -> dict[str, Any]:
    return {"preflight": BEGIN | {"plan": {"test": "t"} | odd}}


ODD: list[tuple[dict[str, Any], str]] = [
    ({}, "preflight is None; expected a mapping"),
    ({"preflight": {}}, "step is None; expected at most"),
    ({"preflight": {"step": "dance", "test": ""}}, "there is no test ''; it was stopped"),
    ({"preflight": {"step": names.STOP_TEST, "test": [1]}}, r"test is \[1\]; expected at most"),
    ({"preflight": without(BEGIN, "plan")}, "plan is None; expected a mapping"),
    ({"preflight": BEGIN | {"client": 7}}, "client is 7; expected at most"),
    (planned(test=None), "test is None; expected at most"),
    (planned(seconds="60s"), "seconds is '60s'; expected seconds"),
    (planned(repetition=-1), "repetition is -1; expected seconds"),
    (planned(force="no"), "force is 'no'; expected True or False"),
    (planned(device=LONG), "device is 'xxx"),
    (planned(shell="ls"), r"plan has \['shell'\]; expected only test, seconds"),
]


@pytest.mark.parametrize(("question", "error"), ODD)
@within(cluster)
async def test_an_odd_step_is_answered_with_what_is_odd_and_changes_nothing(made, *, question, error):
    await check_refused(made, names.PREFLIGHT, question, error)


def test_a_plan_arrives_as_it_was_made():
    plan = Plan("t", 30, "gpu", force=True, workload="script", payload=b"pass")
    assert plan_of({name: getattr(plan, name) for name in Plan.__dataclass_fields__}) == plan
    with pytest.raises(RefusedPayload, match="test is None"):
        plan_of({"seconds": 3})
