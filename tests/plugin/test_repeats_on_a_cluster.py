"""What is computed once more: because somebody asked for it again, or because a worker took the result with it."""

from __future__ import annotations

import time

import dask
import dask.array as da
import dask.dataframe as dd
import pandas as pd
import pytest
from distributed import Client, wait

from dask_efficiency import efficiency_report
from dask_efficiency.show.terminal import plain
from tests.plugin.tasks import Diary, increment, wait_for_word
from tests.plugin.watch import addresses, eventually, kill

pytestmark = pytest.mark.cluster


def layered():
    """As an xarray expression has it: anomalies from a mean, then their spread."""
    x = da.random.random((60, 40, 40), chunks=(10, 20, 20))
    anomalies = x - x.mean(axis=0, keepdims=True)
    return ((anomalies**2).mean(axis=(1, 2)) + anomalies.max(axis=(1, 2))).std()


def test_one_collection_computed_four_times_in_a_report_is_repeated_and_none_of_it_recomputed(client):
    collection = layered()
    with efficiency_report(client, trace=True) as report:
        for _ in range(4):
            collection.compute()
    assert report.breakdown["recomputed"] == 0
    assert set(report.tasks) == {"succeeded"}
    assert not report.trace.runs.recomputed.any()
    assert {repeat.times for repeat in report.repeats.values()} == {4}
    # The last tasks of each compute() have names of their own.
    again = sum(repeat.tasks for repeat in report.repeats.values())
    assert 0.7 * report.tasks["succeeded"] < again <= 0.75 * report.tasks["succeeded"]
    assert "computed up to 4 times" in plain(report.document)


def test_chunks_that_several_results_are_made_of_are_repeated_within_their_tasks(client):
    data = da.arange(8, chunks=1).map_blocks(computed_for_long, dtype=float)
    with efficiency_report(client) as report:
        data.min().compute(), data.max().compute(), data.mean().compute()
    within = {repeat.name: (repeat.tasks, repeat.times) for repeat in report.repeats.values() if repeat.within}
    assert within["computed_for_long"] == (16, 3)
    # Three graphs of eight tasks each.
    assert {report.skew[repeat.within].in_a_group for repeat in report.repeats.values() if repeat.within} == {8.0}
    (found,) = (one for one in report.findings if one.kind == "repeats")
    assert found.where.startswith("16 tasks, up to 3 times, most of computed_for_long in tasks of ")
    # Two of three times of what is most of the time.
    assert 0.4 * report.breakdown["thread-cpu"] < found.lost_seconds < 0.8 * report.thread_seconds
    with efficiency_report(client) as kept:
        data = data.persist()
        data.min().compute(), data.max().compute()
    assert not [one for one in kept.findings if one.kind == "repeats"]


def computed_for_long(chunk):
    """Use a core for a while."""
    until = time.thread_time() + 0.1
    while time.thread_time() < until:
        chunk = chunk + 0.0
    return chunk


def test_a_window_has_the_repeats_inside_it(client):
    collection = da.random.random((800, 400), chunks=100).sum()
    collection.compute()
    with efficiency_report(client) as once:
        da.random.random((40, 40), chunks=20).sum().compute()
    with efficiency_report(client) as again:  # as a cell that is run once more, to measure a cure
        collection.compute()
    with efficiency_report(client) as twice:
        collection.compute()
        collection.compute()
    assert once.repeats == again.repeats == {}
    assert [note for note in once.notes if "were computed before" in note] == []
    (note,) = [note for note in again.notes if "were computed before" in note]
    assert note.endswith("results were computed before this window, too: persist() keeps what is used again")
    assert {repeat.times for repeat in twice.repeats.values()} == {2}


def test_other_names_of_persisted_results_are_no_repeats(client):
    frame = dd.from_pandas(pd.DataFrame({"a": range(100)}), npartitions=4).persist()
    wait(frame)
    with efficiency_report(client) as report:
        for _ in range(4):
            frame.compute()
            eventually(lambda: client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)) == 4)
    assert report.tasks["succeeded"] == 20  # for each of the four: its partitions, by other names, and all together
    assert {prefix: repeat.times for prefix, repeat in report.repeats.items()} == {"repartitiontofewer": 4}


def test_released_inputs_of_a_lost_result_are_recomputed(mortal_client):
    client = mortal_client
    first, _ = addresses(client)
    with dask.annotate(workers=[first], allow_other_workers=True):
        start = dask.delayed(increment)(0, dask_key_name="start")
        sides = [dask.delayed(increment)(i, start, dask_key_name=f"side-{i}") for i in range(3)]
        middle = dask.delayed(increment)(0, *sides, dask_key_name="middle")
        kept = client.persist(dask.delayed(increment)(1, middle, dask_key_name="kept"), optimize_graph=False)
    wait(kept)
    with efficiency_report(client, trace=True) as report:
        kill(client, first)
        eventually(lambda: set(client.who_has()[kept.key]) - {first})
    assert report.tasks == {"recomputed": 6}
    assert report.trace.runs.recomputed.all()
    assert report.repeats == {}


def test_repeats_and_a_lost_result_at_once_are_distinguished(mortal_cluster, mortal_client, tmp_path):
    client = mortal_client
    first, second = addresses(client)
    diary = Diary(tmp_path / "diary")
    lost = client.submit(increment, 1, key="lost", workers=[first], allow_other_workers=True)
    asked = dask.delayed(increment)(2, dask_key_name="asked")
    both = dask.delayed(increment)(3, asked, dask_key_name="both")
    wait(lost)
    with Client(mortal_cluster) as other, efficiency_report(client) as report:
        with dask.annotate(workers=[second], allow_other_workers=True):
            assert other.compute(both, optimize_graph=False).result() == 4
        eventually(lambda: "both" not in client.who_has())
        running = client.submit(wait_for_word, diary, lost, key="running", workers=[first], allow_other_workers=True)
        eventually(lambda: diary.read("start"))
        kill(client, first)
        diary.write(event="go")
        assert other.compute(both, optimize_graph=False).result() == 4
        running.result()
    assert report.tasks["recomputed"] == 1
    assert {prefix: (repeat.tasks, repeat.times) for prefix, repeat in report.repeats.items()} == {
        "asked": (1, 2),
        "both": (1, 2),
    }
