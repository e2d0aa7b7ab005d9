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

from dask_efficiency.accounts.lines import EVENT_LOOP, Frame
from dask_efficiency.plugin.stacks import Stacks
from dask_efficiency.plugin.worker.look import Look
from dask_efficiency.plugin.worker.thread_clocks import ThreadClocks
from dask_efficiency.plugin.worker.watched_threads import Watched

MS = 1_000_000
INC, SUM = ("", "inc"), ("", "sum")
LOOP = 99

#: Lines that threads are at, and stacks of nothing else.
A, B, C = (Frame(name, "x.py", 1) for name in "abc")
SELECT = Frame("EpollSelector.select", selectors.__file__, 469)
STACKS = SimpleNamespace(task=lambda frame: (frame,), loop=lambda frame: (frame,))


class Process:
    """A process whose threads are at what a test says; their idents are small numbers."""

    def __init__(self, *, throttled=None, library_core=0, cores=2.0, nthreads=0, stacks_wanted=False):
        self.at = 0
        self.python = {LOOP: SimpleNamespace(name="MainThread")}
        self.runs = {}
        self.said = {}
        self.clocks = {}
        self.watched = {}
        self.used = Counter()
        self.computed = 0
        self.added = Counter()
        self.rows = Counter()
        self.holds = []
        self.native_ids = set()
        self.throttled = throttled
        self.look_ = Look(
            self,
            SimpleNamespace(state=lambda said, files: said),
            SimpleNamespace(limited=throttled is not None, more=lambda: self.throttled),
            SimpleNamespace(core_wait=lambda at: library_core, find=lambda python, at: None),
            None,
            running=lambda: [(ident, start, key) for ident, (start, key) in self.runs.items()],
            loop_ident=LOOP,
            cores=cores,
            nthreads=lambda: nthreads,
            add=lambda sample: self.added.update({sample[:2]: sample[2]}),
            row=lambda row: self.rows.update({row[0]: row[1]}),
            hold=self.holds.append,
        )
        self.look_._stacks = STACKS
        self.look_.stacks_wanted = stacks_wanted
        self.look_.begin(0)

    # what a test says

    def begins(self, ident, key, state="running"):
        self.python[ident] = SimpleNamespace(name=str(ident))
        self.runs[ident] = self.at, key
        self.clocks.setdefault(ident, ThreadClocks(0, 0, 0))
        self.said[ident] = state

    def goes(self, ident, state, *, cpu=0, core=0):
        """It is at something else now, and meanwhile used so much."""
        before = self.clocks[ident]
        self.clocks[ident] = ThreadClocks(before.cpu + cpu * MS, before.core + core * MS, before.turns + 1)
        self.said[ident] = state

    def passes(self, milliseconds, *, gil_wait=0, stopped=0):
        self.at += milliseconds * MS
        self.look_.sample(self.at, gil_wait=gil_wait * MS, stopped=stopped * MS)

    def sampled(self, key=INC):
        return {cause: ns / MS for (of, cause), ns in self.added.items() if of == key and ns}

    # what the look asks

    def look(self):
        pass

    def read_cpu(self):
        return self.computed * MS

    def cpu_of(self, ident):
        return self.used[ident] * MS

    def other(self, ident):
        return SimpleNamespace(syscall=lambda: self.said.get(ident, "network"))

    def task_thread(self, ident, at):
        clocks = self.clocks[ident]
        if ident not in self.watched:
            self.watched[ident] = Watched(SimpleNamespace(syscall=lambda: self.said[ident]), clocks, at)
        return self.watched[ident], clocks


def running_inc():
    """A process of which thread 1 has run a task for 10 ms."""
    process = Process()
    process.begins(1, INC)
    process.passes(10)
    return process


def test_time_that_is_neither_cpu_nor_waiting_for_a_core_goes_to_what_is_waited_for():
    process = running_inc()
    process.goes(1, "network", cpu=20, core=5)
    process.passes(100)
    assert process.sampled() == {"core": 5, "network": 75}


def test_what_would_have_computed_while_its_process_stood_still_was_stopped():
    process = running_inc()
    process.begins(2, INC, "sleep")
    process.passes(1)
    process.goes(1, "running", cpu=40)
    process.passes(540, stopped=490)
    assert process.sampled() == {"stopped": 490.0, "sleep": 541.0}


def test_a_thread_that_computes_says_nothing_of_why_it_waited_before():
    process = running_inc()
    process.goes(1, "running", cpu=20)
    process.passes(100)
    assert process.sampled() == {}
    process.goes(1, "file", cpu=20)
    process.passes(100)
    assert process.sampled() == {"file": 160}


def test_what_a_task_left_without_a_witness_goes_to_the_next_of_its_kind():
    process = running_inc()
    process.goes(1, "running", cpu=20)
    process.passes(100)
    process.begins(1, INC)
    process.passes(10)
    process.goes(1, "file", cpu=10)
    process.passes(100)
    assert process.sampled() == {"file": 80 + 90}


