"""Tasks that failed for good, and tasks that were outstanding when a block ended."""

from __future__ import annotations

import pickle
import sys
from collections import Counter
from types import SimpleNamespace
from typing import Any

import dask
import pytest
from distributed import Client, Event, wait
from distributed.core import Status
from distributed.scheduler import KilledWorker

from dask_efficiency import efficiency_report
from dask_efficiency.accounts.cluster.failures import MAX_ERROR, FailedAs, add_failure
from dask_efficiency.accounts.lines import NOWHERE, Frame
from dask_efficiency.accounts.rows import MAX_SENT as MAX_FAILURES
from dask_efficiency.plugin.scheduler.endings import MAX_READ, error_of, frame_of, held_up, unfinished
from dask_efficiency.report.replies import ask_history
from tests.plugin.watch import eventually

STATE: Any = SimpleNamespace(suspicious=4)


def test_an_error_is_in_words_and_no_pickle_is_run() -> None:
    assert error_of(STATE, {"exception_text": "ValueError('no')", "exception": b"\x80"}) == "ValueError('no')"
    killed = KilledWorker("x-1", SimpleNamespace(address="tcp://a"), 3)  # type: ignore[arg-type]
    assert error_of(STATE, {"exception": pickle.dumps(killed)}) == "KilledWorker (4 workers died)"
    refused = MemoryError("Task 'x' has 2 GiB worth of input dependencies")
    assert error_of(STATE, {"exception": pickle.dumps(refused)}) == f"MemoryError({str(refused)!r})"
    assert len(error_of(STATE, {"exception_text": "x" * 1000})) == MAX_ERROR
    assert error_of(STATE, {}) == ""
    long = pickle.dumps(ValueError("a b" * MAX_READ))
    assert error_of(STATE, {"exception": long}) == "ValueError"
    assert error_of(STATE, {"exception": b"garbage"}) == ""


def test_the_line_of_an_error_is_the_innermost_of_the_user_s_own_code() -> None:
    library = f'  File "{pickle.__file__}", line 7, in loads\n    raise\n'
    own = '  File "/home/me/etl.py", line 88, in parse\n    load(x)\n'
    assert frame_of(library + own + library) == Frame("parse", "/home/me/etl.py", 88)
    assert frame_of(library) == frame_of(None) == NOWHERE
    # A file's name may hold what looks like a line of a traceback.
    assert frame_of(f'  File "/u/x.py", line {10**23}, in f\n') == NOWHERE
    assert frame_of('  File "/u/\udcff.py", line 1, in f\n') == Frame("f", "/u/\\udcff.py", 1)


def test_failures_are_bounded_and_none_is_dropped() -> None:
    failures: dict[FailedAs, int] = {}
    for i in range(2 * MAX_FAILURES):
        add_failure(failures, f"prefix-{i % 3}", f"KeyError({i})", NOWHERE)
    assert sum(failures.values()) == 2 * MAX_FAILURES
    assert len(failures) <= MAX_FAILURES + 1


class Hashable(SimpleNamespace):
    __hash__ = object.__hash__  # type: ignore[assignment]


def fake(*tasks: tuple[str, str], status: Status = Status.running, tied: bool = False) -> tuple[Any, Any]:
    """As much of a scheduler as is looked at, with tasks of (prefix, state), and its one worker."""
    ws = SimpleNamespace(name=1, address="tcp://a", host="a", status=status, processing=[], executing={})
    groups, unrunnable = [], []
    for name, state in tasks:
        prefix = SimpleNamespace(name=name)
        group = Hashable(prefix=prefix, states=Counter({state: 1}))
        ts = Hashable(prefix=prefix, group=group, host_restrictions=None)
        ts.worker_restrictions = {"tcp://a"} if tied else None
        groups.append(group)
        (ws.processing if state == "processing" else unrunnable).append(ts)
    workers, by_name = {"tcp://a": ws}, dict(enumerate(groups))
    return SimpleNamespace(task_groups=by_name, workers=workers, unrunnable=unrunnable), ws


