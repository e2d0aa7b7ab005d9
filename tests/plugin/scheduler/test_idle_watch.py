from __future__ import annotations

import asyncio
import functools
import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.core import Status
from distributed.scheduler import WorkerState

from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.cluster.idle import (
    NOTHING_RAN,
    SEEN,
    Alone,
    ClusterState,
    WorkerSlots,
    paused_slots_by_cause,
    slots_by_cause,
)
from dask_efficiency.accounts.cluster.span_shares import SpanShares
from dask_efficiency.plugin.scheduler import idle_watch
from dask_efficiency.plugin.scheduler.idle_watch import IdleWatch

MS = 1_000_000


class FakeTask:
    def __init__(self, key: str, **restrictions: Any) -> None:
        self.key, self.prefix = key, SimpleNamespace(name=key.partition("-")[0])
        self.worker_restrictions = self.host_restrictions = self.resource_restrictions = None
        self.loose_restrictions = False
        vars(self).update(restrictions)


class FakeScheduler:
    """As much of a scheduler as is looked at."""

    def __init__(self) -> None:
        self.workers: dict[str, WorkerState] = {}
        self.queued: list[FakeTask] = []
        self.unrunnable: dict[FakeTask, float] = {}
        self.asked = 0

    def add(self, name: str, *tasks: FakeTask, nthreads: int = 4, resources: dict[str, float] | None = None) -> None:
        known: Any = {"pid": 0, "memory_limit": 0, "local_directory": "", "nanny": None, "server_id": name}
        ws = WorkerState(address=f"tcp://{name}:1", status=Status.running, name=name, nthreads=nthreads, **known)
        ws.resources = resources or {}
        self.workers[name] = ws
        ws.processing = set(tasks)

    def coerce_hostname(self, host: str) -> str:
        return host

    def valid_workers(self, ts: FakeTask) -> set[WorkerState] | None:
        self.asked += 1
        found = None if ts.worker_restrictions is None else {self.workers[a] for a in ts.worker_restrictions}
        if ts.resource_restrictions:
            having = {ws for ws in self.workers.values() if ts.resource_restrictions.keys() <= ws.resources.keys()}
            found = having if found is None else found & having
        return found


class Scene:
    """A watch on a fake scheduler, by a clock that is set by hand."""

    def __init__(self, clock: SimpleNamespace) -> None:
        self.clock = clock
        self.scheduler: Any = FakeScheduler()
        self.cluster = ClusterLedger(at=0)
        self.work: Any = SimpleNamespace(changed=lambda: None, graphs=False)
        self.weights = self.cluster.idle
        #: Of the event loop, with the time for which it has waited.
        self.loop: Any = SimpleNamespace(waited=0)
        self.watch = IdleWatch(self.scheduler, self.work, self.cluster, self.loop)

    def add(self, name: str, *tasks: FakeTask, **options: Any) -> None:
        self.scheduler.add(name, *tasks, **options)
        self.cluster.worker_joined(name, name, self.scheduler.workers[name].nthreads, at=self.clock.now)

    def turn(self, outstanding: bool, *, graphs: bool = False, at: int) -> None:
        """As the tracker does it."""
        self.clock.now = at
        self.work.graphs = graphs
        if outstanding is not self.cluster.work.outstanding:
            self.cluster.work.set(outstanding, at=at)
        self.work.changed()

    def sample(self, *, at: int) -> None:
        self.clock.now = at
        self.watch.sample()

    async def play(self, script: str) -> None:
        """Steps such as ``10 graph; 20 work; 30 none; 40 look``, at milliseconds, and ``- runs a-1 b-1`` of a worker.

        The event loop turns once the clock is at ``11 turn``.
        """
        for step in script.split("; "):
            at, what, *tasks = step.split()
            if at != "-":
                self.clock.now = int(at) * MS
            if what == "runs":
                self.scheduler.workers["a"].processing = {FakeTask(key) for key in tasks}
            elif what == "look":
                self.watch.sample()
            elif what == "turn":
                await settled()
            else:
                self.turn(what != "none", graphs=what == "graph", at=self.clock.now)

    def split(self, name: str, idle: int) -> dict[str, int]:
        return self.weights.split(self.cluster.present[name], idle)

    def look(self) -> dict[str, int]:
        """What slots are free for now."""
        causes = slots_by_cause(self.state())
        return {cause: slots for cause, slots in zip(SEEN, causes, strict=True) if slots}

    def state(self) -> ClusterState:
        return self.watch._look()


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    clock = SimpleNamespace(now=0)
    monkeypatch.setattr(idle_watch.time, "monotonic_ns", lambda: clock.now)
    # Looks are not held back by what they cost on this machine.
    monkeypatch.setattr(idle_watch, "SHARE", 1e9)
    return Scene(clock)


