from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dask_efficiency.cluster import ClusterLedger
from dask_efficiency.plugins import work
from dask_efficiency.plugins.work import WorkTracker
from dask_efficiency.plugins.worker import RECOMPUTED
from dask_efficiency.windows import ClusterWindow

# A failing state machine is shrunk for up to five minutes before it says how it failed.
pytestmark = pytest.mark.timeout(400)

OUTSTANDING = {"waiting", "queued", "no-worker", "processing"}


class FakeScheduler:
    """As much of a scheduler as is looked at: tasks in states, and two stream handlers."""

    def __init__(self, **states: str) -> None:
        self.tasks = {}
        self.ws = SimpleNamespace(long_running=set())
        self.workers = {"tcp://a": self.ws}
        self.stream_handlers = {"update-graph": self.update_graph, "long-running": self.handle_long_running}
        self.taken_in: list[bool] = []
        self.tracker: WorkTracker | None = None
        for key, state in states.items():
            self.add(key, state)

    def add(self, key, state="released"):
        self.tasks[key] = FakeTask(key, state, self.ws if state == "processing" else None)

    @property
    def task_prefixes(self):
        states = ["released", "memory", "erred", "forgotten", *OUTSTANDING]
        counts = {state: sum(ts.state == state for ts in self.tasks.values()) for state in states}
        return {"inc": SimpleNamespace(states=counts), "sum": SimpleNamespace(states=dict.fromkeys(states, 0))}

    async def update_graph(self, fail=False):
        self.taken_in.append(self.tracker.graphs)
        if fail:
            raise ValueError("a broken graph")
        return "taken in"

    def handle_long_running(self, key, worker):
        ts = self.tasks.get(key)
        if ts is not None and ts.processing_on is self.ws and worker == "tcp://a":
            self.ws.long_running.add(ts)
        return "handled"

    def move(self, key, finish):
        ts = self.tasks[key]
        start, ts.state = ts.state, finish
        ts.processing_on = self.ws if finish == "processing" else None
        self.ws.long_running.discard(ts)
        self.tracker.transition(key, start, finish)
        if finish == "forgotten":
            del self.tasks[key]


class FakeTask:
    def __init__(self, key, state, processing_on):
        self.key, self.state, self.processing_on, self.annotations = key, state, processing_on, None


@pytest.fixture
def clock(monkeypatch):
    """A clock that is set by hand."""
    clock = SimpleNamespace(now=0)
    monkeypatch.setattr(work.time, "monotonic_ns", lambda: clock.now)
    return clock


def tracked(**states):
    scheduler = FakeScheduler(**states)
    cluster = ClusterLedger(at=0)
    windows: dict[str, ClusterWindow] = {}
    scheduler.tracker = WorkTracker(scheduler, cluster, windows)
    return scheduler, cluster, windows


def test_work_is_outstanding_from_the_first_waiting_task_to_the_last_that_is_done(clock):
    scheduler, cluster, _ = tracked()
    for key in "xy":
        scheduler.add(key)
    for now, key, state in [
        (10, "x", "waiting"),
        (12, "y", "waiting"),
        (15, "x", "processing"),
        (20, "y", "processing"),
        (30, "x", "memory"),
        (40, "y", "erred"),
    ]:
        clock.now = now
        scheduler.move(key, state)
    assert not cluster.work.outstanding
    assert cluster.work.without_work(at=50) == 20


@pytest.mark.parametrize("state", sorted(OUTSTANDING))
def test_tasks_that_were_there_before_the_tracker_count(clock, state):
    _, cluster, _ = tracked(x=state, y="memory")
    assert cluster.work.outstanding
    _, cluster, _ = tracked(y="memory", z="released")
    assert not cluster.work.outstanding


