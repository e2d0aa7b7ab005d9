from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.accounts.memory import NOT_MEASURED, Kept, KeptWindow, MemoryLevels, Why
from dask_efficiency.plugin.scheduler import kept as module
from dask_efficiency.plugin.scheduler.kept import SEVERAL, KeptWatch, kept_for


class Group(set[Any]):
    def __init__(self, size: int = 100, *dependencies: Group) -> None:
        self.size, self.dependencies = size, dependencies

    def __len__(self) -> int:
        return self.size


class Task:
    """A task of the scheduler."""

    def __init__(self, prefix: str, state: str = "memory", *dependencies: Task, nbytes: int = 10) -> None:
        self.prefix, self.state, self.nbytes = SimpleNamespace(name=prefix), state, nbytes
        self.dependencies = set(dependencies)
        self.group: Any = Group(100, *(each.group for each in dependencies))
        self.waiters: set[Task] = set()
        self.who_wants: Any = ()
        self.waiting_on = {each for each in dependencies if each.state != "memory"}
        self.processing_on: Any = None
        self.run_spec: Any = prefix
        self.who_has: Any = {object()}
        for each in dependencies:
            each.waiters.add(self)


def client(key: Any) -> Any:
    return SimpleNamespace(client_key=key)


def worker(*tasks: Task, running: tuple[Task, ...] = (), processing: int = 5) -> Any:
    held = {"has_what": dict.fromkeys(tasks), "nbytes": sum(ts.nbytes for ts in tasks)}
    return SimpleNamespace(**held, executing=set(running), processing=range(processing), nthreads=2, address="")


def test_a_result_is_input_of_a_task_that_runs_before_all_else() -> None:
    load = Task("load")
    waits, runs = Task("sub", "waiting", load, Task("mean", "waiting", load)), Task("sum", "processing", load)
    runs.processing_on = worker(running=(runs,))
    assert waits.waiting_on
    assert kept_for(load) == Kept("load", Why.RUNNING, "sum")


@pytest.mark.parametrize(("processing", "why"), [(2, Why.RUNNING), (3, Why.AHEAD)])
def test_a_task_on_a_worker_with_threads_for_all_runs(processing, why) -> None:
    load = Task("load")
    Task("sum", "processing", load).processing_on = worker(processing=processing)
    assert kept_for(load) == Kept("load", why, "sum")


@pytest.mark.parametrize("state", ["processing", "queued", "no-worker"])
def test_a_result_waits_for_a_thread_for_its_consumer(state) -> None:
    step = Task("step", "memory", Task("load"))
    consumer = Task("sum", state, step)
    consumer.processing_on = worker() if state == "processing" else None
    assert kept_for(step) == Kept("step", Why.QUEUED, "sum")


def test_a_result_is_kept_for_what_waits_for_another_prefix() -> None:
    load = Task("load")
    mean = Task("mean", "waiting", Task("chunk", "processing", load))
    load.waiters.clear()
    Task("sub", "waiting", load, mean)
    assert kept_for(load) == Kept("load", Why.BLOCKED, "sub", "mean")


def test_what_a_client_scattered_is_of_no_task_that_ran_ahead() -> None:
    frame = Task("DataFrame")
    frame.run_spec = None
    Task("sum", "processing", frame).processing_on = worker()
    assert kept_for(frame) == Kept("DataFrame", Why.QUEUED, "sum")


def test_roots_are_ahead_of_consumers_that_wait_for_other_roots() -> None:
    load, other = Task("load"), Task("load", "processing")
    Task("sum", "waiting", load, other)
    assert kept_for(load) == Kept("load", Why.AHEAD, "sum", "load")


def test_persisted_and_scattered_data_are_not_ahead() -> None:
    persisted, scattered = Task("chunk"), Task("ndarray")
    persisted.who_wants = scattered.who_wants = (client("c1"),)
    Task("sum", "queued", persisted)
    Task("mean", "waiting", scattered, Task("load", "processing"))
    assert kept_for(persisted) == Kept("chunk", Why.QUEUED, "sum")
    assert kept_for(scattered) == Kept("ndarray", Why.BLOCKED, "mean", "load")


def test_tasks_that_all_need_the_same_few_results_are_roots_too() -> None:
    store = Task("store")
    store.group = Group(1)
    chunk, other = Task("chunk", "memory", store), Task("chunk", "processing", store)
    Task("sum", "waiting", chunk, other)
    assert kept_for(chunk).why is Why.AHEAD
    assert kept_for(store).why is Why.QUEUED or kept_for(store).why is Why.AHEAD


