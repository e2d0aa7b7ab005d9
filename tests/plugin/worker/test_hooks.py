from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Client, LocalCluster
from distributed.core import Status
from distributed.worker_state_machine import ComputeTaskEvent, PauseEvent, UnpauseEvent, WorkerState
from hypothesis import example, given
from hypothesis import strategies as st

from dask_efficiency import EfficiencyPlugin, snapshot
from dask_efficiency.accounts.gpu import GpuUse
from dask_efficiency.accounts.wire.snapshots import OWN_WORK
from dask_efficiency.accounts.worker.balance import Balance, Used, WindowBalance
from dask_efficiency.accounts.worker.ledger import Ledger
from dask_efficiency.accounts.worker.log import MAX_PREFIX_LENGTH, Entry, Run
from dask_efficiency.accounts.worker.results import WorkerResults
from dask_efficiency.accounts.worker.slots import Slots
from dask_efficiency.gpu.meter import TaskId
from dask_efficiency.plugin.bootstrap import EfficiencyWorkerPlugin
from dask_efficiency.plugin.names import RECOMPUTED
from dask_efficiency.plugin.worker import hooks as module
from dask_efficiency.plugin.worker import pending as pending_module
from dask_efficiency.plugin.worker import spill_watch as spill_module
from dask_efficiency.plugin.worker.fine_metrics import SpillMetrics
from dask_efficiency.plugin.worker.hooks import SAMPLE, HookCost, WorkerHooks, matters, sent_at
from dask_efficiency.plugin.worker.pending import MIN_RATED_NS, MIN_WAITED_NS, PendingTasks
from dask_efficiency.plugin.worker.spill_watch import SpillWatch, spill_noter
from tests.plugin.watch import eventually
from tests.plugin.worker.test_pending import Threads as ClaimedThreads
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
#: Seconds by which the test's wall clock is ahead of the monotonic one.
AHEAD = 1_000.0
#: Entries at which the log is read here.
MAX_ENTRIES = 12

LONG_PREFIX = "p" * (MAX_PREFIX_LENGTH + 50)


@dataclass(eq=False)
class Task:
    """State of a task upstream."""

    key: str
    prefix: str = "inc"
    state: str = "executing"
    span_id: str | None = None
    annotations: dict[str, Any] | None = None
    nbytes: int | None = 10
    dependencies: tuple[Any, ...] = ()
    waiting_for_data: tuple[Any, ...] = ()
    run_id: int = 1
    coming_from: str | None = None
    start_time: float | None = None
    startstops: tuple[Any, ...] = ()


class Threads(ClaimedThreads):
    """Task threads whose runs are given."""

    def __init__(self) -> None:
        super().__init__()
        self.done: dict[Any, Run] = {}
        self.worked: dict[Any, Any] = {}
        self.ended: deque[Any] | None = None
        self.stopped_by_shuffle: set[Any] = set()

    def measured_upstream(self, key: Any) -> int:
        return 500

    def live_used(self) -> dict[Any, tuple[int, int]]:
        return {f"key-{i}": (3, 5) for i in range(0, 6, 2)}

    def waiting(self) -> int:
        return 0


