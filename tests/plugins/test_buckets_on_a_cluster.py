"""Known answers: each bucket against what the tasks themselves read of their clocks."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import dask
import pytest
from distributed import Client, wait

from dask_efficiency import EfficiencyPlugin, efficiency_report
from tests.plugins.tasks import (
    Diary,
    SlowToSend,
    Stopwatch,
    Tally,
    ask_another_task,
    fail,
    fail_at_first,
    half_and_half,
    incompressible,
    increment,
    leave_and_fail,
    leave_and_return,
    leave_the_pool,
    nap,
    nap_in_a_coroutine,
    reschedule_at_first,
    spin,
    spin_inside_a_meter,
    weigh,
    write_and_nap,
)
from tests.plugins.watch import addresses, eventually, kill, name_of, near, nothing_runs, set_status

pytestmark = [pytest.mark.cluster, pytest.mark.known_answer]

THREADS = 4


@pytest.fixture
def diary(tmp_path: Path) -> Diary:
    return Diary(tmp_path / "diary")


@pytest.fixture
def client_that_saw_errors(client: Client) -> Client:
    """Its workers have made a traceback before: the first takes 30 ms of its task's slot."""
    for address in addresses(client):
        wait(client.submit(fail, workers=[address], pure=False))
    return client


# -- in the thread ---------------------------------------------------------------------------


def test_spinning_is_thread_cpu_and_waiting_for_the_gil_is_not(client):
    with efficiency_report(client) as report:
        told = client.gather(client.map(spin, [0.3] * 4, pure=False))
    row = report.by_prefix["spin"]
    assert row["thread-cpu"] == near(sum(t["cpu"] for t in told))
    assert row["thread-noncpu"] == near(sum(t["wall"] - t["cpu"] for t in told))
    assert report.tasks == {"succeeded": 4}


def test_sleeping_is_thread_noncpu(client):
    with efficiency_report(client) as report:
        told = client.gather(client.map(nap, [0.4] * 4, pure=False))
    row = report.by_prefix["nap"]
    assert row["thread-noncpu"] == near(sum(t["wall"] for t in told))
    assert row["thread-cpu"] == near(0)


def test_half_and_half_is_half_cpu(client):
    with efficiency_report(client) as report:
        told = client.gather(client.map(half_and_half, [0.4] * 2, pure=False))
    row = report.by_prefix["half_and_half"]
    assert row["thread-cpu"] == near(sum(t["cpu"] for t in told))
    assert row["thread-noncpu"] == near(sum(t["wall"] - t["cpu"] for t in told))


def test_a_context_meter_inside_a_task_does_not_hide_its_cpu(client):
    with efficiency_report(client) as report:
        told = client.submit(spin_inside_a_meter, 0.3, 0.2, pure=False).result()
    row = report.by_prefix["spin_inside_a_meter"]
    assert row["thread-cpu"] == near(told["cpu"])
    assert row["thread-noncpu"] == near(told["wall"] - told["cpu"])
    assert report.details["in task: my-io"] == near(told["wall"])


def test_a_coroutine_is_thread_noncpu_whose_cpu_is_not_measured(client):
    with efficiency_report(client) as report:
        told = client.gather(client.map(nap_in_a_coroutine, [0.4] * 2, pure=False))
    row = report.by_prefix["nap_in_a_coroutine"]
    assert row["thread-noncpu"] == near(sum(t["wall"] for t in told))
    assert row["thread-cpu"] == 0
    assert report.details["thread-noncpu: CPU not measured"] == near(sum(t["wall"] for t in told))


