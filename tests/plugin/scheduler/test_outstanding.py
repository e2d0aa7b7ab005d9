from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from dask._task_spec import Alias
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.cluster.windows import ActiveIntervals, ClusterWindow
from dask_efficiency.plugin.names import RECOMPUTED
from dask_efficiency.plugin.scheduler import accounts, outstanding, replies
from dask_efficiency.plugin.scheduler.accounts import ClusterAccounts
from dask_efficiency.plugin.scheduler.outstanding import WorkTracker, prefixes_in, span_name
from dask_efficiency.plugin.scheduler.registration import RepeatCounter


def test_a_report_notes_that_no_more_keys_are_remembered():
    work = SimpleNamespace(full=False)
    accounts = SimpleNamespace(work=work, stays_off=list)
    assert replies._notes(accounts) == []
    work.full = True
    (note,) = replies._notes(accounts)
    assert note.startswith("tasks computed again are counted among the first 500,000 tasks only")


def test_the_prefixes_of_spans_are_those_of_the_newest_groups_and_kept_for_seconds(monkeypatch):
    def span(name, *prefixes):
        groups = [SimpleNamespace(prefix=SimpleNamespace(name=prefix)) for prefix in prefixes]
        return SimpleNamespace(name=(name,), groups=groups)

    spans = {"1": span("Nightly", "load"), "2": span("other", "train"), "3": span("nightly", "sum", "mean")}
    scheduler = SimpleNamespace(extensions={"spans": SimpleNamespace(spans=spans)})
    assert prefixes_in(scheduler, "NIGHT") == {"load", "sum", "mean"}
    now = [100.0]
    monkeypatch.setattr(accounts, "time", SimpleNamespace(monotonic=lambda: now[0]))
    held = SimpleNamespace(scheduler=scheduler, _of_spans={})
    monkeypatch.setattr(outstanding, "MAX_GROUPS", 2)
    assert ClusterAccounts.prefixes_in(held, "night") == {"sum", "mean"}
    spans["4"] = span("nightly", "max")
    assert ClusterAccounts.prefixes_in(held, "night") == {"sum", "mean"}
    now[0] += 60
    assert ClusterAccounts.prefixes_in(held, "night") == {"max", "sum"}


# A failing state machine is shrunk for up to five minutes before it says how it failed.
pytestmark = pytest.mark.timeout(400)

OUTSTANDING = {"waiting", "queued", "no-worker", "processing"}


