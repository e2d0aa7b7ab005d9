import copy
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from fractions import Fraction

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dask_efficiency.accounts.rows import MAX_SENT as MAX_LOSSES
from dask_efficiency.accounts.rows import OTHER
from dask_efficiency.accounts.worker.balance import (
    FREE_BUCKETS,
    TASK_BUCKETS,
    Availability,
    Balance,
    Outcome,
    Used,
    WindowBalance,
)
from dask_efficiency.accounts.worker.ledger import MAX_UNDECIDED, Ledger
from tests.strategies import measurements, ticks

# A failing state machine is shrunk for up to five minutes before its failure is shown.
pytestmark = pytest.mark.timeout(400)

MAX_PREFIXES = 2
MAX_WINDOWS = 3


def settled_of(ledger: Ledger, at: int) -> dict[str, int]:
    """Settled buckets that hold time."""
    return {bucket: ns for bucket, ns in ledger.balance(at=at).finalized.items() if ns}


def holding(prefix: str = "inc", span: str = "", *, slots: int = 1, recomputed: str = "") -> Ledger:
    """A ledger with a task in a slot since 0."""
    ledger = Ledger(slots, at=0)
    ledger.reserve("x", prefix, span, recomputed=recomputed, at=0)
    return ledger


def row(**buckets: int) -> tuple[int, ...]:
    """A row of the ledger, by bucket name with ``_`` for ``-``."""
    return tuple(buckets.get(bucket.replace("-", "_"), 0) for bucket in TASK_BUCKETS)


# -- a model that knows nothing of the ledger: slots side by side, walked one by one ---------------


@dataclass(eq=False)
class ModelTask:
    """A task in the model, with the time it spent in a slot; in all, and within each window."""

    prefix: str
    span: str
    recomputed: str
    spent: int = 0


@dataclass(eq=False)
class ModelWindow:
    opened: int
    free: Counter[str] = field(default_factory=Counter)
    inside: Counter[ModelTask] = field(default_factory=Counter)
    finalized: list[tuple[ModelTask, tuple[int, ...]]] = field(default_factory=list)
    tasks: Counter[str] = field(default_factory=Counter)


