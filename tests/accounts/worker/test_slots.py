from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest
from distributed.worker_state_machine import WorkerState

from dask_efficiency.accounts.worker.balance import FREE_BUCKETS, Availability, Outcome
from dask_efficiency.accounts.worker.ledger import Ledger
from dask_efficiency.accounts.worker.log import BY_SHUFFLE, Moved, Observed, Spilled, Taken, TaskSet, Turned, in_order
from dask_efficiency.accounts.worker.slots import AT_WORK, RULES, HeldBefore, Slots

NTHREADS = 2


class Worker:
    """A worker whose log a test writes, and who finalizes what ended."""

    def __init__(self, seceded: Iterable[str] = ()) -> None:
        self.now = 0
        self.ledger = Ledger(NTHREADS, at=0)
        self.slots = Slots(self.ledger, seceded)
        self.outcomes: dict[Any, list[Outcome]] = {}
        self.used: list[tuple[int, int] | None] = []

    def run(self, key: str) -> None:
        self.slots.read([Taken(self.now, key, "inc", "span", recomputed="")])

    def move(self, key: str, start: str, finish: str, place: str | None, *, taken: bool = True) -> None:
        """A task moves; what ended is finalized, or is not ``taken``."""
        used = (3, 5) if place == TaskSet.LONG_RUNNING else None
        self.slots.read([Moved(self.now, key, start, finish, TaskSet(place or "neither"), used=used)])
        if taken:
            for reservation, outcome, moved, in_slot in self.slots.take(all_of_them=True):
                self.ledger.finalize(reservation, outcome)
                self.outcomes.setdefault(moved.key, []).append(outcome)
                self.used.append(in_slot)

    def finalized(self, at: int) -> dict[str, int]:
        return {bucket: ns for bucket, ns in self.ledger.balance(at=at).finalized.items() if ns}

    def held(self) -> int:
        """Nanoseconds of held slots, by the ledger."""
        balance = self.ledger.balance(at=self.now)
        free = sum(balance.finalized[bucket] for bucket in FREE_BUCKETS)
        return NTHREADS * balance.elapsed - free


@pytest.fixture
def worker() -> Worker:
    return Worker()


def test_there_is_one_rule_for_each_case_of_states_of_dask() -> None:
    assert set(RULES) == set(product(HeldBefore, TaskSet))
    state = WorkerState(nthreads=1)
    assert {name for pair in state._TRANSITIONS_TABLE for name in pair} >= AT_WORK
    assert isinstance(state.executing, set)
    assert isinstance(state.long_running, set)


@pytest.mark.parametrize(
    ("had", "place", "held", "outcomes"),
    [
        ("no slot", "executing", 0, {}),
        ("no slot", "long-running", 0, {}),
        ("no slot", "neither", 0, {}),
        ("a slot", "executing", 20, {}),
        ("a slot", "long-running", 10, {}),
        ("a slot", "neither", 10, {"x": [Outcome.SUCCEEDED]}),
        ("a thread", "executing", 5, {"x": [Outcome.SUCCEEDED]}),
        ("a thread", "long-running", 5, {}),
        ("a thread", "neither", 5, {"x": [Outcome.SUCCEEDED]}),
    ],
)
def test_a_slot_follows_from_what_its_task_had_and_the_set_that_it_is_in(worker, had, place, held, outcomes):
    if had != "no slot":
        worker.run("x")
    if had == "a thread":
        worker.now = 5
        worker.move("x", "executing", "long-running", "long-running")
    worker.now = 10
    worker.move("x", "resumed", "memory", place)
    worker.now = 20
    assert (worker.held(), worker.outcomes) == (held, outcomes)
    away = {"a slot": 10, "a thread": 15}.get(had, 0) if place == "long-running" else 5 * (had == "a thread")
    assert worker.slots.seceded_ns(20) == away


@pytest.mark.parametrize(
    ("start", "finish", "outcome"),
    [
        ("executing", "memory", Outcome.SUCCEEDED),
        ("executing", "error", Outcome.FAILED),
        ("executing", "rescheduled", Outcome.CANCELLED),
        ("executing", BY_SHUFFLE, Outcome.RESCHEDULED),
        ("cancelled", "released", Outcome.CANCELLED),
        ("cancelled", "memory", Outcome.CANCELLED),
        ("cancelled", "error", Outcome.CANCELLED),
        ("resumed", "memory", Outcome.SUCCEEDED),
        ("resumed", "error", Outcome.FAILED),
    ],
)
def test_the_outcome_of_a_task_follows_from_the_transition_that_ends_it(worker, start, finish, outcome):
    worker.run("x")
    worker.now = 10
    worker.move("x", start, finish, None)
    assert worker.outcomes == {"x": [outcome]}
    assert worker.held() == 10