def test_a_process_pools_task_is_thread_noncpu_whose_cpu_is_not_measured(client):
    first = addresses(client)[0]

    def add_pool(dask_worker):
        pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
        pool.submit(os.getpid).result()
        dask_worker.executors["processes"] = pool

    def remove_pool(dask_worker):
        dask_worker.executors.pop("processes").shutdown()

    client.run(add_pool, workers=[first])
    try:
        with efficiency_report(client) as report, dask.annotate(executor="processes"):
            told = client.submit(spin, 0.3, workers=[first], pure=False).result()
    finally:
        client.run(remove_pool, workers=[first])
    row = report.by_prefix["spin"]
    assert row["thread-cpu"] == 0
    assert row["thread-noncpu"] == near(told["wall"])
    assert report.details["thread-noncpu: CPU not measured"] == near(told["wall"])


def test_a_thread_pool_that_came_later_is_accounted_for_without_its_cpu(client):
    first = addresses(client)[0]

    def add_pool(dask_worker):
        dask_worker.executors["late"] = ThreadPoolExecutor(1)

    client.run(add_pool, workers=[first])
    try:
        with efficiency_report(client) as report, dask.annotate(executor="late"):
            told = client.submit(half_and_half, 0.3, workers=[first], pure=False).result()
    finally:
        client.run(lambda dask_worker: dask_worker.executors.pop("late").shutdown(), workers=[first])
    row = report.by_prefix["half_and_half"]
    assert row["thread-cpu"] + row["thread-noncpu"] == near(told["wall"])


# -- seceding and outside the slots ----------------------------------------------------------


@pytest.mark.parametrize(("spinning", "sleeping"), [(0.0, 0.4), (0.3, 0.0)])
def test_cpu_before_seceding_is_thread_cpu_and_the_rest_is_outside(client, spinning, sleeping):
    with efficiency_report(client) as report:
        told = client.submit(leave_the_pool, 0.3, spinning, sleeping, pure=False).result()
    row = report.by_prefix["leave_the_pool"]
    # The slot is given up when the event loop hears of it; a thread that goes on spinning keeps
    # the GIL from the loop, and uses CPU in the meantime.
    late = row.total - told["inside"]["wall"]
    assert -0.015 <= late <= 0.1
    assert row["thread-cpu"] == near(told["inside"]["cpu"] + (late if spinning else 0.0))
    assert row.total + report.outside["seceded tasks"] == near(told["inside"]["wall"] + told["outside"]["wall"])


def test_many_seceded_tasks_are_never_counted_twice(client):
    with efficiency_report(client) as report:
        told = client.gather(client.map(leave_the_pool, [0.05] * 8, [0.0] * 8, [0.3] * 8, pure=False))
    row = report.by_prefix["leave_the_pool"]
    assert row["thread-cpu"] == near(sum(t["inside"]["cpu"] for t in told))
    # The slot is given up when the event loop hears of it, some milliseconds after the thread did.
    whole = sum(t["inside"]["wall"] + t["outside"]["wall"] for t in told)
    assert row.total + report.outside["seceded tasks"] == near(whole)
    assert report.breakdown.total == near(THREADS * report.window_seconds)
    assert report.tasks == {"succeeded": 8}


def test_a_rejoined_task_stays_outside(client):
    with efficiency_report(client) as report:
        told = client.submit(leave_and_return, 0.2, 0.2, 0.2, pure=False).result()
    row = report.by_prefix["leave_and_return"]
    assert row["thread-cpu"] == near(told["inside"]["cpu"])
    assert report.outside["seceded tasks"] == near(told["outside"]["wall"])
    assert report.breakdown.total == near(THREADS * report.window_seconds)


def test_a_worker_client_counts_its_tasks_once(client):
    with efficiency_report(client) as report:
        told = client.submit(ask_another_task, 0.2, 0.3, pure=False).result()
    assert report.by_prefix["ask_another_task"]["thread-cpu"] == near(told["inside"]["cpu"])
    assert report.by_prefix["spin"]["thread-cpu"] == near(told["inner"]["cpu"])
    assert report.outside["seceded tasks"] == near(told["outside"]["wall"])
    assert report.breakdown.total == near(THREADS * report.window_seconds)


