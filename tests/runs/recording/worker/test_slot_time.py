"""Slot time agrees between a worker's ledger and its recorder: of hooks that are called by hand, and of a real log."""

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.core import Status
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.accounts.worker.balance import FREE_BUCKETS
from dask_efficiency.accounts.worker.ledger import Ledger
from dask_efficiency.accounts.worker.log import Entry, Run, from_plain, to_plain
from dask_efficiency.accounts.worker.slots import Slots
from dask_efficiency.plugin.worker import hooks as module
from dask_efficiency.plugin.worker.fine_metrics import SpillMetrics
from dask_efficiency.plugin.worker.hooks import WorkerHooks
from dask_efficiency.plugin.worker.pending import PendingTasks
from dask_efficiency.plugin.worker.spill_watch import SpillWatch
from dask_efficiency.runs.recording.worker import recorder
from dask_efficiency.runs.recording.worker.recorder import WorkerRecorder
from dask_efficiency.runs.trace.batch import RUN, decode

NTHREADS = 2


class Task(SimpleNamespace):
    """Upstream's state of a task."""

    __hash__, __eq__ = object.__hash__, object.__eq__

    def __init__(self, key: str, run_id: int) -> None:
        nothing = dict.fromkeys(("span_id", "annotations", "start_time", "coming_from"))
        needs = dict.fromkeys(("dependencies", "waiting_for_data"), ())
        super().__init__(
            key=key, run_id=run_id, prefix="inc", state="waiting", nbytes=1, startstops=[], **nothing, **needs
        )


class Threads:
    """Nothing is measured in them."""

    ended = None
    claimed = 0

    def __init__(self) -> None:
        self.done: dict[Any, Run] = {}
        self.stopped_by_shuffle: set[Any] = set()

    def live_used(self) -> dict[Any, tuple[int, int]]:
        return {}

    def measured_upstream(self, key: Any) -> int:
        return 0

    def elsewhere(self, start: int, wall: int) -> Run:
        return start, start + wall, 0, 0, -1


class Worker:
    """A worker's state as upstream keeps it, moved by hand; each move is a stimulus of its own."""

    def __init__(self) -> None:
        self.now = 0
        self.address = "tcp://worker"
        self.status = Status.running
        self.digests_total: dict[Any, float] = {}
        self.scheduler_delay = 0.0
        self.sent: list[Any] = []
        self.failures: list[Exception] = []
        sets = {name: set() for name in ("executing", "long_running", "in_flight_tasks", "waiting")}
        empty = {"tasks": {}, "constrained": [], "ready": [], "total_resources": {}, "executed_count": 0}
        self.state: Any = SimpleNamespace(**sets, **empty, running=True, stimulus_log=[SimpleNamespace(handled=None)])
        self.runs = 0
        self.ledger = Ledger(NTHREADS, at=0)
        threads: Any = Threads()
        log: list[Entry] = []
        spills = SpillWatch({}, lambda *_: None)
        spills.watching = True
        unused: Any = {name: lambda *_: None for name in ("library", "use", "rate")}
        pending = PendingTasks(self.ledger, SpillMetrics({}), threads=threads, spills=spills, **unused)
        worker: Any = self
        self.hooks = WorkerHooks(
            worker, Slots(self.ledger), pending, spills, threads, log, failed=self.failures.append, at=0
        )  # type: ignore[arg-type]
        self.recorder = WorkerRecorder(worker, "recording")
        self.hooks.record(self.recorder)

    def log_event(self, topic: str, message: Any) -> None:
        self.sent.append(message)

    def move(self, key: str, start: str, finish: str, place: str | None, *, state: str = "") -> None:
        """A task moves to a place: ``executing``, ``long_running``, or neither; its state may be another than asked."""
        ts = self.state.tasks[key]
        self.state.stimulus_log.append(SimpleNamespace(handled=None))
        for name in ("executing", "long_running"):
            getattr(self.state, name).discard(ts)
        if place is not None:
            getattr(self.state, place).add(ts)
        ts.state = state or finish
        self.hooks.transition(key, start, finish)

    def run(self, key: str) -> None:
        self.runs += 1
        self.state.tasks[key] = Task(key, self.runs)
        self.move(key, "released", "waiting", None)
        self.move(key, "waiting", "ready", None)
        self.move(key, "ready", "executing", "executing")


