"""The watch for stalls on a scheduler that is made up: what is named, what is not, and when it is forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from distributed.core import Status
from distributed.metrics import time

from dask_efficiency.accounts import stalls
from dask_efficiency.accounts.lines import Frame, Stack
from dask_efficiency.accounts.stalls import StalledWork
from dask_efficiency.accounts.thread_looks import LOOP, TASK, ThreadLook
from dask_efficiency.plugin.scheduler import stall_watch as module
from dask_efficiency.plugin.scheduler.stack_questions import Answer
from dask_efficiency.plugin.scheduler.stall_watch import StallWatch

DISTRIBUTED = "/env/lib/python3.12/site-packages/distributed"
AT = {
    "network": (Frame("load", "/home/me/job.py", 12), Frame("recv", "/home/me/client.py", 88)),
    "tasks": (Frame("outer", "/home/me/job.py", 30), Frame("Client.gather", f"{DISTRIBUTED}/client.py", 1)),
    "lock": (Frame("write", "/home/me/job.py", 40), Frame("Semaphore.acquire", f"{DISTRIBUTED}/semaphore.py", 1)),
    "shuffle": (
        Frame("p2p_barrier", f"{DISTRIBUTED}/shuffle/_core.py", 1),
        Frame("sync", f"{DISTRIBUTED}/utils.py", 1),
    ),
    "computing": (Frame("fit", "/home/me/job.py", 50),),
}
IMPORTS = (
    Frame("BaseEventLoop._run_once", "/env/asyncio/base_events.py", 1),
    Frame("load", "/home/me/plugin.py", 4),
    Frame("_find_and_load", "<frozen importlib._bootstrap>", 1360),
)
DEEPER = (*IMPORTS, Frame("<module>", "/env/lib/python3.12/site-packages/big/part.py", 1))
AT |= {"import": IMPORTS[1:], "import, later": DEEPER[1:]}
CAUSES = dict.fromkeys(AT, "file") | {
    "network": "network",
    "tasks": "cluster",
    "shuffle": "cluster",
    "lock": "cluster",
    "computing": "computing",
}


class Cluster:
    """A scheduler with two workers, by a clock that is set; its workers answer what they are told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1_000.0
        monkeypatch.setattr(module, "monotonic", lambda: self.now)
        self.usual: dict[str, float] = {}
        self.answers: dict[str, list[Answer | str]] = {}
        self.scheduler: Any = SimpleNamespace(
            workers={},
            tasks={},
            unrunnable={},
            queued=[],
            running={"b"},
            resources={"GPU": {"tcp://a": 1.0}},
            transition_counter=0,
            extensions={},
            log_event=lambda *event: self.events.append(event),
        )
        self.events: list[Any] = []
        self.work = SimpleNamespace(outstanding=True)
        for name in "ab":
            self.add(name)
        ledger: Any = SimpleNamespace(work=self.work)
        stacks: Any = SimpleNamespace(usual=self.usual.get, ask_all=self._ask_all)
        self.called: list[StalledWork] = []
        self.watch = StallWatch(self.scheduler, ledger, stacks, self.called.append)

    def add(self, name: str) -> Any:
        ws = SimpleNamespace(
            name=name,
            address=f"tcp://{name}",
            executing={},
            processing={},
            long_running=set(),
            status=Status.running,
            last_seen=time(),
        )
        self.scheduler.workers[ws.address] = ws
        return ws

    def runs(self, name: str, key: str, seconds: float, where: str, later: str | None = None) -> Any:
        """Have a worker run a task for so long, with its thread at a place, and at another one later."""
        ts = self.task(key)
        ws = self.scheduler.workers[f"tcp://{name}"]
        ws.executing[ts] = seconds
        ws.processing[ts] = seconds
        for at, place in enumerate((where, later or where)):
            looks = self.answers.setdefault(ws.address, [Answer([], {}), Answer([], {})])[at].looks  # type: ignore[union-attr]
            prefix = key.partition("-")[0]
            ns = round(seconds * 1e9)
            looks.append(ThreadLook("", TASK, "t", at, prefix, key, ns, CAUSES[place], False, AT[place]))
        return ts

    def task(self, key: str) -> Any:
        prefix = self.scheduler.tasks.get(key.partition("-")[0]) or SimpleNamespace(name=key.partition("-")[0])
        self.scheduler.tasks[key.partition("-")[0]] = prefix
        return SimpleNamespaceTask(key, prefix)

    async def _ask_all(self, addresses: list[str]) -> dict[str, Answer | str]:
        self.asked += 1
        at = (self.asked - 1) % 2
        return {address: self.answers.get(address, ["no answer"] * 2)[at] for address in addresses}

    asked = 0

    def look(self, *, after: float = 2.0) -> tuple[StalledWork, ...]:
        """Look, and look again once workers have answered."""

        async def looked() -> None:
            self.watch.poll()
            if self.watch._asking is not None:
                await self.watch._asking
            self.now += after
            self.watch.poll()
            if self.watch._asking is not None and not self.watch._asking.done():
                await self.watch._asking

        self.now += after
        asyncio.run(looked())
        assert self.watch._guard.off is None
        return self.watch.found

    def kinds(self) -> list[str]:
        return [one.kind for one in self.look()]


