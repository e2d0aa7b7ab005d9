from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.worker_state_machine import WorkerState
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.accounts.worker.activity import SlotReservation
from dask_efficiency.accounts.worker.balance import FREE_BUCKETS, Outcome
from dask_efficiency.accounts.worker.ledger import Ledger
from dask_efficiency.accounts.worker.slots import AT_WORK, MAX_PREFIX_LENGTH, RECOMPUTED, RULES, Had, Place, SlotTracker
from dask_efficiency.runs.recording.worker import recorder
from dask_efficiency.runs.recording.worker.recorder import WorkerRecorder
from dask_efficiency.runs.trace.batch import RUN, decode

NTHREADS = 2


@dataclass(eq=False)
class Task:
    """What upstream knows of a task."""

    key: str
    run_id: int
    prefix: str = "inc"
    state: str = "waiting"
    span_id: str | None = None
    annotations: dict[str, Any] | None = None
    nbytes: int = 1
    start_time: float | None = None
    startstops: list[Any] = field(default_factory=list)


class Ended:
    """Who finalizes the tasks that ended, at once."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self.outcomes: dict[Any, list[Outcome]] = {}
        self.used: list[tuple[int, int] | None] = []
        self.not_stored_keys: list[Any] = []

    def so_far(self, key: Any) -> tuple[int, int] | None:
        return 3, 5

    def ended(
        self, key: Any, ts: Any, reservation: SlotReservation, outcome: Outcome, used: tuple[int, int] | None
    ) -> None:
        self.ledger.finalize(reservation, outcome)
        self.outcomes.setdefault(key, []).append(outcome)
        self.used.append(used)

    def not_stored(self, key: Any) -> None:
        self.not_stored_keys.append(key)


class Worker:
    """A worker's state as upstream keeps it, moved by hand; each move is a stimulus of its own."""

    def __init__(self) -> None:
        self.now = 0
        self.address = "tcp://worker"
        self.digests_total: dict[Any, float] = {}
        self.scheduler_delay = 0.0
        self.sent: list[Any] = []
        self.state: Any = SimpleNamespace(
            tasks={},
            executing=set(),
            long_running=set(),
            in_flight_tasks=set(),
            threads={},
            stimulus_log=[object()],
        )
        self.runs = 0
        self.ledger = Ledger(NTHREADS, at=0)
        self.ends = Ended(self.ledger)
        self.tracker = SlotTracker(self.state, self.ledger, self.ends, at=0)
        self.recorder: WorkerRecorder | None = None

    def record(self) -> None:
        self.recorder = WorkerRecorder(self, "recording", {}, pytest.fail)  # type: ignore[arg-type]
        self.tracker.recorder = self.recorder

    def log_event(self, topic: str, message: Any) -> None:
        self.sent.append(message)

    def add(self, key: str, **details: Any) -> Any:
        self.runs += 1
        ts = Task(key, self.runs, **details)
        self.state.tasks[key] = ts
        return ts

    def move(self, key: str, start: str, finish: str, place: str | None, *, state: str = "") -> None:
        """A task moves to a place: ``executing``, ``long_running``, or neither; its state may be another than asked."""
        ts = self.state.tasks[key]
        self.state.stimulus_log.append(object())
        for name in ("executing", "long_running"):
            getattr(self.state, name).discard(ts)
        if place is not None:
            getattr(self.state, place).add(ts)
        ts.state = state or finish
        if self.recorder is not None:
            self.recorder.transition(key, start, finish)
        self.tracker.transition(key, start, finish, self.now)

    def run(self, key: str, **details: Any) -> None:
        self.add(key, **details)
        self.move(key, "released", "waiting", None)
        self.move(key, "waiting", "ready", None)
        self.move(key, "ready", "executing", "executing")

    def held(self) -> int:
        """Nanoseconds of held slots, by the ledger."""
        balance = self.ledger.balance(at=self.now)
        free = sum(balance.finalized[bucket] for bucket in FREE_BUCKETS)
        return NTHREADS * balance.elapsed - free


@pytest.fixture
def worker() -> Worker:
    return Worker()


def test_each_rule_is_said_once_and_there_is_one_for_each_case():
    assert set(RULES) == set(product(Had, Place))


def test_the_states_of_the_rules_are_upstream_s():
    state = WorkerState(nthreads=1)
    known = {name for pair in state._TRANSITIONS_TABLE for name in pair}
    assert known >= AT_WORK
    assert isinstance(state.executing, set)
    assert isinstance(state.long_running, set)


@pytest.mark.parametrize(
    ("start", "finish", "outcome"),
    [
        ("executing", "memory", Outcome.SUCCEEDED),
        ("executing", "error", Outcome.FAILED),
        ("executing", "rescheduled", Outcome.CANCELLED),
        ("cancelled", "released", Outcome.CANCELLED),
        ("cancelled", "memory", Outcome.CANCELLED),
        ("cancelled", "error", Outcome.CANCELLED),
        ("resumed", "memory", Outcome.SUCCEEDED),
        ("resumed", "error", Outcome.FAILED),
    ],
)
def test_what_became_of_a_task_is_told_by_the_transition_that_ends_it(worker, start, finish, outcome):
    worker.run("x")
    worker.now = 10
    worker.move("x", start, finish, None)
    assert worker.ends.outcomes == {"x": [outcome]}
    assert worker.held() == 10