def inc(n: int, **restrictions: Any) -> list[FakeTask]:
    return [FakeTask(f"inc-{i}", **restrictions) for i in range(n)]


# -- what there is to see ---------------------------------------------------------------------------


def test_slots_are_free_that_the_scheduler_gave_no_task(scene):
    scene.add("a", *inc(3))
    scene.add("b", nthreads=2)
    scene.scheduler.add("new")  # it has no accounts yet
    state = scene.state()
    assert {p.name: slots for p, slots in state.workers.items()} == {"a": WorkerSlots(1, 4), "b": WorkerSlots(2, 2)}
    assert (state.free, state.running, state.spans) == (3, {"inc": 3}, ())
    assert scene.look() == {"parallelism": 3}


def test_a_task_that_left_its_slot_holds_none(scene):
    tasks = inc(3)
    scene.add("a", *tasks)
    scene.scheduler.workers["a"].long_running = set(tasks[:2])
    state = scene.state()
    assert (state.free, state.running, state.only) == (3, {"inc": 1}, (tasks[2].key, "inc"))
    # Where nothing else runs, all wait for the tasks that left.
    scene.scheduler.workers["a"].long_running = set(tasks)
    assert scene.state().running == {"inc": 3}


def test_slots_of_a_worker_that_closes_are_not_free(scene):
    scene.add("a")
    scene.add("b")
    scene.scheduler.workers["a"].status = Status.closing_gracefully
    assert {p.name: slots.free for p, slots in scene.state().workers.items()} == {"a": 0, "b": 4}


def paused_scene(scene: Scene) -> Scene:
    """One of four slots of a paused worker is taken; another worker has one free."""
    scene.add("a", *inc(1))
    scene.add("b", *inc(3))
    scene.scheduler.workers["a"].status = Status.paused
    return scene


def paused_slots(scene: Scene) -> dict[str, int]:
    """What the free slots of paused workers are free for now."""
    causes = paused_slots_by_cause(scene.state())
    return {cause: slots for cause, slots in zip((*SEEN, "paused"), causes, strict=True) if slots}


def test_a_paused_worker_for_which_no_task_waits_is_idle_as_others(scene):
    state = paused_scene(scene).state()
    assert {p.name: slots for p, slots in state.workers.items()} == {
        "a": WorkerSlots(3, 4, paused=True),
        "b": WorkerSlots(1, 4),
    }
    assert (state.free, state.paused) == (1, 3)
    assert scene.look() == {"parallelism": 1}
    assert paused_slots(scene) == {"parallelism": 3}


def test_queued_tasks_beyond_the_free_slots_elsewhere_wait_for_a_paused_worker(scene):
    paused_scene(scene).scheduler.queued = inc(3)
    assert scene.look() == {"scheduler": 1}
    assert paused_slots(scene) == {"paused": 2, "parallelism": 1}
    scene.add("c", *inc(9))
    assert paused_slots(scene) == {"paused": 3}


@pytest.mark.parametrize(
    ("restrictions", "expected"),
    [
        ({}, {"paused": 3}),
        ({"worker_restrictions": {"tcp://a:1"}}, {"paused": 3}),
        ({"worker_restrictions": {"tcp://b:1"}}, {"restricted": 3}),
        ({"worker_restrictions": {"tcp://b:1"}, "loose_restrictions": True}, {"paused": 3}),
        ({"host_restrictions": {"a"}}, {"paused": 3}),
        ({"resource_restrictions": {"GPU": 1}}, {"restricted": 3}),
    ],
)
def test_tasks_without_a_worker_wait_for_a_paused_one_that_may_run_them(scene, restrictions, expected):
    paused_scene(scene).scheduler.unrunnable = dict.fromkeys(inc(4, **restrictions), 0.0)
    assert paused_slots(scene) == expected


def test_idle_time_of_a_paused_worker_is_split_by_the_states_seen(scene):
    paused_scene(scene).scheduler.queued = inc(2)
    scene.weights.accrue(scene.state(), at=12 * MS)
    scene.scheduler.queued = []
    scene.weights.accrue(scene.state(), at=24 * MS)
    # One of three slots, for 12 ms, was for a queued task: the other task had a slot elsewhere.
    assert scene.split("a", 72 * MS) == {"paused": 12 * MS, "parallelism": 60 * MS}