def test_a_task_that_fails_after_seceding_is_failed_up_to_there(client_that_saw_errors, diary):
    client = client_that_saw_errors
    with efficiency_report(client) as report:
        wait(client.submit(leave_and_fail, diary, 0.3, 0.2, pure=False))
    row = report.by_prefix["leave_and_fail"]
    assert row["failed"] == near(diary.read("inside")[0]["wall"])
    assert row.total == row["failed"]
    assert report.outside["seceded tasks"] == near(diary.read("outside")[0]["wall"])


def test_making_an_actor_is_inside_and_its_methods_are_outside(client):
    with efficiency_report(client) as report:
        tally = client.submit(Tally, 0.3, actor=True).result()
        worked = tally.work(0.3).result()
        made = tally.how_it_was_made().result()
    row = report.by_prefix["Tally"]
    assert row["thread-cpu"] == near(made["cpu"])
    assert row.total == near(made["wall"])
    assert report.outside["actor methods"] == near(worked["wall"])


# -- tries that came to nothing --------------------------------------------------------------


def test_failed_tries_are_failed_and_the_last_one_counts(client_that_saw_errors, diary):
    client = client_that_saw_errors
    with efficiency_report(client) as report:
        told = client.submit(fail_at_first, diary, 2, retries=2, pure=False).result()
    row = report.by_prefix["fail_at_first"]
    tries = diary.read("failure")
    assert len(tries) == 2
    assert row["failed"] == near(sum(t["wall"] for t in tries))
    assert row["thread-cpu"] == near(told["cpu"])
    assert row["thread-noncpu"] == near(told["wall"] - told["cpu"])
    assert report.tasks == {"succeeded": 1, "failed": 2}


def test_a_task_that_fails_for_good_holds_all_its_tries(client_that_saw_errors, diary):
    client = client_that_saw_errors
    with efficiency_report(client) as report:
        future = client.submit(fail_at_first, diary, 99, retries=2, pure=False)
        wait(future)
    assert future.status == "error"
    row = report.by_prefix["fail_at_first"]
    tries = diary.read("failure")
    assert len(tries) == 3
    assert row["failed"] == near(sum(t["wall"] for t in tries))
    assert row.total == row["failed"]
    assert report.tasks == {"failed": 3}


def test_a_task_whose_result_cannot_be_stored_is_failed(client_that_saw_errors, diary):
    client = client_that_saw_errors

    def make(diary):
        class Unstorable:
            def __sizeof__(self):
                return 10**15  # so it would go to disk at once

            def __reduce__(self):
                raise ArithmeticError("no pickle")

        watch = Stopwatch()
        time.sleep(0.4)
        diary.write(event="made", **watch.read())
        return Unstorable()

    with efficiency_report(client) as report:
        future = client.submit(make, diary, key="make-1")
        wait(future)
    assert future.status == "error"
    row = report.by_prefix["make"]
    assert row["failed"] == near(diary.read("made")[0]["wall"])
    assert row.total == row["failed"]
    assert report.tasks == {"failed": 1}


def test_a_task_cancelled_while_it_runs_is_cancelled_until_its_thread_ends(client, diary):
    with efficiency_report(client) as report:
        future = client.submit(write_and_nap, diary, 0.6, pure=False)
        eventually(lambda: diary.read("start"))
        future.cancel()
        eventually(lambda: diary.read("stop"))
        eventually(lambda: nothing_runs(client))
    row = report.by_prefix["write_and_nap"]
    assert row["cancelled"] == near(diary.read("stop")[0]["wall"])
    assert row.total == row["cancelled"]
    assert report.tasks == {"cancelled": 1}


