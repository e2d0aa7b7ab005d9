from __future__ import annotations

import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.worker_state_machine import ComputeTaskEvent, FreeKeysEvent

from dask_efficiency.accounts.worker.activity import SlotReservation
from dask_efficiency.accounts.worker.balance import Availability
from dask_efficiency.accounts.worker.ledger import Ledger
from dask_efficiency.accounts.worker.slots import Run
from dask_efficiency.plugin.worker import loop_spills
from dask_efficiency.plugin.worker.loop_spills import LoopSpills, sent_at


class Worker:
    """Two slots, and an event loop that spills when the test says so."""

    def __init__(self) -> None:
        self.at_work = 0
        self.ledger = Ledger(2, at=0)
        self.state = SimpleNamespace(ready=[], waiting=set(), executing=set(), stimulus_log=deque(["before"]))
        #: What it did before it booked a time of spilling.
        self.did: list[Any] = []
        self.spills = LoopSpills(
            SimpleNamespace(state=self.state, data={}),  # type: ignore[arg-type]
            self.ledger,
            SimpleNamespace(waiting=lambda: len(self.ledger.held) - self.at_work),  # type: ignore[arg-type]
            lambda: self.did.append("caught up"),
            self.did.append,
            pytest.fail,
        )

    def spill(self, start: int, stop: int, *, asked: bool = False) -> None:
        self.spills.watch._note(start, stop)
        self.spills._spilled(start, stop, asked)

    def finalized(self, at: int) -> dict[str, int]:
        return {bucket: ns for bucket, ns in self.ledger.balance(at=at).finalized.items() if ns}


@pytest.fixture
def worker() -> Worker:
    return Worker()


def run_of(start: int, stop: int, ident: int = 7) -> Run:
    return start, stop, 0, ident, -1


def ended(worker: Worker, start: int, stop: int) -> SlotReservation:
    worker.ledger.reserve("x", "inc", at=start)
    reservation = worker.ledger.release("x", at=stop)
    assert reservation is not None
    return reservation


def compute_task(name: str) -> Any:
    return ComputeTaskEvent.dummy(key="x", stimulus_id=name)


def test_an_ended_task_waited_for_what_was_spilled_before_and_after_its_thread_not_meanwhile(worker):
    reservation = ended(worker, 10, 55)
    for start, stop in ((5, 20), (30, 40), (45, 60)):
        worker.spills.watch._note(start, stop)
    # 10 to 15 before the thread began, 50 to 55 after it was done.
    assert worker.spills.beside(reservation, run_of(15, 50)) == 10


def test_a_task_that_ran_in_no_thread_of_ours_may_have_waited_for_all_that_was_spilled(worker):
    reservation = ended(worker, 10, 55)
    worker.spill(5, 20)
    assert worker.spills.beside(reservation, run_of(10, 55, ident=0)) == 10


def test_what_was_spilled_before_a_task_took_its_slot_does_not_count(worker):
    worker.spill(5, 20)
    assert worker.spills.beside(ended(worker, 20, 55), run_of(20, 55)) is None
    worker.spills.watch.watching = True
    assert worker.spills.beside(ended(worker, 60, 70), run_of(60, 70)) == 0


def test_free_slots_are_booked_after_all_tasks_were_told_of_and_a_look_at_pauses(worker):
    worker.state.ready.append("y")
    worker.spill(10, 20)
    assert worker.did == ["caught up", 10]
    assert worker.finalized(20) == {"spill": 10, "idle": 30}


def test_where_all_slots_are_held_nothing_is_looked_at(worker):
    for key in "ab":
        worker.ledger.reserve(key, "inc", at=0)
    worker.spill(10, 20)
    assert worker.did == ["caught up"]


def test_what_the_memory_manager_spills_is_unnoticed_while_every_thread_is_at_work(worker):
    for key in "ab":
        worker.ledger.reserve(key, "inc", at=0)
    worker.at_work = 2
    worker.spill(10, 20, asked=True)
    assert worker.spills.unnoticed == 10
    worker.spill(30, 40)  # nobody asked for it: a task's own
    worker.at_work = 1
    worker.spill(50, 60, asked=True)
    assert worker.spills.unnoticed == 10


def test_what_keeps_a_fetch_waiting_is_noticed(worker):
    worker.state.waiting.add("y")
    worker.spill(10, 20, asked=True)
    assert worker.spills.unnoticed is None


def test_a_task_whose_message_was_sent_meanwhile_waited(worker):
    at = time.monotonic_ns()
    worker.spill(at - 2_000_000_000, at)
    sent = time.time() - 1.5
    worker.state.stimulus_log.append(compute_task(f"compute-task-{sent}"))
    worker.spills.delayed(at)
    assert worker.finalized(at)["spill"] == pytest.approx(1.5e9, abs=0.2e9)


@pytest.mark.parametrize("name", ["compute-task", "compute-task-soon", ""])
def test_a_task_of_which_nobody_knows_when_it_was_sent_did_not_wait(worker, name):
    worker.spill(10, 20)
    worker.state.stimulus_log.append(compute_task(name))
    worker.spills.delayed(20)
    assert worker.finalized(20) == {"idle": 40}


def test_a_task_that_was_there_already_did_not_wait(worker):
    worker.spill(10, 20)
    worker.state.stimulus_log.append(FreeKeysEvent(keys=["x"], stimulus_id="free-keys-5.0"))
    worker.spills.delayed(20)
    assert worker.finalized(20) == {"idle": 40}


def test_dask_says_in_a_stimulus_when_it_was_sent():
    assert sent_at(compute_task("compute-task-1700000000.25")) == 1700000000.25


def test_accounts_are_kept_back_once_after_spilling_while_slots_were_free(worker):
    assert not worker.spills.keep_back()
    worker.spill(10, 20)
    assert worker.spills.keep_back()
    assert not worker.spills.keep_back()


def test_accounts_are_not_kept_back_while_no_slot_is_free(worker):
    worker.ledger.observe(Availability.PAUSED, 0, 0, at=0)
    worker.spill(10, 20)
    assert not worker.spills.keep_back()


def test_accounts_are_kept_back_a_few_times_in_a_row_and_no_more(worker):
    kept = []
    for i in range(2 * loop_spills.MAX_KEPT_BACK):
        worker.spill(10 * i, 10 * i + 5)
        kept.append(worker.spills.keep_back())
    assert kept == [True] * 3 + [False] + [True] * 2


def test_what_fails_is_told_and_does_not_reach_the_worker(worker):
    failures: list[Exception] = []
    worker.spills._failed = failures.append
    worker.state.ready = None
    worker.spill(10, 20)
    assert [type(failure) for failure in failures] == [TypeError]