def test_waiting_that_finds_no_witness_is_unknown_and_is_not_given_to_what_was_seen():
    process = running_inc()
    process.goes(1, "running", cpu=20, core=5)
    process.passes(100)
    process.begins(1, SUM)
    process.passes(10)
    process.look_.give_up(every=False)
    assert process.sampled() == {"core": 5}  # it may find one yet
    process.look_.give_up(every=False)
    assert process.sampled() == {"core": 5, "unknown": 75}
    process.look_.give_up(every=True)
    assert process.sampled() == {"core": 5, "unknown": 75}


def test_waiting_without_a_witness_is_apportioned_like_what_was_seen_of_its_kind():
    process = running_inc()
    process.goes(1, "network", cpu=20)
    process.passes(100)
    process.goes(1, "running", cpu=60)
    process.passes(100)
    process.begins(1, SUM)
    process.passes(10)
    process.look_.give_up(every=True)
    assert process.sampled() == {"network": 80 + 40}


def test_at_the_edge_of_a_window_nothing_waits_for_a_witness_beyond_it():
    process = running_inc()
    process.goes(1, "running", cpu=20)
    process.passes(100)
    process.begins(1, INC)
    process.passes(10)
    process.look_.give_up(every=True)
    process.goes(1, "file")
    process.passes(100)
    assert process.sampled() == {"unknown": 80, "file": 100}


def test_a_short_task_stands_for_all_the_time_since_the_last_look():
    process = Process()
    for cause in ("sleep", "sleep", "network"):
        process.begins(1, INC, cause)
        process.goes(1, cause)
        process.passes(50)
    assert process.sampled() == {"sleep": 100, "network": 50}


def test_a_thread_that_slept_on_is_not_asked_again():
    process = Process()
    process.begins(1, INC, "sleep")
    process.passes(50)
    process.said[1] = "nonsense"
    process.passes(50)
    process.at += 30 * MS
    process.look_.go_on(process.at)
    assert process.sampled() == {"sleep": 130}


def test_between_looks_only_what_is_certain_is_counted():
    process = Process()
    process.begins(1, INC)
    process.begins(2, INC, "lock")
    process.passes(50)
    process.goes(1, "network")
    before = dict(process.added)
    process.at += 50 * MS
    process.look_.go_on(process.at)
    assert process.added == before


def test_of_threads_that_want_the_gil_one_had_it_taken_away():
    process = Process()
    for ident in (1, 2, 3, 4):
        process.begins(ident, INC, "gil")
    process.passes(100, gil_wait=5)
    assert process.sampled() == {"gil": 4 * 75}


def test_a_thread_alone_at_the_gil_was_computing():
    process = running_inc()
    for _ in range(20):
        process.goes(1, "gil", cpu=10)
        process.passes(20, gil_wait=5)
    process.goes(1, "sleep")
    process.passes(20)
    assert process.sampled() == {"sleep": 20 * 10 + 20}


def test_who_let_go_of_the_gil_by_itself_was_not_waiting_for_it():
    process = Process()
    process.begins(1, INC, "gil")
    process.begins(2, SUM, "running")
    process.passes(100, gil_wait=0)
    assert process.sampled() == {"gil": 100}


def test_the_event_loop_counts_among_those_that_want_the_gil():
    process = Process()
    process.said[LOOP] = "gil"
    process.begins(1, INC, "gil")
    process.passes(100, gil_wait=5)
    assert process.sampled() == {"gil": 50}


def test_waiting_at_a_lock_while_libraries_compute_is_the_librarys_as_far_as_they_do():
    process = Process()
    process.computed = 60
    process.begins(1, INC, "lock")
    process.begins(2, INC, "lock")
    process.begins(3, SUM, "sleep")
    process.passes(100)
    assert process.sampled() == {"library": 60, "lock": 140}
    assert process.sampled(SUM) == {"sleep": 100}
    process.computed = 500
    process.passes(100)
    assert process.sampled() == {"library": 260, "lock": 140}


def test_waiting_at_a_lock_while_libraries_wait_for_a_core_is_waiting_for_a_core():
    process = Process(library_core=50 * MS)
    process.computed = 20
    process.begins(1, INC, "lock")
    process.passes(100)
    assert process.sampled() == {"library": 20, "core": 50, "lock": 30}


@pytest.mark.parametrize(("computed", "waited"), [(190, 0), (120, 50), (30, 60)])
def test_where_libraries_have_all_cores_whoever_waits_for_them_waits_for_a_core(computed, waited):
    process = Process(library_core=waited * MS)
    process.computed = computed
    for ident in range(1, 5):
        process.begins(ident, INC, "lock")
    process.passes(100)
    assert process.sampled() == {"library": computed, "core": 400 - computed}


def test_where_one_thread_of_a_library_computes_the_others_wait_at_its_lock():
    process = Process(library_core=5 * MS)
    process.computed = 100
    for ident in range(1, 5):
        process.begins(ident, INC, "lock")
    process.passes(100)
    assert process.sampled() == {"library": 100, "core": 5, "lock": 295}


def test_threads_of_libraries_that_compute_beside_tasks_fill_free_slots():
    process = Process(nthreads=4)
    process.begins(1, INC)
    process.begins(2, SUM, "lock")
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