class FakeScheduler:
    """As much of a scheduler as is looked at: tasks in states, and two stream handlers."""

    def __init__(self, **states: str) -> None:
        self.tasks = {}
        self.ws = SimpleNamespace(address="tcp://a", processing=set(), long_running=set())
        self.workers = {"tcp://a": self.ws}
        self.task_prefixes: dict[str, FakePrefix] = {}
        self._task_prefix_count_global = FakeCounts(self.ws)
        self.stream_handlers = {"update-graph": self.update_graph, "long-running": self.handle_long_running}
        self.taken_in: list[bool] = []
        self.aliases: frozenset[str] = frozenset()
        self.tracker: WorkTracker | None = None
        for key, state in states.items():
            self.add(key, state)

    def add(self, key, state="released"):
        ts = self.tasks[key] = FakeTask(key, state, self.ws if state == "processing" else None)
        ts.run_spec = Alias(key, "persisted") if key in self.aliases else None
        self.task_prefixes.setdefault(ts.prefix.name, FakePrefix(self, ts.prefix.name))
        if state == "processing":
            self.ws.processing.add(ts)

    async def update_graph(self, fail=False, client="me"):
        self.taken_in.append(self.tracker.graphs)
        await asyncio.sleep(0)
        if fail:
            raise ValueError("a broken graph")
        return "taken in"

    def handle_long_running(self, key, worker):
        ts = self.tasks.get(key)
        if ts is not None and ts.processing_on is self.ws and worker == "tcp://a":
            self.ws.long_running.add(ts)
        return "handled"

    def move(self, key, finish, stimulus_id="stimulus"):
        ts = self.tasks[key]
        start, ts.state = ts.state, finish
        ts.processing_on = self.ws if finish == "processing" else None
        (self.ws.processing.add if finish == "processing" else self.ws.processing.discard)(ts)
        reported = {}
        if finish == "memory":
            ts.nbytes = 28
            if start == "processing":
                reported = {"worker": "tcp://a", "nbytes": 28}
        self.ws.long_running.discard(ts)
        self.transition(key, start, finish, stimulus_id=stimulus_id, **reported)
        if finish == "forgotten":
            del self.tasks[key]

    def restart(self):
        """All tasks are gone, without a transition."""
        for forgotten in (self.tasks, self.task_prefixes, self.ws.processing, self.ws.long_running):
            forgotten.clear()

    def ask(self, *keys, stimulus_id):
        """A client's graph: it has tasks that are not there yet or were released wait."""
        for key in keys:
            if key not in self.tasks:
                self.add(key)
        self.tracker.asked(stimulus_id, keys)
        for key in keys:
            self.move(key, "waiting", stimulus_id)

    def compute(self, *keys):
        for key in keys:
            self.move(key, "processing")
            self.move(key, "memory", f"task-finished-{key}")

    def begin_again(self, key, stimulus_id):
        for state in ("released", "waiting"):
            self.move(key, state, stimulus_id)

    def play(self, script):
        """Steps such as ``ask ab by graph; compute a; released a by lost``, on keys of one letter."""
        for step in script.split("; "):
            what, keys, *by = step.split()
            if what == "ask":
                self.ask(*keys, stimulus_id=by[1])
            elif what == "compute":
                self.compute(*keys)
            else:
                for key in keys:
                    self.move(key, what, *by[1:])

    def repeats(self):
        return self.tracker.repeats.by_prefix()

    def recomputed(self):
        """The keys of the tasks that are marked."""
        return {key for key, ts in self.tasks.items() if RECOMPUTED in (ts.annotations or {})}


class FakePrefix:
    """Counts its scheduler's tasks by state."""

    def __init__(self, scheduler, name):
        self.scheduler, self.name = scheduler, name

    @property
    def states(self):
        return Counter(ts.state for ts in self.scheduler.tasks.values() if ts.prefix.name == self.name)


class FakeCounts:
    """Upstream's dictionary of how many tasks of each prefix are on workers and not long-running."""

    def __init__(self, ws):
        self.ws = ws

    def __len__(self):
        return len(self.ws.processing - self.ws.long_running)


class FakeTask:
    def __init__(self, key, state, processing_on):
        self.key, self.state, self.processing_on, self.annotations = key, state, processing_on, None
        self.prefix = SimpleNamespace(name=key.partition("-")[0])
        self.nbytes = 28 if state == "memory" else -1
        self.who_wants = {"client"}
        self.waiters, self.waiting_on, self.group = set(), set(), None


@pytest.fixture
def clock(monkeypatch):
    """A clock that is set by hand."""
    clock = SimpleNamespace(now=0)
    monkeypatch.setattr(outstanding.time, "monotonic_ns", lambda: clock.now)
    return clock


def raised(error):
    raise error


def opened(cluster, *, running=False, number=0):
    """As much of an open window as the tracker sees."""
    window = ClusterWindow(cluster, at=0, running=running)
    counts = {"repeats": RepeatCounter(), "computed_before": 0, "graphs": 0, "arrived": asyncio.Event()}
    counts["seceded"] = ActiveIntervals(at=0, active=False)
    return SimpleNamespace(window=window, client="me", number=number, **counts)


def track(scheduler):
    cluster, windows = ClusterLedger(at=0), {}
    scheduler.tracker = WorkTracker(scheduler, cluster, windows)
    scheduler.transition = scheduler.tracker.hook(raised)
    return cluster, windows