class Accounts:
    """Accounts of a worker; with ``at_once`` the log is read after each entry."""

    def __init__(self, world: World, *, at_once: bool) -> None:
        self.world, self.at_once = world, at_once
        self.threads = Threads()
        self.ledger = Ledger(world.nthreads, at=0)
        self.rated: list[tuple[str, int, int, float]] = []
        self.failures: list[Exception] = []
        log: list[Entry] = []
        threads: Any = self.threads
        self.spills = SpillWatch({}, spill_noter(log, world.worker, threads, self.failures.append))
        self.spills.watching = True
        self.pending = PendingTasks(
            self.ledger,
            SpillMetrics({}),
            threads=threads,
            spills=self.spills,
            library=lambda: self._library if world.libraries else None,
            use=self._use,
            rate=self.rated.extend,
        )
        self.slots = Slots(self.ledger)
        self.results = WorkerResults()
        self.hooks = WorkerHooks(
            *(world.worker, self.slots, self.pending, self.spills, threads, log, self.results),
            results_failed=self.failures.append,
            failed=self.failures.append,
            at=world.now,
        )
        self.recorder = Recorded()
        self.hooks._recorder = self.recorder  # no clock runs yet

    def transition(self, key: str, start: str, finish: str) -> None:
        self.hooks.transition(key, start, finish)
        if self.at_once:
            self.hooks._read(all_of_them=False, whole=False)

    def _library(self, reservation: Any, waited: int) -> int:
        return waited // 3

    def _use(self, task: TaskId, stop: int) -> GpuUse | None:
        """No use by every other task, a part of each kind of time by the others."""
        cpu, noncpu = self.world.runs[task]
        if task not in self.world.known:
            return None
        if task.thread % 2:
            return GpuUse()
        spun = cpu // 2
        return GpuUse(kernel=spun + noncpu // 5, contention=noncpu // 7, copy=noncpu // 9, wait=noncpu // 11, spun=spun)

    def catch_up(self) -> None:
        """Read the log as before each report."""
        self.hooks.look_back(self.world.now)
        self.hooks.observe(self.world.now)
        self.hooks.catch_up(report=True)

    def report(self) -> tuple[Balance, *tuple[Any, ...]]:
        self.catch_up()
        used = {key: Used(1, 2) for key in self.ledger.held}
        balance = self.ledger.balance(at=self.world.now, used=used | self.pending.used_so_far())
        assert sum(balance.finalized.values()) + balance.running == balance.nthreads * balance.elapsed
        # A trace has the slots' time to the nanosecond.
        held = balance.running + sum(sum(row) for row in balance.prefixes.values())
        assert self.recorder.all_held(self.world.now) == held
        pending, threads = self.pending, self.threads
        held = self.results.integrals(self.world.now)
        rest = self.slots.unnoticed, threads.claimed, sorted(self.rated), dict(threads.done), held
        return balance, pending.overhead, pending.details, *rest

    def open_window(self, window: str) -> None:
        self.catch_up()
        self.ledger.open_window(window, at=self.world.now)
        self.pending.sizes.open_window(window)

    def close_window(self, window: str) -> tuple[WindowBalance | None, Any]:
        self.catch_up()
        balance = self.ledger.close_window(window, at=self.world.now)
        sizes = self.pending.sizes.close_window(window)
        # Any of several equally long tasks may be named.
        most = {prefix: [one and one.n for one in (s.longest, s.largest)] for prefix, s in sizes.items()}
        return balance, (most, {prefix: (s.ns.count, s.nbytes.count) for prefix, s in sizes.items()})

    def spilled(self, start: int, stop: int) -> None:
        self.spills._note(start, stop)
        self.spills._spilled(start, stop, True)
        if self.at_once:
            self.hooks.look_back(self.world.now)
            self.hooks._read(all_of_them=False, whole=False)


@dataclass
class World:
    """A worker's state as upstream keeps it, and two accounts of it."""

    nthreads: int
    now: int = 1_000 * MS
    libraries: bool = False
    #: Tasks that ended, and those of them of which the GPU's use is known.
    heard: list[TaskId] = field(default_factory=list)
    known: set[TaskId] = field(default_factory=set)
    #: CPU and other nanoseconds of each run.
    runs: dict[TaskId, tuple[int, int]] = field(default_factory=dict)
    log: deque[Any] = field(default_factory=lambda: deque(maxlen=1_000))

    def __post_init__(self) -> None:
        sets = {name: set() for name in ("executing", "long_running", "waiting", "in_flight_tasks")}
        lists = {"constrained": [], "ready": [], "stimulus_log": self.log}
        self.state: Any = SimpleNamespace(tasks={}, running=True, executed_count=0, **sets, **lists)
        self.worker: Any = SimpleNamespace(state=self.state, status=Status.running, data={}, scheduler_delay=0.0)
        self.both = [Accounts(self, at_once=False), Accounts(self, at_once=True)]

    def time(self) -> float:
        return self.now / 1e9 + AHEAD

    def stimulus(self, event: Any = None) -> None:
        self.log.append(event or SimpleNamespace(handled=self.time()))
        self.log[-1].handled = self.time()

    def at_work(self) -> list[Task]:
        return sorted(self.state.executing | self.state.long_running, key=lambda ts: ts.key)

    def transition(self, ts: Task, start: str, finish: str, *, state: str = "") -> None:
        ts.state = state or finish
        for accounts in self.both:
            accounts.transition(ts.key, start, finish)

    def leave(self, ts: Task, start: str, finish: str) -> None:
        self.state.executing.discard(ts)
        self.state.long_running.discard(ts)
        self.transition(ts, start, finish)

    def agree(self) -> None:
        first, second = self.both
        assert first.report() == second.report()
        self.no_failures()

    def no_failures(self) -> None:
        assert [accounts.failures for accounts in self.both] == [[], []]


#: A task like most, and its run.
PLAIN = ("inc", None, 10, False, 0)
RAN = (1, 1, 0, True)

gaps = st.sampled_from([0, 1, 7, 1_000, MIN_WAITED_NS, MS, 20 * MS, 60 * MS, 300 * MS])
small = st.sampled_from([-5, -1, 0, 0, 0, 1, 3, 1_000, MIN_WAITED_NS - 1, MIN_WAITED_NS, MS])
prefixes = st.sampled_from(["inc", "inc", "sum", LONG_PREFIX])
annotations = st.sampled_from([None, None, None, {}, {"priority": 1}, {RECOMPUTED: "w3"}])
sizes = st.sampled_from([None, 0, 10, 1 << 20])

takes = st.tuples(
    st.just("take"), st.integers(0, 5), st.tuples(prefixes, annotations, sizes, st.booleans(), st.integers(0, 3))
)
#: Delay of the thread after the slot was taken, time since it was done, its time off the CPU, and if there was one.
ends = st.tuples(
    st.sampled_from(["succeed", "succeed", "succeed", "succeed", "not stored", "fail", "done", "reschedule"]),
    st.integers(0, 2),
    st.tuples(small, small, small, st.sampled_from([True, True, True, True, False])),
)
others = st.tuples(
    st.sampled_from(
        [
            *("cancel", "want again", "resume", "secede", "spill", "waiting", "waiting unnoticed", "constrained"),
            *("pause", "unpause", "pause and unpause", "retire", "heartbeat", "open", "close", "libraries", "size"),
            *("ready", "watch", "flush", "flush"),
        ]
    ),
    st.integers(0, 3),
    st.none(),
)
quick = st.sampled_from([0, 1, 7, 1_000, MS])
step = st.one_of(
    st.tuples(st.one_of(quick, gaps), st.one_of(takes, ends)),
    st.tuples(quick, st.one_of(takes, ends)),
    st.tuples(gaps, others),
    st.tuples(gaps, st.tuples(st.sampled_from(["tasks", "nothing else"]), st.integers(1, 5), st.none())),
)
#: Lists of lists are longer.
steps = st.lists(st.lists(step, max_size=12), max_size=12).map(lambda parts: [move for part in parts for move in part])


def happen(world: World, started: dict[str, int], kind: str, number: int, details: Any) -> None:
    state = world.state
    if kind == "tasks":
        for i in range(number):
            happen(world, started, "take", i, PLAIN)
            world.now += number
            happen(world, started, "succeed", i, RAN)
    elif kind == "nothing else":
        state.waiting, state.constrained, world.worker.status = set(), [], Status.running
        state.running = True
        for window in world.both[0].ledger.windows:
            happen(world, started, "close", int(window[1:]), None)
        world.agree()
    if kind == "take":
        key = f"key-{number}"
        ts = state.tasks.get(key)
        if len(state.executing) >= world.nthreads or (ts is not None and ts in world.at_work()):
            return
        prefix, annotation, nbytes, depends, sent = details
        ts = state.tasks[key] = Task(key, prefix, annotations=annotation, nbytes=nbytes)
        if depends:
            ts.dependencies = (SimpleNamespace(nbytes=77),)
        name = f"compute-task-{world.time() - sent / 10}"
        world.stimulus(ComputeTaskEvent.dummy(key=key, stimulus_id=name) if sent else None)
        state.executing.add(ts)
        started[key] = world.now
        world.transition(ts, "ready", "executing")
        return
    tasks = world.at_work()
    ts = tasks[number % len(tasks)] if tasks else None
    if kind in ("succeed", "not stored", "fail", "done", "reschedule"):
        if ts is None:
            return
        began, done, noncpu, threaded = details
        began += started[ts.key]
        stopped = max(began, world.now - done)
        if threaded:
            cpu, ident = max(0, stopped - began - noncpu), 7 + len(world.runs)
            world.runs[TaskId(ident, began)] = cpu, max(0, stopped - began - cpu)
            for accounts in world.both:
                accounts.threads.done.setdefault(ts.key, (began, stopped, cpu, ident, -1))
        if kind == "done":
            return
        world.stimulus()
        for began, _, _, ident, _ in filter(None, [world.both[0].threads.done.get(ts.key)]):
            world.heard.append(TaskId(ident, began))
        start = ts.state
        world.leave(ts, start, {"fail": "error", "reschedule": "rescheduled"}.get(kind, "memory"))
        if kind == "not stored" and start == "executing":
            world.transition(ts, "executing", "error")
    elif kind in ("cancel", "want again", "resume", "secede"):
        if ts is None:
            return
        world.stimulus()
        place = "executing" if ts in state.executing else "long-running"
        if kind == "cancel" and ts.state != "cancelled":
            world.transition(ts, ts.state, "cancelled")
        elif kind == "want again" and ts.state == "cancelled":
            world.transition(ts, "cancelled", "waiting", state=place)
        elif kind == "resume" and ts.state == "cancelled":
            world.transition(ts, "cancelled", "resumed")
        elif kind == "secede" and ts.state == "executing":
            state.executing.discard(ts)
            state.long_running.add(ts)
            world.transition(ts, "executing", "long-running")
    elif kind == "spill":
        start, world.now = world.now, world.now + (number + 1) * 10 * MS
        for accounts in world.both:
            accounts.spilled(start, world.now)
    elif kind == "waiting":
        state.waiting = set(range(number))
        world.stimulus()
        waits = Task("waits", state="waiting", waiting_for_data=(1,))
        state.tasks["waits"] = waits
        world.transition(waits, "released", "waiting")
    elif kind == "waiting unnoticed":
        state.waiting = set(range(number))
    elif kind == "constrained":
        state.constrained = list(range(number))
    elif kind == "ready":
        state.ready = list(range(number))
        world.stimulus()
        world.transition(Task("ready", state="waiting"), "waiting", "ready")
    elif kind in ("pause", "unpause", "retire"):
        event: Any = None
        if kind != "retire":
            event = (PauseEvent if kind == "pause" else UnpauseEvent)(stimulus_id=kind)
        world.stimulus(event)
        world.worker.status = {"pause": Status.paused, "unpause": Status.running}.get(kind, Status.closing_gracefully)
        state.running = kind == "unpause"
    elif kind == "pause and unpause":
        world.stimulus(PauseEvent(stimulus_id="pause"))
        world.now += (number + 1) * 30 * MS
        world.stimulus(UnpauseEvent(stimulus_id="unpause"))
        world.worker.status = Status.running
        state.running = True
    elif kind == "heartbeat":
        world.agree()
    elif kind == "open":
        for accounts in world.both:
            accounts.open_window(f"w{number}")
    elif kind == "close":
        first, second = (accounts.close_window(f"w{number}") for accounts in world.both)
        assert first == second
    elif kind == "libraries":
        world.agree()  # what is sampled counts for all tasks that are finalized later, whenever they ended
        world.libraries = not world.libraries
    elif kind == "watch":
        world.agree()
        for accounts in world.both:
            accounts.threads.ended = deque() if number % 2 else None
    elif kind in ("flush", "early flush"):
        world.agree()  # the use of tasks that are read together becomes known together
        world.known |= set(world.heard[:-1] if kind == "early flush" else world.heard)
    elif kind == "size" and state.tasks:  # a result is gone
        state.tasks[sorted(state.tasks)[number % len(state.tasks)]].nbytes = None


def play(nthreads: int, moves: Any) -> World:
    with pytest.MonkeyPatch.context() as patch:
        world: World

        def now() -> int:
            return world.now

        patch.setattr(module, "MAX_ENTRIES", MAX_ENTRIES)
        # No reader is late.
        patch.setattr(pending_module, "LATE_NS", 1 << 62)
        patch.setattr(module, "monotonic_ns", now)
        patch.setattr(module, "time", SimpleNamespace(time=lambda: world.time()))
        world = World(nthreads)
        started: dict[str, int] = {}
        for gap, move in moves:
            world.now += gap
            happen(world, started, *move)
            world.no_failures()
        world.now += 1
        world.agree()
        return world


@given(st.integers(1, 3), steps)
@example(
    # A pause that came and went while a task ran and another slot was free.
    2,
    [(0, ("take", 0, PLAIN)), (60 * MS, ("pause and unpause", 0, None)), (60 * MS, ("succeed", 0, RAN))],
)
@example(
    # A key that runs again before its first run, which was still in its thread when it ended, is read.
    1,
    [
        (0, ("take", 0, PLAIN)),
        (MS, ("succeed", 0, (1, -5, 0, True))),
        (0, ("take", 0, PLAIN)),
        (MS, ("done", 0, RAN)),
        (0, ("succeed", 0, RAN)),
    ],
)
@example(1, [(0, ("take", 0, (LONG_PREFIX, None, 10, False, 0))), (MS, ("succeed", 0, RAN))] * 2)
# A pause that is found after a call to the disk that came later.
@example(
    2,
    [
        (0, ("take", 0, PLAIN)),
        (MS, ("ready", 3, None)),
        (20 * MS, ("pause", 0, None)),
        (60 * MS, ("spill", 1, None)),
        (60 * MS, ("heartbeat", 0, None)),
    ],
)
def test_a_log_that_is_read_later_gives_the_same_accounts_to_the_nanosecond(nthreads, moves):
    play(nthreads, moves)


def test_a_long_log_is_read_and_keeps_no_task_of_dasks():
    moves = [(MS, ("take", i % 3, PLAIN)) if i % 2 == 0 else (MS, ("succeed", 0, RAN)) for i in range(100)]
    longest = 0

    def check(world: World) -> None:
        nonlocal longest
        log = world.both[0].hooks._log
        longest = max(longest, len(log))
        assert not any(isinstance(value, Task) for entry in log for value in entry)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(World, "no_failures", check)
        play(2, moves)
    assert MAX_ENTRIES - 2 <= longest <= MAX_ENTRIES + 2


def test_tasks_wait_while_their_use_of_the_gpu_is_not_known():
    moves = [(MS, ("take", i % 3, PLAIN)) if i % 2 == 0 else (MS, ("succeed", 0, (1, 1, 70, True))) for i in range(100)]
    moves = [(MS, ("watch", 1, None)), *moves]
    for accounts in play(2, moves).both:
        assert len(accounts.pending._waiting) == 50
        assert accounts.ledger.balance(at=accounts.world.now).tasks == {}
    # One flush later the last task has not ended yet.
    world = play(2, [*moves, (MS, ("early flush", 0, None))])
    assert [len(accounts.pending._waiting) for accounts in world.both] == [1, 1]
    world = play(2, [*moves, (MS, ("flush", 0, None))])
    for accounts in world.both:
        balance = accounts.ledger.balance(at=world.now)
        assert (balance.tasks, len(accounts.pending._waiting)) == ({"succeeded": 50}, 0)
        assert balance.finalized["gpu"] == sum(
            cpu // 2 + noncpu // 5 for task, (cpu, noncpu) in world.runs.items() if not task.thread % 2
        )


def test_tasks_that_are_read_together_are_named_and_sized_as_they_were_when_they_ended():
    took = 2 * MIN_RATED_NS
    moves = [(0, ("open", 0, None))]
    for key, (times, nbytes) in enumerate([(1, 10), (5, 20), (2, 30)]):
        moves += [(0, ("take", key, ("inc", None, nbytes, False, 0))), (times * took, ("succeed", 0, RAN))]
    for accounts in play(1, [*moves, *((0, ("size", key, None)) for key in range(3))]).both:
        sizes = accounts.pending.sizes.close_window("w0")["inc"]
        assert (sizes.longest.key, sizes.largest.key) == ("key-1", "key-2")
        assert (sizes.longest.n, sizes.largest.n) == (5 * took - 2, 30)  # RAN is one nanosecond less at each end
        assert [nbytes for *_, nbytes in accounts.rated] == [10, 20, 30]


def spill_of(moves: Any) -> int:
    """Nanoseconds of ``spill`` on a worker with two slots, the same by both accounts."""
    found = {accounts.ledger.balance(at=accounts.world.now).finalized["spill"] for accounts in play(2, moves).both}
    assert len(found) == 1
    return found.pop()


SENT_A_TENTH_OF_A_SECOND_AGO = ("inc", None, 10, False, 1)


def test_a_slot_is_spilling_while_the_message_with_its_task_is_unread():
    spill = (0, ("spill", 1, None))
    assert spill_of([spill, (0, ("take", 0, SENT_A_TENTH_OF_A_SECOND_AGO))]) == 20 * MS
    assert spill_of([spill, (90 * MS, ("take", 0, SENT_A_TENTH_OF_A_SECOND_AGO))]) == 10 * MS
    # It was there already; or what was free is reported, and stays.
    assert spill_of([spill, (0, ("take", 0, PLAIN))]) == 0
    assert spill_of([spill, (0, ("heartbeat", 0, None)), (0, ("take", 0, SENT_A_TENTH_OF_A_SECOND_AGO))]) == 0


def test_a_task_that_becomes_ready_on_a_paused_worker_makes_a_slot_paused_from_then_on():
    world = play(2, [(0, ("pause", 0, None)), (100 * MS, ("ready", 1, None)), (30 * MS, ("heartbeat", 0, None))])
    # Moves are a nanosecond apart; and of the two slots, one had no task that could run.
    assert world.both[0].ledger.balance(at=world.now).finalized["paused"] == pytest.approx(30 * MS, abs=3)


def test_the_id_of_a_stimulus_has_the_time_of_sending():
    assert sent_at(ComputeTaskEvent.dummy(key="x", stimulus_id="compute-task-1700000000.25")) == 1700000000.25
    for name in ("compute-task", "compute-task-soon", ""):
        assert sent_at(ComputeTaskEvent.dummy(key="x", stimulus_id=name)) is None


def test_without_a_watch_of_the_loop_the_log_is_read_before_each_new_stimulus():
    world = World(1)
    (accounts, _), started = world.both, {}
    accounts.spills.watching = False
    digests = accounts.pending._spill.__self__._total  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "monotonic_ns", lambda: world.now)
        for key, spilled in ((0, 3), (1, 5)):
            happen(world, started, "take", key, PLAIN)
            world.now += 100
            happen(world, started, "succeed", 0, (1, 50, 0, True))
            # Upstream adds a task's fine metrics right after the stimulus that ends it.
            digest = ("execute", "", "inc", "disk-write", "seconds")
            digests[digest] = digests.get(digest, 0.0) + spilled * 1e-9
        assert accounts.ledger.balance(at=world.now).finalized["spill"] == 3
        assert [entry.key for entry in accounts.hooks._log] == ["key-1"]
        accounts.catch_up()
        assert accounts.ledger.balance(at=world.now).finalized["spill"] == 3 + 5
    world.no_failures()


