"""Claim: metering costs at most 1 % of no-op task throughput, and 5 us of CPU a task on worker and scheduler.

Recording, while it is on, adds at most 8 us of CPU a task on each.

``python benchmarks/overhead.py`` prints, each with its spread:

1. microseconds of our code for each no-op task, timed alone in a tight loop on recorded hook
   sequences (worker hooks, thread measurement, scheduler hooks): precise, the figure to optimise by;
2. paired, interleaved runs of no-op tasks on a real cluster of processes, with and without the
   plugin: ratio of throughputs, and the difference in process CPU of the workers and the scheduler.

Where the noise is larger than the claim, it says so.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import statistics
import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from distributed import Client, wait
from distributed.core import Status
from distributed.deploy.subprocess import SubprocessCluster
from distributed.worker_state_machine import ExecuteSuccessEvent

from dask_efficiency import EfficiencyPlugin, unregister
from dask_efficiency.cluster import ClusterLedger
from dask_efficiency.plugins.bootstrap import EfficiencyWorkerPlugin
from dask_efficiency.plugins.scheduler.outstanding import WorkTracker
from dask_efficiency.plugins.scheduler.recorder import ClusterRecorder
from dask_efficiency.plugins.worker.meter import WorkerMeter
from dask_efficiency.plugins.worker.recorder import WorkerRecorder
from dask_efficiency.plugins.worker.task_meter import Run, TaskMeter, _metered
from dask_efficiency.trace.batch import RUN, encode

#: What a no-op task goes through on a worker, and on the scheduler.
WORKER_TRANSITIONS = (
    ("released", "waiting"),
    ("waiting", "ready"),
    ("ready", "executing"),
    ("executing", "memory"),
    ("memory", "released"),
    ("released", "forgotten"),
)
SCHEDULER_TRANSITIONS = (
    ("released", "waiting"),
    ("waiting", "processing"),
    ("processing", "memory"),
    ("memory", "released"),
    ("released", "forgotten"),
)


#: Runs of a tight loop of which the quickest counts.
REPEATS = 15


def no_op(i: int) -> int:
    """The task that costs nothing itself."""
    return i


class _Worker(SimpleNamespace):
    """As much of a worker as the meter touches."""

    __hash__ = object.__hash__


def worker_hooks(tasks: int, *, recorded: bool = False) -> float:
    """Microseconds of the worker's hooks a task, the driving loop's own time taken off.

    Recorded: those of the recorder alone, its batches included.
    """
    state = SimpleNamespace(
        nthreads=2,
        tasks={},
        executing=set(),
        long_running=set(),
        waiting=set(),
        constrained=[],
        stimulus_log=[None],
        transition_counter=0,
    )
    worker = _Worker(
        state=state,
        status=Status.running,
        digests_total={},
        metrics={},
        handlers={},
        executors={},
        active_threads={},
        data={},
        address="bench",
        log_event=lambda topic, message: None,
        transfer_incoming_log=(),
    )
    plugin = EfficiencyWorkerPlugin("0", "bench", 100, [])  # type: ignore[no-untyped-call]
    meter = WorkerMeter(worker, plugin)  # type: ignore[arg-type]
    hook, runs = meter.transition, meter._threads.meter.done
    if recorded:
        hook = asyncio.run(_recorder(worker, runs)).transition
    keys = [f"no_op-{i}" for i in range(tasks)]

    def drive(hook: Callable[[str, str, str], Any]) -> float:
        began = time.thread_time_ns()
        for key in keys:
            ts = _Task(key)
            state.tasks[key] = ts
            for start, finish in WORKER_TRANSITIONS:
                ts.state = finish
                if finish == "executing":
                    state.executing.add(ts)
                elif start == "executing":
                    state.executing.discard(ts)
                    runs[key] = time.monotonic_ns(), time.monotonic_ns(), 0, 1, 1
                    state.stimulus_log[:] = [
                        ExecuteSuccessEvent(
                            key=key, run_id=0, value=None, start=0.0, stop=0.0, nbytes=0, type=None, stimulus_id=""
                        )
                    ]
                hook(key, start, finish)
            del state.tasks[key]
        return (time.thread_time_ns() - began) / tasks / 1000

    return _difference(lambda: drive(hook), lambda: drive(lambda key, start, finish: None))


async def _recorder(worker: Any, runs: Mapping[Any, Run]) -> WorkerRecorder:
    recorder = WorkerRecorder(worker, "bench", runs, print)
    recorder.stop()
    return recorder


class _Task:
    """As much of a task as the hooks touch."""

    __slots__ = (
        "annotations",
        "dependencies",
        "key",
        "nbytes",
        "prefix",
        "run_id",
        "span_id",
        "startstops",
        "state",
        "waiting_for_data",
    )

    def __init__(self, key: str) -> None:
        self.key = key
        self.prefix = "no_op"
        self.run_id = 0
        self.nbytes = 28
        self.dependencies: tuple[()] = ()
        self.startstops: tuple[()] = ()
        self.span_id = "span"
        self.annotations: dict[str, Any] | None = {}
        self.waiting_for_data: tuple[()] = ()


def thread_measurement(tasks: int) -> float:
    """Microseconds of measuring a task inside its thread."""
    table: dict[int, Any] = {}

    def run_task(*args: Any) -> None:
        pass

    def drive(run_task: Callable[..., Any]) -> float:
        began = time.thread_time_ns()
        for _ in range(tasks):
            run_task(None, None, None, "no_op", table, None, 0.0)
        return (time.thread_time_ns() - began) / tasks / 1000

    metered = _metered({id(table): TaskMeter(table)}, run_task)
    return _difference(lambda: drive(metered), lambda: drive(run_task))


def scheduler_hooks(tasks: int) -> float:
    """Microseconds of the scheduler's hooks a task."""
    keys = [f"no_op-{i}" for i in range(tasks)]
    new = SimpleNamespace(nbytes=-1)
    scheduler: Any = SimpleNamespace(
        workers={},
        task_prefixes={},
        stream_handlers={},
        tasks=dict.fromkeys(keys, new),
        _task_prefix_count_global={"no_op": 1},
    )

    def drive(hook: Callable[[str, str, str, str], Any]) -> float:
        began = time.thread_time_ns()
        for start, finish in SCHEDULER_TRANSITIONS:
            for key in keys:
                hook(key, start, finish, stimulus_id="stimulus")
        return (time.thread_time_ns() - began) / tasks / 1000

    def metered() -> float:
        return drive(WorkTracker(scheduler, ClusterLedger(at=0), {}).hook(print))

    return _difference(metered, lambda: drive(lambda key, start, finish, stimulus_id: None))