def tracked(**states):
    scheduler = FakeScheduler(**states)
    return scheduler, *track(scheduler)


def computed(*keys):
    """A scheduler that has computed a client's graph of these tasks."""
    scheduler, _, _ = tracked()
    scheduler.ask(*keys, stimulus_id="update-graph-1")
    scheduler.compute(*keys)
    return scheduler


def test_the_beginning_and_end_of_work_and_graphs_are_announced(clock):
    scheduler, cluster, _ = tracked()
    heard: list[tuple[bool, bool]] = []
    scheduler.tracker.changed = lambda: heard.append((cluster.work.outstanding, scheduler.tracker.graphs))
    scheduler.add("x")
    for state in ("waiting", "processing"):
        scheduler.move("x", state)
    assert heard == [(True, False)]
    heard.clear()
    asyncio.run(scheduler.stream_handlers["update-graph"]())
    assert heard == [(True, True), (True, False)]
    scheduler.move("x", "memory")
    assert heard[2:] == [(False, False)]


def test_a_task_that_was_long_running_before_the_tracker_is_no_work(clock):
    scheduler = FakeScheduler(x="processing")
    scheduler.ws.long_running.add(scheduler.tasks["x"])
    cluster, _ = track(scheduler)
    assert not cluster.work.outstanding


def test_time_in_which_only_tasks_that_had_seceded_ran_is_told_from_the_clients(clock):
    scheduler, cluster, windows = tracked()
    windows["w"] = opened(cluster)
    for key in "xy":
        scheduler.add(key)
        for state in ("waiting", "processing"):
            scheduler.move(key, state)
    for clock.now, key in ((2, "x"), (3, "y")):
        scheduler.stream_handlers["long-running"](key, "tcp://a")
    for clock.now, key in ((5, "x"), (7, "y")):
        scheduler.move(key, "memory")
    assert windows["w"].window.running.until(9) == [(0, 3)]
    assert windows["w"].seceded.until(9) == [(3, 7)]


@pytest.mark.parametrize("fail", [False, True])
def test_work_is_outstanding_while_a_graph_is_taken_in(clock, fail):
    scheduler, cluster, windows = tracked()
    windows["w"] = opened(cluster)
    clock.now = 5

    async def taking_in():
        handled = asyncio.ensure_future(scheduler.stream_handlers["update-graph"](fail=fail, client="me"))
        await asyncio.sleep(0)
        clock.now = 9
        return await handled

    with pytest.raises(ValueError, match="a broken graph") if fail else nullcontext():
        assert asyncio.run(taking_in()) == "taken in"
    assert scheduler.taken_in == [True]
    assert not scheduler.tracker.graphs
    assert not cluster.work.outstanding
    assert windows["w"].graphs == 1
    assert windows["w"].window.graphs.until(30) == [(5, 9)]
    assert windows["w"].window.running.until(30) == []


# -- what is computed once more, and why ------------------------------------------------------------


#: What happens to tasks; those that are marked in the end, and the repeats once all that wait were computed.
SCENARIOS = {
    "a lost result and its released ancestors are marked, and first runs are not": (
        "ask abcd by graph; compute abc; released ab by done; processing d; released cd by lost; waiting dcba by lost",
        "abc",
        {},
    ),
    "what a client's graph asks for again is a repeat": (
        "ask ab by graph; compute ab; released a by done; released b by client; ask ba by graph-2",
        "",
        {"a": (1, 2), "b": (1, 2)},
    ),
    "a retry has its inputs computed again as repeats": (
        "ask ab by graph; compute a; processing b; erred b; released a; released b by retry; waiting ba by retry",
        "",
        {"a": (1, 2)},
    ),
    "a task that is tried again is no repeat": (
        "ask x by graph; processing x; released x by error; waiting x by error",
        "",
        {},
    ),
    "a result from before the tracker is known": (
        "released p by client; ask p by graph; released q by lost; waiting q by lost",
        "q",
        {"p": (1, 2)},
    ),
    "a lost result that is forgotten as soon as it is there again is no repeat": (
        "ask x by graph; compute x; released x by lost; waiting x by lost; compute x; forgotten x by client",
        "",
        {},
    ),
    "a key that was forgotten is recognised": (
        "ask x by a; compute x; forgotten x; ask x by b; compute x; released x; forgotten x; ask x by c",
        "",
        {"x": (2, 3)},
    ),
}