def test_a_cancelled_task_keeps_its_slot_and_its_run_is_discarded_when_it_is_wanted_again(worker):
    worker.run("x")
    worker.move("x", "executing", "cancelled", "executing")
    worker.now = 10
    assert worker.held() == 10
    assert worker.outcomes == {}
    worker.run("x")
    worker.move("x", "executing", "cancelled", "executing")
    worker.move("x", "cancelled", "waiting", "executing")
    worker.move("x", "executing", "memory", None)
    worker.run("x")
    worker.move("x", "executing", "memory", None)
    assert worker.outcomes == {"x": [Outcome.CANCELLED, Outcome.SUCCEEDED]}


def test_a_task_that_secedes_gives_its_slot_back_and_its_fate_is_known_later(worker):
    worker.run("x")
    worker.now = 10
    worker.move("x", "executing", "long-running", "long-running")
    worker.now = 30
    assert worker.held() == 10
    assert worker.slots.seceded_ns(30) == 20
    worker.move("x", "long-running", "memory", None)
    assert worker.outcomes == {"x": [Outcome.SUCCEEDED]}
    assert worker.used == [(3, 5)]
    assert worker.slots.seceded_ns(40) == 20


def test_a_result_that_could_not_be_stored_makes_an_error_of_the_task_that_ended_last(worker):
    worker.run("w")
    worker.move("w", "executing", "memory", None, taken=False)
    worker.run("x")
    worker.move("x", "executing", "memory", None, taken=False)
    worker.move("w", "memory", "error", None)  # of another stimulus
    assert worker.outcomes == {"w": [Outcome.SUCCEEDED], "x": [Outcome.SUCCEEDED]}
    worker.run("y")
    worker.move("y", "executing", "memory", None, taken=False)
    worker.move("y", "executing", "error", None)
    assert worker.outcomes["y"] == [Outcome.FAILED]


def test_the_task_that_ended_last_is_kept_while_its_stimulus_may_go_on(worker):
    for key in "wx":
        worker.run(key)
        worker.move(key, "executing", "memory", None, taken=False)
    assert [ended.moved.key for ended in worker.slots.take(all_of_them=False)] == ["w"]
    assert worker.slots.take(all_of_them=False) == []
    assert [ended.moved.key for ended in worker.slots.take(all_of_them=True)] == ["x"]


def test_tasks_that_left_their_slots_before_the_log_begins_have_none():
    worker = Worker(seceded=["away"])
    assert worker.slots.seceded_ns(7) == 7
    worker.now = 9
    worker.move("away", "long-running", "memory", None)
    assert (worker.outcomes, worker.held(), worker.slots.seceded_ns(20)) == ({}, 0, 9)


@pytest.mark.parametrize(
    ("held", "spilled", "free", "unnoticed"),
    [
        ("", {"asked": True, "ready": 1}, {"spill": 10, "idle": 30}, 0),
        ("", {"asked": True, "waiting": 1}, {"idle": 40}, 0),
        ("ab", {"asked": False, "ready": 1, "held_up": 2}, {}, 0),
        # By the memory manager, while no task waits for the loop; by a task itself; and while a fetch waits for memory.
        ("ab", {"asked": True}, {}, 10),
        ("ab", {"asked": False}, {}, 0),
        ("ab", {"asked": True, "held_up": 1}, {}, 0),
    ],
)
def test_spilling_is_unnoticed_if_nobody_waits_for_it(worker, held, spilled, free, unnoticed):
    for key in held:
        worker.run(key)
    worker.slots.read([Spilled(10, 20, **{"ready": 0, "waiting": 0, "held_up": 0} | spilled)])
    assert worker.finalized(20) == free
    assert worker.slots.unnoticed == unnoticed


def test_a_task_whose_message_was_sent_meanwhile_waited(worker):
    worker.slots.read([Spilled(10, 20, asked=False, ready=0, waiting=0, held_up=0)])
    worker.slots.read([Taken(20, "x", "inc", "", recomputed="", since=14)])
    assert worker.finalized(20) == {"spill": 6, "idle": 34}


def test_entries_are_read_by_when_they_happened_and_those_of_one_instant_as_they_were_written():
    first, second = Turned(5, Availability.PAUSED), Turned(5, Availability.RUNNING)
    assert in_order([Observed(7, Availability.RUNNING, 0, 0), first, second]) == [
        first,
        second,
        Observed(7, Availability.RUNNING, 0, 0),
    ]
    worker = Worker()
    worker.slots.read(in_order([Observed(30, Availability.RUNNING, 1, 0), Turned(20, Availability.PAUSED, 1)]))
    assert worker.finalized(40) == {"idle": 60, "paused": 10, "waiting-on-data": 10}