def test_without_consumers_a_client_holds_it_or_nobody() -> None:
    load = Task("load")
    assert kept_for(load) == Kept("load", Why.UNNEEDED)
    load.who_wants = (client("c1"),)
    assert kept_for(load) == Kept("load", Why.FUTURE, "c1")
    load.who_wants = (client("c1"), client("c2"))
    assert kept_for(load) == Kept("load", Why.FUTURE, SEVERAL)


@pytest.mark.parametrize(("key", "shown"), [(5, "5"), (None, "None"), ("x" * 10**6, "x" * 1_000)])
def test_a_client_of_any_id_is_named_by_a_text_of_bounded_length(key, shown) -> None:
    load = Task("load")
    load.who_wants = (client(key),)
    assert kept_for(load).needed_by == shown


class Cluster:
    """Workers with results, and one open window."""

    def __init__(self, *workers: Any) -> None:
        self.window = SimpleNamespace(kept=KeptWindow(at=0))
        self.windows: dict[str, Any] = {"w": self.window}
        self.present: dict[str, Any] = {}
        for i, ws in enumerate(workers):
            ws.address = f"tcp://{i}"
            self.present[ws.address] = SimpleNamespace(name=f"w{i}", memory=None)
            self.has(i, 100)
        scheduler: Any = SimpleNamespace(workers={ws.address: ws for ws in workers})
        cluster: Any = SimpleNamespace(present=self.present)
        self.watch = KeptWatch(scheduler, cluster, self.windows)

    def has(self, i: int, process: int) -> None:
        """Let the process of a worker have so much memory."""
        self.present[f"tcp://{i}"].memory = MemoryLevels(process=process, peak=process, held=0, spilled=0, disk=0)


def test_looks_add_up_to_what_workers_hold_while_a_window_is_open() -> None:
    cluster = Cluster(worker(*(Task("load") for _ in range(30))), worker(Task("sum", nbytes=50)), worker())
    cluster.watch.look(0)
    cluster.has(0, 99)  # less than before
    cluster.has(2, NOT_MEASURED)
    cluster.watch.look(7)
    load, total = ("load", "unneeded", "", ""), ("sum", "unneeded", "", "")
    assert cluster.watch.reply(cluster.window.kept, 10) == {
        "rows": [(*load, 300 * 10 / 1e9, 30 * 10 / 1e9, 300), (*total, 50 * 10 / 1e9, 10 / 1e9, 50)],
        "peak": 300,
        "workers": {"w0": [(*load, 0.0, 0.0, 300)], "w1": [(*total, 0.0, 0.0, 50)]},
    }
    cluster.windows.clear()
    cluster.watch.look(20)
    assert cluster.watch._seen == {}


def test_copies_of_a_result_are_kept_once() -> None:
    model = Task("model")
    workers = [worker(model) for _ in range(10)]
    model.who_has = {*range(10)}
    cluster = Cluster(*workers)
    cluster.watch.look(0)
    ((*_, nbytes, seconds, _),) = cluster.watch.reply(cluster.window.kept, 10**9)["rows"]
    assert (nbytes, seconds) == (100.0, pytest.approx(1.0))


def test_a_worker_has_the_reasons_of_its_own_peak() -> None:
    load = Task("load")
    cluster = Cluster(worker(load))
    cluster.watch.look(0)
    load.who_wants = (client("c1"),)
    cluster.has(0, 101)
    cluster.watch.look(1)
    load.who_wants = ()
    cluster.has(0, 100)
    cluster.watch.look(2)
    assert cluster.watch.reply(cluster.window.kept, 3)["workers"] == {
        "w0": [("load", "future", "c1", "", 0.0, 0.0, 10)]
    }


def test_of_many_results_a_sample_stands_for_all(monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_RESULTS", 10)
    looked_at: list[Any] = []
    monkeypatch.setattr(module, "kept_for", lambda ts: looked_at.append(ts) or Kept(ts.prefix.name, Why.FUTURE))
    cluster = Cluster(*(worker(*(Task("load") for _ in range(n))) for n in (33, 1, 66, 5)))
    cluster.watch.look(0)
    assert 9 <= len(looked_at) <= 11
    ((_, (nbytes, results)),) = cluster.watch._seen.items()
    assert nbytes == 10 * (33 + 1 + 66 + 5)
    assert 95 <= results <= 115


def test_of_very_many_results_some_workers_stand_for_all(monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_WALKED", 10)
    cluster = Cluster(*(worker(*(Task("load") for _ in range(8))) for _ in range(6)))
    cluster.watch.look(0)
    assert cluster.watch._seen[Kept("load", Why.UNNEEDED)][0] == 480