def test_a_run_that_was_cancelled_is_cancelled_though_the_task_is_wanted_again(client, diary):
    first = addresses(client)[0]
    key = "again-1"
    with efficiency_report(client) as report, Client(client.scheduler.address, set_as_default=False) as other:
        future = client.submit(write_and_nap, diary, 0.8, key=key, workers=[first])
        eventually(lambda: diary.read("start"))
        future.cancel()
        eventually(lambda: client.run_on_scheduler(lambda dask_scheduler: key not in dask_scheduler.tasks))
        other.submit(increment, 1).result()  # what the scheduler has to say of the cancelled key has arrived
        told = other.submit(write_and_nap, diary, 0.8, key=key, workers=[first]).result()
    # Upstream lets the first run end, discards its result and runs the task once more.
    first_run, second_run = diary.read("stop")
    assert told["start"] == second_run["start"]
    row = report.by_prefix["again"]
    assert row["cancelled"] == near(first_run["wall"])
    assert row["thread-noncpu"] == near(second_run["wall"])
    assert report.tasks == {"cancelled": 1, "succeeded": 2}


def test_a_rescheduled_try_is_cancelled(client_that_saw_errors, diary):
    client = client_that_saw_errors
    with efficiency_report(client) as report:
        told = client.submit(reschedule_at_first, diary, pure=False).result()
    row = report.by_prefix["reschedule_at_first"]
    assert row["cancelled"] == near(diary.read("reschedule")[0]["wall"])
    assert row["thread-noncpu"] == near(told["wall"])
    assert report.tasks == {"succeeded": 1, "cancelled": 1}


# -- free slots ------------------------------------------------------------------------------


def test_a_paused_worker_has_paused_slots_but_for_the_one_that_a_task_still_holds(client, diary):
    first, second = addresses(client)
    with efficiency_report(client) as report:
        future = client.submit(write_and_nap, diary, 0.4, workers=[first], pure=False)
        eventually(lambda: diary.read("start"))
        paused = client.run(set_status, status="paused", workers=[first])[first]
        told = future.result()
        client.submit(nap, 0.2, workers=[second], pure=False).result()
        running = client.run(set_status, status="running", workers=[first])[first]
    name = name_of(client, first)
    held = min(told["stop"], running) - paused
    assert report.by_worker[name]["paused"] == near(2 * (running - paused) - held)
    assert report.by_worker[name_of(client, second)]["paused"] == 0


def test_pauses_of_the_memory_monitor_are_booked_at_their_exact_times(client):
    first = addresses(client)[0]

    def set_threshold(dask_worker, fraction):
        dask_worker.memory_manager.memory_pause_fraction = fraction

    def pauses(dask_worker):
        from distributed.worker_state_machine import PauseEvent, UnpauseEvent

        log = dask_worker.state.stimulus_log
        changes = [event for event in log if isinstance(event, PauseEvent | UnpauseEvent)][-2:]
        return [(type(event).__name__, event.handled) for event in changes]

    client.run(set_threshold, fraction=1e-9, workers=[first])
    with efficiency_report(client) as report:
        eventually(lambda: client.run(lambda dask_worker: dask_worker.status.name, workers=[first])[first] == "paused")
        client.submit(nap, 0.3, pure=False).result()
        client.run(set_threshold, fraction=0.99, workers=[first])
        eventually(lambda: client.run(lambda dask_worker: dask_worker.status.name, workers=[first])[first] == "running")
    (pause, paused), (unpause, running) = client.run(pauses, workers=[first])[first]
    assert (pause, unpause) == ("PauseEvent", "UnpauseEvent")
    assert report.by_worker[name_of(client, first)]["paused"] == near(2 * (running - max(paused, report.started)))


def test_waiting_for_a_slow_transfer_is_waiting_on_data_for_one_slot(client, diary):
    first, second = addresses(client)
    value = client.submit(SlowToSend, 0.6, diary, workers=[first], pure=False)
    wait(value)
    with efficiency_report(client) as report:
        told = client.submit(nap, 0.1, value, workers=[second], pure=False).result()
    began = diary.read("serialise")[-1]["at"]
    row = report.by_worker[name_of(client, second)]
    assert row["waiting-on-data"] == near(told["start"] - began)
    assert row["thread-noncpu"] == near(told["wall"])