def scheduler_recorder(tasks: int) -> float:
    """Microseconds of the scheduler's recorder a task: its graph, transitions, release, and the worker's batches."""
    group = SimpleNamespace(span_id=None)
    prefix = SimpleNamespace(name="no_op")
    on = SimpleNamespace(address="worker")
    ws = SimpleNamespace(
        address="worker", name="0", host="", nthreads=2, memory_limit=0, resources={}, processing={}, metrics={}
    )
    scheduler: Any = SimpleNamespace(
        workers={"worker": ws},
        tasks={
            f"no_op-{i}": SimpleNamespace(
                key=f"no_op-{i}",
                priority=(0, 1, i),
                group=group,
                prefix=prefix,
                processing_on=on,
                run_id=i,
                annotations=None,
                nbytes=28,
                dependencies=(),
                host_restrictions=None,
                worker_restrictions=None,
                resource_restrictions=None,
                retries=0,
                actor=False,
            )
            for i in range(tasks)
        },
        extensions={},
        bandwidth=1e8,
        stream_handlers={},
        _broker=SimpleNamespace(truncate=lambda topic: None),
    )
    keys = list(scheduler.tasks)
    told = {
        "worker": "worker",
        "nbytes": 28,
        "startstops": [{"action": "compute", "start": 1.7e9, "stop": 1.7e9}],
        "type": b"",
        "typename": "int",
        "metadata": {},
        "thread": 1,
    }
    rows = [[0] * len(RUN) for _ in range(500)]

    def drive(recorder: Any) -> float:
        graph = f"update-graph-{time.time()}"
        message = encode(recording=getattr(recorder, "id", ""), worker="worker", seq=1, wall=0, runs=rows)
        began = time.thread_time_ns()
        recorder.graph_taken_in("client", keys, set(keys), graph)
        for i, key in enumerate(keys):
            finished = f"task-finished-{1.7e9 + i}"
            for start, finish in SCHEDULER_TRANSITIONS:
                recorder.transition(key, start, finish, stimulus_id=finished, **(told if finish == "memory" else {}))
            recorder.released("client", [key])
            if not i % len(rows):
                recorder.take_batch(message)
        return (time.thread_time_ns() - began) / tasks / 1000

    nothing = SimpleNamespace(
        **dict.fromkeys(("graph_taken_in", "transition", "released", "take_batch"), lambda *args, **kwargs: None)
    )

    def recorded() -> float:
        recorder = asyncio.run(_cluster_recorder(scheduler))
        recorder.transition = recorder.hook(lambda *args, **reported: None, SimpleNamespace(steady=True, watched=set()))
        recorder.released = lambda client, released: recorder._recorder.released(1, client, released)
        spent = drive(recorder)
        assert recorder.off is None
        return spent

    return _difference(recorded, lambda: drive(nothing))


async def _cluster_recorder(scheduler: Any) -> Any:
    recorder = ClusterRecorder(scheduler, lambda *args: None, max_tasks=1_000_000)
    recorder.stop()
    return recorder


def _difference(with_ours: Callable[[], float], without: Callable[[], float]) -> float:
    """What ours adds: the quickest of several runs each, in turn, for noise only ever adds."""
    pairs = [(with_ours(), without()) for _ in range(REPEATS)]
    return min(ours for ours, _ in pairs) - min(theirs for _, theirs in pairs)