@pytest.mark.parametrize(
    ("tasks", "queued", "unrunnable", "causes"),
    [
        (7, 2, 0, {"scheduler": 2, "imbalance": 2}),  # ready tasks that the scheduler holds come first
        (6, 0, 0, {"imbalance": 2, "parallelism": 2}),  # tasks that wait elsewhere beyond the threads
        (0, 0, 7, {"restricted": 7, "parallelism": 1}),
    ],
)
def test_free_slots_are_for_queued_then_for_waiting_tasks(scene, tasks, queued, unrunnable, causes):
    scene.add("a")
    scene.add("b", *inc(tasks))
    scene.scheduler.queued, scene.scheduler.unrunnable = inc(queued), dict.fromkeys(inc(unrunnable), 0.0)
    assert scene.look() == causes


@pytest.mark.parametrize(
    ("restrictions", "cause"),
    [
        ({"worker_restrictions": {"b"}}, "restricted"),
        ({"worker_restrictions": {"a", "b"}}, "imbalance"),
        ({"worker_restrictions": {"b"}, "loose_restrictions": True}, "imbalance"),
        ({"resource_restrictions": {"GPU": 1}}, "restricted"),
        ({"resource_restrictions": {"memory": 1}}, "imbalance"),
        ({"resource_restrictions": {"memory": 2}}, "restricted"),
        ({"resource_restrictions": {"memory": "1"}}, "restricted"),  # a client may ask for any amount
        ({"resource_restrictions": {"memory": [1]}}, "imbalance"),
    ],
)
def test_a_waiting_task_that_may_not_run_on_a_free_slot_is_restricted(scene, restrictions, cause):
    scene.add("a", resources={"memory": 2})
    scene.scheduler.workers["a"].used_resources = {"memory": 1}
    scene.add("b", *inc(8, **restrictions), resources={"GPU": 1, "memory": 9})
    assert scene.look() == {cause: 4}
    assert scene.scheduler.asked <= 1


def test_states_of_workers_of_any_size_are_right_and_only_those_of_usual_ones_are_kept(scene):
    sizes = [*range(1, 40), 256, 257, 9_999, 10_000]
    for size in sizes:
        scene.add(f"w{size}", *inc(1), nthreads=size)
    for _ in range(2):
        state = scene.state()
        assert [state.workers[scene.cluster.present[f"w{size}"]] for size in sizes] == [
            (n - 1, n, False) for n in sizes
        ]
    assert state.free == sum(sizes) - len(sizes)
    assert max(scene.watch._slots) == 256


def test_a_sample_of_many_tasks_is_looked_at(scene):
    scene.add("a", nthreads=1_001)
    for i in range(200):
        scene.add(f"b{i}", *inc(9, worker_restrictions={f"b{i}"} if i % 2 else None))
    state = scene.state()
    assert sum(state.running.values()) <= idle_watch.MAX_TASKS
    assert scene.scheduler.asked <= idle_watch.MAX_TASKS
    assert state.waiting + state.restricted == 1_000
    assert 300 < state.restricted < 700


def test_tasks_that_a_worker_reported_as_running_do_not_wait(scene):
    running, waiting = inc(4, worker_restrictions={"b"}), [FakeTask("sum-1"), FakeTask("sum-2")]
    scene.add("a")
    scene.add("b", *running, *waiting)
    scene.scheduler.workers["b"].executing = dict.fromkeys(running, 1.0)
    assert scene.look() == {"imbalance": 2, "parallelism": 2}


# -- when to look -----------------------------------------------------------------------------------


def on_a_loop(test):
    """A test that runs on an event loop, which the watch needs for its next look."""

    @functools.wraps(test)
    def run(scene, **fixtures):
        async def watched():
            scene.watch.start()
            try:
                await test(scene, **fixtures)
            finally:
                scene.watch.stop()

        asyncio.run(watched())

    return run


