"""Known answers: each bucket against what the tasks themselves read of their clocks.

CPU time is the same on a busy machine. Of wall time a bucket has at least what the task measured inside, and at most
what the test measured around it; on a machine with nothing else to do, they are some milliseconds apart.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import dask
import pytest
from distributed import Client, wait

from dask_efficiency import efficiency_report, snapshot
from dask_efficiency.accounts.cluster.losses import BY_OTHERS
from tests.plugin import tasks
from tests.plugin.tasks import Stopwatch
from tests.plugin.watch import (
    LOOKS,
    Window,
    addresses,
    ahead_ns,
    between,
    cpu,
    eventually,
    kill,
    name_of,
    near,
    nothing_runs,
    off_cpu,
    set_status,
    silence,
    states,
    timed_report,
    way_of_snapshots,
)

pytestmark = pytest.mark.cluster

THREADS = 4
#: How long a pause or its end may go unnoticed, should its exact time be lost between two clocks: until the next look.
LOOK = 0.05


# -- in the thread ---------------------------------------------------------------------------


def test_half_and_half_is_half_cpu(client):
    with timed_report(client) as (report, window):
        results = client.gather(client.map(tasks.half_and_half, [0.4] * 2, pure=False))
    row = report.by_prefix["half_and_half"]
    assert row["thread-cpu"] == near(cpu(results))
    assert row["thread-noncpu"] == between(off_cpu(results), 2 * window.most - cpu(results))


def test_a_context_meter_inside_a_task_does_not_hide_its_cpu(client):
    with timed_report(client) as (report, window):
        result = client.submit(tasks.spin_inside_a_meter, 0.3, 0.2, pure=False).result()
    row = report.by_prefix["spin_inside_a_meter"]
    assert row["thread-cpu"] == near(result["cpu"])
    assert row["thread-noncpu"] == between(off_cpu([result]), window.most - result["cpu"])
    assert report.details["in task: my-io"] == between(0.3 + 0.2, result["wall"])


def test_a_coroutine_is_thread_noncpu_whose_cpu_is_not_measured(client):
    with timed_report(client) as (report, window):
        results = client.gather(client.map(tasks.nap_in_a_coroutine, [0.4] * 2, pure=False))
    row = report.by_prefix["nap_in_a_coroutine"]
    whole = between(sum(t["wall"] for t in results), 2 * window.most)
    assert row["thread-noncpu"] == whole
    assert row["thread-cpu"] == 0
    assert report.details["thread-noncpu: CPU not measured"] == whole


def test_a_process_pools_task_is_thread_noncpu_whose_cpu_is_not_measured(client):
    first = addresses(client)[0]

    client.run(tasks.add_process_pool, workers=[first])
    try:
        with timed_report(client) as (report, window), dask.annotate(executor="processes"):
            result = client.submit(tasks.spin, 0.3, workers=[first], pure=False).result()
    finally:
        client.run(tasks.remove_process_pool, workers=[first])
    row = report.by_prefix["spin"]
    assert row["thread-cpu"] == 0
    assert row["thread-noncpu"] == between(result["wall"], window.most)
    assert report.details["thread-noncpu: CPU not measured"] == between(result["wall"], window.most)


# -- seceding and outside the slots ----------------------------------------------------------


def assert_left(report: Any, window: Window, prefix: str, results: list[dict[str, dict[str, float]]]) -> None:
    """Tasks of a prefix held their slots until the event loop heard of their seceding, and were outside after that."""
    row = report.by_prefix[prefix]
    assert row["thread-cpu"] == near(cpu(t["inside"] for t in results))
    all_left = max(t["outside"]["start"] for t in results)
    slots = min(THREADS, len(results))
    held = row.total - row["library-threads"]  # these are in free slots, beside its own
    assert held == between(sum(t["inside"]["wall"] for t in results), slots * (all_left - window.opened))
    outside = between(
        sum(t["outside"]["wall"] for t in results), sum(window.closed - t["inside"]["stop"] for t in results)
    )
    assert report.outside["seceded tasks"] == outside


@pytest.mark.parametrize(
    ("function", "columns"),
    [
        (tasks.leave_the_pool, ([0.3], [0.0], [0.4])),
        (tasks.leave_the_pool, ([0.3], [0.3], [0.0])),
        (tasks.leave_the_pool, ([0.05] * 8, [0.0] * 8, [0.3] * 8)),
        (tasks.leave_and_return, ([0.2], [0.2], [0.2])),
        (tasks.ask_another_task, ([0.2], [0.3])),
    ],
    ids=["sleeping", "computing", "many", "rejoining", "worker client"],
)
def test_a_task_that_secedes_is_in_its_slot_until_then_and_outside_afterwards(client, function, columns):
    with timed_report(client) as (report, window):
        results = client.gather(client.map(function, *columns, pure=False))
    assert_left(report, window, function.__name__, results)
    assert report.breakdown.total == between(THREADS * window.least, THREADS * window.most)
    asked = [t["inner"] for t in results if "inner" in t]
    assert report.tasks == {"succeeded": len(results) + len(asked)}
    if asked:
        assert report.by_prefix["spin"]["thread-cpu"] == near(cpu(asked))


def test_a_task_that_fails_after_seceding_is_failed_up_to_there(client, diary):
    with timed_report(client) as (report, window):
        wait(client.submit(tasks.leave_and_fail, diary, 0.3, 0.2, pure=False))
    row = report.by_prefix["leave_and_fail"]
    (inside,), (outside,) = diary.read("inside"), diary.read("outside")
    assert row["failed"] == between(inside["wall"], outside["start"] - window.opened)
    # Beside it, free slots in whose place any thread of its process computed, such as one of a library's.
    assert row.total - row["library-threads"] == pytest.approx(row["failed"], abs=1e-9)
    assert report.outside["seceded tasks"] == between(outside["wall"], window.closed - inside["stop"])


def test_making_an_actor_is_inside_and_its_methods_are_outside(client):
    with timed_report(client) as (report, window):
        tally = client.submit(tasks.Tally, 0.3, actor=True).result()
        worked = tally.work(0.3).result()
        made = tally.how_it_was_made().result()
    row = report.by_prefix["Tally"]
    assert row["thread-cpu"] == near(made["cpu"])
    assert row.total == between(made["wall"], window.most - worked["wall"])
    assert report.outside["actor methods"] == between(worked["wall"], window.most - made["wall"])


# -- tries that came to nothing --------------------------------------------------------------


def test_failed_tries_are_failed_and_the_last_one_counts(client, diary):
    with timed_report(client) as (report, window):
        result = client.submit(tasks.fail_at_first, diary, 2, retries=2, pure=False).result()
    row = report.by_prefix["fail_at_first"]
    tries = diary.read("failure")
    assert len(tries) == 2
    failed = sum(t["wall"] for t in tries)
    assert row["failed"] == between(failed, window.most - result["wall"])
    assert row["thread-cpu"] == near(result["cpu"])
    assert row["thread-noncpu"] == between(off_cpu([result]), window.most - failed - result["cpu"])
    assert report.tasks == {"succeeded": 1, "failed": 2}


def test_a_task_whose_result_cannot_be_stored_is_failed(client, diary):

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

    with timed_report(client) as (report, window):
        future = client.submit(make, diary, key="make-1")
        wait(future)
    assert future.status == "error"
    row = report.by_prefix["make"]
    assert row["failed"] == between(diary.read("made")[0]["wall"], window.most)
    # Beside it, free slots in whose place any thread of its process computed, such as one of a library's.
    assert row.total - row["library-threads"] == pytest.approx(row["failed"], abs=1e-9)
    assert report.tasks == {"failed": 1}


def test_a_task_cancelled_while_it_runs_is_cancelled_until_its_thread_ends(client, diary):
    with timed_report(client) as (report, window):
        future = client.submit(tasks.wait_for_word, diary, key="wait-1")
        eventually(lambda: diary.read("start"))
        future.cancel()
        eventually(lambda: states(client, "wait-1") == {"cancelled"})
        diary.write(event="go")
        eventually(lambda: nothing_runs(client))
    row = report.by_prefix["wait"]
    assert row["cancelled"] == between(diary.read("stop")[0]["wall"], window.most)
    assert row.total - row["library-threads"] == pytest.approx(row["cancelled"], abs=1e-9)
    assert report.tasks == {"cancelled": 1}


def test_a_run_that_was_cancelled_is_cancelled_though_the_task_is_wanted_again(client, diary):
    first = addresses(client)[0]
    key = "again-1"
    with timed_report(client) as (report, window), Client(client.scheduler.address, set_as_default=False) as other:
        future = client.submit(tasks.wait_for_word, diary, key=key, workers=[first])
        eventually(lambda: diary.read("start"))
        future.cancel()
        eventually(lambda: client.run_on_scheduler(lambda dask_scheduler: key not in dask_scheduler.tasks))
        other.submit(tasks.increment, 1).result()  # what the scheduler has to say of the cancelled key has arrived
        assert states(client, key) == {"cancelled"}
        future = other.submit(tasks.wait_for_word, diary, key=key, workers=[first])
        eventually(lambda: states(client, key) != {"cancelled"})
        diary.write(event="go")
        result = future.result()
    # Upstream lets the first run end, discards its result and runs the task once more.
    first_run, second_run = diary.read("stop")
    assert result["start"] == second_run["start"]
    row = report.by_prefix["again"]
    assert row["cancelled"] == between(first_run["wall"], window.most - second_run["wall"])
    assert row["thread-noncpu"] == between(off_cpu([second_run]), window.most - first_run["wall"])
    assert report.tasks == {"cancelled": 1, "succeeded": 2}


def test_a_rescheduled_try_is_cancelled(client, diary):
    with timed_report(client) as (report, window):
        result = client.submit(tasks.reschedule_at_first, diary, pure=False).result()
    row = report.by_prefix["reschedule_at_first"]
    (given_up,) = diary.read("reschedule")
    assert row["cancelled"] == between(given_up["wall"], window.most - result["wall"])
    assert row["thread-noncpu"] == between(off_cpu([result]), window.most - given_up["wall"])
    assert report.tasks == {"succeeded": 1, "cancelled": 1}


# -- free slots ------------------------------------------------------------------------------


def test_a_paused_worker_loses_a_slot_for_each_task_that_is_ready_there(client, diary, tmp_path):
    first, second = addresses(client)
    other = tasks.Diary(tmp_path / "other")
    with efficiency_report(client) as report:
        futures = [client.submit(tasks.wait_for_word, one, workers=[first], pure=False) for one in (diary, other)]
        eventually(lambda: diary.read("start") and other.read("start"))
        ready = client.map(tasks.nap, [0.01] * 3, workers=[first], pure=False)
        eventually(lambda: client.run(lambda dask_worker: len(dask_worker.state.ready), workers=[first])[first] == 3)
        client.run(set_status, status="paused", workers=[first])
        least = most = 0.0
        for one, future in zip((diary, other), futures, strict=True):
            one.write(event="go")
            result = future.result()
            least, most = least - time.monotonic(), most - result["stop"]
            client.submit(tasks.nap, 0.2, workers=[second], pure=False).result()
        resuming, running = client.run(set_status, status="running", workers=[first])[first]
        wait(ready)
    # One slot from the end of the first task on, and the other one from that of the second on.
    row = report.by_worker[name_of(client, first)]
    assert row["paused"] == between(least + 2 * resuming - 2 * LOOK, most + 2 * running + 2 * LOOK)
    assert report.by_worker[name_of(client, second)]["paused"] == 0


def test_a_paused_worker_loses_nothing_to_work_that_could_not_run_there(client, diary):
    first, second = addresses(client)
    with efficiency_report(client) as report:
        running = client.submit(tasks.wait_for_word, diary, workers=[first], pure=False)
        eventually(lambda: diary.read("start"))
        client.run(set_status, status="paused", workers=[first])
        elsewhere = client.submit(tasks.nap, 0.5, workers=[second], pure=False).result()
        client.run(set_status, status="running", workers=[first])
        diary.write(event="go")
        running.result()
    assert report.breakdown["paused"] == 0
    assert report.by_worker[name_of(client, first)]["idle"] > (1 - LOOKS) * elsewhere["wall"]


def test_a_paused_worker_loses_its_free_slots_to_tasks_that_are_queued_on_the_scheduler(client, watch, diary):
    first, second = addresses(client)

    def until_seen(paused: int, queued: int) -> float:
        eventually(lambda: (held := watch._held) is not None and held.paused == paused and held.queued >= queued)
        return time.monotonic()

    with efficiency_report(client) as report:
        busy = client.map(tasks.wait_for_word, [diary] * 2, workers=[second], pure=False)
        eventually(lambda: len(diary.read("start")) == 2)
        until_seen(paused=0, queued=0)
        pausing, _ = client.run(set_status, status="paused", workers=[first])[first]
        until_seen(paused=2, queued=0)  # else it is sent tasks
        futures = client.map(tasks.nap, [0.01] * 16, pure=False)
        began = until_seen(paused=2, queued=2)
        time.sleep(0.6)
        resuming, _ = client.run(set_status, status="running", workers=[first])[first]
        ended = until_seen(paused=0, queued=0)
        wait(futures)
        diary.write(event="go")
        wait(busy)
    row = report.by_worker[name_of(client, first)]
    assert row["paused"] == between((1 - LOOKS) * 2 * (resuming - began), (1 + LOOKS) * 2 * (ended - pausing))
    assert report.by_worker[name_of(client, second)]["paused"] == 0


def test_pauses_of_the_memory_monitor_are_booked_at_their_exact_times(client, diary):
    first, second = addresses(client)

    def set_threshold(dask_worker, fraction):
        dask_worker.memory_manager.memory_pause_fraction = fraction

    def pauses(dask_worker):
        from distributed.worker_state_machine import PauseEvent, UnpauseEvent

        log = dask_worker.state.stimulus_log
        changes = [event for event in log if isinstance(event, PauseEvent | UnpauseEvent)][-2:]
        return [(type(event).__name__, event.handled) for event in changes]

    # Of two tasks that need the same resource one waits, and the slot that is free is its own.
    needs = {"workers": [first], "resources": {"slot": 1}, "pure": False}
    futures = [client.submit(tasks.wait_for_word, diary, **needs), client.submit(tasks.nap, 0.01, **needs)]
    eventually(lambda: diary.read("start"))
    client.run(set_threshold, fraction=1e-9, workers=[first])
    with timed_report(client) as (report, window):
        eventually(lambda: client.run(lambda dask_worker: dask_worker.status.name, workers=[first])[first] == "paused")
        client.submit(tasks.nap, 0.3, workers=[second], pure=False).result()
        client.run(set_threshold, fraction=0.99, workers=[first])
        eventually(lambda: client.run(lambda dask_worker: dask_worker.status.name, workers=[first])[first] == "running")
    (pause, paused), (unpause, running) = client.run(pauses, workers=[first])[first]
    assert (pause, unpause) == ("PauseEvent", "UnpauseEvent")
    ahead = ahead_ns() / 1e9
    least, most = (running - max(paused, start + ahead) for start in (window.entered, window.opened))
    assert report.by_worker[name_of(client, first)]["paused"] == between(least - LOOK, most + LOOK)
    diary.write(event="go")
    wait(futures)


def test_waiting_for_a_slow_transfer_is_waiting_on_data_for_one_slot(client, diary):
    first, second = addresses(client)
    value = client.submit(tasks.SlowToSend, 0.6, diary, workers=[first], pure=False)
    wait(value)
    with timed_report(client) as (report, window):
        result = client.submit(tasks.nap, 0.1, value, workers=[second], pure=False).result()
    serialised = diary.read("serialise")[-1]
    row = report.by_worker[name_of(client, second)]
    assert row["waiting-on-data"] == between(serialised["wall"], result["start"] - window.opened)
    assert row["thread-noncpu"] == between(off_cpu([result]), window.closed - serialised["stop"])


def test_a_task_held_back_by_a_resource_makes_one_slot_constrained(client):
    first = addresses(client)[0]
    with timed_report(client) as (report, window):
        futures = client.map(tasks.nap, [0.4] * 3, workers=[first], resources={"slot": 1}, pure=False)
        results = sorted(client.gather(futures), key=lambda t: t["start"])
    assert results[0]["stop"] <= results[1]["start"]
    row = report.by_worker[name_of(client, first)]
    assert row["constrained"] == between(results[1]["stop"] - results[0]["stop"], results[2]["start"] - window.opened)


def test_one_long_task_leaves_the_other_threads_idle(client):
    with timed_report(client) as (report, window):
        result = client.submit(tasks.nap, 0.6, pure=False).result()
    assert report.breakdown["idle"] == between((THREADS - 1) * result["wall"], THREADS * window.most - result["wall"])


def test_the_time_without_tasks_of_a_client_is_no_work(client):
    with timed_report(client) as (report, window):
        watch = time.monotonic()
        time.sleep(0.6)
        thought = time.monotonic() - watch
    assert report.breakdown["no-work"] == between(THREADS * thought, THREADS * window.most)
    assert report.breakdown["idle"] == between(0, THREADS * (window.most - thought))


def seceded(dask_scheduler: Any) -> bool:
    return any(ws.long_running for ws in dask_scheduler.workers.values())


def test_work_of_a_seceded_task_alone_is_no_work(client):
    with timed_report(client) as (report, window):
        future = client.submit(tasks.leave_the_pool, 0.0, 0.0, 1.0, pure=False)
        eventually(lambda: client.run_on_scheduler(seceded))
        known = time.monotonic()
        result = future.result()
    assert report.breakdown["no-work"] == between(THREADS * (result["outside"]["stop"] - known), THREADS * window.most)


# -- workers that go -------------------------------------------------------------------------


def test_results_lost_with_a_killed_worker_are_recomputed_and_its_time_is_lost(
    mortal_client, attendance, diary, tmp_path
):
    client = mortal_client
    first, _ = addresses(client)
    with timed_report(client) as (report, window):
        where = {"workers": [first], "allow_other_workers": True, "pure": False}
        source = client.submit(tasks.write_and_nap, diary, 0.3, key="source-1", **where)
        wait(source)
        late = tasks.Diary(tmp_path / "late")
        asked = time.monotonic()
        sink = client.submit(tasks.wait_for_word, late, source, key="sink-1", **where)
        (start,) = eventually(lambda: late.read("start"))
        worker = client.cluster.scheduler.workers[first]
        eventually(lambda: "sink" in worker.metrics.get("efficiency", {}).get("h", ()))
        silence(client, first)
        way = way_of_snapshots(client, first)
        killed = kill(client, first)
        late.write(event="go")
        result = sink.result()
        client.wait_for_workers(2)
        gone = time.monotonic()
    again = diary.read("stop")
    assert len(again) == 2
    # The first run's worker is gone, and the recomputed one has been booked where it ran.
    assert report.breakdown["recomputed"] == between(again[1]["wall"], window.closed - killed - result["wall"])
    assert report.tasks["recomputed"] == 1
    lost = report.by_worker[attendance.names[first]]["lost-worker"]
    # From the last heartbeat, which arrived before the kill, to the removal; and what ran in it.
    assert lost >= 2 * (attendance.left[first] - killed - way)
    assert lost >= late.read("start")[0]["wall"]
    assert report.by_worker[attendance.names[first]]["recomputed"] in (0, report.breakdown["recomputed"])
    # Its nanny, which has seen how it ended, is asked; one of its two threads had the task until the removal.
    (one,) = report.lost_workers
    assert (one.worker, one.in_order) == (attendance.names[first], False)
    assert one.reason in ("killed by SIGKILL", f"killed by SIGKILL, {BY_OTHERS}")  # where kills are not counted, or are
    assert {task.prefix for task in one.in_threads} == {"sink"}
    assert one.ns == report.breakdown.ns("lost-worker")
    assert one.prefixes == {"sink": report.by_prefix["sink"].ns("lost-worker")}
    assert report.by_prefix["sink"]["lost-worker"] == between(killed - way - start["start"], gone - asked)
    assert one.prefixes["sink"] < one.ns
    assert (one.recomputed_tasks, one.recomputed_ns) == (1, report.breakdown.ns("recomputed"))


def test_a_worker_that_is_retired_while_it_runs_a_task_books_it_as_cancelled(mortal_client, attendance, diary):
    client = mortal_client
    first, second = addresses(client)
    with timed_report(client) as (report, window):
        future = client.submit(tasks.wait_for_word, diary, workers=[first], allow_other_workers=True, pure=False)
        (start,) = eventually(lambda: diary.read("start"))
        asked = time.monotonic()
        client.retire_workers([first])
        eventually(lambda: first in attendance.left and first in attendance.last_words)
        diary.write(event="go")
        result = future.result()
    row = report.by_worker[attendance.names[first]]
    # It is cut off somewhere between the request and the worker's last message.
    assert row["cancelled"] == between(asked - start["start"], attendance.last_words[first] - window.opened)
    assert report.by_worker[attendance.names[second]]["thread-noncpu"] == between(
        off_cpu([result]), window.closed - asked
    )
    assert report.breakdown["lost-worker"] == 0
    assert report.breakdown["recomputed"] == 0
    assert report.lost_workers == ()


def test_a_restart_books_running_tasks_as_cancelled_or_lost(mortal_client, diary):
    client = mortal_client
    with timed_report(client) as (report, window):
        future = client.submit(tasks.wait_for_word, diary, pure=False)
        (start,) = eventually(lambda: diary.read("start"))
        time.sleep(0.3)
        asked = time.monotonic()
        client.restart()
        del future
        result = client.submit(tasks.nap, 0.2, pure=False).result()
    gone = report.breakdown["cancelled"] + report.breakdown["lost-worker"]
    assert gone >= asked - start["start"]
    assert report.by_prefix["nap"]["thread-noncpu"] == between(off_cpu([result]), window.closed - asked)


def count_kills(dask_worker: Any, file: str) -> None:
    """Have a worker read another count of the kernel's kills than that of its control group."""
    dask_worker.plugins["dask-efficiency-worker"].meter.oom_counter = Path(file)


def test_a_kill_by_the_kernel_is_distinguished_from_another_signal(mortal_client, attendance, tmp_path):
    client, counter = mortal_client, tmp_path / "memory.events"
    first, second = known = addresses(client)
    counter.write_text("oom_kill 3\n")
    client.run(count_kills, file=str(counter))

    def has_heard(address: str, kills: int) -> bool:
        payload = client.cluster.scheduler.workers[address].metrics.get("efficiency", {})
        return list(payload.get("oom_kills", ())) == [str(counter), kills]

    eventually(lambda: all(has_heard(address, 3) for address in known))
    silence(client, first)
    counter.write_text("oom_kill 4\n")
    kill(client, first)
    eventually(lambda: has_heard(second, 4))
    kill(client, second)
    losses = client.cluster.scheduler.plugins["dask-efficiency"]._meter.accounts.cluster.losses
    eventually(lambda: len(losses) == 2 and all(loss.reason for loss in losses))
    reasons = {one.worker: one.reason for one in snapshot(client).lost_workers}
    assert reasons == {
        attendance.names[first]: "killed by SIGKILL, by the kernel: out of memory",
        attendance.names[second]: f"killed by SIGKILL, {BY_OTHERS}",
    }