@pytest.fixture(scope="module")
def clock() -> Iterator[list[Any]]:
    """Owner of the time is the last one in the list."""
    owners: list[Any] = [SimpleNamespace(now=0)]
    with pytest.MonkeyPatch.context() as patch:
        for timed in (recorder, module):
            patch.setattr(timed, "monotonic_ns", lambda: owners[-1].now)
        patch.setattr(recorder, "LoopWatch", lambda *_: SimpleNamespace(stop=lambda: None))
        yield owners


def check(recorded: WorkerRecorder, sent: list[Any], ledger: Ledger, *, nthreads: int, at: int) -> list[dict[str, int]]:
    """Compare the held time of the ledger and the slot time of the recorder's rows, which are returned."""
    assert recorded.failure is None
    recorded.flush(closing=True)
    rows = [dict(zip(RUN, row, strict=True)) for message in sent for row in decode(message).runs.tolist()]
    held = [(row["ended"] if row["seceded"] == MISSING else row["seceded"]) - row["executing"] for row in rows]
    balance = ledger.balance(at=at)
    assert sum(balance.finalized.values()) == nthreads * balance.elapsed
    assert sum(held) == nthreads * balance.elapsed - sum(balance.finalized[bucket] for bucket in FREE_BUCKETS)
    assert len(rows) == sum(balance.tasks.values())
    return rows


MOVES = st.sampled_from(["run", "memory", "error", "cancel", "want again", "secede", "reschedule", "nothing"])


@given(moves=st.lists(st.tuples(MOVES, st.integers(0, 4), st.integers(0, 50)), max_size=60))
def test_the_slot_time_of_a_trace_is_the_held_time_of_the_ledger_to_the_nanosecond(clock, moves):
    worker = Worker()
    clock[:] = [worker]
    for move, number, later in moves:
        worker.now += later
        happen(worker, move, f"key-{number}")
    for key, ts in list(worker.state.tasks.items()):
        if ts in worker.state.executing or ts in worker.state.long_running:
            worker.move(key, ts.state, "memory", None)
    worker.hooks.catch_up()
    assert worker.failures == []
    check(worker.recorder, worker.sent, worker.ledger, nthreads=NTHREADS, at=worker.now)


def happen(worker: Worker, move: str, key: str) -> None:
    """Transitions that upstream may make of a task in its state."""
    ts = worker.state.tasks.get(key)
    at_work = ts is not None and (ts in worker.state.executing or ts in worker.state.long_running)
    if move == "run":
        if not at_work and len(worker.state.executing) < NTHREADS:
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


SCENE = json.loads((Path(__file__).parents[3] / "data" / "scenes" / "one_worker.json").read_text())
LOG = from_plain(SCENE["log"])


@given(cuts=st.lists(st.integers(0, len(LOG)), max_size=20))
def test_wherever_the_log_of_a_real_worker_is_cut_the_accounts_and_the_trace_are_those_of_then(clock, cuts):
    clock[:] = [SimpleNamespace(now=SCENE["ends"])]
    sent: list[Any] = []
    ledger = Ledger(SCENE["nthreads"], at=SCENE["begins"])
    slots = Slots(ledger)
    worker: Any = SimpleNamespace(
        state=SimpleNamespace(tasks={}, executing=set()),
        digests_total={},
        address="tcp://worker",
        log_event=lambda topic, message: sent.append(message),
    )
    recorded = WorkerRecorder(worker, "scene")
    for start, stop in pairwise([0, *sorted(cuts), len(LOG)]):
        slots.read(LOG[start:stop])
        recorded.read(LOG[start:stop], whole=False)
    for reservation, outcome, moved, _ in slots.take(all_of_them=True):
        wall = 0 if moved.run is None else moved.run[1] - moved.run[0]
        ledger.finalize(reservation, outcome, wall=wall)
    assert ledger.balance(at=SCENE["ends"]).tasks == SCENE["tasks"]
    rows = check(recorded, sent, ledger, nthreads=SCENE["nthreads"], at=SCENE["ends"])
    assert sum(row["seceded"] != MISSING for row in rows) == 1


def test_a_log_as_plain_data_is_the_log_and_a_row_that_is_no_entry_is_refused_by_name() -> None:
    assert from_plain(json.loads(json.dumps(to_plain(LOG)))) == LOG
    assert {type(entry).__name__ for entry in LOG} == {"Noted", "Taken", "Moved", "Observed", "Spilled"}
    for name, *values in (["Lost", 1], ["Taken", 1, "x"], ["Turned"]):
        with pytest.raises(ValueError, match=rf"a row is '{name}' and {len(values)} values; expected one of"):
            from_plain([[name, *values]])
