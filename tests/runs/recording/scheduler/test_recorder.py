import itertools
from collections import Counter
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from distributed import Scheduler
from distributed.core import Status
from distributed.scheduler import ALL_TASK_STATES
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.processors import Processors, ProcessorTime
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.plugin.names import METRIC, RECOMPUTED
from dask_efficiency.plugin.scheduler.outstanding import WorkTracker
from dask_efficiency.runs.recording.recordings import unpack
from dask_efficiency.runs.recording.scheduler import recorder as module
from dask_efficiency.runs.recording.scheduler.recorder import ClusterRecorder
from dask_efficiency.runs.recording.scheduler.recording import RecordingPart
from dask_efficiency.runs.trace import recorder as trace_recorder
from dask_efficiency.runs.trace.schema import STATES, WorkerChange

WORKERS = ("tcp://a", "tcp://b")
MOVES = {
    "released": ["waiting", "forgotten"],
    "waiting": ["processing", "queued", "waiting", "no-worker", "released", "memory"],
    "queued": ["processing", "released"],
    "no-worker": ["processing", "released"],
    "processing": ["memory", "memory", "erred", "released"],
    "memory": ["released", "forgotten", "erred"],
    "erred": ["released", "forgotten"],
}


class Fake(SimpleNamespace):
    """Object of upstream's; a set of them is in no order."""

    __hash__, __eq__ = object.__hash__, object.__eq__


class FakeScheduler:
    """As much of a scheduler as is recorded."""

    def __init__(self) -> None:
        self.bandwidth = 1e8
        self.tasks: dict[str, Fake] = {}
        known = {"host": "h", "nthreads": 1, "memory_limit": 0, "resources": {}, "server_id": "", "nanny": None}
        known |= {"pid": 0, "extra": {}}
        self.workers = {
            address: Fake(address=address, name=address, processing=set(), metrics={}, **known) for address in WORKERS
        }
        self.periodic_callbacks: dict[str, Any] = {}
        ops = ("client-releases-keys", "steal-response")
        self.stream_handlers: dict[str, Any] = dict.fromkeys(ops, lambda **message: None)
        self.extensions = {"spans": Fake(spans={f"id-{i}": Fake(name=("s", str(i))) for i in "01"})}

    def add(self, key: str, needs: tuple[str, ...] = ()) -> None:
        number = len(self.tasks)
        self.tasks[key] = Fake(
            key=key,
            state="released",
            prefix=Fake(name=key.partition("-")[0]),
            group=Fake(span_id=f"id-{number % 2}" if number % 5 else None),
            priority=(0, 1, number) if number % 7 else ((0, 1.5, number) if number % 2 else None),
            dependencies={self.tasks[need] for need in needs if need in self.tasks},
            **dict.fromkeys(("host_restrictions", "worker_restrictions", "resource_restrictions"), ()),
            loose_restrictions=False,
            retries=number % 3,
            actor=False,
            annotations=None,
            nbytes=-1,
            processing_on=None,
            run_id=None,
        )