class SimpleNamespaceTask:
    """A task, by identity as Dask's."""

    resource_restrictions: Any = None
    worker_restrictions: Any = None
    host_restrictions: Any = None
    state = "processing"

    def __init__(self, key: str, prefix: Any) -> None:
        self.key, self.prefix = key, prefix


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    async def at_once(seconds: float) -> None:
        return None

    monkeypatch.setattr(module.asyncio, "sleep", at_once)
    return Cluster(monkeypatch)


def test_a_task_that_waits_far_longer_than_others_is_named_until_it_ends(cluster: Cluster) -> None:
    cluster.usual["load"] = 0.1
    ts = cluster.runs("a", "load-1", 8.0, "network")
    cluster.runs("b", "load-2", 1.0, "network")
    (stall,) = cluster.look()
    assert (stall.kind, stall.prefix, stall.workers, stall.cause) == (stalls.TASK, "load", ("a",), "network")
    assert (stall.seconds, stall.usual_seconds) == (8.0, 0.1)
    assert stall.line == (AT["network"][-1],)
    assert [event["action"] for _, event in cluster.events] == ["stalled"]
    assert cluster.called == [stall]
    del cluster.scheduler.workers["tcp://a"].executing[ts]
    assert cluster.look() == ()
    assert cluster.watch.lately == ()


def test_what_stood_still_is_known_for_a_moment_after_all_work_is_let_go(cluster: Cluster) -> None:
    cluster.usual["load"] = 0.1
    cluster.runs("a", "load-1", 8.0, "network")
    found = cluster.look()
    cluster.work.outstanding = False  # as whoever interrupts it lets it go first
    assert cluster.look() == ()
    assert cluster.watch.lately == found
    cluster.now += 10.0
    assert cluster.watch.lately == ()


def test_what_stood_still_is_known_for_a_moment_after_it_is_let_go_while_others_work(cluster: Cluster) -> None:
    cluster.usual["load"] = 0.1
    ts = cluster.runs("a", "load-1", 8.0, "network")
    found = cluster.look()
    del cluster.scheduler.workers["tcp://a"].executing[ts]
    ts.state = "forgotten"
    assert cluster.look(after=1.0) == ()
    assert cluster.watch.lately == found
    cluster.now += 10.0
    assert cluster.watch.lately == ()


@pytest.mark.parametrize(
    ("seconds", "usual", "where", "later"),
    [
        (8.0, 1.0, "network", None),  # others of its prefix are long as well
        (4.0, 0.1, "network", None),  # for a few heartbeats only
        (8.0, 0.1, "network", "lock"),  # it goes on
        (8.0, 0.1, "computing", None),  # it may have more to do
    ],
)
def test_who_is_at_work_or_may_be_is_not_named(
    cluster: Cluster, seconds: float, usual: float, where: str, later: str | None
) -> None:
    cluster.usual["load"] = usual
    cluster.runs("a", "load-1", seconds, where, later)
    moving(cluster)
    assert cluster.kinds() == []


def moving(cluster: Cluster) -> None:
    """Let tasks change their states from look to look."""
    poll: Callable[[], None] = cluster.watch.poll

    def moved() -> None:
        cluster.scheduler.transition_counter += 1
        poll()

    cluster.watch.poll = moved  # type: ignore[method-assign]


def test_a_task_that_computes_a_hundred_times_as_long_for_most_of_the_time_is_named(cluster: Cluster) -> None:
    cluster.usual["fit"] = 0.1
    cluster.runs("a", "fit-1", 11.0, "computing")
    moving(cluster)
    assert cluster.kinds() == [stalls.TASK]


def test_tasks_that_all_wait_for_tasks_are_a_deadlock_whatever_is_known_of_them(cluster: Cluster) -> None:
    cluster.runs("a", "outer-1", 8.0, "tasks")
    cluster.runs("b", "outer-2", 8.0, "tasks")
    cluster.watch.poll()
    (stall,) = cluster.look(after=6.0)
    assert (stall.kind, stall.tasks, stall.workers) == (stalls.DEADLOCK, 2, ("a", "b"))


def test_tasks_that_wait_for_tasks_while_another_runs_are_none(cluster: Cluster) -> None:
    cluster.runs("a", "outer-1", 8.0, "tasks")
    cluster.runs("b", "load-2", 1.0, "network")
    cluster.watch.poll()
    assert [one.kind for one in cluster.look(after=6.0)] == []