def run_once(client: Client, tasks: int) -> tuple[float, float, float]:
    """(wall, workers' CPU, scheduler's CPU) microseconds a task of one batch of no-op tasks."""
    gc.collect()
    workers = sum(client.run(time.process_time).values())
    scheduler = client.run_on_scheduler(time.process_time)
    began = time.perf_counter()
    futures = client.map(no_op, range(tasks), pure=False)
    wait(futures)
    wall = time.perf_counter() - began
    del futures
    workers = sum(client.run(time.process_time).values()) - workers
    scheduler = client.run_on_scheduler(time.process_time) - scheduler
    return wall / tasks * 1e6, workers / tasks * 1e6, scheduler / tasks * 1e6


def metered(client: Client, on: bool) -> None:
    """Put the plugin on, or take it off."""
    if on:
        client.register_plugin(EfficiencyPlugin())
    else:
        unregister(client)


def recorded(client: Client, on: bool) -> None:
    """Have the plugin record, or only meter."""
    client.register_plugin(EfficiencyPlugin(trace=on))


def paired(
    pairs: int, tasks: int, switch: Callable[[Client, bool], None]
) -> list[tuple[tuple[float, float, float], tuple[float, float, float]]]:
    """(without, with) for each pair; the order alternates, so that a drift cancels."""
    results = []
    # Nobody reads what the processes of this cluster print: full pipes would stop them.
    os.environ["DASK_LOGGING__DISTRIBUTED"] = "error"
    with (
        SubprocessCluster(n_workers=1, worker_kwargs={"nthreads": 2}, scheduler_kwargs={"dashboard": False}) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(1)
        run_once(client, tasks)
        for i in range(pairs):
            figures: dict[bool, tuple[float, float, float]] = {}
            for on in (False, True) if i % 2 else (True, False):
                switch(client, on)
                run_once(client, tasks // 10)
                figures[on] = run_once(client, tasks)
            results.append((figures[False], figures[True]))
    return results


def say(name: str, values: list[float], claim: float, unit: str) -> None:
    """One line: median, spread, and whether the claim holds or the noise hides it."""
    median = statistics.median(values)
    low, _, high = statistics.quantiles(values, n=4)
    # Of the median: 1.25 standard errors, the interquartile range standing in for 1.35 sigma.
    error = 1.25 * (high - low) / 1.35 / len(values) ** 0.5
    if error > claim:
        verdict = "noise is larger than the claim"
    elif median - 2 * error > claim:
        verdict = "claim NOT met"
    elif median + 2 * error <= claim:
        verdict = "claim met"
    else:
        verdict = "claim within the noise"
    print(
        f"{name:<34} median {median:8.2f} {unit}  quartiles {low:.2f} to {high:.2f}, +- {error:.2f}, "
        f"n={len(values)}; claim <= {claim:g} {unit}: {verdict}"
    )


def main() -> None:
    """Run both parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=12, help="paired runs on a real cluster (default 12)")
    parser.add_argument("--tasks", type=int, default=1000, help="no-op tasks a run (default 1000)")
    args = parser.parse_args()
    if args.pairs < 2:
        parser.error(f"--pairs is {args.pairs}; expected 2 or more, for a spread")

    print("Our own code alone, CPU a task")
    hooks = [worker_hooks(3_000) for _ in range(7)]
    thread = [thread_measurement(5_000) for _ in range(7)]
    say("worker: hooks", hooks, 5, "us")
    say("worker: measuring in the thread", thread, 5, "us")
    say("worker: together", [a + b for a, b in zip(hooks, thread, strict=True)], 5, "us")
    say("scheduler: hooks", [scheduler_hooks(5_000) for _ in range(7)], 5, "us")
    say("worker: recording, in addition", [worker_hooks(3_000, recorded=True) for _ in range(7)], 8, "us")
    say("scheduler: recording, in addition", [scheduler_recorder(5_000) for _ in range(7)], 8, "us")
    if args.pairs:
        print(f"\nReal cluster, 1 worker x 2 threads, {args.tasks} no-op tasks a run, with against without")
        results = paired(args.pairs, args.tasks, metered)
        base = statistics.median(without[0] for without, _ in results)
        print(f"without the plugin: {base:.0f} us a task ({1e6 / base:.0f} tasks/s)")
        say("throughput lost", [100 * (w[0] / wo[0] - 1) for wo, w in results], 1, "%")
        say("worker CPU added a task", [w[1] - wo[1] for wo, w in results], 5, "us")
        say("scheduler CPU added a task", [w[2] - wo[2] for wo, w in results], 5, "us")
        print("\nThe same with recording, against metering alone")
        results = paired(args.pairs, args.tasks, recorded)
        say("worker CPU added a task", [w[1] - wo[1] for wo, w in results], 8, "us")
        say("scheduler CPU added a task", [w[2] - wo[2] for wo, w in results], 8, "us")


if __name__ == "__main__":
    main()
