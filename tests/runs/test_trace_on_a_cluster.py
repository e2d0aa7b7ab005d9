import asyncio
import threading
import time
from collections import Counter
from typing import Any, NamedTuple

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster, wait

from dask_efficiency import EfficiencyPlugin, NotRegisteredError, RunTrace, efficiency_report, get_trace, unregister
from dask_efficiency.accounts.processors import cores
from dask_efficiency.accounts.tables import MISSING
from dask_efficiency.plugin.processors import own_processors
from dask_efficiency.runs.recording.worker.recorder import MIN_AT_DISK_NS
from dask_efficiency.runs.trace.schema import BLOCKED_BY, RUN_INSTANTS, STATES, RunOutcome, WorkerChange
from tests.plugin import tasks
from tests.plugin.watch import addresses, ahead_ns, eventually, kill, near
from tests.runs.trace.scenes import needs_of, runs_of

pytestmark = pytest.mark.cluster


def whose(trace: RunTrace, key: Any) -> int:
    return list(trace.keys).index(str(key))


def assert_in_order(trace: RunTrace) -> None:
    instants = np.array([getattr(trace.runs, name) for name in RUN_INSTANTS])
    known = instants != MISSING
    assert (instants >= np.maximum.accumulate(instants))[known].all()
    assert trace.start <= instants[known].min() <= instants[known].max() <= trace.stop


def report_thread(x: int, *dependencies: Any) -> tuple[int, int]:
    time.sleep(0.005)
    return threading.get_native_id(), time.monotonic_ns()


class Layers(NamedTuple):
    """A traced run of three layers: what its tasks return, what each needs, and what the workers fetched."""

    trace: RunTrace
    returned: dict[str, tuple[int, int]]
    needs: dict[str, set[str]]
    fetched: list[tuple[str, str, str]]


@pytest.fixture(scope="module")
def layers(cluster: LocalCluster) -> Layers:
    def fetched(dask_worker: Any) -> list[tuple[str, str, str]]:
        log = dask_worker.transfer_incoming_log
        return [(dask_worker.address, entry["who"], key) for entry in log for key in entry["keys"]]

    with Client(cluster) as client:
        client.register_plugin(EfficiencyPlugin())
        with efficiency_report(client, name="layers", trace=True) as report:
            first = client.map(report_thread, range(12), pure=False)
            second = client.map(report_thread, first, first[::-1], pure=False)
            last = client.submit(report_thread, 0, *second, pure=False)
            wait(last)
            futures = [*first, *second, last]
            returned = dict(zip([f.key for f in futures], client.gather(futures), strict=True))
            moved = [row for rows in client.run(fetched).values() for row in rows]
        needs = {f.key: {a.key, b.key} for f, a, b in zip(second, first, first[::-1], strict=True)}
        needs[last.key] = {future.key for future in second}
        return Layers(report.trace, returned, needs, moved)


def test_every_task_has_one_run_that_succeeded_and_the_dependencies_of_the_graph(layers: Layers) -> None:
    trace = layers.trace
    assert set(trace.keys) == set(layers.returned)
    assert Counter(trace.runs.task.tolist()) == Counter(range(len(layers.returned)))
    assert (trace.runs.outcome == RunOutcome.SUCCEEDED).all()
    assert not trace.runs.recomputed.any()
    assert (trace.dropped, trace.notes) == ({}, ())
    assert {key: needs_of(trace, key) for key in trace.keys} == {k: layers.needs.get(k, set()) for k in trace.keys}


def test_every_instant_of_a_run_is_there_and_none_comes_before_its_cause(layers: Layers) -> None:
    trace = layers.trace
    assert_in_order(trace)
    for name in RUN_INSTANTS:
        assert (getattr(trace.runs, name) != MISSING).all(), name
    ahead = ahead_ns()
    for key, (thread, read) in layers.returned.items():
        (run,) = runs_of(trace, key)
        assert run["thread"] == thread
        # The clock of the day may be turned while the test runs, by less than this.
        assert run["start"] - 1e8 <= read + ahead <= run["stop"] + 1e8


def test_transfers_are_those_that_the_workers_log(layers: Layers) -> None:
    trace, transfers = layers.trace, layers.trace.transfers
    names = [worker.address for worker in trace.workers]
    rows = zip(transfers.receiver, transfers.sender, transfers.task, strict=True)
    recorded = [(names[to], names[of], trace.keys[int(task)]) for to, of, task in rows]
    assert recorded
    assert Counter(recorded) == Counter(row for row in layers.fetched if row[2] in set(trace.keys))
    assert transfers.arrived.all()
    assert (transfers.queued <= transfers.start).all()
    assert (transfers.start <= transfers.stop).all()
    assert (transfers.nbytes > 0).all()


