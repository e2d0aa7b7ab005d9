from __future__ import annotations

import gc
import selectors
import threading
import weakref
from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_efficiency.accounts.lines import BUILT_IN, EVENT_LOOP, Frame
from dask_efficiency.accounts.worker.waiting import LIBRARY
from dask_efficiency.plugin.stacks import Stacks
from dask_efficiency.plugin.thread_clocks import ThreadClocks
from dask_efficiency.plugin.worker.look import Look
from dask_efficiency.plugin.worker.watched_threads import Watched

MS = 1_000_000
INC, SUM = ("", "inc"), ("", "sum")
LOOP = 99
#: Lines that threads are at, and stacks of nothing else.
A, B, C = (Frame(name, "x.py", 1) for name in "abc")
SELECT = Frame("EpollSelector.select", selectors.__file__, 469)
STACKS = SimpleNamespace(
    task=lambda frame: (frame,),
    waiting=lambda frame: (frame,) if frame is not None else (),
    computing=lambda frame, *, without_gil: (frame,) if frame is not None else (),
    loop=lambda frame, depth=0: (frame,),
    calls=SimpleNamespace(hold_up=lambda frame: False),
    interprets=lambda frame: frame == A,
)


class Process:
    """A process with given states and clocks of its threads; their idents are small numbers."""

    def __init__(self, *, throttled=None, library_core=0, nthreads=0, stacks_wanted=False):
        self.at = 0
        self.python = {LOOP: SimpleNamespace(name="MainThread")}
        self.runs, self.states, self.clocks, self.watched = {}, {}, {}, {}
        self.used, self.added, self.samples = Counter(), Counter(), Counter()
        self.computed = 0
        #: Tasks of threads in no look: their prefixes, and True if they go on.
        self.tasks = {}
        self.native_ids = set()
        self.foreign = []
        self.throttled = throttled
        self.look_ = Look(
            self,
            SimpleNamespace(state=lambda state, files: state),
            SimpleNamespace(limited=throttled is not None, more=lambda: self.throttled),
            SimpleNamespace(core_wait=lambda at: library_core, find=lambda python, at: None),
            None,
            task_of=self.tasks.get,
            running=lambda: [(ident, start, key) for ident, (start, key) in self.runs.items()],
            loop_ident=LOOP,
            cores=2.0,
            nthreads=lambda: nthreads,
            add=lambda sample: self.added.update({sample[:2]: sample[2]}),
            sample=lambda sample: self.samples.update({sample[:2]: sample[2]}),
        )
        self.look_._stacks = STACKS
        self.look_.stacks_wanted = stacks_wanted
        self.look_.begin(0)

    # scenes

    def begins(self, ident, key, state="running"):
        self.python[ident] = SimpleNamespace(name=str(ident))
        self.runs[ident] = self.at, key
        self.clocks.setdefault(ident, ThreadClocks(0, 0, 0))
        self.states[ident] = state
        return self

    def goes(self, ident, state, *, cpu=0, core=0):
        """Change its state, after the use of so many milliseconds."""
        before = self.clocks[ident]
        self.clocks[ident] = ThreadClocks(before.cpu + cpu * MS, before.core + core * MS, before.turns + 1)
        self.states[ident] = state
        return self

    def passes(self, milliseconds, *, gil_wait=0, stopped=0):
        self.at += milliseconds * MS
        self.look_.sample(self.at, gil_wait=gil_wait * MS, stopped=stopped * MS)
        return self

    def sampled(self, key=INC):
        return {cause: ns / MS for (of, cause), ns in self.added.items() if of == key and ns}

    def holders(self):
        return {row: ns / MS for (table, row), ns in self.samples.items() if table == "holders"}

    @property
    def holds(self):
        return [(hold.ns, hold.holder, hold.stack) for table, hold in self.samples if table == "gil_holds"]

    # asked by the look

    def look(self):
        pass

    def read_cpu(self):
        return self.computed * MS

    def cpu_of(self, ident):
        return self.used[ident] * MS

    def other(self, ident):
        clocks = self.clocks.setdefault(ident, ThreadClocks(0, 0, 0))
        return SimpleNamespace(syscall=lambda: self.states.get(ident, "network"), clocks=lambda: clocks)

    def task_thread(self, ident, at):
        clocks = self.clocks[ident]
        if ident not in self.watched:
            self.watched[ident] = Watched(SimpleNamespace(syscall=lambda: self.states[ident]), clocks, at)
        return self.watched[ident], clocks