def test_outstanding_tasks_are_counted_with_the_workers_that_run_them() -> None:
    scheduler, ws = fake(("load", "processing"), ("load", "processing"), ("sum", "waiting"), ("old", "memory"))
    ws.executing = {ws.processing[0]: 2.5, ws.processing[1]: 0.5}
    load = {"prefix": "load", "tasks": 2, "running": {"1": 2}, "held_up": {}, "seconds": 2.5}
    last = {"prefix": "sum", "tasks": 1, "running": {}, "held_up": {}, "seconds": 0.0}
    assert unfinished(scheduler) == [load, last]
    groups = {group.prefix.name: group for group in scheduler.task_groups.values()}
    assert unfinished(scheduler, {groups["sum"]: 3, groups["old"]: 1}) == [last]
    groups["sum"].states["waiting"] = 3  # of which two were sent before
    assert unfinished(scheduler, {groups["sum"]: 1}) == [last]
    assert held_up(scheduler) == []


def test_tasks_that_a_paused_worker_has_or_alone_may_run_are_held_up() -> None:
    scheduler, _ = fake(("hold", "processing"), status=Status.paused)
    assert [(row["prefix"], row["tasks"], row["held_up"]) for row in held_up(scheduler)] == [("hold", 1, {"1": 1})]
    scheduler, ws = fake(("hold", "no-worker"), status=Status.paused, tied=True)
    assert [row["held_up"] for row in held_up(scheduler)] == [{"1": 1}]
    ws.status = Status.running
    assert held_up(scheduler) == []
    scheduler, _ = fake(("hold", "no-worker"), status=Status.paused)
    assert held_up(scheduler) == []


def divide(x: int) -> float:
    return 1 / (x - x)


def follow(x: float) -> float:
    return x


@pytest.mark.cluster
def test_a_task_that_failed_is_named_and_those_that_waited_for_it_are_not(client: Client) -> None:
    with pytest.raises(ZeroDivisionError), efficiency_report(client) as report:
        client.gather(client.map(follow, divided := client.map(divide, range(3), pure=False), pure=False))
    wait(divided)  # one that fails later would be of the next report
    assert report.ended_by == "ZeroDivisionError: division by zero"
    assert {(one.prefix, one.error) for one in report.failures} == {("divide", "ZeroDivisionError('division by zero')")}
    assert report.first_screen.findings[0][0].startswith("Tasks failed. ZeroDivisionError('division by zero') in ")
    assert "test_endings.py:" in report.first_screen.findings[0][0] or not report.failures[0].line
    with efficiency_report(client) as other:
        client.submit(follow, 1, pure=False).result()
    assert (other.failures, other.ended_by) == ((), "")
    assert client.sync(ask_history, client, None).failures[0].prefix == "divide"


def wait_for(name: str) -> None:
    Event(name).wait()


@pytest.mark.cluster
def test_an_interrupted_block_says_what_never_ended(client: Client) -> None:
    event = Event("never-set", client=client)
    futures = []

    def interrupted() -> None:
        futures.append(client.submit(wait_for, "never-set", pure=False))
        eventually(lambda: any(client.run(_executing).values()))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), efficiency_report(client) as report:
        interrupted()
    assert [(one.prefix, one.tasks) for one in report.unfinished] == [("wait_for", 1)]
    assert report.ended_by == "KeyboardInterrupt"
    assert report.first_screen.findings[0][0].startswith("1 task had not ended. 1 task of wait_for")
    event.set()
    wait(futures)


def _executing(dask_worker: Any) -> int:
    return dask_worker.state.executing_count


def block(x: Any, name: str) -> Any:
    Event(name).wait()
    return x


@pytest.mark.cluster
def test_a_block_that_ends_early_says_so_and_the_next_one_names_the_line_that_sent_the_tasks(client: Client) -> None:
    event, blocks = Event("go-on", client=client), [dask.delayed(block)(i, "go-on") for i in range(6)]
    with efficiency_report(client) as first:
        kept = client.persist(blocks)
        line = sys._getframe().f_lineno - 1
    assert [(one.prefix, one.tasks) for one in first.unfinished] == [("block", 6)]
    (only,) = first.findings
    assert only.kind == "outstanding"
    assert only.saves_seconds is None
    with efficiency_report(client) as second:
        used = client.compute(dask.delayed(follow)(kept[0]))
        event.set()
        wait([used, *kept])
    with efficiency_report(client) as many:
        held = [client.submit(block, i, "go-on-again", pure=False) for i in range(100)]
    assert [(one.prefix, one.tasks) for one in many.unfinished] == [("block", 100)]
    Event("go-on-again", client=client).set()
    wait(held)
    assert second.unfinished == ()
    assert second.computed_by["block"] == f"test_endings.py:{line}"
    assert second.computed_by["follow"] != second.computed_by["block"]