def test_a_run_that_waited_for_a_slot_names_the_task_that_left_it(layers: Layers) -> None:
    runs = layers.trace.runs
    waited = np.flatnonzero(runs.after != MISSING)
    assert len(waited) >= 4  # twelve tasks at once on four slots
    for row in waited:
        before = runs.take((runs.task == runs.after[row]) & (runs.worker == runs.worker[row]))
        assert before.ended.tolist() <= [runs.executing[row]]
        assert runs.ready[row] < before.ended[0]


def test_transitions_are_caused_by_the_scheduler_s_messages(layers: Layers) -> None:
    trace, needs = layers.trace, layers.needs
    kinds = np.array(trace.stimulus_kinds)
    rows = trace.transitions.take(trace.transitions.finish == STATES.index("processing"))
    by_task = {
        trace.keys[task]: kinds[trace.stimuli.kind[cause]] for task, cause in zip(rows.task, rows.stimulus, strict=True)
    }
    reported = {key: runs_of(trace, key)[0]["reported"] for key in trace.keys}
    for key, needed in needs.items():
        taken_in = trace.graphs.taken_in[trace.tasks.graph[whose(trace, key)]]
        late = max(reported[other] for other in needed) > taken_in  # as most are; on a busy machine, not all
        assert by_task[key] == ("task-finished" if late else "update-graph")
    assert {kind for key, kind in by_task.items() if key not in needs} <= {"update-graph", "task-finished"}
    assert (trace.transitions.at[1:] >= trace.transitions.at[:-1]).all()
    assert (trace.stimuli.at[trace.transitions.stimulus] <= trace.transitions.at + 1e6).all()


def test_graphs_phases_and_names_are_there(layers: Layers) -> None:
    trace = layers.trace
    assert (trace.name, trace.prefixes, len(trace.clients), len(trace.graphs)) == ("layers", ("report_thread",), 1, 3)
    (span,) = trace.spans
    assert span.startswith("layers/test_trace_on_a_cluster.py:")
    assert (trace.graphs.received <= trace.graphs.taken_in).all()
    assert set(trace.tasks.graph.tolist()) == {0, 1, 2}
    assert trace.tasks.wanted.all()
    assert (trace.tasks.nbytes > 0).all()
    assert set(trace.phases.phase.tolist()) == {0, 1, 2}
    assert {worker.name for worker in trace.workers} == {"0", "1"}
    assert all(worker.clock_offset == 0 and worker.clock_error > 0 for worker in trace.workers)
    # Both are on this machine, and share its cores.
    assert {worker.cores for worker in trace.workers} == {cores([own_processors()])}
    assert trace.config["bandwidth"] > 0


def test_a_task_that_fails_and_is_tried_again_has_a_run_for_each_try(client: Client, tmp_path: Any) -> None:
    with efficiency_report(client, trace=True) as report:
        future = client.submit(tasks.fail_at_first, tasks.Diary(tmp_path / "diary"), 2, retries=3, pure=False)
        future.result()
        lost = client.submit(tasks.reschedule_at_first, tasks.Diary(tmp_path / "other"), pure=False)
        lost.result()
        hopeless = client.submit(divmod, 1, 0, pure=False)
        wait(hopeless)
    outcomes = [run["outcome"] for run in runs_of(report.trace, future.key)]
    assert outcomes == [RunOutcome.FAILED, RunOutcome.FAILED, RunOutcome.SUCCEEDED]
    assert [run["outcome"] for run in runs_of(report.trace, lost.key)] == [RunOutcome.CANCELLED, RunOutcome.SUCCEEDED]
    assert [run["outcome"] for run in runs_of(report.trace, hopeless.key)] == [RunOutcome.FAILED]
    assert report.trace.constraints[whose(report.trace, future.key)]["retries"] == 3
    assert_in_order(report.trace)


def test_a_task_that_secedes_coroutines_and_actors_are_recorded(client: Client) -> None:
    with efficiency_report(client, trace=True) as report:
        left = client.submit(tasks.leave_the_pool, 0.05, 0.0, 0.1, pure=False)
        coroutine = client.submit(tasks.nap_in_a_coroutine, 0.05, pure=False)
        client.gather([left, coroutine])
        tally = client.submit(tasks.Tally, 0.01, actor=True, pure=False)
        actor = tally.result()
        actor.work(0.01).result()
    trace = report.trace
    (run,) = runs_of(trace, left.key)
    assert run["start"] + 0.05e9 <= run["seceded"] < run["stop"]
    (run,) = runs_of(trace, coroutine.key)
    assert run["stop"] - run["start"] >= 0.049e9
    assert run["thread"] == MISSING
    (run,) = runs_of(trace, tally.key)
    assert run["outcome"] == RunOutcome.SUCCEEDED
    assert trace.constraints[whose(trace, tally.key)]["actor"] is True
    assert_in_order(trace)
    del actor