def test_a_task_that_is_cancelled_keeps_its_slot_while_its_thread_is_at_work(worker):
    worker.run("x")
    worker.move("x", "executing", "cancelled", "executing")
    worker.now = 10
    assert worker.held() == 10
    assert worker.ends.outcomes == {}


def test_the_run_of_a_task_that_was_cancelled_and_wanted_again_is_not_taken(worker):
    worker.run("x")
    worker.move("x", "executing", "cancelled", "executing")
    worker.move("x", "cancelled", "waiting", "executing", state="executing")
    worker.move("x", "executing", "memory", None)
    worker.run("x")
    worker.move("x", "executing", "memory", None)
    assert worker.ends.outcomes == {"x": [Outcome.CANCELLED, Outcome.SUCCEEDED]}


def test_a_task_that_secedes_gives_its_slot_back_and_its_fate_is_known_later(worker):
    worker.run("x")
    worker.now = 10
    worker.move("x", "executing", "long-running", "long_running")
    worker.now = 30
    assert worker.held() == 10
    assert worker.tracker.seceded_ns(30) == 20
    worker.move("x", "long-running", "memory", None)
    assert worker.ends.outcomes == {"x": [Outcome.SUCCEEDED]}
    assert worker.ends.used == [(3, 5)]
    assert worker.tracker.seceded_ns(40) == 20


def test_a_result_that_could_not_be_stored_makes_an_error_of_the_task_that_ended_last(worker):
    worker.run("x")
    worker.move("x", "executing", "memory", None)
    worker.move("x", "executing", "error", None)
    assert worker.ends.not_stored_keys == ["x"]


def test_long_prefixes_are_cut_and_a_lost_result_is_known_by_its_annotation(worker):
    worker.run("x", prefix="p" * 500, annotations={RECOMPUTED: True}, span_id="span")
    worker.now = 10
    worker.ledger.open_window("w", at=0)
    worker.move("x", "executing", "memory", None)
    balance = worker.ledger.close_window("w", at=10)
    assert balance is not None
    assert list(balance.rows) == [("span", "p" * MAX_PREFIX_LENGTH)]
    assert worker.ledger.balance(at=10).finalized[Bucket.RECOMPUTED] == 10


def test_tasks_that_run_already_hold_slots_and_those_that_left_them_do_not():
    worker = Worker()
    here, away = worker.add("here"), worker.add("away")
    worker.state.executing.add(here)
    worker.state.long_running.add(away)
    ledger = Ledger(NTHREADS, at=0)
    tracker = SlotTracker(worker.state, ledger, Ended(ledger), at=0)
    assert set(ledger.held) == {"here"}
    assert tracker.seceded_ns(7) == 7


MOVES = st.sampled_from(["run", "memory", "error", "cancel", "want again", "secede", "reschedule", "nothing"])


@given(st.lists(st.tuples(MOVES, st.integers(0, 4), st.integers(0, 50)), max_size=60))
def test_the_slot_time_of_a_trace_is_the_held_time_of_the_ledger_to_the_nanosecond(moves):
    worker = Worker()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder, "monotonic_ns", lambda: worker.now)
        patch.setattr(recorder, "LoopWatch", lambda *_: SimpleNamespace(stop=lambda: None))
        worker.record()
        for move, number, later in moves:
            worker.now += later
            _move(worker, move, f"key-{number}")
        for key, ts in list(worker.state.tasks.items()):
            if ts in worker.state.executing or ts in worker.state.long_running:
                worker.move(key, ts.state, "memory", None)
        assert worker.recorder is not None
        worker.recorder.flush(closing=True)
    rows = [dict(zip(RUN, row, strict=True)) for message in worker.sent for row in decode(message).runs.tolist()]
    left = [(row["ended"] if row["seceded"] == MISSING else row["seceded"]) - row["executing"] for row in rows]
    assert sum(left) == worker.held()
    assert len(rows) == sum(map(len, worker.ends.outcomes.values()))


def _move(worker: Worker, move: str, key: str) -> None:
    """What upstream may do with a task as it stands; of more tasks than threads, too, which its hooks may show."""
    ts = worker.state.tasks.get(key)
    at_work = ts is not None and (ts in worker.state.executing or ts in worker.state.long_running)
    if move == "run":
        if not at_work:
            worker.run(key)
        return
    if ts is None or not at_work:
        return
    place = "executing" if ts in worker.state.executing else "long_running"
    if move in ("memory", "error"):
        worker.move(key, ts.state, move, None)
    elif move == "reschedule":
        worker.move(key, ts.state, "rescheduled", None)
    elif move == "cancel":
        worker.move(key, ts.state, "cancelled", place)
    elif move == "want again" and ts.state == "cancelled":
        # Upstream gives it the state that it had before it was cancelled.
        worker.move(key, "cancelled", "waiting", place, state=place.replace("_", "-"))
    elif move == "secede" and place == "executing":
        worker.move(key, ts.state, "long-running", "long_running")