@pytest.mark.parametrize(("script", "marked", "repeats"), SCENARIOS.values(), ids=SCENARIOS)
def test_tasks_that_run_again_are_marked_as_recomputed_or_counted_as_repeats(clock, script, marked, repeats):
    scheduler, _, _ = tracked(p="memory", q="memory")
    scheduler.play(script)
    assert scheduler.recomputed() == set(marked)
    scheduler.compute(*(key for key, ts in scheduler.tasks.items() if ts.state == "waiting"))
    assert scheduler.repeats() == repeats
    assert not scheduler.tracker.full


def test_lost_results_and_their_inputs_have_the_mark_of_the_worker(clock):
    scheduler = computed("a", "b", "c", "d")
    tasks = scheduler.tasks
    scheduler.tracker.results_lost("w3", "handle-worker-cleanup-2")
    scheduler.begin_again("b", "handle-worker-cleanup-2")
    # Its input is released, and waits again by another stimulus, for it.
    tasks["a"].waiters = {tasks["b"]}
    # A task that needs it is, too: it waits for it.
    tasks["c"].waiting_on = {tasks["b"]}
    for key in "acd":
        scheduler.begin_again(key, "task-finished-3")
    marks = {key: tasks[key].annotations[RECOMPUTED] for key in "abcd"}
    assert marks == {"a": "w3", "b": "w3", "c": "w3", "d": "(unknown)"}


def test_a_lost_result_that_was_released_and_asked_for_again_is_a_repeat(clock):
    scheduler = computed("x")
    mine = scheduler.tasks["x"].annotations = {"priority": 1}
    scheduler.begin_again("x", "handle-worker-cleanup-2")
    assert scheduler.tasks["x"].annotations == {"priority": 1, RECOMPUTED: "(unknown)"}
    # A dictionary of annotations may be shared with other tasks.
    assert mine == {"priority": 1}
    scheduler.tasks["x"].who_wants = set()
    scheduler.move("x", "released", "client-releases-keys-3")
    scheduler.ask("x", stimulus_id="update-graph-4")
    assert scheduler.tasks["x"].annotations == {"priority": 1}


def test_results_are_counted_for_the_worker_that_had_them(clock):
    scheduler, cluster, _ = tracked()
    first = cluster.worker_joined("tcp://a", "a", 1, at=0)
    scheduler.tracker.worker_joined(first)
    scheduler.ask("x", "y", "z", stimulus_id="update-graph-1")
    scheduler.compute("x", "y")
    scheduler.tracker.worker_left("tcp://a")
    cluster.worker_left("tcp://a", at=1)
    second = cluster.worker_joined("tcp://a", "a", 1, at=2)
    scheduler.tracker.worker_joined(second)
    scheduler.compute("z")
    scheduler.tracker.catch_up()
    assert (first.finished, second.finished) == (2, 1)


def test_a_window_counts_the_repeats_inside_it(clock):
    scheduler, cluster, windows = tracked()
    for number in range(5):
        if number == 2:
            windows["window"] = opened(cluster, number=scheduler.tracker.window_opens())
        scheduler.play(f"ask x by graph-{number}; compute x; forgotten x")
    assert scheduler.repeats() == {"x": (4, 5)}
    # What was computed before it is a repeat of the cluster's, and none of the window's.
    assert windows["window"].repeats.by_prefix() == {"x": (2, 3)}
    assert windows["window"].computed_before == 1