def test_keys_that_are_no_texts_scattered_data_priorities_and_resources_are_recorded(client: Client) -> None:
    with efficiency_report(client, trace=True) as report:
        urgent = client.submit(tasks.spin, 0.1, priority=7, pure=False)
        # No worker has it, so it does not run; that it was asked for is recorded all the same.
        never = client.submit(tasks.spin, 0.0, resources={"rare": 2}, pure=False)
        measured = urgent.result()
        client.cancel(never)
        data = client.scatter(tasks.incompressible(1000, 0), workers=[addresses(client)[0]])
        key = ("pair", 1, "two")
        future = client.submit(tasks.weigh, data, key=key, workers=[addresses(client)[1]])
        assert future.result() == 1000
    trace = report.trace
    # As the scheduler has it: what comes first is smaller.
    assert trace.tasks.priority_user[whose(trace, urgent.key)] == -7
    assert trace.constraints[whose(trace, never.key)]["resources"] == {"rare": 2.0}
    # CPU time is as the tasks measure it.
    (run,) = runs_of(trace, urgent.key)
    assert run["cpu_ns"] / 1e9 == near(measured["cpu"])
    assert run["stop"] - run["start"] >= run["cpu_ns"]
    (run,) = runs_of(trace, key)
    assert trace.workers[run["worker"]].address == addresses(client)[1]
    assert needs_of(trace, key) == {str(data.key)}
    assert trace.constraints[whose(trace, key)]["restrictions"] == [addresses(client)[1]]
    (transfer,) = np.flatnonzero(trace.transfers.task == whose(trace, data.key))
    assert trace.transfers.sender[transfer] != trace.transfers.receiver[transfer]
    assert not runs_of(trace, data.key)


def test_the_ring_is_bounded_and_counts_dropped_tasks(client: Client) -> None:
    def run(count: int, times: int = 1) -> list[RunTrace]:
        # On one worker, held, and each graph's rows at once: those of tasks that are stolen, forgotten or dropped fill
        # what there is room for.
        held, traces = [], []
        for i in range(times):
            some = range(count * i, count * (i + 1))
            held += client.map(lambda x: x, some, pure=False, workers=addresses(client)[:1])
            wait(held)
            traces.append(get_trace(client))
        return traces

    client.register_plugin(EfficiencyPlugin(trace=True, trace_max_tasks=20))
    try:
        traces = run(10, times=10)
        client.register_plugin(EfficiencyPlugin(trace=True, trace_max_tasks=1_000))
        assert len(run(100)[0].tasks) >= 100
    finally:
        client.register_plugin(EfficiencyPlugin(trace=False))
    assert 1 <= len(traces[-1].tasks) <= 20
    assert traces[-1].dropped["tasks"] >= 70
    # A heartbeat in the midst of a graph may make room for more of it, and so part a task's end from its beginning.
    assert any((trace.runs.outcome == RunOutcome.SUCCEEDED).any() for trace in traces)
    with pytest.raises(RuntimeError, match="does not record"):
        get_trace(client)


def test_an_asynchronous_client_of_a_cluster_in_this_process_gets_its_trace() -> None:
    async def check() -> None:
        async with (
            LocalCluster(n_workers=1, processes=False, asynchronous=True, dashboard_address=":0") as cluster,
            Client(cluster, asynchronous=True) as client,
        ):
            async with efficiency_report(client, trace=True) as report:
                future = client.submit(tasks.nap, 0.01, pure=False)
                await future
                assert set((await get_trace(client)).keys) == {future.key}
            assert [run["outcome"] for run in runs_of(report.trace, future.key)] == [RunOutcome.SUCCEEDED]
            await unregister(client)
            with pytest.raises(NotRegisteredError):
                await get_trace(client)

    asyncio.run(check())