def test_a_task_held_back_by_a_resource_makes_one_slot_constrained(client):
    first = addresses(client)[0]
    with efficiency_report(client) as report:
        futures = client.map(nap, [0.4] * 3, workers=[first], resources={"slot": 1}, pure=False)
        told = sorted(client.gather(futures), key=lambda t: t["start"])
    assert told[0]["stop"] <= told[1]["start"]
    row = report.by_worker[name_of(client, first)]
    assert row["constrained"] == near(told[2]["start"] - told[0]["start"])


def test_one_long_task_leaves_the_other_threads_idle(client):
    with efficiency_report(client) as report:
        told = client.submit(nap, 0.6, pure=False).result()
    assert report.breakdown["idle"] == near((THREADS - 1) * told["wall"])


def test_a_thinking_client_gives_no_work(client):
    with efficiency_report(client) as report:
        watch = time.monotonic()
        time.sleep(0.6)
        thought = time.monotonic() - watch
    assert report.breakdown["no-work"] == near(THREADS * thought)
    assert report.breakdown["idle"] == near(0)


def test_work_of_a_seceded_task_alone_is_no_work(client):
    with efficiency_report(client) as report:
        told = client.submit(leave_the_pool, 0.0, 0.0, 0.6, pure=False).result()
    assert report.breakdown["no-work"] == near(THREADS * told["outside"]["wall"])


# -- spill -----------------------------------------------------------------------------------


