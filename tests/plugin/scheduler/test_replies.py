"""What a scheduler sends of a window: tasks that ran alone, profiles, and what is made on another thread."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.checks import MAX_NAME_LENGTH
from dask_efficiency.accounts.cluster.idle import Alone
from dask_efficiency.accounts.details import MergedProfiles
from dask_efficiency.accounts.facts import Facts, decode_facts
from dask_efficiency.plugin.guard import Decoration, decorate
from dask_efficiency.plugin.scheduler.replies import Reply, _alone, _profiles, packed
from dask_efficiency.report import replies as reports
from tests.strategies import window_details

NOTHING = Facts.of_views({})


def alone(**ns: int) -> dict[str, Alone]:
    return {key: Alone("join", n) for key, n in ns.items()}


def test_a_task_ran_alone_for_its_increase_since_the_window_opened():
    assert _alone(alone(a=7, b=5, c=3), alone(a=2, b=5)) == {"a": 5, "c": 3}


def test_a_task_that_was_forgotten_and_is_known_again_ran_alone_for_no_negative_time():
    assert _alone(alone(a=1), alone(a=9)) == {}


def test_keys_are_named_as_workers_name_them():
    now = {("join", 1): Alone("join", 4), "x" * 5000: Alone("x", 5), 1: Alone("int", 6), "1": Alone("1", 2)}
    assert _alone(now, {}) == {"('join', 1)": 4, "x" * MAX_NAME_LENGTH: 5, "1": 6}


# -- what travels ----------------------------------------------------------------------------------


def sent(reply: Reply) -> dict[str, object]:
    return reports.unpacked(asyncio.run(packed(reply)))


@given(st.lists(window_details(), max_size=3))
def test_profiles_are_read_as_they_were_merged(every):
    merged = MergedProfiles()
    for i, details in enumerate(every):
        merged.add(f"worker-{i}", details, {})
    found = sent(Reply({"notes": []}, lambda: NOTHING, [Decoration("profiles", "profile", lambda: _profiles(merged))]))
    made, missing = decorate(reports._profiles(found["profiles"]))
    assert not missing
    assert {(row.bucket, row.cause, row.prefix, row.stack): row.ns for row in made["profile"]} == merged.profile
    assert {(row.prefix, row.holder, row.stack): row.ns for row in made["gil_holders"]} == merged.holders
    assert {(row.prefix, row.holder, row.stack): row.looks for row in made["lock_looks"]} == merged.lock_looks
    for name in ("gil_holds", "loop_blocks"):
        holds = [(worker, (hold.ns / 1e9, *hold[1:])) for worker, hold in getattr(merged, name)]
        assert [(hold.worker, (hold.seconds, hold.holder, hold.stack, hold.doing)) for hold in made[name]] == holds


def test_a_part_that_fails_on_the_thread_is_noted_and_the_rest_is_sent():
    failing = [Decoration("gpu", "account of GPUs", lambda: 1 / 0)]
    found = sent(Reply({"notes": ["before"], "window": 7}, lambda: NOTHING, failing, lambda: ["of facts"]))
    assert decode_facts(found.pop("facts")) == NOTHING
    assert found == {
        "notes": ("before", "of facts", "there is no account of GPUs: ZeroDivisionError: division by zero"),
        "window": 7,
    }
