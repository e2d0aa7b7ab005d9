from __future__ import annotations

import threading
import time
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.accounts.wire.snapshots import CORE_WAIT, OTHER_CORE_WAIT, OTHER_CPU
from dask_efficiency.plugin.worker import process_metrics
from dask_efficiency.plugin.worker.process_metrics import MAX_INPUTS, ProcessMetrics, ProcessThreads, input_bytes
from dask_efficiency.straggler.task_rates import MAX_RUNNING, PROCESS_SUMS, ReceivedRates, TaskRates, read_task_rates

SECOND = 1_000_000_000


class Threads:
    """Task threads with these native ids and CPU time."""

    def __init__(self, ids: set[int], cpu: int | None = 0) -> None:
        self.ids = ids
        self.spent = cpu

    def native_ids(self) -> set[int]:
        return self.ids

    def cpu(self) -> int | None:
        return self.spent


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Waits of each thread for a core."""
    waits: dict[int, int] = {}
    monkeypatch.setattr(process_metrics, "_waited", lambda: dict(waits))
    monkeypatch.setattr(process_metrics, "_is_counted", lambda: True)
    return waits


def test_waits_for_a_core_count_from_now_on_by_the_kind_of_thread(waited):
    loop = threading.get_native_id()
    waited.update({1: 500, 2: 100, loop: 7})
    tasks = Threads({1, 3})
    threads = ProcessThreads(tasks)
    waited.update({1: 530, 2: 105, 3: 2, loop: 9})
    threads._began = 0, 0  # other threads have computed
    threads.read()
    assert (threads.core_wait, threads.details, threads.outside[OTHER_CORE_WAIT]) == (39, {CORE_WAIT: 32}, 5)
    del waited[1]  # it ended
    waited[2] = 106
    tasks.ids = {3}
    threads.read()
    assert (threads.core_wait, threads.details, threads.outside[OTHER_CORE_WAIT]) == (40, {CORE_WAIT: 32}, 6)


def test_on_a_system_that_does_not_count_waits_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_metrics, "_THREADS", "/nowhere")
    threads = ProcessThreads(Threads(set()))
    threads.read()
    assert threads.core_wait is None
    assert threads.details == {}


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    share_process(monkeypatch, workers=1)


def share_process(monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    monkeypatch.setattr(process_metrics, "Worker", SimpleNamespace(_instances=[object()] * workers))
    monkeypatch.setattr(process_metrics, "Scheduler", SimpleNamespace(_instances=[]))


def test_cpu_of_other_threads_is_that_of_neither_tasks_nor_the_loop(monkeypatch, waited):
    clocks = iter([(10 * SECOND, SECOND), *[(20 * SECOND, 3 * SECOND)] * 2, (21 * SECOND, 3 * SECOND)])
    monkeypatch.setattr(process_metrics, "_clocks", lambda: next(clocks))
    tasks = Threads({1}, cpu=None)
    threads = ProcessThreads(tasks)
    waited.update({1: 6, 2: 5})
    threads.read()  # while a task ends
    tasks.spent = 4 * SECOND
    threads.read()
    assert threads.outside == {OTHER_CPU: 4 * SECOND, OTHER_CORE_WAIT: 5}
    assert threads.details == {CORE_WAIT: 6}
    # a task's CPU may be known a little later than the process's: the sum does not fall
    tasks.spent = 9 * SECOND
    threads.read()
    assert threads.outside[OTHER_CPU] == 4 * SECOND


def test_in_a_process_with_several_workers_cpu_of_other_threads_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    share_process(monkeypatch, workers=2)
    threads = ProcessThreads(Threads(set()))
    began = time.process_time_ns()
    while time.process_time_ns() - began < 10_000_000:
        pass
    threads.read()
    assert threads.outside == {}


def test_cpu_of_a_librarys_thread_is_that_of_another_thread() -> None:
    threads = ProcessThreads(Threads(set()))
    used: list[int] = []

    def compute() -> None:
        while time.thread_time_ns() < 50_000_000:
            pass
        used.append(time.thread_time_ns())

    worker: Any = threading.Thread(target=compute)
    worker.start()
    worker.join()
    threads.read()
    assert threads.outside[OTHER_CPU] >= used[0]


@pytest.fixture
def own() -> Any:
    """A worker as far as it is read, alone in its process."""
    return SimpleNamespace(
        transfer_incoming_log=deque(maxlen=4),
        digests_total={},
        state=SimpleNamespace(executing=set(), long_running=set(), nbytes=100),
        monitor=SimpleNamespace(get_process_memory=lambda: 7),
        data={},
        transfer_outgoing_bytes_total=0,
        transfer_outgoing_count_total=0,
    )


@pytest.fixture
def metrics(own: Any) -> ProcessMetrics:
    return ProcessMetrics(own)


def decode(payload: Any) -> TaskRates:
    """The rates as the scheduler has them."""
    found = read_task_rates(payload)
    assert isinstance(found, ReceivedRates)
    return found.rates


def transfer(who: str, duration: float = 0.1) -> dict[str, Any]:
    return {"who": who, "duration": duration, "total": 1_000_000}


class Task:
    def __init__(self, key: str, *dependencies: Any) -> None:
        self.key = key
        self.prefix = "f"
        self.nbytes = 7
        self.dependencies = set(dependencies)


def test_each_transfer_is_counted_once_from_now_on(own):
    own.transfer_incoming_log.append(transfer("before"))
    metrics = ProcessMetrics(own)
    own.transfer_incoming_log.append(transfer("a"))
    metrics.encode({}, cpu=0)
    own.transfer_incoming_log.extend([transfer("a"), transfer("b")])
    rates = decode(metrics.encode({}, cpu=0))
    assert dict(zip(rates.senders, rates.transfers[:, 0].tolist(), strict=True)) == {"a": 2, "b": 1}
    own.transfer_incoming_log.extend([transfer("c")] * 9)  # more than the log holds
    assert decode(metrics.encode({}, cpu=0)).senders == ("a", "b", "c")


def test_transfers_are_counted_in_bytes_and_messages_by_sender(own, metrics):
    own.transfer_incoming_log.extend([transfer("a"), transfer("b"), transfer("a")])
    own.transfer_outgoing_bytes_total, own.transfer_outgoing_count_total = 70, 7
    metrics.encode({}, cpu=0)
    own.transfer_incoming_log.append(transfer("a"))
    found = {(sender, label, unit): value for (_, _, sender, label, unit), value in metrics.transfers().items()}
    expected = {("a", "received"): (3_000_000, 3), ("b", "received"): (1_000_000, 1), ("", "sent"): (70, 7)}
    for way, amounts in expected.items():
        assert (found.pop((*way, "bytes")), found.pop((*way, "count"))) == amounts
    assert not found


def test_time_and_bytes_at_the_disk_are_added_up_over_contexts(own):
    own.digests_total.update(
        {
            ("execute", "span", "f", "disk-read", "seconds"): 1.0,
            ("execute", "span", "f", "disk-read", "bytes"): 100.0,
            ("execute", "span", "f", "serialize", "seconds"): 50.0,
            ("execute", "span", "f", "disk-read", "count"): 3.0,
        }
    )
    metrics = ProcessMetrics(own)
    metrics.encode({}, cpu=0)
    own.digests_total["memory-monitor", "disk-write", "seconds"] = 0.5
    own.digests_total["execute", "span", "f", "disk-read", "bytes"] = 200.0
    sums = dict(zip(PROCESS_SUMS, decode(metrics.encode({}, cpu=0)).process.tolist(), strict=True))
    assert (sums["disk_seconds"], sums["disk_bytes"]) == (1.5, 200)
    assert sums["cpu_seconds"] > 0
    assert sums["core_wait_seconds"] >= 0 or sums["core_wait_seconds"] == -1


def test_running_tasks_that_take_longer_than_usual_for_their_prefix_are_reported(own, metrics):
    for _ in range(5):
        metrics.counter.task("f", wall=SECOND, cpu=SECOND, nbytes=1)
    own.state.executing = {Task("short"), Task("long", Task("input"))}
    rates = decode(metrics.encode({"short": (0, SECOND), "long": (0, 5 * SECOND)}, cpu=0))
    assert [(task.prefix, task.seconds, task.nbytes) for task in rates.running] == [("f", 5.0, 7.0)]


def test_the_running_tasks_that_are_reported_are_bounded(own, metrics):
    own.state.executing = {Task(str(i)) for i in range(3 * MAX_RUNNING)}
    used = {str(i): (0, i * SECOND) for i in range(3 * MAX_RUNNING)}
    rates = decode(metrics.encode(used, cpu=0))
    assert len(rates.running) == MAX_RUNNING
    assert min(task.seconds for task in rates.running) == 2 * MAX_RUNNING


def test_the_size_of_many_inputs_is_estimated_from_some_of_them():
    task = Task("sum", *(Task(str(i)) for i in range(10 * MAX_INPUTS)))
    assert input_bytes(task) == pytest.approx(7 * 10 * MAX_INPUTS)
