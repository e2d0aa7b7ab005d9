"""Claim: sampling what a client does takes at most 0.3 % of a core, and no measurable part of its own pace.

``python -m benchmarks.client_cost`` prints, for what the thread of a report's block may do, the CPU time of the sampler
by its own clock as a share of one core, with a stack of 60 frames. For a loop of pure Python it also prints its
CPU seconds per turn, paired: the sampler's thread is on and off in turns, a second each, in the same report. And for
delayed values, the collections that are made most quickly, what noting the line of each costs, on and off in turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import dask
from distributed import Client, LocalCluster

from benchmarks.figures import figure
from dask_efficiency import efficiency_report
from dask_efficiency.report.client_sampler import SAMPLER
from dask_efficiency.report.making import MAKING, MadeLines

#: What the claim allows, in per cent of one core.
CLAIM = 0.3
#: Frames of the user's around what it does, and turns of the loop.
DEPTH, TURNS = 60, 20_000
#: Delayed values of a turn.
VALUES = 2_000


def deep(do: Callable[[], object], depth: int = DEPTH) -> object:
    return deep(do, depth - 1) if depth else do()


def share(do: Callable[[], object], client: Client) -> float:
    """Per cent of one core that the sampler takes meanwhile."""
    with efficiency_report(client):
        time.sleep(2)  # it begins with short intervals, until it knows its own cost
        before, began = SAMPLER.spent, time.monotonic()
        deep(do)
        return 100 * (SAMPLER.spent - before) / 1e9 / (time.monotonic() - began)


def turn() -> float:
    """CPU seconds of some Python."""
    began = time.thread_time()
    for i in range(TURNS):
        str(i)
    return time.thread_time() - began


def slower(client: Client, pairs: int) -> list[float]:
    """Per cent by which turns take longer with the sampler on than just before or after with it off."""
    found = []
    with efficiency_report(client):
        (window,) = SAMPLER._windows
        time.sleep(2)
        for i in range(pairs):
            taken = {}
            for on in (True, False) if i % 2 else (False, True):
                (SAMPLER.open if on else SAMPLER.close)(window)
                until, turns = time.monotonic() + 1, []
                while time.monotonic() < until:
                    turns.append(turn())
                taken[on] = statistics.median(turns)
                SAMPLER.close(window)
            found.append(100 * (taken[True] / taken[False] - 1))
    return found


def noting(pairs: int) -> list[float]:
    """CPU microseconds that noting the line of a delayed value takes."""
    found = []
    for i in range(pairs):
        taken = {}
        for on in (True, False) if i % 2 else (False, True):
            lines = MadeLines()
            if on:
                MAKING.add(lines)
            began = time.thread_time()
            for _ in range(VALUES):
                dask.delayed(len, pure=False)([])
            taken[on] = time.thread_time() - began
            MAKING.remove(lines)
        found.append(1e6 * (taken[True] - taken[False]) / (2 * VALUES))  # the function, and its call
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each load (default 20)")
    parser.add_argument("--pairs", type=int, default=15, help="of seconds with the sampler on and off (default 15)")
    chosen = parser.parse_args()

    def computes() -> None:
        until = time.monotonic() + chosen.seconds
        while time.monotonic() < until:
            turn()

    with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster, Client(cluster) as client:

        def waits() -> None:
            client.submit(time.sleep, chosen.seconds, pure=False).result()

        print(f"the client's thread   per cent of one core (claim: at most {CLAIM})")
        loads = {"waits for a result": waits, "sleeps": lambda: time.sleep(chosen.seconds), "computes": computes}
        shares = {}
        for name, do in loads.items():
            shares[name] = share(do, client)
            print(f"{name:22} {shares[name]:6.3f}", flush=True)
        found = slower(client, chosen.pairs)
        low, middle, high = statistics.quantiles(found, n=4)
        print(f"its own pace, paired: {middle:+.2f} % CPU per turn (quartiles {low:+.2f} to {high:+.2f})")
        figure("most of a core", max(shares.values()), "%", at_most=CLAIM)
        figure("CPU added to a turn", found, "%")
    found = noting(chosen.pairs)
    print(f"noting the line of a delayed value: {statistics.median(found):.1f} us of CPU")
    figure("CPU of noting the line of a collection", found, "us")


if __name__ == "__main__":
    main()