@pytest.mark.parametrize("end", ["forgotten xy", "released xy; forgotten xy", "released xy"])
def test_another_name_of_a_result_that_is_there_is_no_repeat(clock, end):
    scheduler, _, _ = tracked()
    scheduler.aliases = frozenset("y")
    for number in range(3):
        scheduler.play(f"ask xy by graph-{number}; compute xy; {end}")  # at once: nothing is counted in between
    scheduler.play("ask xy by graph; compute xy; forgotten xy")
    assert scheduler.repeats() == {"x": (3, 4)}
    assert not scheduler.tracker.watched


def test_a_bounded_number_of_keys_is_remembered(clock, monkeypatch):
    monkeypatch.setattr(outstanding, "MAX_KEYS", 2)
    scheduler, _, _ = tracked()
    for number in range(2):
        scheduler.play(f"ask xyz by graph-{number}; compute xyz; forgotten xyz")
    assert scheduler.tracker.full
    assert scheduler.repeats() == {"x": (1, 2), "y": (1, 2)}


def test_the_handlers_are_put_back(clock):
    scheduler = FakeScheduler()
    before = dict(scheduler.stream_handlers)
    track(scheduler)
    assert scheduler.stream_handlers != before
    for _ in range(2):
        scheduler.tracker.close()
        assert scheduler.stream_handlers == before


def test_a_scheduler_without_these_handlers_is_watched_less_closely(clock):
    scheduler = FakeScheduler(x="processing")
    scheduler.stream_handlers.clear()
    track(scheduler)
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


class Reference:
    """What the tracker notes, by what it means: each transition is counted when it comes, and nothing is put off."""

    def __init__(self, scheduler):
        self.scheduler = scheduler
        self.without_work = self.running = self.at = 0
        self.was = self.holds()
        self.first_task = None
        self.finished = 0
        self.asked = ""
        self.computed, self.cut_short, self.marked = set(), set(), set()
        self.repeats: dict[str, Counter] = {}

    def holds(self):
        """Whether work is outstanding, and tasks run."""
        busy = [ts for ts in self.scheduler.tasks.values() if ts not in self.scheduler.ws.long_running]
        return any(ts.state in OUTSTANDING for ts in busy), any(ts.state == "processing" for ts in busy)

    def follow(self, at):
        """Something has happened."""
        outstanding, running = self.was
        self.without_work += 0 if outstanding else at - self.at
        self.running += at - self.at if running else 0
        self.at, self.was = at, self.holds()

    def transition(self, key, start, finish, stimulus_id):
        ts = self.scheduler.tasks[key]
        if start == "memory" or finish == "forgotten":
            self.cut_short.discard(key)
        elif finish == "processing" and self.first_task is None:
            self.first_task = self.at
        elif (start, finish) == ("processing", "memory"):
            self.finished += 1
            if key not in self.computed:
                self.computed.add(key)
            elif ts not in self.marked:
                self.repeats.setdefault(ts.prefix.name, Counter())[key] += 1
        elif finish == "released":
            if start == "erred":
                self.asked = stimulus_id
                self.cut_short.discard(key)
            elif ts.nbytes >= 0 and (ts.waiters or ts.who_wants):
                self.cut_short.add(key)
        elif (start, finish) == ("released", "waiting") and ts.nbytes >= 0:
            if key in self.cut_short:
                self.cut_short.discard(key)
                return
            self.computed.add(key)
            (self.marked.discard if stimulus_id == self.asked else self.marked.add)(ts)