@pytest.mark.parametrize("where", ["tasks", "shuffle"])
def test_who_waits_for_others_is_named_only_where_they_do_nothing(cluster: Cluster, where: str) -> None:
    cluster.usual["outer"] = 0.1
    cluster.runs("a", "outer-1", 8.0, where)
    cluster.runs("b", "load-2", 8.0, "computing")
    assert cluster.look(after=8.0) == ()
    cluster.look(after=20.0)
    assert [(one.kind, one.prefix) for one in cluster.look()] == [(stalls.TASK, "outer")]


def test_a_lock_is_named_if_it_is_taken_and_waited_for(cluster: Cluster) -> None:
    cluster.usual["write"] = 0.1
    cluster.runs("a", "write-1", 8.0, "lock")
    pending = {"files": 1, "other": 0}
    cluster.scheduler.extensions["semaphores"] = SimpleNamespace(
        metrics={"pending": pending}, max_leases={"files": 1, "other": 1}, leases={"files": {"x": 1}, "other": {"y": 1}}
    )
    (stall,) = cluster.look()
    assert (stall.kind, stall.detail) == (stalls.LOCK, "files")


def test_a_prefix_of_which_none_has_ended_is_named_only_after_a_long_stillness(cluster: Cluster) -> None:
    cluster.runs("a", "load-1", 8.0, "network")
    cluster.watch.poll()
    assert cluster.look(after=8.0) == ()
    assert [one.kind for one in cluster.look(after=20.0)] == [stalls.TASK]


def test_tasks_that_no_worker_may_run_come_with_what_they_ask_for(cluster: Cluster) -> None:
    ts = cluster.task("train-1")
    ts.resource_restrictions = {"GPU": 2.0, "TPU": 1.0}
    ts.worker_restrictions = {"tcp://gone"}
    cluster.scheduler.unrunnable[ts] = cluster.now
    assert cluster.look() == ()
    (stall,) = cluster.look(after=9.0)
    assert (stall.kind, stall.tasks, stall.prefix) == (stalls.NO_WORKER, 1, "train")
    assert stall.detail == "GPU=2, at most 1 on one worker; TPU=1, on no worker; worker tcp://gone"


def test_without_workers_that_is_said_after_a_while(cluster: Cluster) -> None:
    cluster.look()
    cluster.scheduler.workers.clear()
    assert cluster.look(after=10.0) == ()
    assert [one.kind for one in cluster.look(after=30.0)] == [stalls.NO_WORKERS]


def test_paused_workers_that_run_nothing_are_named_with_all_their_tasks(cluster: Cluster) -> None:
    ws = cluster.scheduler.workers["tcp://a"]
    ws.status = Status.paused
    ws.processing.update({cluster.task("step-1"): 0.1, cluster.task("step-2"): 0.1})
    assert cluster.look() == ()
    (stall,) = cluster.look(after=6.0)
    assert (stall.kind, stall.tasks, stall.prefix, stall.workers) == (stalls.PAUSED, 2, "step", ("a",))


def test_where_all_workers_are_paused_queued_tasks_wait_for_them(cluster: Cluster) -> None:
    cluster.scheduler.running.clear()
    for ws in cluster.scheduler.workers.values():
        ws.status = Status.paused
    cluster.scheduler.queued += [cluster.task("step-1"), cluster.task("step-2")]
    cluster.scheduler.unrunnable[cluster.task("step-3")] = 0.0
    cluster.look()
    (stall,) = cluster.look(after=6.0)
    assert (stall.kind, stall.tasks, stall.prefix, stall.workers) == (stalls.PAUSED, 3, "step", ("a", "b"))


def test_a_silent_worker_is_blocked_if_its_thread_answers_and_silent_if_not(cluster: Cluster) -> None:
    for name in "ab":
        ws = cluster.scheduler.workers[f"tcp://{name}"]
        ws.last_seen = time() - 60
        ws.processing[cluster.task(f"step-{name}")] = 0.1
    call = ThreadLook("", LOOP, "loop", 1, "", "", 0, "sleep", False, (Frame("block", "/home/me/plugin.py", 4),))
    cluster.answers["tcp://a"] = [Answer([call], {})] * 2
    blocked, silent = cluster.look()
    assert (blocked.kind, blocked.workers, blocked.line) == (stalls.BLOCKED, ("a",), call.stack)
    assert (silent.kind, silent.workers, silent.line) == (stalls.SILENT, ("b",), ())
    for ws in cluster.scheduler.workers.values():
        ws.last_seen = time()
    assert cluster.look() == ()