class Reference:
    """Simple recorder as a reference: it reads and notes everything as it happens, and drops nothing."""

    def __init__(self, scheduler: FakeScheduler) -> None:
        self.scheduler = scheduler
        self.numbers: dict[str, int] = {}
        self.read: set[str] = set()
        self.names: dict[str, dict[str, int]] = {name: {} for name in ("prefixes", "spans", "clients", "kinds")}
        self.tasks: list[list[Any]] = []
        self.constraints: dict[str, Any] = {}
        self.wanted: set[int] = set()
        self.rows: dict[str, list[tuple[Any, ...]]] = {
            name: [] for name in ("edges", "log", "stimuli", "computed", "recomputed", "removals", "graphs", "releases")
        }
        self.stimulus = ""
        self.taking_in = ("", MISSING)

    def named(self, kind: str, name: str) -> int:
        return self.names[kind].setdefault(name, len(self.names[kind]))

    def number(self, key: str) -> int:
        if key not in self.numbers:
            self.numbers[key] = len(self.tasks)
            self.tasks.append([MISSING, MISSING, MISSING, (0, 0, 0)])
        return self.numbers[key]

    def meet(self, key: str, graph: int = MISSING) -> int:
        ts = self.scheduler.tasks.get(key)
        task = self.number(key)
        if key in self.read:
            return task
        self.read.add(key)
        if ts is None:
            return task
        span = self.scheduler.extensions["spans"].spans.get(ts.group.span_id)
        row = [self.named("prefixes", ts.prefix.name), self.named("spans", "/".join(span.name) if span else ""), graph]
        self.tasks[task] = [*row, tuple(map(int, ts.priority or (0, 0, 0)))]
        if ts.retries:
            self.constraints[str(task)] = {"retries": ts.retries}
        for dependency in ts.dependencies:
            self.rows["edges"].append((task, self.number(dependency.key)))
        return task

    def graph(self, keys: list[str], wanted: set[str], client: str, stimulus: str, received: int, at: int) -> None:
        number = len(self.rows["graphs"])
        self.rows["graphs"].append((self.named("clients", client), received, at))
        self.taking_in = stimulus, number
        for key in keys:
            task = self.meet(key, number)
            if self.tasks[task][2] == MISSING and key in self.scheduler.tasks:
                self.tasks[task][2] = number
            if key in wanted:
                self.wanted.add(task)

    def transition(
        self, at: int, key: str, start: str, finish: str, stimulus: str, worker: int, extra: int, startstops: Any = ()
    ) -> None:
        for part in reversed(startstops):
            if part["action"] == "compute":
                self.rows["computed"].append((len(self.rows["log"]), part["start"], part["stop"]))
                break
        if stimulus != self.stimulus:
            self.stimulus = stimulus
            kind, _, when = stimulus.rpartition("-")
            made = int(float(when) * 1e9)
            graph = self.taking_in[1] if self.taking_in[0] == stimulus else MISSING
            sender = worker if kind in ("task-finished", "task-erred") else MISSING
            # The worker that a message came from is joined to the trace later.
            self.rows["stimuli"].append((self.named("kinds", kind), made if made > 10**17 else MISSING, graph, sender))
        if finish == "forgotten" and key not in self.numbers:
            return
        task = self.numbers[key] if finish == "forgotten" else self.meet(key)
        code = STATES.index(start) * len(STATES) + STATES.index(finish)
        self.rows["log"].append((at, task, worker, code, extra, len(self.rows["stimuli"]) - 1))

    def released(self, at: int, client: str, keys: list[str]) -> None:
        number = self.named("clients", client)
        self.rows["releases"] += [(at, number, self.numbers[key]) for key in keys if key in self.numbers]


CLOCK = SimpleNamespace(now=1_000)