class WorkMachine(RuleBasedStateMachine):
    """The tracker looks when something may have changed, and counts later; the truth is counted each time."""

    keys = st.sampled_from([f"{name}-{i}" for name in ("task", "sum") for i in range(3)])

    def __init__(self):
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.clock = SimpleNamespace(now=0)
        self.patch.setattr(outstanding.time, "monotonic_ns", lambda: self.clock.now)

    def teardown(self):
        self.patch.undo()

    @initialize(states=st.dictionaries(keys, st.sampled_from(sorted(MOVES)), max_size=6), counts=st.booleans())
    def begin(self, states, counts):
        self.scheduler = FakeScheduler(**states)
        if not counts:
            del self.scheduler._task_prefix_count_global
        self.reference = Reference(self.scheduler)
        self.cluster, windows = track(self.scheduler)
        self.tracker = self.scheduler.tracker
        self.presence = self.cluster.worker_joined("tcp://a", "a", 1, at=0)
        self.tracker.worker_joined(self.presence)
        windows["window"] = self.opened = opened(self.cluster, running=self.tracker.running)

    @rule(
        key=keys,
        moves=st.lists(st.integers(0, 5), min_size=1, max_size=6),
        stimulus=st.sampled_from(["update-graph", "cleanup"]),
        wanted=st.booleans(),
    )
    def move(self, key, moves, stimulus, wanted):
        """A task moves on, some steps by one stimulus."""
        for which in moves:
            self.clock.now += 1
            if key not in self.scheduler.tasks:
                self.scheduler.add(key)
            ts = self.scheduler.tasks[key]
            ts.who_wants = {"client"} if wanted else set()
            start = ts.state
            finish = MOVES[start][which % len(MOVES[start])]
            if finish == "memory":
                ts.nbytes = 28
            self.reference.at, at = self.clock.now, self.reference.at
            self.reference.transition(key, start, finish, stimulus)
            self.reference.at = at
            self.scheduler.move(key, finish, stimulus)
            self.reference.follow(self.clock.now)

    @rule(stimulus=st.sampled_from(["update-graph", "cleanup"]))
    def ask(self, stimulus):
        self.tracker.asked(stimulus)
        self.reference.asked = stimulus

    @rule()
    def catch_up(self):
        self.tracker.catch_up()
        assert self.presence.finished == self.reference.finished

    @rule(key=keys)
    def secede(self, key):
        self.clock.now += 1
        self.scheduler.stream_handlers["long-running"](key=key, worker="tcp://a")
        self.reference.follow(self.clock.now)

    @rule()
    def restart(self):
        self.clock.now += 1
        self.tracker.catch_up()
        self.scheduler.restart()
        self.tracker.reset()
        self.reference.cut_short.clear()
        self.reference.follow(self.clock.now)

    @rule()
    def repeats(self):
        expected = {
            prefix: (again.total(), max(again.values()) + 1) for prefix, again in self.reference.repeats.items()
        }
        assert self.scheduler.repeats() == expected
        assert self.presence.first_task == self.reference.first_task

    @invariant()
    def what_holds_is_what_the_tasks_say(self):
        outstanding, running = self.reference.holds()
        assert self.cluster.work.outstanding is outstanding
        assert self.tracker.running is running
        assert self.scheduler.recomputed() == {
            key for key, ts in self.scheduler.tasks.items() if ts in self.reference.marked
        }
        at = self.clock.now
        assert self.cluster.work.without_work(at=at) == self.reference.without_work
        ran = self.opened.window.running.until(at)
        assert sum(stop - start for start, stop in ran) == self.reference.running

    @invariant()
    def keys_are_watched_only_while_that_matters(self):
        assert self.tracker.watched <= self.scheduler.tasks.keys()


TestWorkMachine = WorkMachine.TestCase
TestWorkMachine.settings = settings(max_examples=100, stateful_step_count=30)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (("etl", "load"), "etl/load"),
        (("etl", 7, ["x"]), "etl/7/['x']"),
        ("etl", "etl"),
        (None, "None"),
        (("x" * 10**6,), "x" * 1_000),
        (("a",) * 10**6, "a/" * 500),
    ],
)
def test_the_name_of_a_span_is_a_text_of_bounded_length_whatever_a_client_sent(name, shown):
    assert span_name(SimpleNamespace(name=name)) == shown