def test_a_long_running_task_is_no_work_outstanding_but_what_waits_for_it_is(clock):
    scheduler, cluster, _ = tracked(x="processing")
    clock.now = 10
    assert scheduler.stream_handlers["long-running"](key="x", worker="tcp://a") == "handled"
    assert not cluster.work.outstanding
    assert not scheduler.tracker.running
    scheduler.add("y")
    clock.now = 15
    scheduler.move("y", "waiting")
    assert cluster.work.outstanding
    clock.now = 20
    scheduler.move("x", "memory")
    scheduler.move("y", "processing")
    assert (cluster.work.outstanding, scheduler.tracker.running) == (True, True)
    assert cluster.work.without_work(at=30) == 5


@pytest.mark.parametrize(("key", "worker"), [("x", "tcp://b"), ("gone", "tcp://a")])
def test_a_message_of_a_worker_that_has_not_the_task_changes_nothing(clock, key, worker):
    scheduler, cluster, _ = tracked(x="processing")
    scheduler.stream_handlers["long-running"](key=key, worker=worker)
    assert cluster.work.outstanding


def test_a_task_that_was_long_running_before_the_tracker_is_known(clock):
    scheduler = FakeScheduler(x="processing")
    scheduler.ws.long_running.add(scheduler.tasks["x"])
    cluster = ClusterLedger(at=0)
    scheduler.tracker = WorkTracker(scheduler, cluster, {})
    assert not cluster.work.outstanding


@pytest.mark.parametrize("fail", [False, True])
def test_work_is_outstanding_while_a_graph_is_taken_in(clock, fail):
    scheduler, cluster, windows = tracked()
    windows["w"] = ClusterWindow(cluster, at=0)
    clock.now = 5

    async def taking_in():
        try:
            return await scheduler.stream_handlers["update-graph"](fail=fail)
        finally:
            clock.now = 9

    if fail:
        with pytest.raises(ValueError, match="a broken graph"):
            asyncio.run(taking_in())
    else:
        assert asyncio.run(taking_in()) == "taken in"
    assert scheduler.taken_in == [True]
    assert not scheduler.tracker.graphs
    assert not cluster.work.outstanding


def test_open_windows_hear_when_tasks_run(clock):
    scheduler, cluster, windows = tracked()
    scheduler.add("x")
    windows["w"] = ClusterWindow(cluster, at=0)
    for clock.now, state in ((5, "waiting"), (10, "processing"), (20, "memory")):
        scheduler.move("x", state)
    assert windows["w"].running.until(30) == [(10, 20)]
    assert windows["w"].graphs.until(30) == []


def test_a_result_that_is_lost_and_computed_again_is_marked(clock):
    scheduler, _, _ = tracked()
    scheduler.add("x")
    for state in ("waiting", "processing", "memory"):
        scheduler.move("x", state)
    assert scheduler.tasks["x"].annotations is None
    mine = scheduler.tasks["x"].annotations = {"priority": 1}
    for state in ("released", "waiting"):
        scheduler.move("x", state)
    assert scheduler.tasks["x"].annotations == {"priority": 1, RECOMPUTED: True}
    # A dictionary of annotations may be shared with other tasks.
    assert mine == {"priority": 1}


def test_a_task_that_is_tried_again_is_not_marked(clock):
    scheduler, _, _ = tracked()
    scheduler.add("x")
    for state in ("waiting", "processing", "released", "waiting"):
        scheduler.move("x", state)
    assert scheduler.tasks["x"].annotations is None


@pytest.mark.parametrize(
    "end",
    [
        ["memory", "forgotten"],
        ["memory", "released", "forgotten"],
        ["memory", "released", "waiting", "released", "forgotten"],
        ["memory", "released", "waiting", "processing", "memory", "forgotten"],
        ["memory", "released", "waiting", "processing", "erred", "forgotten"],
    ],
)
def test_a_new_task_under_the_name_of_a_forgotten_one_is_not_marked(clock, end):
    scheduler, _, _ = tracked()
    scheduler.add("x")
    for state in ("waiting", "processing", *end):
        scheduler.move("x", state)
    scheduler.add("x")
    for state in ("waiting", "processing"):
        scheduler.move("x", state)
    assert scheduler.tasks["x"].annotations is None


