"""Questions of clients: an odd one is answered with the field that is odd, and nothing else changes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.plugin import names
from dask_efficiency.plugin.scheduler.questions import checked
from tests.plugin.loops import within
from tests.plugin.scheduler.test_open_windows import Cluster, cluster

LONG = "x" * 1_001
OPENING = {"window": "w", "client": "me", "span": "span"}


class Group:
    """Tasks of another client's span."""

    span_id, prefix, states = "theirs", None, dict.fromkeys(("processing", "waiting", "queued", "no-worker"), 0)


def without(question: dict[str, Any], name: str) -> dict[str, Any]:
    return {field: value for field, value in question.items() if field != name}


ODD: list[tuple[Any, dict[str, Any], str]] = [
    *[(names.OPEN, without(OPENING, field), f"{field} is None; expected at most 1000 char") for field in OPENING],
    *[(names.OPEN, OPENING | {field: LONG}, f"{field} is 'xxx.*; expected at most 1000 char") for field in OPENING],
    *[(names.OPEN, OPENING | {field: ["w"]}, rf"{field} is \['w'\]; expected at most") for field in OPENING],
    (names.OPEN, OPENING | {"only": 1}, "only is 1; expected True or False"),
    (names.OPEN, OPENING | {"trace": {}}, "trace is {}; expected True or False"),
    (names.CLOSE, {}, "window is None; expected"),
    (names.CLOSE, {"window": {"w": 1}}, "window is {'w': 1}; expected"),
    (names.RELEASE, {}, "client is None; expected"),
    (names.RELEASE, {"client": ["me"]}, r"client is \['me'\]; expected"),
    (names.RELEASE, {"client": "me", "window": "x" * 10**6}, "window is 'xxx.*; expected at most 1000 char"),
    (names.HISTORY, {"last": "30m"}, "last is '30m'; expected seconds"),
    (names.HISTORY, {"last": float("inf")}, "last is inf; expected seconds"),
    (names.HISTORY, {"last": -1}, "last is -1; expected seconds"),
    (names.HISTORY, {"last": 10**5_000}, "last is a int too large to show; expected seconds"),
    (names.SERIES, {}, "seconds is None; expected seconds"),
    (names.SERIES, {"seconds": float("nan")}, "seconds is nan; expected seconds"),
    (names.PROFILE, {"window": "w"}, "prefixes is None; expected a mapping"),
    (names.PROFILE, {"window": "w", "prefixes": {"a": -1}}, r"prefixes\['a'\] is -1; expected a whole number"),
    (names.PROFILE, {"window": "w", "prefixes": {LONG: 1}}, "prefixes is 'xxx.*; expected at most 1000 char"),
    (None, {}, "action is None; expected at most"),
    (["open"], {}, r"action is \['open'\]; expected at most"),
    ("dance", {}, "unknown action 'dance'"),
]


async def check_refused(made: Cluster, action: Any, question: dict[str, Any], error: str) -> None:
    """Check that a question is answered with an error, and that the meter is as it was."""
    windows = made.meter._windows
    with pytest.raises(ValueError, match=error):
        await made.meter.handle(action, **question)
    assert (made.meter.windows, windows._ended, windows._opening, dict(made.meter._leases)) == ({}, {}, {}, {None: 1})
    await made.check_window("w")


@pytest.mark.parametrize(("action", "question", "error"), ODD, ids=[f"{i}-{row[0]}" for i, row in enumerate(ODD)])
@within(cluster)
async def test_an_odd_question_is_answered_with_what_is_odd_and_changes_nothing(made, *, action, question, error):
    await check_refused(made, action, question, error)


def test_fields_that_may_be_missing_are_none_and_those_of_newer_clients_are_not_read():
    question = OPENING | {"colour": "blue"}
    assert checked(names.OPEN, question) == OPENING | {"trace": None, "only": None}
    assert checked(names.HISTORY, {"last": 1.5}) == {"last": 1.5}
    assert checked(names.LIVE, {"colour": "blue"}) == {}


@pytest.mark.parametrize("client", [5, None, ("me",), LONG])
@within(cluster)
async def test_a_client_of_any_id_may_send_a_graph(made, *, client):
    await made.handle(names.OPEN, "w")
    made.scheduler.tasks["a"] = SimpleNamespace(group=Group())
    made.plugin.update_graph(made.scheduler, client=client, tasks=["a"], keys={"a"}, stimulus_id="s")
    made.scheduler.tasks.clear()
    assert made.meter.windows["w"].foreign == {"theirs"}
    assert made.meter.guard.off is None
    made.plugin.remove_client(made.scheduler, client)
    await asyncio.sleep(0)
    assert (made.meter.guard.off, made.meter.parts.failures(), made.meter.closed) == (None, [], False)