class Cluster:
    """A scheduler that is recorded, and the reference that hears the same."""

    def __init__(self, max_tasks: int) -> None:
        CLOCK.now = 1_000
        self.scheduler = FakeScheduler()
        for key in ("old-0", "old-1", "old-2"):
            self.scheduler.add(key, ("old-0",))
        self.metered: list[tuple[Any, ...]] = []
        self.recorder = ClusterRecorder(self.scheduler, pytest.fail, max_tasks=max_tasks)  # type: ignore[arg-type]
        # As long as tasks are being recomputed, and workers wait for their first.
        self.work: Any = Fake(steady=False, watched={"inc-0"})
        self.hook = self.recorder.hook(
            lambda *args, stimulus_id, worker="", **_: self.metered.append((*args, stimulus_id, worker)), self.work
        )
        self.moved: list[tuple[Any, ...]] = []
        self.reference = Reference(self.scheduler)
        self.stimuli = itertools.count(1)
        self.runs = itertools.count(1)
        self.stimulus = self.cause("begin")

    def tick(self) -> int:
        CLOCK.now += 1
        return CLOCK.now

    def cause(self, kind: str) -> str:
        # Some say when they were made.
        number = next(self.stimuli)
        return f"{kind}-{number}" if number % 3 else f"{kind}-{1_700_000_000 + number}.5"

    def graph(self, keys: list[str], needs: dict[str, tuple[str, ...]], wanted: set[str]) -> None:
        for key in sorted(keys):
            if key not in self.scheduler.tasks:
                self.scheduler.add(key, needs.get(key, ()))
        at, self.stimulus = self.tick(), self.cause("graph")
        self.recorder.graph_taken_in("client", keys, wanted, self.stimulus)
        self.reference.graph(keys, wanted, "client", self.stimulus, at, at)

    def move(self, key: str, which: int, same_stimulus: bool, variant: int) -> None:
        ts = self.scheduler.tasks.get(key)
        if ts is None:
            return
        at, start = self.tick(), ts.state
        finish = ts.state = MOVES[start][which % len(MOVES[start])]
        reported: dict[str, Any] = {}
        worker = extra = MISSING
        startstops: tuple[dict[str, Any], ...] = ()
        if finish == "processing":
            worker = variant % len(WORKERS)
            ts.processing_on, ts.run_id = self.scheduler.workers[WORKERS[worker]], next(self.runs)
            ts.annotations = (None, {"a": 1}, {"a": 1, RECOMPUTED: True})[variant % 3]
            extra = ts.run_id
            if variant % 3 == 2:
                self.reference.rows["recomputed"].append((extra,))
        elif finish == "memory":
            ts.nbytes = extra = 28 + variant
        if start == "processing":
            get, compute = ({"action": name, "start": i, "stop": i + 0.5} for i, name in enumerate(("get", "compute")))
            worker = variant % len(WORKERS)
            measured = ((compute,), (), (get, compute), (compute, get), (get,))[variant % 5]
            reported = {"worker": WORKERS[worker], "thread": 1, "startstops": measured}
            if finish == "memory":
                startstops = reported["startstops"]
                reported |= {"nbytes": extra, "type": b""}
            elif finish == "erred":
                ts.retries = max(0, ts.retries - 1)
            elif variant % 3 == 0:
                worker, reported = MISSING, {}
        if not same_stimulus:
            self.stimulus = self.cause("task-finished" if reported else "cleanup")
        self.reference.transition(at, key, start, finish, self.stimulus, worker, extra, startstops)
        self.hook(key, start, finish, stimulus_id=self.stimulus, **reported)
        self.moved.append((key, start, finish, self.stimulus, reported.get("worker", "")))
        if finish == "forgotten":
            del self.scheduler.tasks[key]

    def run(self, keys: list[tuple[str, int]]) -> None:
        """As far as they can, tasks wait, are processed, and end."""
        for key, variant in keys:
            for which, same_stimulus in ((0, True), (0, True), (variant % 4, False)):
                self.move(key, which, same_stimulus, variant)

    def release(self, keys: list[str]) -> None:
        at = self.tick()
        self.scheduler.stream_handlers["client-releases-keys"](client="client", keys=keys)
        self.reference.released(at, "client", keys)

    def steal(self, key: str) -> None:
        ts = self.scheduler.tasks.get(key)
        if ts is not None and ts.state == "processing":
            at, ts.run_id, self.stimulus = self.tick(), next(self.runs), self.cause("steal")
            self.recorder._sent(ts, at, self.stimulus)
            if RECOMPUTED in (ts.annotations or ()):
                self.reference.rows["recomputed"].append((ts.run_id,))
            thief = WORKERS.index(ts.processing_on.address)
            self.reference.transition(at, key, "processing", "processing", self.stimulus, thief, ts.run_id)

    def columns(self) -> tuple[dict[str, list[Any]], Any]:
        packed = self.recorder._recorder.freeze().pack()
        return {name: column.tolist() for name, column in packed.columns.items()}, packed


LOG = ("at", "task", "worker", "code", "extra", "stimulus")
KEYS = [f"{name}-{i}" for name in ("inc", "sum") for i in range(5)] + ["old-0", "old-1", "old-2"]
keys = st.sampled_from(KEYS)
variants = st.integers(0, 59)
graphs = st.tuples(
    st.just("graph"),
    st.lists(keys, unique=True, max_size=8),
    st.dictionaries(keys, st.lists(keys, max_size=3).map(tuple), max_size=8),
    st.sets(keys, max_size=4),
)
steps = st.one_of(
    graphs,
    *[st.tuples(st.just("move"), keys, st.integers(0, 5), st.booleans(), variants)] * 6,
    st.tuples(st.just("release"), st.lists(keys, max_size=3)),
    st.tuples(st.just("steal"), keys),
    st.just(("freeze",)),
    st.just(("heartbeat",)),
    st.tuples(st.just("run"), st.lists(st.tuples(keys, variants), max_size=5)),
)


