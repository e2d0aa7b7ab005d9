"""Events that anybody may log: an odd one costs itself, and neither the meter nor the next event."""

from __future__ import annotations

from typing import Any

import pytest

from dask_efficiency.plugin import names
from tests.plugin.loops import within
from tests.plugin.scheduler.test_accounts import join, registered
from tests.plugin.scheduler.test_open_windows import cluster

WORKER = "tcp://10.0.0.1:40000"
#: A whole number with more digits than Python writes, and than a float holds.
HUGE = 10**5_000

SILENT = {"action": "worker-ttl-timed-out", "workers": [WORKER], "ttl": 300.0}
REMOVED = {"action": "remove-worker", "stimulus_id": "nanny-close-1.5", "expected": False, "processing-tasks": ()}


@pytest.mark.parametrize(
    ("topic", "event"),
    [
        ("scheduler", {**SILENT, "workers": 1}),
        ("scheduler", {**SILENT, "workers": [[WORKER]]}),
        ("scheduler", {**SILENT, "workers": WORKER}),
        ("scheduler", {**SILENT, "ttl": HUGE}),
        ("scheduler", {**SILENT, "ttl": float("nan")}),
        ("scheduler", {**SILENT, "ttl": "300"}),
        (WORKER, {**REMOVED, "processing-tasks": 1}),
        (WORKER, {**REMOVED, "processing-tasks": [["a"]]}),
        (WORKER, {**REMOVED, "processing-tasks": [("a", ["b"])]}),
        (WORKER, {**REMOVED, "stimulus_id": "x" * 1_001}),
        (WORKER, {**REMOVED, "stimulus_id": None}),
        (WORKER, {**REMOVED, "expected": "yes"}),
        (WORKER, {"action": "closing-worker", "reason": "x" * 1_001}),
        (WORKER, {"action": "closing-worker", "reason": ["worker-close"]}),
        ("worker-restart-memory", {"worker": [WORKER], "rss": 960}),
        ("worker-restart-memory", {"worker": WORKER, "rss": HUGE}),
        ("worker-restart-memory", {"worker": WORKER, "rss": "960"}),
        ("worker-restart-memory", {"rss": 960}),
        (5, SILENT),
        (("scheduler",), SILENT),
        ("scheduler", [("action", "worker-ttl-timed-out")]),
    ],
)
@within(registered)
async def test_an_odd_event_changes_nothing(scheduler, plugin, *, topic, event):
    loss = plugin._meter.accounts.cluster.present[join(scheduler, plugin, 1).address].loss
    loss.memory_limit = 1_000
    plugin.log_event(topic, event)
    assert plugin._meter.guard.off is None
    assert (loss.reason, loss.noticed, loss.assigned) == ("", "", None)
    assert not plugin._meter.accounts.cluster.present[WORKER].closing
    scheduler.log_event("scheduler", SILENT)
    assert loss.reason == "no heartbeat for 300 s"


@within(registered)
async def test_odd_events_are_logged_once_of_each_kind_with_what_was_odd(scheduler, plugin, *, caplog):
    join(scheduler, plugin, 1)
    for workers in (1, 2):
        scheduler.log_event("scheduler", {**SILENT, "workers": workers})
    scheduler.log_event(WORKER, {"action": "closing-worker", "reason": 7})
    silent, closes = [record.getMessage() for record in caplog.records if record.name == "dask_efficiency"]
    of = "dask_efficiency ignores an event of"
    assert silent == f"{of} silent workers: workers is 1; expected a list of at most 10000"
    assert closes == f"{of} a worker that closes: reason is 7; expected at most 1000 characters of UTF-8"


@within(registered)
async def test_a_removal_names_the_tasks_that_the_worker_had(scheduler, plugin):
    one = join(scheduler, plugin, 1)
    loss = plugin._meter.accounts.cluster.present[one.address].loss
    scheduler.tasks["a-1"] = type("Task", (), {"prefix": type("Prefix", (), {"name": "a"})})
    scheduler.log_event(one.address, {**REMOVED, "processing-tasks": {"a-1", ("gone", 0)}})
    assert (loss.assigned, loss.noticed) == ({"a": 1}, "its process ended; without a nanny, the reason is unknown")
    scheduler.tasks.clear()


@pytest.mark.parametrize(
    "odd", [{"worker": [WORKER]}, {"windows": [1]}, {"snapshot": 1}, {"processors": "x"}, {"stays_off": {"a": "b"}}]
)
@within(cluster)
async def test_an_odd_final_snapshot_changes_no_window(made, *, odd):
    first = next(iter(made.halves.values()))
    message: dict[str, Any] = {"session": made.meter.session, "worker": first.address, "windows": {}}
    made.plugin.log_event(names.FINAL_SNAPSHOT, message | {"snapshot": first.answer("", "")["snapshot"]} | odd)
    await made.check_window("w")


@pytest.mark.parametrize("answer", [1, {"a": 1}, [["INFO", 5]], [None], [[]], [["INFO", "x" * 10**6]], "killed"])
@within(registered)
async def test_an_odd_log_of_a_nanny_has_no_reason(scheduler, plugin, *, answer):
    accounts = plugin._meter.accounts

    async def ask_directly(address: str, op: str, **kwargs: Any) -> Any:
        return answer

    accounts._workers.ask_directly = ask_directly
    one = join(scheduler, plugin, 1)
    one.nanny, one.pid = "tcp://10.0.0.1:50000", 7
    loss = accounts.cluster.present[one.address].loss
    await accounts._ask_nanny(loss, one.nanny, one.pid, after=100.0)
    assert (loss.reason, plugin._meter.guard.off) == ("", None)
