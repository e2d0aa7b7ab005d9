"""A worker's recorder fed by hooks, with upstream's state changed by hand."""

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.shuffle._buffer import ShardsBuffer
from distributed.shuffle._core import ShuffleRun

from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.accounts.worker.log import Done, Entry, Moved, Noted, Taken, TaskSet
from dask_efficiency.plugin.patches import Replacements
from dask_efficiency.plugin.worker.hooks import noted
from dask_efficiency.runs.recording.worker import recorder
from dask_efficiency.runs.recording.worker.recorder import WorkerRecorder
from dask_efficiency.runs.trace.batch import RUN, TRANSFER, decode


def shuffle_run(address: str) -> Any:
    """Run of a shuffle with the attributes that the recorder reads."""
    kind = type("FakeShuffleRun", (ShuffleRun,), {"__init__": lambda self: None})
    kind.__abstractmethods__ = frozenset()
    made = kind()
    made.local_address, made.id = address, "s"
    return made


def test_messages_of_a_shuffle_are_recorded_for_recorded_workers_only(monkeypatch: Any) -> None:
    async def process(self: Any, id: str, shards: Any, size: int) -> str:  # noqa: A002 (as upstream names it)
        await asyncio.sleep(0)
        return "done"

    monkeypatch.setattr(ShardsBuffer, "process", process)
    # Whatever other tests left recorded.
    monkeypatch.setattr(recorder, "_recorded", {})
    monkeypatch.setattr(recorder, "_replacements", Replacements())
    sent: list[tuple[Any, ...]] = []
    recorder.watch_shuffles("tcp://a", lambda *message: sent.append(message))
    try:
        for buffer in (
            SimpleNamespace(send=shuffle_run("tcp://a").send),
            SimpleNamespace(send=shuffle_run("tcp://b").send),  # not recorded
            SimpleNamespace(),  # a buffer that writes to disk
        ):
            assert asyncio.run(ShardsBuffer.process(buffer, "tcp://c", [], 7)) == "done"
    finally:
        recorder.unwatch_shuffles("tcp://a")
        recorder.unwatch_shuffles("tcp://a")
    [(barrier, to, nbytes, start, stop)] = sent
    assert (barrier, to, nbytes) == ("shuffle-barrier-s", "tcp://c", 7)
    assert 0 < start <= stop
    assert ShardsBuffer.process is process


class Scene:
    """A worker that records: the entries of its log, and what it sends."""

    def __init__(self) -> None:
        self.now = self.number = 0
        self.address = "tcp://worker"
        self.digests_total: dict[Any, float] = {}
        self.messages: list[Any] = []
        self.run_ids: dict[str, int] = {}
        self.tasks: dict[str, Any] = {}
        self.state: Any = SimpleNamespace(tasks=self.tasks, executing=set())
        self.recorder = WorkerRecorder(self, "recording")  # type: ignore[arg-type]
        self.taken: dict[str, int] = {}

    def log_event(self, topic: str, message: Any) -> None:
        self.messages.append(message)

    def stimulus(self) -> None:
        self.now += 1
        self.number += 1
        if self.recorder.spills:  # as the hook does
            self.recorder.read([], whole=True)

    def read(self, *entries: Entry) -> None:
        self.recorder.read(entries, whole=False)
        assert self.recorder.failure is None

    def note(self, key: str, start: str, finish: str, **known: Any) -> Noted:
        return Noted(self.now, key, start, finish, finish, self.run_ids.get(key, -1), **known)

    def receive(self, key: str) -> None:
        self.run_ids[key] = len(self.run_ids) + 1
        self.tasks[key] = SimpleNamespace(run_id=self.run_ids[key])
        self.read(self.note(key, "released", "waiting"))

    def ready(self, key: str) -> None:
        self.now += 1
        self.read(self.note(key, "waiting", "ready"))

    def take(self, key: str) -> None:
        self.now += 1
        self.taken[key] = self.now
        self.read(Taken(self.now, key, "inc", "span", False, begun=(self.number, self.run_ids[key])))

    def end(self, key: str) -> None:
        self.now += 1
        run = self.taken.pop(key), self.now, 0, 1, 1
        self.read(Moved(self.now, key, "executing", "memory", TaskSet.NEITHER, run, done=Done(self.number)))

    def run(self, key: str) -> None:
        self.stimulus()
        self.receive(key)
        self.ready(key)
        self.take(key)
        self.stimulus()
        self.end(key)

    def spill(self, label: str, seconds: float) -> None:
        """Upstream's fine metrics come right after the stimulus."""
        digest = ("execute", "span", "inc", label, "seconds")
        self.digests_total[digest] = self.digests_total.get(digest, 0.0) + seconds

    def rows(self, **flush: bool) -> list[dict[str, int]]:
        self.recorder.flush(**flush)
        return [dict(zip(RUN, row, strict=True)) for message in self.messages for row in decode(message).runs.tolist()]


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(recorder, "LoopWatch", lambda *_: SimpleNamespace(stop=lambda: None))
    made = Scene()
    monkeypatch.setattr(recorder, "monotonic_ns", lambda: made.now)
    return made