async def settled():
    """Let the event loop turn."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


async def until(condition):
    for _ in range(6_000):  # a minute
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("waited in vain")


@pytest.mark.parametrize(
    ("script", "idle", "causes"),
    [
        ("10 work; - runs train-1; 11 turn; 30 none; 90 turn", 60, {"parallelism": 60}),
        # A state holds until the next look, however late: one slot was free, the others were believed to be in use.
        ("- runs a-1 a-2 a-3; 0 work; 0 turn; - runs; 5000 look", 20_000, {"scheduler": 15_000, "parallelism": 5_000}),
        ("10 graph; 10 turn; - runs a-1 a-2 a-3; 40 work; 40 turn; 50 look", 130, {"graph": 120, "parallelism": 10}),
        ("0 work; 0 turn; 10 graph; 15 turn", 60, {"graph": 20, "parallelism": 40}),  # while others are worked at
        ("5 look; 10 none; 10 turn; 50 look", 1, {"unknown": 1}),  # there is no work
        ("10 work; 20 none; 20 turn; 50 look", 1, {"unknown": 1}),  # it is over before any look
    ],
)
@on_a_loop
async def test_free_slots_have_the_causes_seen_while_there_was_work(scene, script, idle, causes):
    scene.add("a")
    await scene.play(script)
    scene.watch.catch_up()
    assert scene.split("a", idle * MS) == {cause: ms * MS for cause, ms in causes.items()}
    assert scene.split("a", 1) == {"unknown": 1}


@on_a_loop
async def test_work_that_was_sent_counts_from_its_beginning_and_time_without_work_does_not(scene):
    scene.add("a")
    await scene.play("5 look; 6 none; 6 turn; 9 look")
    assert (scene.weights.parallelism, scene.watch.cost_seconds) == ({}, 0)
    assert not scene.watch._poller.is_running()
    await scene.play("10 work; - runs train-1; 11 turn; 30 none; 90 turn")
    assert scene.weights.parallelism == {"train": 60 * MS}
    assert scene.weights.alone == {"train-1": Alone("train", 20 * MS)}


@on_a_loop
async def test_short_work_without_a_look_counts_like_the_last_state_seen(scene, monkeypatch):
    monkeypatch.setattr(idle_watch, "MAX_SAVED", 0)
    # Those looks that come by the clock do so on a busy machine in the midst of this.
    monkeypatch.setattr(idle_watch, "INTERVAL_MS", 3_600_000)
    scene.add("a", FakeTask("train-1"))
    for i in range(10, 101, 10):
        await scene.play(f"{i} work; {i} turn; {i + 5} none")
    assert scene.split("a", 150 * MS) == {"parallelism": 150 * MS}
    assert scene.weights.parallelism == {"train": 150 * MS}
    assert scene.weights.alone == {"train-1": Alone("train", 5 * MS)}


@on_a_loop
async def test_slots_wait_for_round_trips_while_tasks_are_queued_and_the_loop_has_nothing_to_do(scene, monkeypatch):
    busy = SimpleNamespace(ns=0)
    monkeypatch.setattr(idle_watch, "_busy_ns", lambda: busy.ns)
    scene.add("a", *inc(4))
    scene.scheduler.queued = inc(9)
    scene.watch._busy = 0
    scene.turn(True, at=0)
    await settled()
    busy.ns, scene.loop.waited = 10 * MS, 40 * MS
    scene.sample(at=40 * MS)
    # Of the 40 ms its thread was on a core, or waited for one, for 10; the slots were believed to be in use.
    assert scene.split("a", 40 * MS) == {"scheduler": 10 * MS, "round-trips": 30 * MS}
    # It waited for messages for 20 ms, and was blocked on no core for the rest.
    scene.loop.waited += 20 * MS
    scene.sample(at=400 * MS)
    assert scene.split("a", 360 * MS) == {"scheduler": 340 * MS, "round-trips": 20 * MS}
    scene.watch.catch_up(at=420 * MS)
    assert scene.split("a", 20 * MS) == {"scheduler": 20 * MS}


@pytest.fixture
def looks_cost(monkeypatch):
    """A clock of CPU time by which each look takes a microsecond; nothing is saved up for others."""
    readings = itertools.count(0, 1_000)
    monkeypatch.setattr(idle_watch.time, "thread_time_ns", lambda: next(readings))
    monkeypatch.setattr(idle_watch, "SHARE", 0.0)
    monkeypatch.setattr(idle_watch, "INTERVAL_MS", 3_600_000)  # no look by the clock


@on_a_loop
async def test_extra_looks_are_paid_from_saved_time(scene, looks_cost):
    scene.add("a")
    scene.watch._saved = 2_500
    for i in range(0, 20, 2):
        await scene.play(f"{i + 1} work; {i + 1} turn; {i + 2} none")
    assert scene.watch.cost_seconds == pytest.approx(3e-6)  # what the first will cost is not known before


@on_a_loop
async def test_work_after_a_graph_without_a_look_does_not_count_like_the_state_before(scene, looks_cost):
    scene.add("a")
    scene.watch._saved = 0
    await scene.play("10 graph; 10 turn; 20 work; 20 turn; 30 none")
    assert scene.split("a", 80 * MS) == {"graph": 40 * MS, "unknown": 40 * MS}


@on_a_loop
async def test_the_state_is_looked_at_over_and_over_until_there_is_no_work(scene):
    scene.add("a")
    scene.turn(True, at=0)
    for now in range(1, 4):
        scene.clock.now = now * MS
        await until(lambda now=now: scene.weights.at == now * MS)
    scene.turn(False, at=10 * MS)
    await until(lambda: not scene.watch._poller.is_running())
    assert scene.split("a", 4 * scene.weights.at) == {"parallelism": 40 * MS}
    assert scene.weights.parallelism == {NOTHING_RAN: 40 * MS}


@pytest.mark.parametrize(("workers", "interval"), [(1, 50), (100, 50), (1_000, 500), (10_000, 5_000)])
def test_many_workers_are_looked_at_less_often(scene, workers, interval):
    scene.scheduler.workers = dict.fromkeys(range(workers))
    assert scene.watch._interval() == interval


@on_a_loop
async def test_a_failure_is_logged_once_and_ends_the_watch(scene, caplog):
    scene.add("a")
    scene.turn(True, at=0)
    await settled()
    scene.scheduler.workers["a"].processing = None
    scene.watch.guard(scene.watch._tick)
    scene.turn(False, at=MS)
    scene.turn(True, at=2 * MS)
    await settled()
    assert "the watch for idle slots failed: TypeError" in scene.watch.guard.off
    assert not scene.watch._poller.is_running()
    assert len(caplog.records) == 1
    assert scene.split("a", 5) == {"unknown": 5}


@on_a_loop
async def test_a_watch_that_was_stopped_counts_nothing_more(scene):
    scene.add("a")
    scene.turn(True, at=0)
    await settled()
    scene.clock.now = MS
    scene.watch.stop()
    scene.watch.stop()
    scene.turn(True, graphs=True, at=5 * MS)
    assert not scene.watch._poller.is_running()
    assert scene.split("a", 5 * MS) == {"parallelism": 4 * MS, "unknown": MS}


# -- whose free slots they are ---------------------------------------------------------------------


class FakeSpans:
    """The spans that have work outstanding, and those of the graphs that were taken in."""

    def __init__(self) -> None:
        self.now: tuple[tuple[str, ...], ...] = ()
        self.newest: tuple[tuple[str, ...], ...] = ()

    def outstanding(self, long_running: Any) -> tuple[tuple[str, ...], ...]:
        return self.now

    def take_newest(self) -> tuple[tuple[str, ...], ...]:
        newest, self.newest = self.newest, ()
        return newest


@pytest.fixture
def shares(scene: Scene) -> SpanShares:
    """Of a window that is open on a cluster of one worker, with four free slots."""
    scene.work.spans = FakeSpans()
    shares = scene.weights.shares["window"] = SpanShares(lambda span: span == "a")
    scene.add("w")
    return shares


@on_a_loop
async def test_spans_share_free_slots_from_one_look_to_the_next(scene, shares):
    scene.turn(True, at=0)
    scene.work.spans.now = (("a",),)
    scene.sample(at=10 * MS)
    scene.work.spans.now = (("a",), ("b",))
    scene.sample(at=30 * MS)
    scene.turn(False, at=50 * MS)
    scene.sample(at=90 * MS)
    assert shares.divide("idle/parallelism", 50) == {"a": 40, "b": 10}
    assert shares.own_ns == 50 * MS


@on_a_loop
async def test_the_time_to_take_in_a_graph_is_of_its_spans(scene, shares):
    scene.turn(True, at=0)
    scene.sample(at=0)
    scene.turn(False, at=0)
    scene.turn(True, graphs=True, at=0)
    scene.sample(at=20 * MS)
    scene.work.spans.newest = scene.work.spans.now = (("a",), ("b",))
    scene.turn(True, at=30 * MS)
    assert shares.divide("idle/graph", 30) == {"a": 15, "b": 15}
    # All of it is over before anybody looks: as it was seen last, and of the newest.
    scene.turn(False, at=40 * MS)
    assert shares.divide("waiting-on-data", 40) == {"a": 20, "b": 20}
    assert shares.own_ns == 40 * MS


@on_a_loop
async def test_nothing_is_looked_at_while_a_client_arrives(scene, monkeypatch):
    looked = []
    monkeypatch.setattr(scene.watch, "sample", lambda: looked.append(scene.clock.now))
    scene.watch.quiet_until = 12 * MS
    scene.turn(True, at=10 * MS)
    await settled()
    scene.watch._tick()
    assert not looked
    scene.clock.now = 12 * MS
    await until(lambda: looked)
    scene.watch._tick()
    assert set(looked) == {12 * MS}