def test_spilling_and_unspilling_are_spill_as_upstream_sums_them(new_cluster):
    memory = {"target": 0.02, "spill": False, "pause": False, "terminate": False}
    with (
        dask.config.set({f"distributed.worker.memory.{key}": value for key, value in memory.items()}),
        # One slot: with more, each would wait for what the others' tasks spill as well.
        new_cluster(n_workers=1, threads_per_worker=1, memory_limit="1 GiB") as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(EfficiencyPlugin())
        with efficiency_report(client) as report:
            arrays = client.map(incompressible, [15_000_000] * 12, range(12))
            wait(arrays)
            weighed = client.gather(client.map(weigh, arrays))
        assert weighed == [15_000_000] * 12

        def spilled(dask_worker, prefix):
            labels = ("disk-read", "disk-write", "serialize", "deserialize", "compress", "decompress")
            return sum(
                seconds
                for (context, *rest), seconds in dask_worker.digests_total.items()
                if context == "execute" and rest[1] == prefix and rest[2] in labels and rest[3] == "seconds"
            )

        for prefix in ("incompressible", "weigh"):
            (upstream,) = client.run(spilled, prefix=prefix).values()
            assert upstream > 0
            # Upstream's sum leaves out that a file which was read back is deleted.
            assert 0.97 * upstream <= report.by_prefix[prefix]["spill"] <= 2 * upstream
        assert report.breakdown["spill"] >= sum(report.by_prefix[name]["spill"] for name in ("incompressible", "weigh"))


# -- workers that go -------------------------------------------------------------------------


def test_results_lost_with_a_killed_worker_are_recomputed_and_its_time_is_lost(
    mortal_client, attendance, diary, tmp_path
):
    client = mortal_client
    first, _ = addresses(client)
    with efficiency_report(client) as report:
        where = {"workers": [first], "allow_other_workers": True, "pure": False}
        source = client.submit(write_and_nap, diary, 0.3, key="source-1", **where)
        wait(source)
        late = Diary(tmp_path / "late")
        sink = client.submit(write_and_nap, late, 0.5, source, key="sink-1", **where)
        eventually(lambda: late.read("start"))
        killed = time.monotonic()
        kill(client, first)
        told = sink.result()
        client.wait_for_workers(2)
    again = diary.read("stop")
    assert len(again) == 2
    # The first run's worker is gone, and the recomputed one has been booked where it ran.
    assert report.breakdown["recomputed"] == near(again[1]["wall"])
    assert report.tasks["recomputed"] == 1
    assert told["wall"] == near(0.5)
    lost = report.by_worker[attendance.names[first]]["lost-worker"]
    # From the last heartbeat, at most two intervals ago, to the removal; and what ran in it.
    assert lost >= 2 * (attendance.left[first] - killed)
    assert lost >= late.read("start")[0]["wall"]
    assert report.by_worker[attendance.names[first]]["recomputed"] in (0, report.breakdown["recomputed"])


def test_recomputing_a_whole_chain_books_every_link(mortal_client, tmp_path):
    client = mortal_client
    first, _ = addresses(client)
    where = {"workers": [first], "allow_other_workers": True, "pure": False}
    diaries = [Diary(tmp_path / str(i)) for i in range(3)]
    links = []
    for i, diary in enumerate(diaries):
        links.append(client.submit(write_and_nap, diary, 0.1, *links[-1:], key=f"link{i}-1", **where))
    last = links[-1]
    wait(last)
    with efficiency_report(client) as report:
        kill(client, first)
        eventually(lambda: len(diaries[-1].read("stop")) == 2)
        wait(last)
    again = [diary.read("stop")[1]["wall"] for diary in diaries]
    assert report.breakdown["recomputed"] == near(sum(again))
    assert report.tasks == {"recomputed": 3}


def test_a_worker_that_is_retired_while_it_runs_a_task_books_it_as_cancelled(mortal_client, attendance, diary):
    client = mortal_client
    first, second = addresses(client)
    with efficiency_report(client) as report:
        future = client.submit(write_and_nap, diary, 1.0, workers=[first], allow_other_workers=True, pure=False)
        (start,) = eventually(lambda: diary.read("start"))
        asked = time.monotonic()
        client.retire_workers([first])
        eventually(lambda: first in attendance.left and first in attendance.last_words)
        told = future.result()
    row = report.by_worker[attendance.names[first]]
    # It is cut off somewhere between the request and what the worker said last.
    assert asked - start["start"] - 0.015 <= row["cancelled"] <= attendance.last_words[first] - start["start"] + 0.015
    assert report.by_worker[attendance.names[second]]["thread-noncpu"] == near(told["wall"])
    assert report.breakdown["lost-worker"] == 0
    assert report.breakdown["recomputed"] == 0


def test_a_restart_books_running_tasks_as_cancelled_or_lost(mortal_client, diary):
    client = mortal_client
    with efficiency_report(client) as report:
        future = client.submit(write_and_nap, diary, 1.5, pure=False)
        (start,) = eventually(lambda: diary.read("start"))
        time.sleep(0.3)
        asked = time.monotonic()
        client.restart()
        del future
        told = client.submit(nap, 0.2, pure=False).result()
    gone = report.breakdown["cancelled"] + report.breakdown["lost-worker"]
    assert gone >= asked - start["start"] - 0.015
    assert report.by_prefix["nap"]["thread-noncpu"] == near(told["wall"])


# -- asynchronous clients --------------------------------------------------------------------


def test_known_answers_hold_without_processes():
    async def run():
        async with Client(
            processes=False, n_workers=1, threads_per_worker=2, dashboard_address=":0", asynchronous=True
        ) as client:
            await client.register_plugin(EfficiencyPlugin())
            async with efficiency_report(client) as report:
                told = await client.gather(client.map(half_and_half, [0.3] * 2, pure=False))
            return told, report.by_prefix["half_and_half"]

    told, row = asyncio.run(run())
    assert row["thread-cpu"] == near(sum(t["cpu"] for t in told))
    assert row["thread-noncpu"] == near(sum(t["wall"] - t["cpu"] for t in told))