def running_inc():
    """A process of which thread 1 has run a task for 10 ms."""
    return Process().begins(1, INC).passes(10)


def test_time_that_is_neither_cpu_nor_waiting_for_a_core_has_the_cause_that_is_seen():
    process = running_inc().goes(1, "network", cpu=20, core=5).passes(100)
    assert process.sampled() == {"core": 5, "network": 75}


def test_a_thread_that_would_have_computed_while_its_process_stood_still_was_stopped():
    process = running_inc().begins(2, INC, "sleep").passes(1).goes(1, "running", cpu=40)
    process.passes(540, stopped=490)
    assert process.sampled() == {"stopped": 490.0, "sleep": 541.0}


def test_a_thread_that_computes_is_no_witness_of_its_waiting():
    process = running_inc().goes(1, "running", cpu=20).passes(100)
    assert process.sampled() == {}
    process.goes(1, "file", cpu=20).passes(100)
    assert process.sampled() == {"file": 160}


def test_time_without_a_witness_goes_to_the_next_task_of_its_kind():
    process = running_inc().goes(1, "running", cpu=20).passes(100).begins(1, INC).passes(10)
    process.goes(1, "file", cpu=10).passes(100)
    assert process.sampled() == {"file": 80 + 90}


def test_waiting_that_finds_no_witness_is_unknown():
    process = running_inc().goes(1, "running", cpu=20, core=5).passes(100).begins(1, SUM).passes(10)
    process.look_.give_up(every=False)
    assert process.sampled() == {"core": 5}  # it may find one yet
    process.look_.give_up(every=False)
    assert process.sampled() == {"core": 5, "unknown": 75}
    process.look_.give_up(every=True)
    assert process.sampled() == {"core": 5, "unknown": 75}


def test_waiting_without_a_witness_is_apportioned_like_that_with_one():
    process = running_inc().goes(1, "network", cpu=20).passes(100).goes(1, "running", cpu=60).passes(100)
    process.begins(1, SUM).passes(10)
    process.look_.give_up(every=True)
    assert process.sampled() == {"network": 80 + 40}


def test_no_time_waits_for_a_witness_beyond_the_edge_of_a_window():
    process = running_inc().goes(1, "running", cpu=20).passes(100).begins(1, INC).passes(10)
    process.look_.give_up(every=True)
    process.goes(1, "file").passes(100)
    assert process.sampled() == {"unknown": 80, "file": 100}


def test_a_short_task_stands_for_all_the_time_since_the_last_look():
    process = Process()
    for cause in ("sleep", "sleep", "network"):
        process.begins(1, INC, cause).goes(1, cause).passes(50)
    assert process.sampled() == {"sleep": 100, "network": 50}


def test_a_thread_that_slept_on_is_not_read_again():
    process = Process().begins(1, INC, "sleep").passes(50)
    process.states[1] = "nonsense"
    process.passes(50)
    process.at += 30 * MS
    process.look_.go_on(process.at)
    assert process.sampled() == {"sleep": 130}


def test_between_looks_only_certain_time_is_counted():
    process = Process().begins(1, INC).begins(2, INC, "lock").passes(50).goes(1, "network")
    before = dict(process.added)
    process.at += 50 * MS
    process.look_.go_on(process.at)
    assert process.added == before


@pytest.mark.parametrize(
    ("states", "gil_wait", "waited"),
    [
        (["gil"] * 4, 5, 4 * 75),
        (["gil", "running"], 0, 100),  # the other released it by itself, and did not wait for it
    ],
)
def test_one_of_the_threads_that_want_the_gil_had_held_it(states, gil_wait, waited):
    process = Process()
    for ident, state in enumerate(states):
        process.begins(ident, INC, state)
    assert process.passes(100, gil_wait=gil_wait).sampled() == {"gil": waited}


def test_a_thread_alone_at_the_gil_was_computing():
    process = running_inc()
    for _ in range(20):
        process.goes(1, "gil", cpu=10).passes(20, gil_wait=5)
    process.goes(1, "sleep").passes(20)
    assert process.sampled() == {"sleep": 20 * 10 + 20}


def test_the_event_loop_may_want_the_gil_too():
    process = Process()
    process.states[LOOP] = "gil"
    process.begins(1, INC, "gil").passes(100, gil_wait=5)
    assert process.sampled() == {"gil": 50}


