"""Whose the time of free threads is, on a cluster of two clients and several spans; by clocks of the tests' own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed import Client, span

from dask_efficiency import EfficiencyReport, efficiency_report
from dask_efficiency.accounts.buckets import HELD, Bucket, combine
from dask_efficiency.plugin.names import NO_SPAN, OTHER_WORK
from dask_efficiency.plugin.scheduler.idle_watch import IdleWatch
from tests.plugin.tasks import Diary, nap, wait_for_word
from tests.plugin.watch import LOOKS, between, eventually, off_cpu, timed_report

pytestmark = pytest.mark.cluster

THREADS = 4


@pytest.fixture
def other(client: Client) -> Iterator[Client]:
    """Another client of the cluster."""
    with Client(client.scheduler.address, set_as_default=False) as other:
        yield other


def check_leaves(report: EfficiencyReport) -> None:
    """Check that spans add up to the report in every bucket: each without those inside, of which none exceeds it."""
    leaves = dict.fromkeys(Bucket, 0)
    for path, row in report.by_span.items():
        inside = combine(one for other, one in report.by_span.items() if other.rpartition("/")[0] == path)
        own = {bucket: row.ns(bucket) - inside.ns(bucket) for bucket in Bucket}
        assert min(own.values()) >= 0, path
        leaves = {bucket: leaves[bucket] + own[bucket] for bucket in Bucket}
    assert leaves == {bucket: report.breakdown.ns(bucket) for bucket in Bucket}


def half_a_second(watch: IdleWatch, *, spans: int) -> float:
    """Let time pass once the scheduler has seen as many spans with work outstanding; how long it was."""
    eventually(lambda: watch._held is not None and len(watch._held.spans) == spans)
    since = time.monotonic()
    time.sleep(0.5)
    return time.monotonic() - since


@pytest.mark.parametrize("only", [False, True])
def test_two_clients_share_the_free_threads_while_both_have_work(client, other, watch, tmp_path, only):
    mine, theirs = Diary(tmp_path / "mine"), Diary(tmp_path / "theirs")
    with timed_report(client, only=only) as (report, window):
        with span("outer", "inner"):
            my_task = client.submit(wait_for_word, mine, key="mine-1")
        eventually(lambda: mine.read("start"))
        alone = half_a_second(watch, spans=1)
        began = time.monotonic() - alone
        their_task = other.submit(wait_for_word, theirs, key="theirs-1")
        eventually(lambda: theirs.read("start"))
        both = half_a_second(watch, spans=2)
        theirs.write(event="go")
        their_result = their_task.result()
        alone += half_a_second(watch, spans=1)
        ended = time.monotonic()
        mine.write(event="go")
        my_result = my_task.result()
    # While one has work three threads are its; while both have, one of two. For the rest of the time nobody answers.
    unsure = (window.most - alone - both) * THREADS
    my_idle = between((1 - LOOKS) * (3 * alone + both), (1 + LOOKS) * (3 * alone + both + unsure))
    assert report.by_span["outer"]["idle"] == my_idle
    assert report.by_span["outer"] == report.by_span["outer/inner"]
    assert report.causes_by_span["outer"]["idle/parallelism"] > 0.9e9 * (3 * alone + both)
    check_leaves(report.report)
    (note,) = [note for note in report.notes if "other work ran" in note]
    noted_seconds = float(note.partition("held threads for ")[2].partition(" ")[0])
    assert noted_seconds == between((1 - LOOKS) * their_result["wall"], (1 + LOOKS) * window.most)
    if not only:
        assert report.by_span.keys() == {"outer", "outer/inner", OTHER_WORK, f"{OTHER_WORK}/default", NO_SPAN}
        assert report.by_span[OTHER_WORK]["idle"] == between((1 - LOOKS) * both, (1 + LOOKS) * (both + unsure))
        assert report.by_span[OTHER_WORK].ns(*HELD) >= their_result["wall"] * 1e9
        return
    assert report.by_span.keys() == {"outer", "outer/inner"}
    assert report.by_prefix.keys() == {"mine"}
    assert report.breakdown["idle"] == my_idle
    assert report.breakdown["no-work"] == 0
    assert report.breakdown["thread-noncpu"] == between(off_cpu([my_result]), window.most)
    assert report.causes_by_worker.keys() == report.by_worker.keys()
    assert report.cluster_seconds == between((1 - LOOKS) * (ended - began), window.most)
    assert (report.tasks, report.timeline) == ({}, None)
    assert [note for note in report.notes if "this client's work only" in note]


def test_each_line_and_each_span_has_the_free_threads_of_its_time(client: Client) -> None:
    walls, ends = [], [time.monotonic()]

    def done(times: dict[str, float]) -> None:
        walls.append(times["wall"])
        ends.append(time.monotonic())

    with timed_report(client) as (report, window):
        ends[0] = time.monotonic()
        done(client.submit(nap, 0.4, key="first-1").result())
        done(client.submit(nap, 0.8, key="second-1").result())
        with span("outer"):
            done(client.submit(nap, 0.4, key="third-1").result())
            with span("inner"):
                done(client.submit(nap, 0.8, key="fourth-1").result())
    first, second = sorted(path for path in report.by_span if path.startswith("efficiency_report/"))
    assert report.by_span.keys() == {"efficiency_report", first, second, "outer", "outer/inner", NO_SPAN}
    outside = window.most - (ends[-1] - ends[0])
    idle = {path: row["idle"] for path, row in report.by_span.items()}
    own = [idle[first], idle[second], idle["outer"] - idle["outer/inner"], idle["outer/inner"]]
    for found, wall, since, until in zip(own, walls, ends[:-1], ends[1:], strict=True):
        assert found == between((1 - LOOKS) * 3 * wall, (1 + LOOKS) * THREADS * (until - since + outside) - wall)
    assert report.by_span["efficiency_report"] == combine([report.by_span[first], report.by_span[second]])
    check_leaves(report.report)
    assert not [note for note in report.notes if "other" in note]


@pytest.mark.parametrize("mine_first", [False, True])
def test_a_shared_span_counts_for_the_client_that_came_first_with_a_note(
    client: Client, other: Client, tmp_path: Path, mine_first: bool
) -> None:
    diary = Diary(tmp_path / "diary")
    first, second = (client, other) if mine_first else (other, client)
    with efficiency_report(client) as report:
        waiting = first.submit(wait_for_word, diary, key="same-1")
        eventually(lambda: diary.read("start"))
        second.submit(nap, 0.1, key="same-2").result()
        diary.write(event="go")
        waiting.result()
    assert (OTHER_WORK in report.by_span) is not mine_first
    (note,) = [note for note in report.notes if "one span" in note]
    assert ("in the span 'efficiency_report/test_spans" if mine_first else "in the span 'default'") in note