class ModelWorker:
    """Slots in a row; whatever time passes is given to each of them in turn."""

    def __init__(self, nthreads: int, at: int) -> None:
        self.started = self.now = at
        self.slots: list[object | None] = [None] * nthreads
        self.queue: list[object] = []
        self.tasks: dict[object, ModelTask] = {}
        self.not_finalized: list[ModelTask] = []
        self.free: Counter[str] = Counter()
        self.finalized: Counter[str] = Counter()
        self.prefixes: dict[str, Counter[str]] = {}
        self.outcomes: Counter[str] = Counter()
        self.windows: dict[str, ModelWindow] = {}
        self.availability = Availability.RUNNING
        self.waiting = self.constrained = self.ready = 0
        #: By time of spilling, as long as it is not read: from when to when a slot had no reason to be free.
        self.undecided: list[list[tuple[int, int]]] = []

    def pass_time(self, at: int, *, spilling: int | None = None) -> None:
        """Time passes; while the event loop spills, free slots go by tasks that cannot be given one."""
        elapsed = max(0, at - self.now)
        self.now += elapsed
        reasons = ["waiting-on-data"] * self.waiting + ["constrained"] * self.constrained
        if self.availability is not Availability.RUNNING:
            spilling = None
        if self.availability is Availability.PAUSED:
            reasons = ["paused"] * (self.ready + self.constrained) + ["waiting-on-data"] * self.waiting
        if spilling is not None:
            reasons = ["spill"] * (self.waiting + spilling) + ["constrained"] * self.constrained
            self.undecided.append([])
        for key in self.slots:
            if key is not None:
                self.tasks[key].spent += elapsed
                for window in self.windows.values():
                    window.inside[self.tasks[key]] += elapsed
                continue
            if self.availability is Availability.RETIRING:
                reason = "retiring"
            else:
                reason = reasons.pop(0) if reasons else "idle"
                if reason == "idle" and spilling is not None:
                    self.undecided[-1].append((self.now - elapsed, self.now))
            self.free[reason] += elapsed
            for window in self.windows.values():
                window.free[reason] += elapsed

    def delayed(self, since: int) -> None:
        for slots in self.undecided:
            if slots and slots[-1][1] > since:
                start, stop = slots.pop()
                for free in (self.free, *(window.free for window in self.windows.values())):
                    free["idle"] -= stop - max(start, since)
                    free["spill"] += stop - max(start, since)

    def reserve(self, key: object, task: ModelTask) -> None:
        if key in self.slots or key in self.queue:
            return
        self.tasks[key] = task
        if None in self.slots:
            self.slots[self.slots.index(None)] = key
        else:
            self.queue.append(key)

    def release(self, key: object) -> ModelTask | None:
        if key in self.queue:
            self.queue.remove(key)
        elif key in self.slots:
            self.slots[self.slots.index(key)] = self.queue.pop(0) if self.queue else None
        else:
            return None
        task = self.tasks.pop(key)
        self.not_finalized.append(task)
        return task

    def finalize(self, task: ModelTask, outcome: Outcome, cpu: int, gpu: int, wall: int, spill: int) -> None:
        self.not_finalized.remove(task)
        if outcome is Outcome.SUCCEEDED and task.recomputed:
            outcome = Outcome.RECOMPUTED
        left = task.spent
        booked: Counter[str] = Counter()
        if outcome is Outcome.SUCCEEDED:
            for bucket, claim in (("thread-cpu", cpu), ("gpu", gpu), ("thread-noncpu", wall), ("spill", spill)):
                known = booked.total() if bucket == "thread-noncpu" else 0
                booked[bucket] = sorted((0, claim - known, left))[1]
                left -= booked[bucket]
            booked["overhead"] = left
        else:
            booked["overhead" if outcome is Outcome.RESCHEDULED else str(outcome)] = left
        self.finalized += booked
        name = task.prefix if task.prefix in self.prefixes or len(self.prefixes) < MAX_PREFIXES else OTHER
        self.prefixes.setdefault(name, Counter()).update(booked)
        self.outcomes[str(outcome)] += 1
        for window in self.windows.values():
            window.tasks[str(outcome)] += 1
            window.finalized.append((task, tuple(booked[bucket] for bucket in TASK_BUCKETS)))

    def running(self) -> list[ModelTask]:
        return [*(self.tasks[key] for key in self.slots if key is not None), *self.not_finalized]

    def open(self, window_id: str) -> None:
        self.undecided.clear()
        self.windows.pop(window_id, None)
        while len(self.windows) >= MAX_WINDOWS:
            del self.windows[next(iter(self.windows))]
        self.windows[window_id] = ModelWindow(self.now)


def check_window(found: WindowBalance, window: ModelWindow, model: ModelWorker) -> None:
    """A window's accounts are those of the model, the pro-rata split to within a tick a task."""
    assert found.nthreads == len(model.slots)
    assert found.elapsed == model.now - window.opened
    assert sum(found.free.values()) + sum(map(sum, found.rows.values())) == found.nthreads * found.elapsed
    assert {bucket: ns for bucket, ns in found.free.items() if ns} == dict(+window.free)
    assert found.tasks == window.tasks
    expected: defaultdict[tuple[str, str], list[Fraction]]
    expected = defaultdict(lambda: [Fraction(0)] * (len(TASK_BUCKETS) + 1))
    number = Counter((task.span, task.prefix) for task, _ in window.finalized)
    for task, booked in window.finalized:
        share = Fraction(window.inside[task], task.spent) if task.spent else Fraction(0)
        total = expected[task.span, task.prefix]
        total[:-1] = [known + ns * share for known, ns in zip(total, booked, strict=False)]
    for task in model.running():
        expected[task.span, task.prefix][-1] += window.inside[task]
    assert found.rows.keys() == expected.keys()
    for key, values in found.rows.items():
        assert min(values) >= 0
        assert sum(values) == sum(expected[key])
        assert values[-1] == expected[key][-1]
        assert all(abs(ns - exact) <= number[key] for ns, exact in zip(values, expected[key], strict=True))