def test_a_killed_worker_loses_its_runs_and_the_task_runs_again(mortal_client: Client, tmp_path: Any) -> None:
    client = mortal_client
    diary = tasks.Diary(tmp_path / "diary")
    with efficiency_report(client, trace=True) as report:
        victim, _other = addresses(client)
        kept = client.submit(tasks.nap, 0.01, workers=[victim], allow_other_workers=True, pure=False)
        wait(kept)
        task = client.submit(tasks.wait_for_word, diary, workers=[victim], allow_other_workers=True, pure=False)
        eventually(lambda: diary.read("start"))
        kill(client, victim)
        diary.write(event="go")
        task.result()
        kept.result()
    trace = report.trace
    first, *rest = runs_of(trace, task.key)
    assert trace.workers[first["worker"]].address == victim
    assert first["outcome"] == RunOutcome.LOST
    assert [run["outcome"] for run in rest] == [RunOutcome.SUCCEEDED]
    assert not rest[0]["recomputed"]
    again = runs_of(trace, kept.key)
    assert [run["outcome"] for run in again] == [RunOutcome.SUCCEEDED, RunOutcome.SUCCEEDED]
    assert [run["recomputed"] for run in again] == [False, True]
    # Its row may have died with the worker; the scheduler heard when it computed.
    assert again[0]["stop"] - again[0]["start"] >= 0.01e9
    left = trace.worker_events.take(trace.worker_events.change == WorkerChange.LEFT)
    assert left.worker.tolist() == [first["worker"]]
    assert first["reported"] <= left.at[0]
    assert_in_order(trace)


def confirmed_steals(dask_scheduler: Any) -> list[Any]:
    return [event[1] for _, event in dask_scheduler.get_events("stealing") if event[0] == "confirm"]


def test_stolen_tasks_have_a_run_for_the_victim_and_one_for_the_thief(mortal_client: Client) -> None:
    client = mortal_client
    with efficiency_report(client, trace=True) as report:
        victim = addresses(client)[0]
        futures = client.map(tasks.nap, [0.2] * 30, workers=[victim], allow_other_workers=True, pure=False)
        wait(futures)
    trace = report.trace
    stolen = {key: runs for key in (future.key for future in futures) if len(runs := runs_of(trace, key)) > 1}
    assert set(stolen) == set(client.run_on_scheduler(confirmed_steals)) != set()
    for *given_up, done in stolen.values():
        assert all((run["outcome"], run["start"]) == (RunOutcome.CANCELLED, MISSING) for run in given_up)
        assert done["outcome"] == RunOutcome.SUCCEEDED
        assert done["worker"] != given_up[-1]["worker"]
    assert_in_order(trace)


def test_workers_that_join_or_restart_are_recorded(mortal_cluster: LocalCluster, mortal_client: Client) -> None:
    client = mortal_client
    with efficiency_report(client, trace=True) as report:
        client.submit(tasks.nap, 0.01, pure=False).result()
        client.restart()
        client.wait_for_workers(2)
        mortal_cluster.scale(3)
        client.wait_for_workers(3)
        newest = addresses(client)[2]
        after = client.submit(tasks.nap, 0.01, workers=[newest], pure=False)
        after.result()
    trace = report.trace
    (run,) = runs_of(trace, after.key)
    assert run["outcome"] == RunOutcome.SUCCEEDED
    assert trace.workers[run["worker"]].address == newest
    assert run["executing"] != MISSING
    assert len(trace.workers) == 5
    changes = Counter(trace.worker_events.change.tolist())
    assert (changes[WorkerChange.JOINED], changes[WorkerChange.LEFT]) == (3, 2)


def test_spilling_is_in_the_trace_by_run_and_by_when_it_blocked_the_loop(new_cluster: Any) -> None:
    thresholds = {"target": 0.3, "spill": False, "pause": False, "terminate": False}
    with (
        dask.config.set({f"distributed.worker.memory.{name}": value for name, value in thresholds.items()}),
        new_cluster(n_workers=1, memory_limit="300MB") as cluster,
        Client(cluster) as client,
        efficiency_report(client, trace=True) as report,
    ):
        arrays = [client.submit(tasks.incompressible, 20_000_000, i, pure=False) for i in range(8)]
        wait(arrays)
        wait([client.submit(tasks.weigh, array, pure=False) for array in arrays])
    runs = report.trace.runs
    blocked = report.trace.blocked
    disk = [BLOCKED_BY.index(cause) for cause in ("spill", "unspill")]
    seen = blocked.take(np.isin(blocked.cause, disk))
    # The loop's time at the disk as it was seen there; the tasks' own part of it, as upstream sums it; and what
    # both slots waited for it.
    at_disk = int((seen.stop - seen.start).sum())
    assert 0 < runs.unspill_ns.sum() + runs.spill_ns.sum() <= at_disk + 2 * MIN_AT_DISK_NS * len(runs)
    assert 0 < round(report.breakdown["spill"] * 1e9) <= 2 * (at_disk + 2 * MIN_AT_DISK_NS * len(runs))
    assert set(seen.cause.tolist()) == set(disk)
    assert (seen.start[1:] >= seen.stop[:-1]).all()
    assert runs.unspill_ns.max() > 0
    assert runs.spill_ns.max() > 0
    weighed = runs.take(np.isin(report.trace.tasks.prefix[runs.task], [report.trace.prefixes.index("weigh")]))
    assert (weighed.unspill_ns <= weighed.submitted - weighed.executing).all()
    # Upstream sums by prefix and by another clock: of two tasks that end together, one may have the spilling of both.
    assert runs.spill_ns.sum() <= (runs.ended - runs.stop).sum() + MIN_AT_DISK_NS * len(runs)