def play(program: list[tuple[Any, ...]], max_tasks: int) -> Cluster:
    cluster = Cluster(max_tasks)
    for action, *args in program:
        if action == "freeze":
            cluster.recorder.freeze()
        elif action == "heartbeat":
            cluster.recorder.take_heartbeats({}, lambda address: None)
        else:
            getattr(cluster, action)(*args)
        assert cluster.recorder.off is None
        assert len(cluster.recorder._recorder.kept) <= trace_recorder.VALUES_KEPT * (module.MAX_KEPT + 2 * len(KEYS))
    return cluster


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "monotonic_ns", lambda: CLOCK.now)
    monkeypatch.setattr(module, "MAX_KEPT", 20)
    monkeypatch.setattr(trace_recorder, "MAX_KEPT", 20)
    monkeypatch.setattr(trace_recorder, "_PIECE", 5)


@pytest.mark.usefixtures("small")
@given(program=st.lists(steps, max_size=60))
@settings(max_examples=150)
def test_rows_are_those_of_a_reference_that_writes_each_at_once(program: list[tuple[Any, ...]]) -> None:
    cluster = play(program, 10_000)
    columns, packed = cluster.columns()
    reference = cluster.reference
    assert list(packed.keys) == list(reference.numbers)
    assert cluster.recorder._recorder.kept == []  # a frozen recording has what was kept
    for name, i in (("prefix", 0), ("span", 1), ("graph", 2)):
        assert columns[f"tasks.{name}"] == [task[i] for task in reference.tasks]
    assert list(map(tuple, columns["tasks.priority"])) == [task[3] for task in reference.tasks]
    assert [i for i, wanted in enumerate(columns["tasks.wanted"]) if wanted] == sorted(reference.wanted)
    assert packed.facts["constraints"] == reference.constraints
    for name, numbers in reference.names.items():
        assert packed.facts[name] == list(numbers)
    for table, names in (
        ("edges", ("task", "dependency")),
        ("log", LOG),
        ("stimuli", ("kind", "at", "graph", "worker")),
        ("computed", ("row", "start", "stop")),
        ("recomputed", ("run_id",)),
        ("graphs", ("client", "received", "taken_in")),
        ("releases", ("at", "client", "task")),
    ):
        rows = list(zip(*(columns[f"{table}.{name}"] for name in names), strict=True))
        assert rows == reference.rows[table], table
    assert cluster.metered == cluster.moved


