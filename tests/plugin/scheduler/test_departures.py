from __future__ import annotations

import pytest

from dask_efficiency.plugin.scheduler.departures import for_memory, in_log, on_closing, on_removal, silent


@pytest.mark.parametrize(
    ("event", "limit", "said"),
    [
        ({"worker": "tcp://a", "pid": 1, "rss": 960}, 1_000, "killed by its nanny at 96% of its memory limit"),
        ({"worker": "tcp://a"}, 1_000, "killed by its nanny, for its memory"),
        ({"worker": "tcp://a", "rss": 960}, None, "killed by its nanny, for its memory"),
    ],
)
def test_a_nanny_says_that_it_kills_for_memory(event, limit, said):
    assert for_memory(event, limit) == said


def test_a_scheduler_says_for_how_long_a_worker_was_silent():
    assert silent({"action": "worker-ttl-timed-out", "workers": ["tcp://a"], "ttl": 300.0}) == "no heartbeat for 300 s"
    assert silent({}) == "no heartbeat"


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("worker-lifetime-reached", "its lifetime was over"),
        ("signal-15", "closed on SIGTERM"),
        ("signal-999", "closed on signal 999"),
        ("client-restart-1795663946.34", "closed: client-restart"),
        ("worker-close", "closed: worker-close"),
        ("scheduler-remove-worker", ""),  # the scheduler says why
        (None, "closed"),
    ],
)
def test_a_worker_says_why_it_closes(reason, said):
    assert on_closing(reason) == said


@pytest.mark.parametrize(
    ("stimulus", "expected", "nanny", "said"),
    [
        ("retire-workers-1795663946.34", True, True, ("retired", "")),
        ("handle-worker-cleanup-1795663946.34", False, True, ("", "its connection broke")),
        ("nanny-close-1795663946", False, True, ("", "its process ended")),
        (
            "check-worker-ttl-1795663946.1",
            False,
            False,
            ("", "it sent no heartbeat; without a nanny, the reason is unknown"),
        ),
        ("something-new-1795663946.1", False, True, ("", "removed: something-new")),
    ],
)
def test_a_removal_says_why_or_how_it_was_noticed(stimulus, expected, nanny, said):
    assert on_removal(stimulus, expected=expected, nanny=nanny) == said


def test_a_nannys_log_says_how_a_process_ended_and_not_how_others_did():
    said = "2026-11-26 03:32:26,344 - distributed.nanny - INFO - Worker process {} {}"
    lines = [
        ("INFO", said.format(140991, "was killed by signal 15")),
        ("INFO", said.format(14099, "was killed by signal 9")),
        ("WARNING", "Restarting worker"),
        ("INFO", said.format(7, "exited with status 1")),
        ("INFO", said.format(8, "was killed by unknown signal")),
        "no line at all",
        None,
    ]
    assert in_log(lines, 14099) == "killed by SIGKILL"
    assert in_log(lines, 7) == "exited with status 1"
    assert in_log(lines, 8) == ""
    assert in_log([], 14099) == ""