def test_what_the_cpu_limit_made_threads_wait_is_told_apart():
    process = Process(throttled=0)
    process.begins(1, INC)
    process.passes(1000)
    process.throttled = 30 * MS
    process.goes(1, "running", core=40)
    process.passes(1000)
    assert process.sampled() == {"throttled": 30, "core": 10}


def test_a_task_that_holds_no_slot_is_not_counted():
    process = Process()
    process.begins(1, None, "sleep")
    process.passes(100)
    process.begins(1, INC, "sleep")
    process.passes(100)
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
def test_whatever_threads_do_no_more_is_counted_than_has_passed(looks):
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


def test_stacks_and_who_held_the_gil_are_kept_only_if_wanted(monkeypatch):
    process = Process()
    monkeypatch.setattr("sys._current_frames", lambda: {1: A, 2: B, LOOP: C})
    process.begins(1, INC, "gil")
    process.begins(2, SUM, "gil")
    process.used.update({2: 30, LOOP: 90})
    process.passes(100, gil_wait=5)
    assert not process.rows
    process.look_.stacks_wanted = True
    process.goes(1, "gil")
    process.goes(2, "gil")
    process.used.update({LOOP: 0})
    process.said[LOOP] = "gil"
    process.passes(99, gil_wait=5)
    held = {(row.prefix, row.holder, row.stack): ns / MS for row, ns in process.rows.items() if len(row) == 3}
    assert held[("inc", "sum", (B,))] == pytest.approx(66 * 30 / 120, abs=0.01)
    assert held[("inc", "(event loop)", (C,))] == pytest.approx(66 * 90 / 120, abs=0.01)
    assert not process.look_._frames


def test_a_stack_of_former_days_is_not_taken_for_the_present_one(monkeypatch):
    process = Process()
    frames = {1: A}
    monkeypatch.setattr("sys._current_frames", lambda: frames)
    process.look_.stacks_wanted = True
    process.begins(1, INC, "sleep")
    process.passes(100)
    process.look_.stacks_wanted = False
    process.goes(1, "network")
    process.passes(100)
    process.rows.clear()
    process.look_.stacks_wanted = True
    frames[1] = B
    process.passes(100)
    assert {row.stack for row in process.rows} == {(B,)}


def test_who_held_the_gil_for_long_is_named_if_it_computed(monkeypatch):
    process = Process(stacks_wanted=True)
    monkeypatch.setattr("sys._current_frames", lambda: {1: A, LOOP: C})
    process.begins(1, INC, "gil")
    process.used.update({1: 10})
    process.passes(200, gil_wait=150)
    assert not process.holds  # nobody computed for so long: the machine stood still
    process.goes(1, "gil", cpu=150)
    process.used.update({1: 140})
    process.passes(200, gil_wait=150)
    assert process.holds == [(150 * MS, "inc", (A,))]


def test_a_loop_that_has_just_woken_up_did_not_hold_the_gil(monkeypatch):
    process = Process(stacks_wanted=True)
    frames = {1: A, LOOP: SELECT}
    monkeypatch.setattr("sys._current_frames", lambda: frames)
    process.begins(1, INC, "gil")
    process.said[LOOP] = "gil"
    process.used.update({LOOP: 40})
    process.passes(100, gil_wait=5)
    process.passes(200, gil_wait=120)
    assert [row.holder for row in process.rows if len(row) == 3] == []
    assert process.holds == []
    process.used.update({LOOP: 60})
    process.passes(200, gil_wait=120)  # it computed for most of that, whatever it is at now
    assert process.holds == [(120 * MS, EVENT_LOOP, ())]
    frames[LOOP] = C
    process.passes(100, gil_wait=5)
    assert [row.holder for row in process.rows if len(row) == 3] == [EVENT_LOOP]


@pytest.mark.parametrize("would", ["gil", "running"])
def test_a_loop_is_at_work_unless_others_keep_the_gil_or_the_cores_from_it(monkeypatch, would):
    process = Process()
    frames = {LOOP: C}
    monkeypatch.setattr("sys._current_frames", lambda: frames)
    process.passes(100)
    process.said[LOOP] = "file"
    assert process.look_.loop_stack() == (C,)
    process.said[LOOP] = would
    process.used.update({LOOP: 40})
    assert process.look_.loop_stack() is None
    process.used.update({LOOP: 20})
    assert process.look_.loop_stack() == (C,)
    process.at += 1000 * MS
    process.look_.begin(process.at)
    assert process.look_.loop_stack() is None, "60 ms of a second"
    process.used.update({LOOP: 900})
    assert process.look_.loop_stack() == (C,)
    frames[LOOP] = SELECT
    assert process.look_.loop_stack() is None


@pytest.mark.parametrize("stacks_wanted", [False, True])
def test_variables_of_threads_end_with_their_calls_though_no_garbage_is_collected(stacks_wanted):
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
        assert process.look_.loop_stack()
        process.passes(100)
        go_on.set()
        thread.join()
        assert known[0]() is None
    finally:
        gc.enable()
