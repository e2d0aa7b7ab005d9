from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from threading import Lock
from types import SimpleNamespace
from typing import Any

import distributed.worker_state_machine as upstream
import pytest
from distributed import Client, LocalCluster, WorkerPlugin
from distributed.core import Status
from distributed.worker_state_machine import (
    ComputeTaskEvent,
    ExecuteFailureEvent,
    ExecuteSuccessEvent,
    FreeKeysEvent,
    GatherDepSuccessEvent,
    PauseEvent,
    RescheduleEvent,
    SecedeEvent,
    TaskState,
    UnpauseEvent,
    WorkerState,
)
from hypothesis import example, given
from hypothesis import strategies as st

from dask_efficiency import EfficiencyPlugin, snapshot
from dask_efficiency.accounts.wire.snapshots import OWN_WORK
from dask_efficiency.accounts.worker.balance import Used
from dask_efficiency.accounts.worker.log import MAX_PREFIX_LENGTH, Entry
from dask_efficiency.accounts.worker.results import WorkerResults
from dask_efficiency.accounts.worker.slots import Slots
from dask_efficiency.plugin.bootstrap import EfficiencyWorkerPlugin
from dask_efficiency.plugin.names import RECOMPUTED
from dask_efficiency.plugin.worker import hooks as module
from dask_efficiency.plugin.worker.hooks import SAMPLE, HookCost, WorkerHooks, matters, sent_at
from dask_efficiency.plugin.worker.pending import MIN_RATED_NS
from dask_efficiency.plugin.worker.spill_watch import spill_noter
from dask_efficiency.plugin.worker.threads import TaskThreads
from tests.plugin.watch import eventually
from tests.plugin.worker.test_pending import Worker as Accounts
from tests.runs.recording.worker.recorded import Recorded


class Plugin:
    """A worker's half whose hook takes time, of a clock that passes by 10 ns with each reading."""

    def __init__(self) -> None:
        self.now = 0
        self.calls: list[tuple[Any, ...]] = []
        self.cost = HookCost()
        self.transition: Any = None
        self.cost.time(self, self.hook)

    def thread_time_ns(self) -> int:
        self.now += 10
        return self.now

    def hook(self, key: Any, start: str, finish: str) -> None:
        self.calls.append((key, start, finish))
        self.now += key

    def task(self, *takes: int) -> None:
        """Hooks of one task, by the time that each takes; the last one ends it."""
        for took in takes[:-1]:
            self.transition(took, "waiting", "ready", stimulus_id="s")
        self.transition(takes[-1], "executing", "memory")


@pytest.fixture
def plugin(monkeypatch) -> Plugin:
    plugin = Plugin()
    monkeypatch.setattr(module, "thread_time_ns", plugin.thread_time_ns)
    return plugin


def test_the_mean_of_the_sample_counts_for_all_tasks_of_the_interval(plugin):
    plugin.task(10, 100)
    plugin.task(10, 300)
    plugin.cost.next_interval(50)
    assert plugin.cost.spent == 50 * 210
    plugin.cost.next_interval(60)  # without a sample of its own
    assert plugin.cost.spent == 60 * 210


def test_the_cost_of_hooks_never_falls(plugin):
    spent = []
    for tasks, takes in ((10, 1_000), (20, 1), (30, -50)):  # less than reading the clock takes
        plugin.task(takes)
        plugin.cost.next_interval(tasks)
        spent.append(plugin.cost.spent)
    assert spent == [10_000, 10_010, 10_010]


def test_hooks_are_timed_until_the_sample_has_enough_tasks(plugin):
    for _ in range(SAMPLE):
        assert plugin.transition != plugin.hook
        plugin.task(0, 0)
    assert plugin.calls[:2] == [(0, "waiting", "ready"), (0, "executing", "memory")]
    assert plugin.transition == plugin.hook


@pytest.mark.cluster
def test_the_meters_own_work_is_reported_and_hooks_are_timed_only_for_a_sample():
    with LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster, Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin())
        (worker,) = cluster.workers.values()
        meter = worker.plugins[EfficiencyWorkerPlugin.name].meter

        plugin = worker.plugins[EfficiencyWorkerPlugin.name]

        def called() -> Any:
            return vars(plugin).get("transition")

        eventually(lambda: called() != meter.hooks.transition)
        eventually(lambda: client.gather(client.map(abs, range(100), pure=False)) and meter.hooks.cost.spent > 0)
        eventually(lambda: client.gather(client.map(abs, range(50), pure=False)) and called() == meter.hooks.transition)
        own = snapshot(client).outside[OWN_WORK]
        assert 0 < own < 5
        meter._guard.fail(RuntimeError("injected"))
        assert called() is None