@pytest.mark.usefixtures("small")
@given(program=st.lists(steps, max_size=60), max_tasks=st.integers(2, 20))
@settings(max_examples=150)
def test_a_recording_in_little_memory_is_the_end_of_it(program: list[tuple[Any, ...]], max_tasks: int) -> None:
    cluster = play(program, max_tasks)
    columns, packed = cluster.columns()
    reference = cluster.reference
    names = list(reference.numbers)
    kinds = list(reference.names["kinds"])
    # A task that is only forgotten in a chapter is no part of it.
    written = [
        (at, names[task], worker, code, extra, kinds[reference.rows["stimuli"][stimulus][0]])
        for at, task, worker, code, extra, stimulus in reference.rows["log"]
    ]
    rows = zip(*(columns[f"log.{name}"] for name in LOG), strict=True)
    kept = [
        (at, packed.keys[task], worker, code, extra, packed.facts["kinds"][columns["stimuli.kind"][stimulus]])
        for at, task, worker, code, extra, stimulus in rows
    ]
    forgotten = {i * len(STATES) + STATES.index("forgotten") for i in range(len(STATES))}
    least = kept[0][0] if kept else CLOCK.now + 1
    assert [row for row in written if row[0] >= least and row[3] not in forgotten] == [
        row for row in kept if row[3] not in forgotten
    ]
    assert not Counter(kept) - Counter(written)
    dropped = packed.facts["dropped"].get("transitions", 0)
    assert len(kept) + dropped <= len(written)
    assert len(kept) <= 2 * (trace_recorder.TRANSITIONS_A_TASK * (max_tasks // 2) + 3 * 20 + 2 * len(KEYS))


def test_transitions_that_the_meter_misses_while_recording_mean_nothing_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "monotonic_ns", lambda: 1)
    cluster = Cluster(100)
    ts = cluster.scheduler.tasks["old-0"]
    ts.processing_on, ts.run_id, ts.nbytes = cluster.scheduler.workers[WORKERS[0]], 1, 28
    nothing: Any = {key: {} for key in ("tasks", "workers", "task_prefixes", "stream_handlers")}
    scheduler: Any = Fake(**nothing, _task_prefix_count_global={"inc": 1})
    work = WorkTracker(scheduler, ClusterLedger(at=0), {})
    assert (work.steady, work.watched) == (True, set())
    called: set[tuple[str, str]] = set()
    hook = cluster.recorder.hook(lambda key, *change, **_: called.add(change), work)
    pairs = {(start, finish) for start in ALL_TASK_STATES for finish in ALL_TASK_STATES - {start}}
    for start, finish in pairs:
        hook("old-0", start, finish, stimulus_id="s")
    assert called == {
        (start, finish) for start, finish in pairs if start != "memory" and finish not in ("processing", "forgotten")
    }
    told: list[dict[str, Any]] = []
    report = {"stimulus_id": "s", "exception": b"", "exception_text": "KeyError('x')", "traceback_text": ""}
    telling = cluster.recorder.hook(lambda *change, **reported: told.append(reported), work)
    telling("old-0", "processing", "erred", **report)
    assert told == [report]  # how it failed
    # It would look for the task.
    for change in pairs - called:
        work.hook(pytest.fail)("old-0", *change, stimulus_id="s")
    assert (work.steady, work._results) == (True, [])


@pytest.mark.parametrize(
    ("beats", "expected"),
    [
        # The activity of a, and then of b, comes with the heartbeat after: by seconds, number, and who is unread.
        ([(1, None, ""), (3, None, WORKERS[0]), (6, None, WORKERS[1])], [[2.0], [5.0]]),
        # A heartbeat that repeats the last one is no time without activity.
        ([(1, 1, WORKERS[1]), (3, 2, WORKERS[1]), (3, 2, WORKERS[1]), (4, 3, WORKERS[1])], [[2.0], [1.0]]),
    ],
)
def test_a_heartbeat_is_noted_once_its_activity_is_known(monkeypatch, beats, expected):
    cluster = Cluster(100)
    rows: list[list[float]] = []
    monkeypatch.setattr(
        cluster.recorder._recorder, "heartbeat", lambda at, worker, values: rows.append([v for v in values if v > 0])
    )
    for seconds, seq, unread in beats:
        for ws in cluster.scheduler.workers.values():
            ws.metrics = {METRIC: {"i": "incarnation", "n": seq}} if seq else {}
            ws.last_seen = 0.0
        activity = {name: {"thread-cpu": seconds * 10**9} for name in WORKERS if name != unread}
        cluster.recorder.take_heartbeats(activity, lambda address: None, unread)
    assert cluster.recorder.off is None
    assert rows == expected


def test_pauses_are_recorded_from_upstreams_events(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(100)
    changes: list[tuple[int, int]] = []
    monkeypatch.setattr(cluster.recorder._recorder, "worker_changed", lambda at, *change: changes.append(change))
    recording: Any = Fake(recorder=cluster.recorder)
    some = Fake(add=lambda ws: None, discard=lambda ws: None)
    upstream: Any = Fake(
        log_event=partial(RecordingPart.event, recording),
        workers={WORKERS[1]: Fake(address=WORKERS[1], status=Status.running)},
        idle={},
        running=some,
        idle_task_count=some,
        saturated=some,
        check_idle_saturated=lambda ws: None,
        bulk_schedule_unrunnable_after_adding_worker=lambda ws: {},
        transitions=lambda *_: None,
        stimulus_queue_slots_maybe_opened=lambda **_: None,
        _refresh_no_workers_since=lambda: None,
    )
    for status in ("paused", "paused", "running", "closing_gracefully"):
        Scheduler.handle_worker_status_change(upstream, status, WORKERS[1], "s")
    expected = [(1, WorkerChange.PAUSED), (1, WorkerChange.RESUMED), (1, WorkerChange.RETIRING)]
    assert changes == expected
    for message in (None, {"action": "another"}, {"action": "worker-status-change"}):
        RecordingPart.event(recording, WORKERS[1], message)
    RecordingPart.event(recording, "somebody", {"action": "worker-status-change", "status": "paused"})
    assert changes == expected


COMPUTE = {"action": "compute", "start": 1.0, "stop": 2.0}
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("odd", "size", "computed"),
    [
        ({"nbytes": NAN}, MISSING, True),
        ({"nbytes": INF}, MISSING, True),
        ({"nbytes": 1 << 63}, MISSING, True),
        ({"nbytes": "28"}, MISSING, True),
        ({"startstops": [{**COMPUTE, "start": NAN}]}, 28, False),
        ({"startstops": [{**COMPUTE, "stop": INF}]}, 28, False),
        ({"startstops": [{**COMPUTE, "stop": 1e300}]}, 28, False),
        ({"startstops": [{**COMPUTE, "stop": "2"}]}, 28, False),
        ({"startstops": [{"action": "compute"}]}, 28, False),
        ({"startstops": [COMPUTE, {"action": ["x"]}]}, 28, True),
        ({"startstops": [1]}, 28, False),
        ({"startstops": {1}}, 28, False),
        ({"stimulus_id": 5}, 28, True),
        ({"stimulus_id": ["task-finished-1"]}, 28, True),
        ({"stimulus_id": "task-finished-" + "9" * 400}, 28, True),
    ],
)
def test_an_odd_report_of_a_task_costs_only_the_odd_field(odd: dict[str, Any], size: int, computed: bool) -> None:
    cluster = Cluster(100)
    for key, more in (("old-0", odd), ("old-1", {})):
        report = {"stimulus_id": "task-finished-7", "worker": WORKERS[0], "nbytes": 28, "startstops": [COMPUTE]} | more
        cluster.hook(key, "processing", "memory", **report)
    columns, packed = cluster.columns()
    assert cluster.recorder.off is None
    assert list(zip(packed.keys, columns["log.extra"], strict=True)) == [("old-0", size), ("old-1", 28)]
    rows = list(zip(*(columns[f"computed.{name}"] for name in ("row", "start", "stop")), strict=True))
    assert rows == [(0, 1.0, 2.0)] * computed + [(1, 1.0, 2.0)]


def test_usual_reports_are_written_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_recorder, "_computed", None)
    cluster, now = Cluster(100), {"action": "compute", "start": 1.8e9, "stop": 1.8e9 + 1.0}
    for key in ("old-0", "old-1"):
        report = {"stimulus_id": "task-finished-7", "worker": WORKERS[0], "nbytes": 28, "startstops": [now]}
        cluster.hook(key, "processing", "memory", **report)
    assert list(cluster.columns()[0]["computed.row"]) == [0, 1]


