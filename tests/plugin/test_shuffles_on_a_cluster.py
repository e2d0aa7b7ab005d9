"""P2P shuffles in the accounts: bytes are upstream's, phases add up, and the protocol cancels nothing."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from typing import Any

import dask
import numpy as np
import pytest
from distributed import Client, wait
from distributed.shuffle._core import ShuffleRun
from distributed.shuffle._disk import DiskShardsBuffer
from distributed.shuffle._shuffle import DataFrameShuffleRun

from dask_efficiency import EfficiencyReport, RunTrace, critical_path
from dask_efficiency.accounts.buckets import HELD
from dask_efficiency.accounts.cluster.losses import BY_OTHERS
from dask_efficiency.report.metered import ShuffleTimes, shuffle_times
from dask_efficiency.runs.path.kinds import CODES, Kind
from tests.plugin.tasks import Diary
from tests.plugin.watch import Window, addresses, after_the_scheduler, between, eventually, kill, name_of, timed_report

pytestmark = pytest.mark.cluster
da = pytest.importorskip("dask.array")
pytest.importorskip("dask.dataframe")

THREADS = 4


def upstream(client: Client, where: str) -> float:
    """Bytes that Dask itself has counted on all workers so far, in the background of shuffles."""

    def count(dask_worker: Any) -> float:
        total = dask_worker.digests_total
        return sum(value for key, value in total.items() if key[0] == "p2p" and key[2:] == (where, "process", "bytes"))

    return sum(client.run(count).values())


def check_sum(report: EfficiencyReport, window: Window) -> None:
    """Check that the workers' buckets add up to their threads times the window, by a clock of the test's own."""
    assert sum(row.total_ns for row in report.by_worker.values()) == report.breakdown.total_ns
    assert report.breakdown.total == between(THREADS * window.least, THREADS * window.most)


def check(report: EfficiencyReport, window: Window, client: Client, before: tuple[float, float]) -> ShuffleTimes:
    """Check any report with shuffles that went well."""
    times = shuffle_times(report.metered, report.by_prefix)
    prefixes = {row.prefix for row in report.metered if row.label.startswith(("p2p-shard-partition", "p2p-get-output"))}
    prefixes |= {prefix for prefix in report.by_prefix if prefix.startswith("shuffle-barrier")}
    assert sum(times.held_ns.values()) == sum(report.by_prefix[prefix].ns(*HELD) for prefix in prefixes)
    check_sum(report, window)
    sent, written = (now - then for now, then in zip(totals(client), before, strict=True))
    assert times.sent.nbytes == pytest.approx(sent, abs=len(report.by_worker))
    assert times.written.nbytes == pytest.approx(written, abs=len(report.by_worker))
    assert times.written.nbytes > 0.9 * times.read.nbytes > 0
    assert "cancelled" not in report.tasks
    assert report.breakdown["cancelled"] == 0
    assert set(times.background) >= {"send", "receive"}
    trace = report.trace
    assert isinstance(trace, RunTrace)
    assert int(trace.shuffled.nbytes.sum()) == pytest.approx(sent, abs=len(trace.shuffled))
    assert len(trace.shuffled) == times.sent.count
    barriers = {trace.keys[task] for task in set(trace.shuffled.task.tolist())}
    assert all(key.startswith("shuffle-barrier") for key in barriers)
    assert (trace.shuffled.start <= trace.shuffled.stop).all()
    assert set(trace.shuffled.sender.tolist()) | set(trace.shuffled.receiver.tolist()) <= set(range(len(trace.workers)))
    return times


def totals(client: Client) -> tuple[float, float]:
    """Bytes sent, and written to disk."""
    return upstream(client, "background-comms"), upstream(client, "background-disk")


def test_phases_bytes_and_messages_of_a_shuffled_table_and_a_rechunked_array(client):
    before = totals(client)
    with timed_report(client, trace=True) as (of_table, window):
        frame = dask.datasets.timeseries(end="2000-01-09", freq="60s", partition_freq="1d")
        rows = int(frame.shuffle("name", npartitions=6).map_partitions(len).sum().compute())
    assert rows == 8 * 24 * 60
    times = check(of_table.report, window, client, before)
    assert {"shard", "barrier", "unpack"} <= times.held_ns.keys()
    rescheduled = of_table.report.tasks.get("rescheduled", 0)
    assert (of_table.report.causes.get("overhead/rescheduled", 0.0) > 0) == (rescheduled > 0)

    before = totals(client)
    with timed_report(client, trace=True) as (of_array, window), dask.config.set({"array.rechunk.method": "p2p"}):
        array = da.ones((400, 400), chunks=(400, 40)).rechunk((40, 400))
        assert float(array.sum().compute()) == 160_000.0
    times = check(of_array.report, window, client, before)
    assert {"shard", "unpack"} <= times.held_ns.keys()


def note_the_barrier(diary: Diary, last: bool) -> None:
    """Have a worker say for how long it still sent at a barrier; the last one begins after the other, for longer."""
    at_barrier = asyncio.Event()

    async def inputs_done(run: Any) -> None:
        at_barrier.set()
        began = time.monotonic()
        await ShuffleRun.inputs_done(run)
        diary.write(event="sent", seconds=time.monotonic() - began)

    async def send(run: Any, *args: Any) -> Any:
        await at_barrier.wait()
        await asyncio.to_thread(diary.wait, "sent")
        await asyncio.sleep(diary.read("sent")[0]["seconds"] + 0.5)
        return await ShuffleRun._send(run, *args)

    DataFrameShuffleRun.inputs_done = inputs_done  # type: ignore[method-assign]  # in place of what it inherits
    if last:
        DataFrameShuffleRun._send = send  # type: ignore[method-assign]


def as_before(last: bool) -> None:
    del DataFrameShuffleRun.inputs_done
    if last:
        del DataFrameShuffleRun._send


def test_the_worker_for_which_another_waited_at_a_barrier_is_named_and_on_the_path(client, diary):
    slow, other = addresses(client)
    lasts = {slow: True, other: False}
    for address, last in lasts.items():
        client.run(note_the_barrier, diary=diary, last=last, workers=[address])
    try:
        with timed_report(client, trace=True) as (report, window):
            frame = dask.datasets.timeseries(end="2000-01-05", freq="600s", partition_freq="1d")
            assert int(frame.shuffle("name", npartitions=4).map_partitions(len).sum().compute()) == 4 * 24 * 6
    finally:
        for address, last in lasts.items():
            client.run(as_before, last=last, workers=[address])
    at_barriers = shuffle_times(report.metered, report.by_prefix).at_barriers
    named, waiting = (name_of(client, address) for address in (slow, other))
    for name, sent in zip((waiting, named), diary.read("sent"), strict=True):
        assert at_barriers[name] == between(sent["seconds"], window.most)
    assert at_barriers[named] > at_barriers[waiting]
    trace, segments = report.trace, critical_path(report.trace).segments
    in_barrier = np.array([key.startswith("shuffle-barrier") for key in trace.keys])[segments.task]
    sending = segments.take(np.flatnonzero(in_barrier & (segments.kind == CODES[Kind.TRANSFER])))
    longest = np.argmax(sending.stop - sending.start)  # the barrier's result may travel later, for less time
    assert trace.workers[sending.sender[longest]].name == named


def wait_until_shuffling(client: Client) -> None:
    """Until some inputs have been handed over and the barrier has not been reached."""

    def handed_over(dask_scheduler: Any) -> int:
        tasks = [ts for ts in dask_scheduler.tasks.values() if "shuffle-transfer" in str(ts.key)]
        return sum(ts.state == "memory" for ts in tasks)

    eventually(lambda: client.run_on_scheduler(handed_over) >= 2)


def held_back(part: Any, gate: str) -> Any:
    """A partition that waits for a file, if it is a later one."""
    import time
    from pathlib import Path

    while len(part) and part.index[0].day > 3 and not Path(gate).exists():
        time.sleep(0.01)
    return part


def test_a_shuffle_that_begins_anew_as_a_worker_died_is_recomputed_and_sums_hold(mortal_client, attendance, tmp_path):
    first, second = addresses(mortal_client)
    gate = tmp_path / "gate"
    frame = dask.datasets.timeseries(end="2000-01-07", freq="600s", partition_freq="1d")
    held = frame.map_partitions(held_back, str(gate), meta=frame._meta)
    with timed_report(mortal_client) as (report, window):
        future = mortal_client.compute(held.shuffle("name", npartitions=4).map_partitions(len).sum())
        wait_until_shuffling(mortal_client)
        kill(mortal_client, first)
        gate.touch()
        eventually(lambda: first in attendance.left)
        gone = after_the_scheduler(mortal_client)
        eventually(lambda: attendance.joined.keys() - {first, second})
        there = after_the_scheduler(mortal_client)
        assert future.result() == 6 * 24 * 6
    assert report.by_prefix["shuffle-transfer"]["recomputed"] > 0
    assert report.tasks["recomputed"] >= 2
    attendance.assert_lives(report, window, gone=gone, there=there)
    assert sum(row.total_ns for row in report.by_worker.values()) == report.breakdown.total_ns
    (killed,) = report.lost_workers
    assert (killed.worker, killed.in_order) == (attendance.names[first], False)
    assert killed.reason in ("killed by SIGKILL", f"killed by SIGKILL, {BY_OTHERS}")
    assert killed.ns == report.breakdown.ns("lost-worker") > 0
    assert killed.recomputed_tasks == report.tasks["recomputed"]
    assert killed.recomputed_ns == report.breakdown.ns("recomputed")


def test_a_shuffle_without_room_on_disk_fails_and_sums_hold(mortal_client):
    def fill() -> None:
        def write(*_: Any) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        DiskShardsBuffer._write_frames = write  # type: ignore[method-assign]  # the workers are the test's own

    mortal_client.run(fill)
    frame = dask.datasets.timeseries(end="2000-01-05", freq="600s", partition_freq="1d")
    with timed_report(mortal_client) as (report, window):
        future = mortal_client.compute(frame.shuffle("name", npartitions=4).map_partitions(len).sum())
        wait(future)
        assert future.status == "error"
    assert report.tasks["failed"] >= 1
    assert report.breakdown["failed"] > 0
    check_sum(report, window)