@pytest.mark.parametrize(
    ("computed", "core", "threads", "sampled"),
    [
        (60, 0, 2, {"library": 60, "lock": 140}),
        (500, 0, 2, {"library": 200}),
        (20, 50, 1, {"library": 20, "core": 50, "lock": 30}),
        # Libraries have all cores.
        (190, 0, 4, {"library": 190, "core": 210}),
        (120, 50, 4, {"library": 120, "core": 280}),
        (30, 60, 4, {"library": 30, "core": 370}),
        # One thread of a library computes: the others wait at its lock.
        (100, 5, 4, {"library": 100, "core": 5, "lock": 295}),
    ],
)
def test_waiting_at_a_lock_is_for_threads_of_libraries_that_compute_or_lack_a_core(computed, core, threads, sampled):
    process = Process(library_core=core * MS).begins(9, SUM, "sleep")
    process.computed = computed
    for ident in range(threads):
        process.begins(ident, INC, "lock")
    assert process.passes(100).sampled() == sampled
    assert process.sampled(SUM) == {"sleep": 100}


TRAIN = Frame("train", "/home/me/train.py", 12)
GATHER = Frame("Client.gather", "/env/site-packages/distributed/client.py", 2500)
POOL = Frame("Pool.map", "/usr/lib/python3.12/multiprocessing/pool.py", 367)


@pytest.mark.parametrize(
    ("state", "stack", "cause"),
    [
        ("lock", (TRAIN,), LIBRARY),
        ("lock", (TRAIN, GATHER), "cluster"),
        ("lock", (TRAIN, POOL), "child-process"),
        ("polls", (TRAIN, Frame("execute", BUILT_IN, 0)), "lock"),
        ("polls", (TRAIN, Frame("nanosleep", BUILT_IN, 0)), "sleep"),
        ("sleep", (TRAIN, Frame("sleep", BUILT_IN, 0)), "sleep"),
        ("sleep", (TRAIN, GATHER), "cluster"),
        ("network", (TRAIN, GATHER), "network"),
    ],
)
def test_what_a_thread_waits_for_is_told_by_its_stack_where_the_call_does_not_tell(monkeypatch, state, stack, cause):
    monkeypatch.setattr("dask_efficiency.plugin.worker.lock_looks.has_children", lambda: True)
    process = Process()
    process.look_._stacks = SimpleNamespace(**{**vars(STACKS), "waiting": lambda frame: stack})
    process.computed = 100  # in threads of libraries, which is not what keeps a database's lock
    process.begins(1, INC, state).passes(50)
    assert process.sampled() == {cause: 50}


def test_who_may_hold_a_lock_is_counted_at_each_look_if_stacks_are_wanted(frames):
    taking, inside = TRAIN, TRAIN._replace(line=13)
    for wanted in (True, False):
        process = Process(stacks_wanted=wanted)
        for ident, (state, at) in enumerate([("lock", taking), ("lock", taking), ("running", inside)]):
            frames[ident] = at
            process.begins(ident, INC, state)
        process.passes(50).passes(50)
        looks = {(row.holder, row.stack): n for (table, row), n in process.samples.items() if table == "lock_looks"}
        counted = {("(looks)", ()): 2, ("(waiting)", ()): 4, ("inc", (inside,)): 2}
        assert looks == (counted if wanted else {})


def test_threads_of_libraries_that_compute_during_tasks_fill_free_slots():
    process = Process(nthreads=4).begins(1, INC).begins(2, SUM, "lock")
    process.computed = 260
    process.passes(100)
    assert process.sampled() == {"library-beside": 80}
    assert process.sampled(SUM) == {"library": 100, "library-beside": 80}
    process.computed = 500  # no more than there is room for
    process.passes(100)
    assert process.sampled() == {"library-beside": 180}
    process.computed = 90
    process.passes(100)
    assert process.sampled() == {"library-beside": 180}


def test_waiting_by_the_cpu_limit_is_distinguished_from_that_for_a_core():
    process = Process(throttled=0).begins(1, INC).passes(1000)
    process.throttled = 30 * MS
    process.goes(1, "running", core=40).passes(1000)
    assert process.sampled() == {"throttled": 30, "core": 10}


def test_a_task_that_holds_no_slot_is_not_counted():
    process = Process().begins(1, None, "sleep").passes(100).begins(1, INC, "sleep").passes(100)
    process.runs[1] = process.runs[1][0], None  # it seceded
    process.passes(100)
    assert process.sampled() == {"sleep": 100}