@pytest.mark.parametrize("odd", [5, "old-0", [["old-0"]], [("a", ["b"])], {"old-0": 1}])
def test_an_odd_message_of_a_client_or_worker_reaches_upstream_and_costs_only_itself(odd: Any) -> None:
    cluster = Cluster(100)
    handlers = cluster.scheduler.stream_handlers
    handlers["client-releases-keys"](client="client", keys=odd)
    handlers["steal-response"](key=odd)
    handlers["steal-response"]()
    for stimulus in ("update-graph-nan", "update-graph-x", "update-graph-1e999"):
        cluster.recorder.graph_taken_in("client", ["old-0"], {"old-0"}, stimulus)
    for status in (odd, {"a": odd}):
        cluster.recorder.status_changed(WORKERS[0], status)
    for answer in ({"at": odd}, {"at": 1, "wall": -1}, {"wall": 1}):
        cluster.recorder.read_clock(WORKERS[0], 1, answer, 3)
    cluster.hook("old-0", "released", "waiting", stimulus_id="s-1")
    cluster.release(["old-0"])
    columns, _ = cluster.columns()
    assert cluster.recorder.off is None
    assert columns["releases.task"] == [0]
    assert cluster.recorder._workers[0]["error"] == MISSING
    cluster.recorder.read_clock(WORKERS[0], 1, {"at": 1, "wall": 7}, 3)
    assert (cluster.recorder._workers[0]["error"], cluster.recorder._workers[0]["wall"]) == (1, 7)


def test_the_cores_that_others_took_since_a_worker_was_first_known_are_recorded() -> None:
    def used(everything: int, own: int) -> Processors:
        return Processors("another machine", "", 0b11, used=ProcessorTime(everything, everything, own))

    now = {WORKERS[0]: used(1_000, 100)}
    recorder = ClusterRecorder(FakeScheduler(), pytest.fail, max_tasks=9, processors=lambda: now)  # type: ignore[arg-type]
    now[WORKERS[1]] = used(1_100, 100)
    recorder.take_heartbeats({}, lambda address: None)
    now |= {WORKERS[0]: used(2_000, 250), WORKERS[1]: used(2_000, 150)}
    recorder.take_heartbeats({}, lambda address: None)
    workers = unpack(recorder.freeze()()).facts["workers"]
    assert [(worker["cores"], worker["others"]) for worker in workers] == [(2.0, pytest.approx(0.8))] * 2
