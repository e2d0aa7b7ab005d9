"""Claim: metering costs at most 1 % of no-op task throughput, and 10 us of CPU a task on worker and scheduler together.

Recording, while it is on, adds at most 16 us of CPU a task.

``python -m benchmarks.overhead`` prints, each with its spread:

1. microseconds of CPU that the state machines of a real scheduler and worker take for each no-op task, without the
   plugin, metering and recording, in turn, see :mod:`benchmarks.state_machines`;
2. paired, interleaved runs of no-op tasks on a real cluster of processes, with and without the
   plugin: ratio of throughputs, and the difference in process CPU of the workers and the scheduler.

Where the noise is larger than the claim, it says so.
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import time
from collections.abc import Callable

from distributed import Client, wait
from distributed.deploy.subprocess import SubprocessCluster

from benchmarks.figures import figure
from benchmarks.state_machines import microseconds_a_task
from dask_efficiency import EfficiencyPlugin, unregister


def no_op(i: int) -> int:
    return i


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
    """Print a line: median, spread, and whether the claim holds or the noise hides it; and the figure."""
    median = statistics.median(values)
    low, _, high = statistics.quantiles(values, n=4)
    # Of the median: 1.25 standard errors, the interquartile range standing in for 1.35 sigma.
    error = 1.25 * (high - low) / 1.35 / len(values) ** 0.5
    if error > claim:
        headline = "noise is larger than the claim"
    elif median - 2 * error > claim:
        headline = "claim NOT met"
    elif median + 2 * error <= claim:
        headline = "claim met"
    else:
        headline = "claim within the noise"
    print(
        f"{name:<34} median {median:8.2f} {unit}  quartiles {low:.2f} to {high:.2f}, +- {error:.2f}, "
        f"n={len(values)}; claim <= {claim:g} {unit}: {headline}"
    )
    figure(name, values, unit, at_most=claim)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=12, help="paired runs on a real cluster (default 12)")
    parser.add_argument("--tasks", type=int, default=1000, help="no-op tasks a run (default 1000)")
    args = parser.parse_args()
    if args.pairs < 2:
        parser.error(f"--pairs is {args.pairs}; expected 2 or more, for a spread")

    print("State machines alone, CPU a task")
    turns = [{mode: microseconds_a_task(mode) for mode in ("off", "on", "trace")} for _ in range(7)]
    print(f"without the plugin: {statistics.median(turn['off'] for turn in turns):.0f} us")
    say("metering", [turn["on"] - turn["off"] for turn in turns], 10, "us")
    say("recording, in addition", [turn["trace"] - turn["on"] for turn in turns], 16, "us")
    print(f"\nReal cluster, 1 worker x 2 threads, {args.tasks} no-op tasks a run, with against without")
    results = paired(args.pairs, args.tasks, metered)
    base = statistics.median(without[0] for without, _ in results)
    print(f"without the plugin: {base:.0f} us a task ({1e6 / base:.0f} tasks/s)")
    say("throughput lost", [100 * (w[0] / wo[0] - 1) for wo, w in results], 1, "%")
    say("worker CPU added a task", [w[1] - wo[1] for wo, w in results], 5, "us")
    say("scheduler CPU added a task", [w[2] - wo[2] for wo, w in results], 5, "us")
    print("\nThe same with recording, against metering alone")
    results = paired(args.pairs, args.tasks, recorded)
    say("recording: worker CPU added a task", [w[1] - wo[1] for wo, w in results], 8, "us")
    say("recording: scheduler CPU added a task", [w[2] - wo[2] for wo, w in results], 8, "us")


if __name__ == "__main__":
    main()