steps = st.tuples(
    st.integers(1, 3),
    st.sampled_from(["running", "gil", "lock", "sleep", "file", "unknown", "begins"]),
    st.integers(0, 100),
    st.integers(0, 100),
)


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(0, 200), st.integers(0, 10), st.lists(steps, max_size=3))))
def test_never_more_time_is_counted_than_has_passed(looks):
    """Of three threads; a task that began since the last look stands for that time."""
    process = Process()
    for ident in (1, 2, 3):
        process.begins(ident, INC)
    for passed, computed, gil_wait, done in looks:
        for ident, what, cpu, core in done:
            share = max(1, cpu + core, passed) * len(done)
            cpu, core = cpu * passed // share, core * passed // share
            if what == "begins":
                process.begins(ident, SUM, "sleep")
            process.goes(ident, "sleep" if what == "begins" else what, cpu=cpu, core=core)
        process.computed = computed
        process.passes(passed, gil_wait=gil_wait)
    assert sum(process.added.values()) <= 3 * process.at + 3 * 1000 * len(looks)
    assert all(ns > 0 for ns in process.added.values())


@pytest.fixture
def frames(monkeypatch):
    """The line that each thread is at."""
    frames = {1: A, 2: B, LOOP: C}
    monkeypatch.setattr("sys._current_frames", lambda: frames)
    return frames


@pytest.mark.usefixtures("frames")
def test_stacks_and_holders_of_the_gil_are_kept_only_if_wanted():
    process = Process()
    process.begins(1, INC, "gil").begins(2, SUM, "gil")
    process.used.update({2: 30, LOOP: 90})
    process.passes(100, gil_wait=5)
    assert not process.samples
    process.look_.stacks_wanted = True
    process.goes(1, "gil").goes(2, "gil")
    process.used.update({LOOP: 0})
    process.states[LOOP] = "gil"
    process.passes(99, gil_wait=5)
    held = process.holders()
    assert held[("inc", "sum", (B,))] == pytest.approx(66 * 30 / 120, abs=0.01)
    assert held[("inc", "(event loop)", (C,))] == pytest.approx(66 * 90 / 120, abs=0.01)
    assert not process.look_._frames


@pytest.mark.parametrize(
    ("frame", "state", "how"), [(A, "gil", "python"), (B, "gil", "gil"), (A, "running", "python"), (B, "running", "")]
)
def test_what_computes_has_its_way_of_computing(frames, frame, state, how):
    """One that executes Python has no GIL now, as the sampler has it: it is about to ask for it, though it runs."""
    process = Process(stacks_wanted=True)
    frames[1] = frame
    process.begins(1, INC, state).goes(1, state, cpu=60).passes(100)
    rows = {
        (row.cause, row.stack) for table, row in process.samples if table == "profile" and row.bucket == "thread-cpu"
    }
    assert rows == {(how, (frame,))}


@pytest.mark.parametrize(("ended", "holder"), [(None, "(thread idler)"), (("parse", False), "parse")])
def test_a_thread_is_blamed_for_no_more_of_a_wait_than_its_part_of_the_cpu(frames, ended, holder):
    process = Process(stacks_wanted=True)
    process.python[5] = SimpleNamespace(name="idler")
    frames[5], process.states[5] = C, "gil"
    if ended is not None:  # a task, just now, and it waits for the next
        process.tasks[5] = ended
    process.begins(1, INC, "gil").used.update({1: 57, 5: 3})
    process.passes(100, gil_wait=5)
    ((row, ns),) = process.holders().items()
    assert row.holder == holder
    assert ns == pytest.approx(process.sampled()["gil"] * 3 / 60, rel=0.01)


def test_a_former_stack_is_not_taken_for_the_present_one(frames):
    process = Process(stacks_wanted=True)
    process.begins(1, INC, "sleep").passes(100)
    process.look_.stacks_wanted = False
    process.goes(1, "network").passes(100)
    process.samples.clear()
    process.look_.stacks_wanted = True
    frames[1] = B
    process.passes(100)
    assert {row.stack for _, row in process.samples} == {(B,)}


@pytest.mark.usefixtures("frames")
def test_a_thread_that_held_the_gil_for_long_is_named_if_it_computed():
    process = Process(stacks_wanted=True)
    process.begins(1, INC, "gil")
    process.used.update({1: 10})
    process.passes(200, gil_wait=150)
    assert not process.holds  # nobody computed for so long: the machine stood still
    process.goes(1, "gil", cpu=150)
    process.used.update({1: 140})
    process.passes(200, gil_wait=150)
    assert process.holds == [(150 * MS, "inc", (A,))]
    # On a crowded host it computes for a part of that. What computes on without the GIL did not hold it.
    process.begins(2, SUM).goes(1, "gil", cpu=60).goes(2, "running", cpu=900)
    process.used.update({1: -80, 2: 900})
    process.samples.clear()
    process.passes(1000, gil_wait=900)
    assert process.holds == [(900 * MS, "inc", (A,))]