def test_after_a_restart_everything_is_counted_anew(clock):
    scheduler, cluster, _ = tracked(x="processing", y="memory")
    scheduler.move("y", "released")
    scheduler.tasks.clear()
    clock.now = 10
    scheduler.tracker.reset()
    assert (cluster.work.outstanding, scheduler.tracker.running) == (False, False)
    scheduler.add("y")
    scheduler.move("y", "waiting")
    assert scheduler.tasks["y"].annotations is None


def test_the_handlers_are_put_back(clock):
    scheduler = FakeScheduler()
    before = dict(scheduler.stream_handlers)
    scheduler.tracker = WorkTracker(scheduler, ClusterLedger(at=0), {})
    assert scheduler.stream_handlers != before
    scheduler.tracker.close()
    assert scheduler.stream_handlers == before
    scheduler.tracker.close()


def test_a_handler_that_somebody_else_wrapped_since_stays(clock):
    scheduler, _, _ = tracked()
    scheduler.stream_handlers["update-graph"] = theirs = object()
    scheduler.tracker.close()
    assert scheduler.stream_handlers["update-graph"] is theirs


def test_a_scheduler_without_these_handlers_is_watched_less_closely(clock):
    scheduler = FakeScheduler(x="processing")
    scheduler.stream_handlers.clear()
    scheduler.tracker = WorkTracker(scheduler, ClusterLedger(at=0), {})
    assert scheduler.stream_handlers == {}
    scheduler.tracker.close()


# -- whatever tasks do, the counts are those of the tasks -------------------------------------------

MOVES = {
    "released": ["waiting", "memory", "forgotten"],
    "waiting": ["processing", "queued", "no-worker", "released", "memory", "erred"],
    "queued": ["processing", "released"],
    "no-worker": ["processing", "released"],
    "processing": ["memory", "erred", "released"],
    "memory": ["released", "forgotten", "erred"],
    "erred": ["released", "forgotten", "waiting"],
}


class WorkMachine(RuleBasedStateMachine):
    """The tracker counts differences; the truth is counted from the tasks each time."""

    keys = st.sampled_from([f"task-{i}" for i in range(6)])

    @initialize(states=st.lists(st.sampled_from(sorted(MOVES)), max_size=6))
    def begin(self, states):
        self.scheduler, self.cluster, _ = tracked(**{f"task-{i}": state for i, state in enumerate(states)})
        self.was_in_memory: set[str] = set()

    @rule(key=keys, which=st.integers(0, 5))
    def move(self, key, which):
        if key not in self.scheduler.tasks:
            self.scheduler.add(key)
        ts = self.scheduler.tasks[key]
        moves = MOVES[ts.state]
        start, finish = ts.state, moves[which % len(moves)]
        marked = bool(ts.annotations)
        self.scheduler.move(key, finish)
        if start == "memory" and finish == "released":
            self.was_in_memory.add(key)
        if finish == "forgotten":
            self.was_in_memory.discard(key)
        elif finish == "waiting":
            assert bool(ts.annotations) is (marked or key in self.was_in_memory)

    @rule(key=keys)
    def secede(self, key):
        self.scheduler.stream_handlers["long-running"](key=key, worker="tcp://a")

    @rule()
    def restart(self):
        self.scheduler.tasks.clear()
        self.scheduler.ws.long_running.clear()
        self.was_in_memory.clear()
        self.scheduler.tracker.reset()

    @invariant()
    def the_counts_are_those_of_the_tasks(self):
        busy = [ts for ts in self.scheduler.tasks.values() if ts not in self.scheduler.ws.long_running]
        assert self.cluster.work.outstanding is any(ts.state in OUTSTANDING for ts in busy)
        assert self.scheduler.tracker.running is any(ts.state == "processing" for ts in busy)


TestWorkMachine = WorkMachine.TestCase
TestWorkMachine.settings = settings(max_examples=100, stateful_step_count=30)