def test_the_profiles_that_a_worker_which_closes_could_not_write_are_counted(scene):
    asked: list[bool] = []

    def take(*, closing: bool) -> tuple[list[Any], dict[str, int]]:
        asked.append(closing)
        return [], {"busy": 1} if closing else {}

    scene.recorder.profiles = SimpleNamespace(take=take)
    assert scene.recorder.flush() == 0
    assert scene.recorder.flush(closing=True) == 1
    assert asked == [False, True]
    assert decode(scene.messages[0]).not_profiled == {"busy": 1}


def test_a_run_has_one_row_with_all_instants_and_a_task_given_up_one_without_a_slot(scene):
    states = ["released", "waiting", "ready", "executing", "memory", "released", "forgotten"]
    pairs = list(pairwise(states))
    assert [pair for pair in pairs if noted(*pair)] == pairs[:2]  # of the six transitions of a plain task
    scene.run("x")
    (row,) = scene.rows()
    assert (row["run_id"], row["slot"], row["thread"], row["seceded"]) == (1, 0, 1, MISSING)
    assert [row[name] for name in ("received", "ready", "executing", "start", "stop", "ended")] == [1, 2, 3, 3, 5, 5]
    scene.receive("y")
    scene.ready("y")
    scene.read(scene.note("y", "ready", "released"))
    _, row = scene.rows(closing=True)
    assert (row["ready"], row["slot"], row["executing"], row["ended"]) == (6, MISSING, MISSING, MISSING)


def test_a_task_that_goes_on_is_sent_when_asked_for_and_cut_off_at_the_end(scene):
    scene.receive("waits")
    scene.receive("runs")
    scene.ready("runs")
    scene.take("runs")
    assert scene.rows() == []
    running, waiting = scene.rows(running=True)
    assert (running["run_id"], running["executing"], running["ended"], running["slot"]) == (2, 2, MISSING, 0)
    assert (waiting["run_id"], waiting["executing"], waiting["slot"]) == (1, MISSING, MISSING)
    scene.now = 9
    assert [row["ended"] for row in scene.rows(closing=True)[2:]] == [9, MISSING]


def test_the_spilling_of_a_task_is_its_own_from_the_first_on(scene):
    scene.run("before")
    scene.run("first")
    scene.spill("disk-write", 2e-9)
    scene.run("between")
    scene.run("second")
    scene.spill("disk-read", 3e-9)
    scene.spill("disk-write", 4e-9)
    rows = scene.rows()
    assert [row["spill_ns"] for row in rows] == [0, 2, 0, 0]
    assert [row["unspill_ns"] for row in rows] == [0, 0, 0, 7]
    # Of tasks that end together, the metrics are read when they have come.
    scene.stimulus()
    for key in ("a", "b"):
        scene.receive(key)
        scene.take(key)
    scene.stimulus()
    scene.end("a")
    scene.end("b")
    scene.spill("disk-write", 5e-9)
    scene.run("last")
    assert [row["spill_ns"] for row in scene.rows()[4:]] == [5, 0, 0]


@pytest.mark.parametrize(("waited", "after"), [(True, 1), (False, MISSING)])
def test_a_task_comes_after_the_one_whose_slot_it_waited_for(scene, waited, after):
    scene.receive("x")
    scene.take("x")
    scene.receive("y")
    scene.ready("y")
    scene.stimulus()
    scene.end("x")
    if not waited:
        scene.stimulus()
    scene.take("y")
    rows = {row["run_id"]: row for row in scene.rows(running=True)}
    assert rows[2]["after"] == after
    assert rows[2]["slot"] == 0


def test_a_transfer_has_one_row_and_one_that_is_wanted_again_another(scene):
    for at, key, start, finish, known in (
        (0, "x", "released", "fetch", {}),
        (2, "x", "fetch", "flight", {"sender": "tcp://other"}),
        (5, "x", "flight", "memory", {"nbytes": 7}),
        (5, "y", "released", "fetch", {}),
        (5, "y", "fetch", "flight", {"sender": "tcp://third"}),
        (5, "y", "flight", "fetch", {"in_flight": True}),  # it is not over
        (6, "y", "flight", "fetch", {}),
    ):
        scene.now = at
        scene.read(scene.note(key, start, finish, **known))
    assert scene.recorder.flush() == 1
    batch = decode(scene.messages[0])
    rows = [dict(zip(TRANSFER, row, strict=True)) for row in batch.transfers.tolist()]
    assert [(row["queued"], row["start"], row["stop"], row["nbytes"], row["arrived"]) for row in rows] == [
        (0, 2, 5, 7, 1),
        (5, 5, 6, 0, 0),
    ]
    assert [batch.senders[row["sender"]] for row in rows] == ["tcp://other", "tcp://third"]


def test_a_failure_is_kept_and_nothing_is_read_after_it(scene):
    scene.recorder._ready = None
    scene.recorder.read([scene.note("x", "waiting", "ready")], whole=True)
    assert isinstance(scene.recorder.failure, TypeError)
    scene.recorder.read([scene.note("y", "released", "waiting")], whole=True)
    assert not scene.recorder._received


def test_between_two_heartbeats_a_full_batch_is_sent(monkeypatch, scene):
    monkeypatch.setattr(recorder, "MAX_ROWS", 3)
    for i in range(7):
        scene.run(f"x-{i}")
    assert len(scene.messages) == 2
    assert [row["run_id"] for row in scene.rows()] == [1, 2, 3, 4, 5, 6, 7]