def test_heartbeats_are_recorded_with_memory_and_cpu(client: Client) -> None:
    with efficiency_report(client, trace=True) as report:
        wait(client.submit(tasks.spin, 2.5, pure=False))
    trace = report.trace
    assert set(trace.series.worker.tolist()) == {0, 1}
    assert (trace.series.memory > 0).all()
    assert (trace.series.at >= trace.start).all()
    (worker,) = set(trace.runs.worker.tolist())
    assert 0 < trace.series.thread_cpu[trace.series.worker == worker].sum() <= 2.6
    assert trace.series.thread_cpu[trace.series.worker != worker].sum() == 0
    assert 0 < trace.series.cpu[trace.series.worker == worker].max() < 10


def records(dask_scheduler: Any) -> bool:
    return dask_scheduler.plugins["dask-efficiency"]._meter.parts.get("recording").recorder is not None


def worker_records(dask_worker: Any) -> bool:
    part = dask_worker.plugins["dask-efficiency-worker"].meter._parts.get("recorder")
    return part is not None and part.recorder is not None


def test_a_client_that_leaves_in_the_middle_ends_its_recording(cluster: LocalCluster, client: Client) -> None:
    with Client(cluster, set_as_default=False) as other:
        efficiency_report(other, trace=True).__enter__()
        assert client.run_on_scheduler(records)
    eventually(lambda: not client.run_on_scheduler(records))
    eventually(lambda: not any(client.run(worker_records).values()))


def handlers(dask_scheduler: Any) -> dict[str, str]:
    return {op: repr(handler) for op, handler in dask_scheduler.stream_handlers.items()}


def test_recording_leaves_nothing_behind(client: Client) -> None:
    before = client.run_on_scheduler(handlers)
    with efficiency_report(client, trace=True):
        assert client.run_on_scheduler(handlers) != before
        client.gather(client.map(tasks.nap, [0.001] * 20, pure=False))
    assert client.run_on_scheduler(handlers) == before
    assert client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.get_events("dask-efficiency-trace")) == ()
    with efficiency_report(client) as report:
        client.submit(tasks.nap, 0.01, pure=False).result()
    assert report.trace is None
    with pytest.raises(RuntimeError, match="does not record"):
        get_trace(client)
    assert not any(client.run(worker_records).values())


def test_a_recorder_that_fails_switches_itself_off_with_a_note(client: Client) -> None:
    def on_a_worker(dask_worker: Any) -> None:
        dask_worker.plugins["dask-efficiency-worker"].meter._parts.get("recorder").recorder._running = None

    def on_the_scheduler(dask_scheduler: Any) -> None:
        dask_scheduler.plugins["dask-efficiency"]._meter.parts.get("recording").recorder._recorder._read = None

    with efficiency_report(client, trace=True) as report:
        address = addresses(client)[0]
        client.run(on_a_worker, workers=[address])
        futures = client.map(tasks.nap, [0.01] * 8, pure=False)
        client.gather(futures)
    assert any(address in note and "recorder failed" in note for note in report.trace.notes)
    assert report.tasks["succeeded"] == 8
    assert report.not_measured == {}
    assert [runs_of(report.trace, future.key)[0]["outcome"] for future in futures] == [RunOutcome.SUCCEEDED] * 8
    with efficiency_report(client, trace=True) as report:
        client.run_on_scheduler(on_the_scheduler)
        client.submit(tasks.nap, 0.01, pure=False).result()
    assert report.tasks["succeeded"] == 1
    assert any("recorder on the scheduler failed" in note for note in report.trace.notes)
    # It does not wait for rows that nobody takes in any more.
    assert not any("did not come in time" in note for note in report.trace.notes)
    with efficiency_report(client, trace=True) as again:
        client.submit(tasks.nap, 0.01, pure=False).result()
    assert (again.trace.notes, len(again.trace.runs)) == ((), 1)