class LedgerMachine(RuleBasedStateMachine):
    """A ledger and the model agree after every step, and every nanosecond is in a bucket."""

    keys = st.sampled_from("abcdefg")
    ids = st.sampled_from("wxyz")

    @initialize(nthreads=st.integers(1, 4), at=st.integers(-100, 100))
    def begin(self, nthreads, at):
        self.ledger = Ledger(nthreads, at=at, max_prefixes=MAX_PREFIXES, max_windows=MAX_WINDOWS)
        self.model = ModelWorker(nthreads, at)
        self.released = []
        self.before: Balance = self.ledger.balance(at=at)

    def peek(self):
        """The ledger's accounts now, of a copy: its own clock stands still."""
        return copy.deepcopy(self.ledger).balance(at=self.model.now)

    def tick(self, step, *, seen=True):
        """A clock reading ``step`` later (or earlier); what changes nothing does not look at the clock."""
        at = self.model.now + step
        if seen:
            self.model.pass_time(at)
        return at

    @rule(
        key=keys,
        task=st.tuples(*map(st.sampled_from, (["inc", "sum", "mul"], ["", "s"], ["", "", "w3", "w5"]))),
        step=ticks,
    )
    def reserve(self, key, task, step):
        at = self.tick(step, seen=key not in self.model.tasks)
        prefix, span, recomputed = task
        self.ledger.reserve(key, prefix, span, recomputed=recomputed, at=at)
        self.model.reserve(key, ModelTask(prefix, span, recomputed))

    @rule(key=keys, step=ticks)
    def release(self, key, step):
        at = self.tick(step, seen=key in self.model.slots)
        hold, task = self.ledger.release(key, at=at), self.model.release(key)
        assert (hold is None) is (task is None)
        if hold is not None:
            assert hold.ns == task.spent
            self.released.append((hold, task))

    @precondition(lambda self: getattr(self, "released", None))
    @rule(
        which=st.integers(0, 100),
        outcome=st.sampled_from([Outcome.SUCCEEDED, *Outcome]),
        claims=st.tuples(measurements, measurements, measurements, measurements),
    )
    def finalize(self, which, outcome, claims):
        self.end(*self.released.pop(which % len(self.released)), outcome, claims)

    def end(self, hold, task, outcome, claims):
        self.ledger.finalize(hold, outcome, **dict(zip(("cpu", "gpu", "wall", "spill"), claims, strict=True)))
        self.model.finalize(task, outcome, *claims)

    @rule(key=keys, outcome=st.sampled_from(Outcome), shares=st.tuples(*[st.integers(0, 120)] * 4), step=ticks)
    def finish(self, key, outcome, shares, step):
        """Measurements that nearly fit, as honest ones do."""
        at = self.tick(step, seen=key in self.model.slots)
        hold, task = self.ledger.release(key, at=at), self.model.release(key)
        if hold is not None:
            self.end(hold, task, outcome, [hold.ns * share // 100 for share in shares])

    @rule(
        availability=st.sampled_from([Availability.RUNNING, *Availability]),
        waiting=st.integers(0, 5),
        constrained=st.integers(0, 5),
        ready=st.integers(0, 5),
        step=ticks,
    )
    def observe(self, availability, waiting, constrained, ready, step):
        at = self.tick(step)
        self.ledger.observe(availability, waiting, constrained, ready, at=at)
        self.model.availability, self.model.ready = availability, ready
        self.model.waiting, self.model.constrained = waiting, constrained

    @rule(availability=st.sampled_from(Availability), ready=st.integers(0, 5), step=ticks)
    def turn(self, availability, ready, step):
        at = self.tick(step)
        self.ledger.turn(availability, ready, at=at)
        self.model.availability, self.model.ready = availability, ready

    @rule(ready=st.integers(0, 3), gap=ticks, step=ticks)
    def spilled(self, ready, gap, step):
        start = self.tick(gap)
        stop = start + step
        self.ledger.spilled(ready, start=start, stop=stop)
        self.model.pass_time(stop, spilling=ready)

    @rule(ago=ticks)
    def delayed(self, ago):
        self.ledger.delayed(self.model.now - ago)
        self.model.delayed(self.model.now - ago)

    @rule(
        used=st.dictionaries(keys, st.builds(Used, measurements, measurements, measurements, measurements)),
        frozen=measurements,
        step=ticks,
    )
    def balance(self, used, frozen, step):
        for hold, _ in self.released:
            used[hold] = Used(frozen, frozen, frozen, frozen)
        self.ledger.balance(at=self.tick(step), used=used)
        self.model.undecided.clear()

    @rule(window=ids, step=ticks)
    def open_window(self, window, step):
        self.ledger.open_window(window, at=self.tick(step))
        self.model.open(window)

    @rule(window=ids, step=ticks)
    def close_window(self, window, step):
        at = self.tick(step, seen=window in self.model.windows)
        found, expected = self.ledger.close_window(window, at=at), self.model.windows.pop(window, None)
        assert (found is None) is (expected is None)
        if found is not None and expected is not None:
            self.model.undecided.clear()
            check_window(found, expected, self.model)

    @rule(outcome=st.sampled_from(Outcome), step=ticks)
    def finalize_all(self, outcome, step):
        at = self.tick(step, seen=bool(self.model.tasks))
        self.ledger.finalize_all(outcome, at=at)
        for key in list(self.model.tasks):
            self.model.release(key)
        for task in list(self.model.not_finalized):
            self.model.finalize(task, outcome, 0, 0, 0, 0)
        self.released.clear()
        assert self.peek().running == 0
        assert self.ledger.slots_free == self.ledger.nthreads

    @invariant()
    def every_nanosecond_is_somewhere_and_none_is_taken_back(self):
        found = self.peek()
        assert found.elapsed == self.model.now - self.model.started
        assert sum(found.finalized.values()) + found.running == found.nthreads * found.elapsed
        free = sum(found.finalized[bucket] for bucket in FREE_BUCKETS)
        assert sum(found.active.values()) + free == found.nthreads * found.elapsed
        assert found.running >= 0
        assert all(found.finalized[bucket] >= ns for bucket, ns in self.before.finalized.items())
        assert all(found.tasks[outcome] >= n for outcome, n in self.before.tasks.items())
        for prefix, values in self.before.prefixes.items():
            assert all(now >= then for now, then in zip(found.prefixes[prefix], values, strict=True))

    @invariant()
    def no_activity_is_taken_back(self):
        # As a scraper looks: now and then, so that tasks also come and go between two looks.
        if self.model.now % 2:
            found = self.ledger.balance(at=self.model.now)
            self.model.undecided.clear()
            assert all(found.active[bucket] >= ns for bucket, ns in self.before.active.items())
            self.before = found

    @invariant()
    def the_ledger_and_the_model_agree(self):
        found = self.peek()
        finalized = {bucket: ns for bucket, ns in found.finalized.items() if ns}
        assert finalized == +(self.model.free + self.model.finalized)
        assert found.running == sum(task.spent for task in self.model.running())
        assert found.prefixes == {
            prefix: tuple(booked[bucket] for bucket in TASK_BUCKETS) for prefix, booked in self.model.prefixes.items()
        }
        assert found.tasks == self.model.outcomes
        assert self.ledger.slots_free == self.model.slots.count(None)
        assert self.ledger.windows == tuple(self.model.windows)

    @invariant()
    def the_prefixes_add_up_to_the_task_buckets(self):
        found = self.peek()
        assert len(found.prefixes) <= MAX_PREFIXES + 1
        sums = [sum(values[i] for values in found.prefixes.values()) for i in range(len(TASK_BUCKETS))]
        sums[TASK_BUCKETS.index("spill")] += self.model.free["spill"]
        assert sums == [found.finalized[bucket] for bucket in TASK_BUCKETS]

    @invariant()
    def running_and_recomputed_time_add_up(self):
        found = self.peek()
        assert sum(ns for ns, _ in found.holding.values()) == found.running
        assert sum(slots for _, slots in found.holding.values()) == len(self.ledger.held)
        assert len(found.holding) <= MAX_PREFIXES + 1
        sums = [sum(row[i] for row in found.recomputed.values()) for i in range(2)]
        assert sums == [found.finalized["recomputed"], found.tasks.get("recomputed", 0)]

    @invariant()
    def every_open_window_would_add_up(self):
        closing = copy.deepcopy(self.ledger)
        for window_id, window in self.model.windows.items():
            found = closing.close_window(window_id, at=self.model.now)
            assert found is not None
            check_window(found, window, self.model)


TestLedgerMachine = LedgerMachine.TestCase
TestLedgerMachine.settings = settings(max_examples=80, stateful_step_count=40)


# -- worked by hand --------------------------------------------------------------------------------


def test_a_worker_without_threads_is_refused():
    with pytest.raises(ValueError, match="nthreads is 0"):
        Ledger(0, at=0)


@pytest.mark.parametrize(
    ("slots", "observed", "free"),
    [
        # Of 3 free slots the first waits for a fetch, the second is constrained, the third idles.
        (4, (Availability.RUNNING, 1, 1), {"waiting-on-data": 10, "constrained": 10, "idle": 10}),
        (4, (Availability.RUNNING, 2, 5), {"waiting-on-data": 20, "constrained": 10}),
        (4, (Availability.RUNNING, 9, 9), {"waiting-on-data": 30}),
        (3, (Availability.RETIRING, 2, 2, 2), {"retiring": 20}),
        # A paused worker has a slot for each task that could run; the rest would be elsewhere.
        (5, (Availability.PAUSED, 0, 0, 0), {"idle": 40}),
        (5, (Availability.PAUSED, 2, 1, 1), {"paused": 20, "waiting-on-data": 20}),
        (5, (Availability.PAUSED, 2, 2, 9), {"paused": 40}),
    ],
)
def test_free_slots_are_named_by_the_tasks_that_cannot_run_in_them(slots, observed, free):
    ledger = holding(slots=slots)
    ledger.observe(*observed, at=0)
    assert settled_of(ledger, 10) == free
    assert ledger.balance(at=10).running == 10


def test_free_slots_wait_for_spilling_before_all_else_one_for_each_task():
    # 5 slots, one held. From 10 to 20 the loop spills: one task waits for a fetch, one is ready, one is constrained.
    ledger = holding(slots=5)
    ledger.observe(Availability.RUNNING, 1, 1, at=0)
    ledger.spilled(1, start=10, stop=20)
    assert settled_of(ledger, 30) == {"waiting-on-data": 20, "spill": 20, "constrained": 30, "idle": 50}
    assert ledger.balance(at=30).active["spill"] == 20


def test_a_task_whose_message_lay_unread_while_the_loop_spilled_waited_from_its_arrival_on():
    # Two slots are free; the loop spills from 0 to 10 and from 12 to 20. A task was sent at 4, its slot is taken at 21.
    ledger = Ledger(2, at=0)
    ledger.spilled(0, start=0, stop=10)
    ledger.spilled(0, start=12, stop=20)
    ledger.delayed(4)
    ledger.reserve("x", "inc", at=21)
    assert settled_of(ledger, 21) == {"spill": 6 + 8, "idle": 4 + 2 + 1 + 21}
    # What was read is not taken back: a second task comes too late.
    ledger.delayed(0)
    assert settled_of(ledger, 21) == {"spill": 14, "idle": 28}
    # No more slots wait than were free.
    ledger = Ledger(2, at=0)
    ledger.spilled(0, start=0, stop=10)
    for _ in range(3):
        ledger.delayed(0)
    assert settled_of(ledger, 10) == {"spill": 20}
    # Undecided times are bounded.
    ledger = Ledger(1, at=0)
    for i in range(2 * MAX_UNDECIDED):
        ledger.spilled(0, start=i, stop=i + 1)
    ledger.delayed(0)
    assert settled_of(ledger, 2 * MAX_UNDECIDED) == {"idle": MAX_UNDECIDED, "spill": MAX_UNDECIDED}


@pytest.mark.parametrize(
    ("cpu", "gpu", "wall", "spill", "expected"),
    [
        (30, 0, 60, 20, row(thread_cpu=30, thread_noncpu=30, spill=20, overhead=20)),
        # CPU first: more CPU than was held leaves nothing for the rest.
        (150, 0, 160, 20, row(thread_cpu=100)),
        # Then the GPU, whatever the wall clock says; then the rest of the wall time, then spill.
        (30, 20, 60, 100, row(thread_cpu=30, gpu=20, thread_noncpu=10, spill=40)),
        (90, 20, 95, 100, row(thread_cpu=90, gpu=10)),
        (30, 150, 60, 100, row(thread_cpu=30, gpu=70)),
        (30, 40, 50, 100, row(thread_cpu=30, gpu=40, spill=30)),
        (30, 0, 150, 20, row(thread_cpu=30, thread_noncpu=70)),
        (30, 0, 60, 90, row(thread_cpu=30, thread_noncpu=30, spill=40)),
        # Two cores' worth of CPU in one thread: no wall time is left over.
        (60, 0, 30, 0, row(thread_cpu=60, overhead=40)),
        # Nonsense counts as nothing.
        (-5, -7, -5, -5, row(overhead=100)),
        (-5, 0, 40, 0, row(thread_noncpu=40, overhead=60)),
    ],
)
def test_measurements_are_clamped_to_the_time_held_in_order(cpu, gpu, wall, spill, expected):
    ledger = holding()
    ledger.finalize(ledger.release("x", at=100), Outcome.SUCCEEDED, cpu=cpu, gpu=gpu, wall=wall, spill=spill)
    assert ledger.balance(at=100).prefixes == {"inc": expected}


@pytest.mark.parametrize(
    ("recomputed", "outcome", "bucket"),
    [
        ("", Outcome.FAILED, "failed"),
        ("", Outcome.CANCELLED, "cancelled"),
        ("", Outcome.RECOMPUTED, "recomputed"),
        ("w3", Outcome.SUCCEEDED, "recomputed"),
        ("w3", Outcome.FAILED, "failed"),
        ("w3", Outcome.CANCELLED, "cancelled"),
        ("", Outcome.RESCHEDULED, "overhead"),
        ("w3", Outcome.RESCHEDULED, "overhead"),
    ],
)
def test_wasted_time_is_one_bucket_without_its_measurements(recomputed, outcome, bucket):
    ledger = holding(recomputed=recomputed)
    ledger.finalize(ledger.release("x", at=100), outcome, cpu=50, wall=60, spill=10)
    assert settled_of(ledger, 100) == {bucket: 100}
    assert ledger.balance(at=100).tasks == {bucket if bucket != "overhead" else "rescheduled": 1}


def test_running_time_is_known_by_prefix_with_the_slots_held():
    ledger = Ledger(3, at=0)
    for key, prefix, at in (("a", "train", 0), ("b", "train", 10), ("c", "load", 20)):
        ledger.reserve(key, prefix, at=at)
    ledger.release("b", at=30)  # it has ended, and what became of it is not known yet
    assert ledger.balance(at=40).holding == {"train": (40 + 20, 1), "load": (20, 1)}


def test_recomputed_time_is_known_by_the_worker_that_lost_the_result():
    ledger = Ledger(1, at=0)
    marks = ["w3", "w3", "w5", "", *map(str, range(MAX_LOSSES))]
    for at, mark in enumerate(marks):
        ledger.reserve("x", "inc", recomputed=mark, at=10 * at)
        ledger.finalize(ledger.release("x", at=10 * at + 10), Outcome.SUCCEEDED, cpu=10)
    found = ledger.balance(at=10 * len(marks))
    assert (found.recomputed["w3"], found.recomputed["w5"], found.recomputed["0"]) == ((20, 2), (10, 1), (10, 1))
    # Only so many are kept apart.
    assert (len(found.recomputed), found.recomputed[OTHER]) == (MAX_LOSSES + 1, (20, 2))
    assert (found.finalized["recomputed"], found.finalized["thread-cpu"]) == (10 * len(marks) - 10, 10)


def test_a_task_is_finalized_once():
    ledger = holding()
    hold = ledger.release("x", at=10)
    ledger.finalize(hold, Outcome.SUCCEEDED)
    with pytest.raises(KeyError):
        ledger.finalize(hold, Outcome.SUCCEEDED)
    assert settled_of(ledger, 10) == {"overhead": 10}


def test_a_clock_that_runs_backwards_stands_still_and_so_does_a_balance():
    ledger = Ledger(1, at=100)
    ledger.reserve("x", "inc", at=110)
    assert ledger.release("x", at=50).ns == 0
    assert ledger.balance(at=0).elapsed == 10
    ledger = Ledger(1, at=0)
    then = ledger.balance(at=10)
    ledger.reserve("x", "inc", at=10)
    ledger.finalize_all(Outcome.FAILED, at=20)
    assert (then.finalized["idle"], sum(then.finalized.values()), then.prefixes) == (10, 10, {})


def test_a_task_that_began_before_the_window_gives_it_its_share_or_its_running_time():
    # 100 held, 60 of them inside: 3/5 of 30 CPU, 30 elsewhere, 20 spill and 20 overhead.
    ledger = holding(span="span")
    ledger.open_window("w", at=40)
    ledger.finalize(ledger.release("x", at=100), Outcome.SUCCEEDED, cpu=30, wall=60, spill=20)
    window = ledger.close_window("w", at=110)
    inside = (*row(thread_cpu=18, thread_noncpu=18, spill=12, overhead=12), 0)
    assert window.rows == {("span", "inc"): inside}
    assert {bucket: ns for bucket, ns in window.free.items() if ns} == {"idle": 10}
    assert window.elapsed == 70
    ledger = holding()
    ledger.open_window("w", at=40)
    assert ledger.close_window("w", at=50).rows == {("", "inc"): (*row(), 10)}


def test_a_window_before_and_a_window_after_make_the_whole():
    # 101 held with 33 CPU, cut at 40: the halves differ by rounding, their sum does not.
    ledger = Ledger(1, at=0)
    ledger.open_window("all", at=0)
    ledger.open_window("first", at=0)
    ledger.reserve("x", "inc", at=0)
    first = ledger.close_window("first", at=40)
    ledger.open_window("second", at=40)
    ledger.finalize(ledger.release("x", at=101), Outcome.SUCCEEDED, cpu=33, wall=70)
    second, whole = ledger.close_window("second", at=101), ledger.close_window("all", at=101)
    assert sum(first.rows["", "inc"]) + sum(second.rows["", "inc"]) == sum(whole.rows["", "inc"]) == 101
    assert whole.rows["", "inc"] == (*row(thread_cpu=33, thread_noncpu=37, overhead=31), 0)


def test_a_closing_worker_finalizes_all_tasks_with_one_outcome():
    ledger = Ledger(1, at=0)
    ledger.reserve("frozen", "a", at=0)
    ledger.release("frozen", at=10)
    ledger.reserve("running", "b", at=10)
    ledger.reserve("beyond", "c", at=20)
    ledger.finalize_all(Outcome.CANCELLED, at=30)
    assert settled_of(ledger, 30) == {"cancelled": 30}
    assert ledger.balance(at=30).tasks == {"cancelled": 3}


def active(ledger: Ledger, at: int, **used: tuple[int, ...]) -> dict[str, int]:
    """What held slots were doing so far."""
    given = {key: Used(*values) for key, values in used.items()}
    return {bucket: ns for bucket, ns in ledger.balance(at=at, used=given).active.items() if ns}


def test_the_activity_of_a_running_task_is_its_thread_s_use_so_far():
    ledger = holding()
    assert active(ledger, 10, x=(6, 8)) == {"thread-cpu": 6, "thread-noncpu": 2, "overhead": 2}
    assert active(ledger, 20, x=(7, 18)) == {"thread-cpu": 7, "thread-noncpu": 11, "overhead": 2}
    # With a GPU.
    ledger = holding("train")
    assert active(ledger, 10, x=(2, 10, 5)) == {"thread-cpu": 2, "gpu": 5, "thread-noncpu": 3}
    assert active(ledger, 20, x=(3, 20, 14)) == {"thread-cpu": 3, "gpu": 14, "thread-noncpu": 3}
    # While it waits for spilling.
    ledger = holding()
    assert active(ledger, 10, x=(2, 5, 0, 0, 4)) == {"thread-cpu": 2, "thread-noncpu": 3, "spill": 4, "overhead": 1}
    assert active(ledger, 20, x=(2, 5, 0, 0, 14)) == {"thread-cpu": 2, "thread-noncpu": 3, "spill": 14, "overhead": 1}


def test_an_activity_once_accrued_is_never_taken_back():
    # 10 were called overhead, before it was known that 12 of 20 were CPU: the new 10 make up for it.
    ledger = holding()
    assert active(ledger, 10) == {"overhead": 10}
    ledger.finalize(ledger.release("x", at=20), Outcome.SUCCEEDED, cpu=12, wall=15)
    assert active(ledger, 20) == {"thread-cpu": 10, "overhead": 10}
    assert settled_of(ledger, 20) == {"thread-cpu": 12, "thread-noncpu": 3, "overhead": 5}


def test_gpu_time_known_late_is_made_up_for_by_time_that_comes_later():
    # 30 were called thread-noncpu before it was known that 20 of them were the GPU's. The next task is the GPU's
    # business in no way, and its time is lent: at 60 the view is what was settled.
    ledger = holding("train")
    assert active(ledger, 30, x=(0, 30)) == {"thread-noncpu": 30}
    ledger.finalize(ledger.release("x", at=30), Outcome.SUCCEEDED, gpu=20, wall=30)
    ledger.reserve("y", "load", at=30)
    assert active(ledger, 30) == {"thread-noncpu": 30}
    assert active(ledger, 45, y=(0, 15)) == {"thread-noncpu": 30, "gpu": 15}
    assert active(ledger, 60, y=(0, 30)) == {"thread-noncpu": 40, "gpu": 20}
    ledger.finalize_all(Outcome.FAILED, at=60)
    assert settled_of(ledger, 60) == {"gpu": 20, "thread-noncpu": 10, "failed": 30}


@pytest.mark.parametrize("outcome", [Outcome.FAILED, Outcome.CANCELLED, Outcome.RECOMPUTED])
def test_the_activity_of_a_task_does_not_depend_on_its_outcome(outcome):
    ledger = holding()
    ledger.finalize(ledger.release("x", at=20), outcome, cpu=12, wall=15, spill=3)
    assert active(ledger, 20) == {"thread-cpu": 12, "thread-noncpu": 3, "spill": 3, "overhead": 2}


def test_a_window_keeps_a_bounded_number_of_spans_apart_and_loses_no_time(monkeypatch):
    monkeypatch.setattr("dask_efficiency.accounts.worker.reservations.MAX_ROWS", 2)
    ledger = Ledger(1, at=0)
    ledger.open_window("w", at=0)
    for i in range(4):
        ledger.reserve(i, "inc", f"span-{i}", at=10 * i)
        ledger.finalize(ledger.release(i, at=10 * i + 10), Outcome.SUCCEEDED)
    rows = ledger.close_window("w", at=40).rows
    kept = {("span-0", "inc"): 10, ("span-1", "inc"): 10, ("", OTHER): 20}
    assert {key: sum(row) for key, row in rows.items()} == kept
