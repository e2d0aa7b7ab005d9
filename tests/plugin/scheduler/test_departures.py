from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dask_efficiency.accounts.cluster.losses import BY_OTHERS, Loss, TaskInThread
from dask_efficiency.accounts.cluster.losses import MAX_OF_LOSS as MAX_IN_THREADS
from dask_efficiency.plugin.names import MAX_PATH
from dask_efficiency.plugin.scheduler.departures import (
    by_kernel,
    for_memory,
    in_log,
    in_threads,
    on_closing,
    on_removal,
    oom_kills,
    silent,
)


@pytest.mark.parametrize(
    ("event", "limit", "reason"),
    [
        ({"worker": "tcp://a", "pid": 1, "rss": 960}, 1_000, "killed by its nanny at 96% of its memory limit"),
        ({"worker": "tcp://a"}, 1_000, "killed by its nanny, for its memory"),
        ({"worker": "tcp://a", "rss": 960}, None, "killed by its nanny, for its memory"),
    ],
)
def test_a_nannys_event_has_the_reason_of_a_kill_for_memory(event, limit, reason):
    assert for_memory(event, limit) == reason


def test_the_schedulers_event_has_the_time_for_which_a_worker_was_silent():
    assert silent({"action": "worker-ttl-timed-out", "workers": ["tcp://a"], "ttl": 300.0}) == "no heartbeat for 300 s"
    assert silent({}) == "no heartbeat"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ("worker-lifetime-reached", "its lifetime was over"),
        ("signal-15", "closed on SIGTERM"),
        ("signal-999", "closed on signal 999"),
        ("signal-" + "9" * 990, "closed: signal"),  # Python writes no number of more than 4,300 digits
        ("client-restart-1795663946.34", "closed: client-restart"),
        ("worker-close", "closed: worker-close"),
        ("scheduler-remove-worker", ""),  # the scheduler says why
        ("worker-heartbeat-missing", ""),  # its heartbeat came after the scheduler had removed it
        (None, "closed"),
    ],
)
def test_a_worker_gives_the_reason_of_its_closing(given, reason):
    assert on_closing(given) == reason


@pytest.mark.parametrize(
    ("stimulus", "expected", "nanny", "reason"),
    [
        ("retire-workers-1795663946.34", True, True, ("retired", "")),
        ("worker-close-gracefully-1795663946.34", True, False, ("", "removed: worker-close-gracefully")),
        ("handle-worker-cleanup-1795663946.34", False, True, ("", "its connection broke")),
        ("nanny-close-1795663946", False, True, ("", "its process ended")),
        ("check-worker-ttl-1.1", False, False, ("", "it sent no heartbeat; without a nanny, the reason is unknown")),
        ("something-new-1795663946.1", False, True, ("", "removed: something-new")),
    ],
)
def test_a_removal_has_its_reason_or_how_it_was_noticed(stimulus, expected, nanny, reason):
    assert on_removal(stimulus, expected=expected, nanny=nanny) == reason


def test_a_nannys_log_has_the_end_of_a_process():
    line = "2026-11-26 03:32:26,344 - distributed.nanny - INFO - Worker process {} {}"
    lines = [
        ("INFO", line.format(140991, "was killed by signal 15")),
        ("INFO", line.format(14099, "was killed by signal 9")),
        ("WARNING", "Restarting worker"),
        ("INFO", line.format(7, "exited with status 1")),
        ("INFO", line.format(8, "was killed by unknown signal")),
        ("INFO", line.format(9, "was killed by signal " + "9" * 5_000)),
        ("INFO", 14099),
        "no line at all",
        None,
    ]
    assert in_log(lines, 14099) == "killed by SIGKILL"
    assert in_log(lines, 7) == "exited with status 1"
    assert in_log(lines, 8) == in_log(lines, 9) == ""
    assert in_log([], 14099) == ""


@pytest.mark.parametrize(
    ("payload", "known"),
    [
        ({"oom_kills": ["/events", 3]}, ("host", "/events", 3)),
        ({"oom_kills": ("/events", None)}, None),
        ({"oom_kills": ["/" * (MAX_PATH + 1), 3]}, None),
        ({"oom_kills": 3}, None),
        ({}, None),
        (None, None),
    ],
)
def test_a_heartbeat_has_the_kernels_kills_so_far(payload, known):
    assert oom_kills("host", payload) == known


SURE = "killed by SIGKILL, by the kernel: out of memory"
PROBABLE = "killed by SIGKILL, probably by the kernel: out of memory"


@pytest.mark.parametrize(
    ("before", "now", "others", "reason"),
    [
        (("host", "/events", 3), 4, [], SURE),
        (("host", "/events", 3), 3, [], f"killed by SIGKILL, {BY_OTHERS}"),
        (("host", "/events", 3), None, [], "killed by SIGKILL"),
        (None, 4, [], "killed by SIGKILL"),
        # Of two that vanished, the kernel has killed both, or one.
        (("host", "/events", 3), 5, [Loss(oom_kills=("host", "/events", 3))], SURE),
        (("host", "/events", 3), 4, [Loss(oom_kills=("host", "/events", 3))], PROBABLE),
        (("host", "/events", 3), 4, [Loss(oom_kills=("host", "/events", 3), reason=PROBABLE)], PROBABLE),
        # These others left before or after the kill, for another reason, or in another group.
        (("host", "/events", 3), 4, [Loss(oom_kills=("host", "/events", 4))], SURE),
        (("host", "/events", 3), 4, [Loss(oom_kills=("host", "/events", 2), reason=SURE)], SURE),
        (("host", "/events", 3), 4, [Loss(oom_kills=("host", "/events", 3), reason="killed by SIGKILL")], SURE),
        (("host", "/events", 3), 4, [Loss(oom_kills=("host", "/events", 3), reason="retired")], SURE),
        (("host", "/events", 3), 4, [Loss(oom_kills=("other", "/events", 3)), Loss()], SURE),
    ],
)
def test_the_kernel_killed_a_worker_if_it_counted_a_kill_since_its_last_heartbeat(before, now, others, reason):
    loss = Loss(oom_kills=before)
    assert by_kernel(loss, {"status": "OK", "result": now}, [*others, loss]) == reason


def test_a_nanny_that_gives_no_count_leaves_the_signal_as_the_reason():
    loss = Loss(oom_kills=("host", "/events", 3))
    assert by_kernel(loss, None, [loss]) == "killed by SIGKILL"


class Task:
    """A task as far as the scheduler's state is read."""

    def __init__(self, key: str, urgency: int | None) -> None:
        self.key, self.prefix = key, SimpleNamespace(name=key.partition("-")[0])
        self.priority = None if urgency is None else (urgency,)


def test_in_the_threads_of_a_lost_worker_were_tasks_of_its_last_heartbeat_then_the_most_urgent_ones():
    ran, ended, next_one, last, seceded = (
        Task(*a) for a in (("a-1", 5), ("b-1", 1), ("c-1", 2), ("d-1", 9), ("e-1", 0))
    )
    worker: Any = SimpleNamespace(nthreads=2, executing={ran: 0.5, ended: 0.1})
    assert in_threads(worker, [last, next_one, ran]) == [TaskInThread("a-1", "a", 0.5), TaskInThread("c-1", "c", None)]
    assert in_threads(worker, []) == []
    worker.executing |= {seceded: 3.0}
    assert [one.key for one in in_threads(worker, [last, ran, seceded])] == ["e-1", "a-1"]
    many = SimpleNamespace(nthreads=1_000, executing={})
    assert len(in_threads(many, [Task(f"x-{i}", None) for i in range(100)])) == MAX_IN_THREADS