def test_a_worker_whose_heartbeats_are_late_while_its_event_loop_waits_for_work_is_not_named(cluster: Cluster) -> None:
    ws = cluster.scheduler.workers["tcp://a"]
    ws.last_seen = time() - 60
    ws.processing[cluster.task("step-a")] = 0.1
    select = (
        Frame("BaseEventLoop._run_once", "/env/lib/asyncio/base_events.py", 1),
        Frame("select", "/env/lib/selectors.py", 9),
    )
    idle = ThreadLook("", LOOP, "loop", 1, "", "", 0, "", False, select)
    cluster.answers["tcp://a"] = [Answer([idle], {})] * 2
    assert cluster.look() == ()
    assert cluster.asked == 2


def test_an_event_loop_that_waits_by_a_selector_for_a_process_is_blocked(cluster: Cluster) -> None:
    ws = cluster.scheduler.workers["tcp://a"]
    ws.last_seen = time() - 60
    ws.processing[cluster.task("step-a")] = 0.1
    loop, select = (
        Frame("BaseEventLoop._run_once", "/env/asyncio/base_events.py", 1),
        Frame("select", "/env/selectors.py", 9),
    )
    waits = (loop, Frame("setup", "/home/me/plugin.py", 4), Frame("_communicate", "/env/subprocess.py", 5), select)
    cluster.answers["tcp://a"] = [Answer([ThreadLook("", LOOP, "loop", 1, "", "", 0, "", False, waits)], {})] * 2
    (stall,) = cluster.look()
    assert (stall.kind, stall.workers) == (stalls.BLOCKED, ("a",))


@pytest.mark.parametrize(
    ("seconds", "then", "now", "named"),
    [
        (60, IMPORTS, IMPORTS, True),
        (12, IMPORTS, IMPORTS, False),  # libraries that are large
        (60, IMPORTS, DEEPER, False),
    ],
)
def test_an_import_blocks_an_event_loop_only_if_it_stands_still_for_long(
    cluster: Cluster, seconds: float, then: Stack, now: Stack, named: bool
) -> None:
    ws = cluster.scheduler.workers["tcp://a"]
    ws.last_seen = time() - seconds
    ws.processing[cluster.task("step-a")] = 0.1
    looks = [ThreadLook("", LOOP, "loop", 1, "", "", 0, "", False, stack) for stack in (then, now)]
    cluster.answers["tcp://a"] = [Answer([look], {}) for look in looks]
    assert [(one.kind, one.line) for one in cluster.look()] == [
        (stalls.BLOCKED, (Frame("import", "/home/me/plugin.py", 4),))
    ] * named


def test_a_task_that_imports_is_at_work_while_its_stack_moves(cluster: Cluster) -> None:
    cluster.usual["load"] = 0.1
    cluster.runs("a", "load-1", 8.0, "import", "import, later")
    moving(cluster)
    assert cluster.kinds() == []


def test_workers_that_fetch_and_never_begin_are_named_with_whom_they_fetch_from(cluster: Cluster) -> None:
    ws = cluster.scheduler.workers["tcp://a"]
    ws.processing[cluster.task("sum-1")] = 0.1
    cluster.answers["tcp://a"] = [Answer([], {}, fetching={"tcp://b": 3})] * 2
    cluster.watch.poll()
    (stall,) = cluster.look(after=6.0)
    assert (stall.kind, stall.prefix, stall.detail) == (stalls.FETCH, "sum", "from worker b")
    cluster.scheduler.transition_counter += 1
    assert cluster.look() == ()


def test_without_work_nothing_stands_still_and_nobody_is_asked(cluster: Cluster) -> None:
    cluster.usual["load"] = 0.1
    cluster.runs("a", "load-1", 8.0, "network")
    cluster.work.outstanding = False
    assert cluster.look() == ()
    assert cluster.asked == 0


def test_what_stands_still_is_logged_up_to_a_bound(monkeypatch, cluster) -> None:
    monkeypatch.setattr(module, "MAX_APART", 2)
    for i in range(5):
        cluster.watch._announce(StalledWork(stalls.TASK, 1, f"wait_{i}"))
    assert len(cluster.events) == 2


@pytest.mark.parametrize("kind", [stalls.SILENT, stalls.BLOCKED, stalls.PAUSED, stalls.FETCH])
def test_each_worker_at_fault_is_told_once(cluster: Cluster, kind: str) -> None:
    for workers in (("a",), ("b",), ("a",), ("a", "b"), ("b", "c")):
        cluster.watch._announce(StalledWork(kind, 1, "load", workers))
    assert [stall.workers for stall in cluster.called] == [("a",), ("b",), ("b", "c")]
    for workers in (("a",), ("b",)):
        cluster.watch._announce(StalledWork(stalls.TASK, 1, "load", workers))
    assert len(cluster.called) == 4