TABLE = WorkerState._TRANSITIONS_TABLE


def test_every_transition_that_may_move_a_slot_matters():
    with_slot = {"executing", "long-running", "cancelled", "resumed"}
    moving = {states for states in TABLE if with_slot & set(states)}
    mattering = {states for states in TABLE if matters(*states)}
    assert moving <= mattering
    quiet = {("waiting", "ready"), ("memory", "released"), ("released", "forgotten"), ("fetch", "flight")}
    assert not quiet & mattering


MS = 1_000_000
#: Seconds by which the wall clock of a scene is ahead of its monotonic one.
AHEAD = 1_000.0
#: Entries at which its log is read; and in tests of when that makes no difference.
MAX_ENTRIES = 12
HOW_MANY = (1, MAX_ENTRIES, 1_000)


class Data(dict):
    """Results of a worker, some of which cannot be stored."""

    def __setitem__(self, key: Any, value: object) -> None:
        if value == "too large":
            raise OSError(value)
        super().__setitem__(key, value)


class Scene:
    """Upstream's states of a worker's tasks, whose transitions are logged."""

    def __init__(self, nthreads: int, *, watching: bool) -> None:
        self.now = 1_000 * MS
        plugin, data = WorkerPlugin(), Data()
        known: dict[str, Any] = {"address": "tcp://127.0.0.1:1", "data": data, "resources": {"R": 1}}
        self.state = WorkerState(nthreads=nthreads, plugins={"meter": plugin}, **known)
        self.worker: Any = SimpleNamespace(state=self.state, status=Status.running, data=data, scheduler_delay=0.0)
        self.worker.active_threads, self.worker.active_threads_lock = {}, Lock()
        self.threads = TaskThreads(self.worker)
        self.accounts = Accounts(nthreads, at=self.now, threads=self.threads)
        self.ledger, self.pending, self.spills = self.accounts.ledger, self.accounts.pending, self.accounts.spills
        self.spills.watching = watching
        self.slots, self.results = Slots(self.ledger), WorkerResults()
        self.log: list[Entry] = []
        self.failures: list[Exception] = []
        self.note = spill_noter(self.log, self.worker, self.threads, self.failures.append)
        self.hooks = WorkerHooks(
            *(self.worker, self.slots, self.pending, self.spills, self.threads, self.log, self.results),
            results_failed=self.failures.append,
            failed=self.failures.append,
            at=self.now,
        )
        self.recorder = Recorded()
        plugin.transition = self.transition  # type: ignore[method-assign]
        #: Longest log, when slots were taken, numbers of runs, and what was found at each report and window.
        self.longest = 0
        self.taken: dict[str, int] = {}
        self.run_ids: dict[str, int] = {}
        self.found: list[Any] = []

    def time(self) -> float:
        return self.now / 1e9 + AHEAD

    def transition(self, key: str, start: str, finish: str, **_: Any) -> None:
        if finish == "executing":
            self.taken[key] = self.now
        self.hooks.transition(key, start, finish)
        assert not any(isinstance(value, TaskState) for entry in self.log for value in entry)
        self.longest = max(self.longest, len(self.log))

    def take(self, key: str, *, sent: float = 0.0, **known: Any) -> None:
        """Have a task computed, of a message that was sent so many seconds ago."""
        self.run_ids[key] = run_id = len(self.run_ids) + 1
        name = f"compute-task-{self.time() - sent}"
        self.state.handle_stimulus(ComputeTaskEvent.dummy(key, run_id=run_id, stimulus_id=name, **known))

    def ran(self, key: str, *, begins: int = 1, stops: int = 1) -> None:
        """Note that its thread began so many nanoseconds after it had its slot, and stopped so many ago."""
        began = self.taken[key] + begins
        stopped = max(began, self.now - stops)
        self.threads.done.setdefault(key, (began, stopped, (stopped - began) // 2, 7, -1))

    def succeed(self, key: str, *, nbytes: int = 10, value: object = None, **run: int) -> None:
        self.ran(key, **run)
        run_id = self.state.tasks[key].run_id
        self.state.handle_stimulus(ExecuteSuccessEvent.dummy(key, value, run_id=run_id, nbytes=nbytes, stimulus_id=""))

    def free(self, *keys: str) -> None:
        self.state.handle_stimulus(FreeKeysEvent(stimulus_id="", keys=keys))

    def turn(self, status: Status) -> None:
        """Have another status, with the stimulus that upstream makes of it; one that does not run only goes on."""
        before = self.worker.status
        if before is status or Status.running not in (before, status) or before is Status.closing_gracefully:
            return
        self.worker.status = status
        kind = UnpauseEvent if status is Status.running else PauseEvent
        self.state.handle_stimulus(kind(stimulus_id=""))

    def spill(self, ns: int) -> None:
        start, self.now = self.now, self.now + ns
        self.spills._note(start, self.now)
        self.note(start, self.now, True)

    def catch_up(self) -> None:
        """Read the log as before each report."""
        self.hooks.look_back(self.now)
        self.hooks.observe(self.now)
        self.hooks.catch_up(report=True)

    def report(self) -> None:
        self.catch_up()
        used = {key: Used(1, 2) for key in self.ledger.held}
        balance = self.ledger.balance(at=self.now, used=used)
        assert sum(balance.finalized.values()) + balance.running == balance.nthreads * balance.elapsed
        # A trace has the slots' time to the nanosecond.
        held = balance.running + sum(sum(row) for row in balance.prefixes.values())
        assert self.recorder.all_held(self.now) == held
        known = self.pending.overhead, self.slots.unnoticed, self.threads.claimed, self.results.integrals(self.now)
        self.found.append((balance, known, sorted(self.accounts.rated), dict(self.threads.done)))

    def open_window(self) -> None:
        self.catch_up()
        self.ledger.open_window("w", at=self.now)
        self.pending.sizes.open_window("w")

    def close_window(self) -> None:
        self.catch_up()
        self.found.append((self.ledger.close_window("w", at=self.now), self.pending.sizes.close_window("w")))

    def spilled_ns(self) -> int:
        return self.ledger.balance(at=self.now).finalized["spill"]


#: Something that happens in a scene.
Move = Callable[[Scene], object]


def play(moves: Sequence[Move], *, nthreads: int = 2, entries: int = MAX_ENTRIES, watching: bool = True) -> Scene:
    """A scene after these moves, a nanosecond apart; its log is read once it has so many entries."""
    with pytest.MonkeyPatch.context() as patch:
        scene: Scene
        patch.setattr(module, "MAX_ENTRIES", entries)
        patch.setattr(module, "monotonic_ns", lambda: scene.now)
        patch.setattr(module, "time", SimpleNamespace(time=lambda: scene.time()))
        patch.setattr(upstream, "time", lambda: scene.time())
        scene = Scene(nthreads, watching=watching)
        scene.hooks.record(scene.recorder)
        for move in moves:
            scene.now += 1
            move(scene)
            assert scene.failures == []
        scene.now += 1
    return scene


def wait(ns: int) -> Move:
    return lambda scene: setattr(scene, "now", scene.now + ns)


def take(key: str, **known: Any) -> Move:
    return lambda scene: scene.take(key, **known)


def succeed(key: str, **run: Any) -> Move:
    return lambda scene: scene.succeed(key, **run)


KEYS = ("inc-0", "inc-1", "sum-2", f"{'p' * (MAX_PREFIX_LENGTH + 50)}-3")
#: Where the input of each is, one of which arrives at a time.
OTHERS = [f"tcp://127.0.0.1:{port}" for port in range(2, 6)]
#: How a task may be taken.
TAKEN = ("plain", "recomputed", "constrained", "waiting")


def known_of(kind: str, number: int) -> dict[str, Any]:
    """What else a task of some kind has."""
    if kind == "waiting":
        return {"who_has": {f"dep-{number}": [OTHERS[number]]}, "nbytes": {f"dep-{number}": 77}}
    if kind == "constrained":
        return {"resource_restrictions": {"R": 1}}
    return {"annotations": {RECOMPUTED: "w3"}} if kind == "recomputed" else {}


def happen(scene: Scene, gap: int, kind: str, number: int) -> None:
    """Something of some kind after a while, of the task of a number if there is one that can do it."""
    scene.now += gap
    state = scene.state
    at_work = sorted(state.executing | state.long_running, key=lambda ts: ts.key)
    if kind in TAKEN:
        key = KEYS[number]
        if key in scene.worker.data:
            scene.free(key)
        if key not in state.tasks or state.tasks[key].state == "cancelled":
            scene.take(key, sent=number / 10, **known_of(kind, number))
    elif kind == "arrives" and OTHERS[number] in state.in_flight_workers:
        arrived: dict[str, Any] = {"worker": OTHERS[number], "total_nbytes": 77, "data": {f"dep-{number}": 1}}
        state.handle_stimulus(GatherDepSuccessEvent(stimulus_id="", **arrived))
    elif kind in EVENTS:
        EVENTS[kind](scene)
    elif at_work:
        end(scene, at_work[number % len(at_work)], kind, number)


def end(scene: Scene, ts: TaskState, kind: str, number: int) -> None:
    """A thread of a task, or the task, ends, or leaves its slot."""
    key, handle = ts.key, scene.state.handle_stimulus
    if kind == "succeeds":
        scene.succeed(key, begins=number * 1_000, stops=number * MS - 5)
    elif kind == "not stored":
        scene.succeed(key, value="too large")
    elif kind == "freed":
        scene.free(key)
    elif kind == "secedes" and ts.state == "executing":
        handle(SecedeEvent(stimulus_id="", key=key, compute_duration=1.0))
    elif kind in ("ran", "fails", "rescheduled"):
        scene.ran(key)
        if kind == "fails":
            handle(ExecuteFailureEvent.dummy(key, run_id=ts.run_id, stimulus_id=""))
        elif kind == "rescheduled":
            handle(RescheduleEvent(stimulus_id="", key=key))


def pause(scene: Scene) -> None:
    scene.turn(Status.paused)


def go_on(scene: Scene) -> None:
    scene.turn(Status.running)


def pause_and_go_on(scene: Scene) -> None:
    pause(scene)
    scene.now += 30 * MS
    go_on(scene)


EVENTS: dict[str, Callable[[Scene], object]] = {
    "report": Scene.report,
    "window": lambda scene: (scene.close_window if scene.ledger.windows else scene.open_window)(),
    "pauses": pause,
    "retires": lambda scene: scene.turn(Status.closing_gracefully),
    "goes on": go_on,
    "pauses and goes on": pause_and_go_on,
    "spills": lambda scene: scene.spill(20 * MS),
}

gaps = st.sampled_from([0, 7, 1_000, MS, 20 * MS, 60 * MS, 300 * MS])
numbers = st.integers(0, len(KEYS) - 1)
takes = st.tuples(gaps, st.sampled_from(["plain", "plain", *TAKEN]), numbers)
ends = st.tuples(gaps, st.sampled_from(["succeeds", "succeeds", "succeeds", "not stored", "fails", "freed"]), numbers)
others = st.tuples(gaps, st.sampled_from([*EVENTS, "ran", "rescheduled", "secedes", "arrives"]), numbers)
steps = st.lists(st.tuples(takes, others, takes | ends, others, ends), min_size=2, max_size=12)


@given(st.integers(1, 3), steps.map(lambda rounds: [move for one in rounds for move in one]))
# A pause that came and went while a task ran and another slot was free.
@example(2, [(0, "plain", 0), (60 * MS, "pauses and goes on", 0), (60 * MS, "succeeds", 0)])
# A key that runs again before its first run, which was still in its thread when it ended, is read.
@example(1, [*((0, "plain", 0), (MS, "succeeds", 0), (0, "plain", 0), (MS, "ran", 0), (0, "succeeds", 0))])
@example(1, [(0, "plain", 3), (MS, "succeeds", 3)] * 2)
# A pause that is found after a call to the disk that came later.
@example(
    2,
    [
        *((0, "plain", 0), (MS, "plain", 1), (0, "plain", 2), (20 * MS, "pauses", 0)),
        *((60 * MS, "spills", 0), (60 * MS, "report", 0)),
    ],
)
def test_a_log_that_is_read_later_gives_the_same_accounts_to_the_nanosecond(nthreads, moves):
    happening = [partial(happen, gap=gap, kind=kind, number=number) for gap, kind, number in moves]
    at_once, *later = (play([*happening, Scene.report], nthreads=nthreads, entries=most).found for most in HOW_MANY)
    assert later == [at_once] * len(later)


def test_a_long_log_is_read_and_keeps_no_task_of_dasks():
    moves = [move for i in range(50) for move in (take(f"inc-{i}"), wait(MS), succeed(f"inc-{i}"))]
    scene = play([lambda scene: scene.hooks.record(None), *moves])
    assert MAX_ENTRIES - 2 <= scene.longest <= MAX_ENTRIES + 2
    assert scene.threads.done == {}


def test_tasks_that_are_read_together_are_named_and_sized_as_they_were_when_they_ended():
    took, moves = 2 * MIN_RATED_NS, [Scene.open_window]
    for key, (times, nbytes) in enumerate([(1, 10), (5, 20), (2, 30)]):
        name = f"inc-{key}"
        moves += [take(name), wait(times * took - 2), succeed(name, nbytes=nbytes)]
    scene = play([*moves, *(lambda scene, key=key: scene.free(f"inc-{key}") for key in range(3)), Scene.catch_up])
    sizes = scene.pending.sizes.close_window("w")["inc"]
    assert (sizes.longest.key, sizes.largest.key) == ("inc-1", "inc-2")
    assert (sizes.longest.n, sizes.largest.n) == (5 * took - 2, 30)  # a thread runs one nanosecond less at each end
    assert [nbytes for *_, nbytes in scene.accounts.rated] == [10, 20, 30]


def test_a_slot_is_spilling_while_the_message_with_its_task_is_unread():
    def spilled(*moves: Move) -> int:
        moves = (lambda scene: scene.spill(20 * MS), *moves, Scene.catch_up)
        (found,) = {play(moves, entries=most).spilled_ns() for most in HOW_MANY}
        return found

    sent = take("inc-0", sent=0.1)
    assert spilled(sent) == 20 * MS
    assert spilled(wait(90 * MS - 2), sent) == 10 * MS
    # It was there already; or what was free is reported, and stays.
    assert spilled(take("inc-0")) == 0
    assert spilled(Scene.catch_up, sent) == 0


@pytest.mark.parametrize("entries", HOW_MANY)
def test_a_pause_that_came_and_went_is_found_later_at_its_time_also_after_a_call_to_the_disk(entries):
    taken = [take("inc-0", resource_restrictions={"R": 1}), take("inc-1", resource_restrictions={"R": 1})]
    after = [wait(10 * MS), lambda scene: scene.spill(20 * MS), wait(60 * MS), Scene.catch_up]
    scene = play([*taken, wait(60 * MS), pause_and_go_on, *after], entries=entries)
    found = scene.ledger.balance(at=scene.now).finalized
    assert found["paused"] == 30 * MS
    assert found["constrained"] == pytest.approx(150 * MS, abs=10)


def test_a_task_that_becomes_ready_on_a_paused_worker_makes_a_slot_paused_from_then_on():
    scene = play([pause, wait(100 * MS), take("inc-0"), wait(30 * MS), Scene.catch_up])
    # Moves are a nanosecond apart; and of the two slots, one had no task that could run.
    assert scene.ledger.balance(at=scene.now).finalized["paused"] == pytest.approx(30 * MS, abs=3)


def test_the_id_of_a_stimulus_has_the_time_of_sending():
    assert sent_at(ComputeTaskEvent.dummy(key="x", stimulus_id="compute-task-1700000000.25")) == 1700000000.25
    for name in ("compute-task", "compute-task-soon", ""):
        assert sent_at(ComputeTaskEvent.dummy(key="x", stimulus_id=name)) is None


def test_without_a_watch_of_the_loop_the_log_is_read_before_each_new_stimulus():
    def spills(ns: int) -> Move:
        def add(scene: Scene) -> None:
            # Upstream adds a task's fine metrics right after the stimulus that ends it.
            digest = ("execute", "", "inc", "disk-write", "seconds")
            scene.accounts.digests[digest] = scene.accounts.digests.get(digest, 0.0) + ns * 1e-9

        return add

    moves: list[Move] = [lambda scene: scene.hooks.record(None)]
    for key, ns in (("inc-0", 3), ("inc-1", 5)):
        moves += [take(key), wait(100), succeed(key, stops=50), spills(ns)]
    scene = play(moves, nthreads=1, watching=False)
    assert scene.spilled_ns() == 3
    assert [entry.key for entry in scene.log] == ["inc-1"]
    scene.catch_up()
    assert scene.spilled_ns() == 3 + 5


def test_failures_of_hooks_are_passed_on_and_do_not_reach_the_worker():
    scene = play([])
    scene.hooks.transition("unknown", "ready", "executing")
    assert [type(failure) for failure in scene.failures] == [AttributeError]
    scene.state.ready = None  # type: ignore[assignment]
    scene.note(10, 20, False)
    assert [type(failure) for failure in scene.failures] == [AttributeError, TypeError]