def test_failures_of_hooks_are_passed_on_and_do_not_reach_the_worker():
    accounts = World(1).both[0]
    accounts.hooks.transition("unknown", "ready", "executing")
    assert [type(failure) for failure in accounts.failures] == [AttributeError]
    failures: list[Exception] = []
    worker = SimpleNamespace(state=SimpleNamespace(ready=None))
    spill_noter([], worker, Threads(), failures.append)(10, 20, False)  # type: ignore[arg-type]
    assert [type(failure) for failure in failures] == [TypeError]


def test_calls_to_the_disk_are_sorted_in_where_a_later_entry_is_there_already_and_only_then(monkeypatch):
    sorts = []
    in_order = spill_module.in_order
    monkeypatch.setattr(spill_module, "in_order", lambda log: sorts.append(len(log)) or in_order(log))
    log: list[Any] = []
    worker = SimpleNamespace(state=SimpleNamespace(ready=(), waiting=()))
    note = spill_noter(log, worker, SimpleNamespace(waiting=lambda: 0), pytest.fail)  # type: ignore[arg-type]
    for i in range(1_000):  # as when one large result pushes out many small ones, between two hooks
        note(10 * i, 10 * i + 9, False)
    assert (len(log), sorts) == (1_000, [])
    note(5, 8, False)
    assert sorts == [1_001]
    assert [entry[0] for entry in log[:3]] == [0, 5, 10]