@pytest.mark.usefixtures("frames")
@pytest.mark.parametrize(("goes_on", "stack"), [(True, (A,)), (False, ())])
def test_a_task_that_held_the_gil_before_any_look_saw_it_is_named(goes_on, stack):
    process = Process(stacks_wanted=True)
    process.python[1] = SimpleNamespace(name="Dask-Default-Threads-1")
    process.tasks[1], process.states[1] = ("parse", goes_on), "gil"
    process.used.update({1: 60})
    process.at += 200 * MS
    process.look_.begin(process.at, gil_wait=150 * MS)
    assert process.holds == [(150 * MS, "parse", stack)]
    found = process.look_.look_at_loop()
    assert (found.holder, found.held_at) == ("parse", stack)


def test_a_loop_that_has_just_woken_up_did_not_hold_the_gil(frames):
    process = Process(stacks_wanted=True)
    frames[LOOP] = SELECT
    process.begins(1, INC, "gil")
    process.states[LOOP] = "gil"
    process.used.update({LOOP: 40})
    process.passes(100, gil_wait=5).passes(200, gil_wait=120)
    assert process.holders() == {}
    assert process.holds == []
    process.used.update({LOOP: 60})
    frames[LOOP] = C
    process.states[LOOP] = "lock"
    process.passes(200, gil_wait=120)  # it computed for most of that, whatever it waits for now
    assert process.holds == [(120 * MS, EVENT_LOOP, ())]
    assert process.look_.look_at_loop().stack == ()
    process.states[LOOP] = "gil"
    process.passes(100, gil_wait=5)
    assert [row.holder for row in process.holders()] == [EVENT_LOOP]


@pytest.mark.usefixtures("frames")
@pytest.mark.parametrize(
    ("state", "cpu", "core", "gil_wait", "found"),
    [
        ("file", 10, 20, 0, (20, 0, (C,), "", ())),
        ("gil", 10, 20, 0, (20, 70, (C,), "", ())),
        ("running", 10, 20, 0, (20, 0, (C,), "", ())),
        ("gil", 10, 20, 60, (0, 90, (C,), "inc", (A,))),
        ("running", 10, 20, 60, (0, 90, (C,), "inc", (A,))),
    ],
    ids=[
        *("waits by itself", "waits for the GIL", "runs, or is ready: the kernel will count its wait for a core"),
        *("waits for the GIL of one that computes", "has just been given the GIL of one that computed"),
    ],
)
def test_a_loops_time_is_its_own_but_for_waits_for_a_core_and_for_the_gil_and(state, cpu, core, gil_wait, found):
    process = Process(stacks_wanted=True).begins(1, INC, "gil").begins(2, SUM, "sleep")
    process.clocks[LOOP] = ThreadClocks(0, 0, 0)
    process.passes(100)
    process.used.update({1: 60})
    process.goes(LOOP, state, cpu=cpu, core=core).passes(100, gil_wait=gil_wait)
    core, gil, *rest = found
    assert process.look_.look_at_loop() == (core * MS, gil * MS, cpu * MS, state == "running", *rest)


def test_a_loop_that_waits_for_messages_has_no_stack(frames):
    frames[LOOP] = SELECT
    assert Process().passes(100).look_.look_at_loop().stack is None


@pytest.mark.parametrize("stacks_wanted", [False, True])
def test_variables_of_threads_end_with_their_calls_without_a_garbage_collection(stacks_wanted):
    known, begun, go_on = [], threading.Event(), threading.Event()

    def call():
        variable = Counter()
        known.append(weakref.ref(variable))
        begun.set()
        go_on.wait()

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    begun.wait()
    process = Process()
    process.look_._stacks = Stacks()
    process.look_._loop_ident = thread.ident
    process.look_.stacks_wanted = stacks_wanted
    process.begins(thread.ident, INC, "lock")
    process.computed = 10
    gc.disable()
    try:
        assert process.look_.look_at_loop().stack
        process.passes(100)
        go_on.set()
        thread.join()
        assert known[0]() is None
    finally:
        gc.enable()
