from __future__ import annotations

import numpy as np
import pytest

from dask_efficiency.accounts.buckets import CAUSES, UNKNOWN, Breakdown, Bucket
from dask_efficiency.accounts.cluster.account import WIDTH, place
from dask_efficiency.accounts.lines import SampleRow
from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.straggler.breakdowns import RecentWaiting, explained, line_of, with_lines
from dask_efficiency.straggler.causes import BY_WAITING
from tests.report.profile_samples import CLEAN, SPLIT, UPPER


def finding(worker: str = "a", cause: Cause = Cause.UNKNOWN) -> SlowWorker:
    return SlowWorker(worker, "host", cause, 2.0, 0.9, 0.0, 1.5)


def of_report(own: dict[str, int], peers: dict[str, int], cause: Cause = Cause.UNKNOWN) -> Cause:
    """The cause of a finding in a report whose workers' tasks took 100, and waited so long of it."""
    own, peers = ({f"thread-noncpu/{name}": ns for name, ns in waited.items()} for waited in (own, peers))
    causes = {"a": own, "b": peers, "c": peers, "d": {}}
    by_worker = {worker: Breakdown({"thread-cpu": 50, "thread-noncpu": 50, "idle": 900}) for worker in causes}
    (found,) = explained([finding(cause=cause)], causes, by_worker)
    return found.cause


def test_each_cause_of_waiting_tells_of_a_slow_worker_or_is_known_not_to() -> None:
    # A task's own child process, or what it asks of the cluster, says nothing of the worker.
    assert BY_WAITING.keys() | {"child-process", "cluster", UNKNOWN} == set(CAUSES[Bucket.THREAD_NONCPU])


@pytest.mark.parametrize(("waiting", "cause"), BY_WAITING.items())
def test_the_waiting_of_a_worker_beyond_its_peers_is_its_cause(waiting: str, cause: Cause) -> None:
    assert of_report({waiting: 30}, {waiting: 15}) == cause


@pytest.mark.parametrize(
    ("own", "peers", "cause"),
    [
        ({"sleep": 40, "lock": 12}, {"sleep": 40}, Cause.LOCK),
        ({"sleep": 40}, {"sleep": 35}, Cause.UNKNOWN),
        ({"unknown": 50}, {"sleep": 1}, Cause.UNKNOWN),
        ({"child-process": 50}, {"sleep": 1}, Cause.UNKNOWN),
    ],
)
def test_waiting_that_peers_share_or_that_has_no_cause_explains_nothing(own, peers, cause) -> None:
    assert of_report(own, peers) == cause


@pytest.mark.parametrize("cause", Cause)
def test_a_cause_that_signals_are_sure_of_stays(cause: Cause) -> None:
    left_open = cause in (Cause.GIL, Cause.CONTENTION, Cause.UNKNOWN)
    found = of_report({"stopped": 50}, {"lock": 1}, cause)
    assert found == (Cause.STOPPED if left_open else cause)


def test_no_worker_is_compared_with_itself_or_without_causes() -> None:
    by_worker = {worker: Breakdown({"thread-noncpu": 100}) for worker in "ab"}
    for causes in ({}, {"b": {"thread-noncpu/lock": 9}}, {"a": {"thread-noncpu/sleep": 90}}):
        assert explained([finding()], causes, by_worker) == (finding(),)
    whole_host = finding(worker="")
    assert explained([whole_host], {w: {"thread-noncpu/sleep": 9} for w in "ab"}, by_worker) == (whole_host,)


def account(**ns: int) -> np.ndarray:
    """An account of tasks that computed for a second, and waited."""
    row = np.zeros(WIDTH, np.int64)
    row[place("finalized", "thread-cpu")] = 1_000
    row[place("finalized", "thread-noncpu")] = sum(ns.values())
    for cause, value in ns.items():
        row[place("causes", f"thread-noncpu/{cause}")] = value
    return row


def test_while_a_run_goes_on_only_recent_waiting_counts() -> None:
    recent, total = RecentWaiting(), {worker: account(sleep=100_000) for worker in "abc"}
    recent.follow({})
    recent.follow(total)
    assert recent.cause("a") is None
    for _ in range(3):
        total = {worker: before + account(sleep=800 if worker == "b" else 10) for worker, before in total.items()}
        recent.follow(total)
    assert [recent.cause(worker) for worker in "abc"] == [None, Cause.SLEEP, None]
    assert recent.cause("nobody") is None
    del total["a"]
    total = {"new": account(lock=9_000), "c": total["c"] + account(), "b": total["b"] + account(sleep=900)}
    recent.follow(total)
    assert [recent.cause(worker) for worker in ("a", "b", "new")] == [None, Cause.SLEEP, None]
    for _ in range(200):
        total = {worker: before + account(lock=900 if worker == "new" else 0) for worker, before in total.items()}
        recent.follow(total)
    assert [recent.cause(worker) for worker in ("b", "new")] == [None, Cause.LOCK]


SLOW = SlowWorker("a", "host", Cause.SLEEP, 2.0, 0.9, 0.0, 1.5)
PLACES = {
    SampleRow("thread-noncpu", "sleep", "clean", UPPER): 30,
    SampleRow("thread-noncpu", "sleep", "load", (CLEAN,)): 30,
    SampleRow("thread-noncpu", "sleep", "load", SPLIT): 50,
    SampleRow("thread-noncpu", "sleep", "load", ()): 99,
    SampleRow("thread-noncpu", "lock", "clean", SPLIT): 10,
    SampleRow("thread-cpu", "", "clean", SPLIT): 90,
}


def test_the_line_is_that_of_most_waiting_for_a_cause_that_is_not_in_the_machine() -> None:
    lines = {cause: line for cause in Cause if (line := line_of(cause, PLACES.items()))}
    assert lines == {Cause.SLEEP: "etl.py:88", Cause.LOCK: "etl.py:89"}
    assert line_of(Cause.LOCK, []) == ""


@pytest.mark.parametrize(("own", "peers", "line"), [(70, 30, "etl.py:88"), (50, 50, ""), (0, 0, "")])
def test_a_report_of_all_workers_has_a_line_where_most_of_the_waiting_was_the_stragglers(own, peers, line) -> None:
    causes = {"a": {"thread-noncpu/sleep": own}, "b": {"thread-noncpu/sleep": peers, "thread-noncpu/lock": 9}}
    (found,) = with_lines([SLOW], causes, PLACES.items())
    assert found.line == line
