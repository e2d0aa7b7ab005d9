"""Claim: what blocked an event loop is named in nine of ten blocks, never wrongly, and none is longer than it was.

``python -m benchmarks.loop_blocks [--repeats 4] [--slack 0.05] [--busy N]`` blocks the event loops of a worker and of
the scheduler of a cluster in processes, while tasks run: by sleeping, in Python and in pickle, for .2 to .8 s
each time. Each block knows by the clock how long it was, and what it was in. One report is made of each.
It prints by kind how many blocks were found and named, how many were named as something else, and the largest excess;
and exits with 1 if the claim does not hold. ``--busy`` processes compute beside it, to see what a crowd changes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import pickle
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median

from distributed import Client, LocalCluster

from benchmarks.figures import figure
from dask_efficiency import EfficiencyPlugin, EfficiencyReport, efficiency_report

LENGTHS = (0.2, 0.4, 0.8)
#: Least share of the blocks.
CLAIMED_NAMED = 0.9


def sleep(seconds: float) -> tuple[float, float]:
    """Sleep on the event loop."""
    began = time.time()
    time.sleep(seconds)
    return began, time.time()


def count_in_python(seconds: float) -> tuple[float, float]:
    """Run Python code on the event loop."""
    began, number = time.time(), 0
    while time.time() - began < seconds:
        number += 1
    return began, time.time()


def pickle_objects(seconds: float) -> tuple[float, float]:
    """Pickle many small objects on the event loop."""
    began = time.time()
    while time.time() - began < seconds:
        pickle.dumps([(i, str(i)) for i in range(20_000)])
    return began, time.time()


#: By kind, what blocks, and the functions of which one must be in the stack.
KINDS: dict[str, tuple[Callable[[float], tuple[float, float]], tuple[str, ...]]] = {
    "sleep": (sleep, ("sleep",)),
    "python": (count_in_python, ("count_in_python",)),
    "pickle": (pickle_objects, ("pickle_objects",)),
}


@dataclass(frozen=True, slots=True)
class Block:
    """A block as it was, and as a report has it."""

    where: str
    kind: str
    seconds: float
    #: None if the report has none.
    told_seconds: float | None
    named: bool
    named_otherwise: bool


def told(report: EfficiencyReport, where: str) -> list[tuple[float, tuple[str, ...]]]:
    """Length and functions of each block of the scheduler's loop, or of the workers'."""
    blocks = report.loop_blocks if where == "worker" else report.scheduler_loop.blocks if report.scheduler_loop else ()
    return [(block.seconds, tuple(frame.function for frame in block.stack)) for block in blocks]


def run(client: Client, where: str, kind: str, seconds: float) -> Block:
    """Block a loop once, beside tasks, and compare."""
    function, names = KINDS[kind]
    with efficiency_report() as report:
        futures = client.map(time.sleep, [0.05 + i / 1e6 for i in range(20)], pure=False)
        time.sleep(0.2)
        if where == "worker":
            one = next(iter(client.scheduler_info()["workers"]))
            ((began, ended),) = client.run(function, seconds, workers=[one]).values()
        else:
            began, ended = client.run_on_scheduler(function, seconds)
        client.gather(futures)
    length, blocks = ended - began, told(report, where)
    if not blocks:
        return Block(where, kind, length, None, named=False, named_otherwise=False)
    longest, functions = max(blocks)
    named = any(name in function for function in functions for name in names)
    return Block(where, kind, length, longest, named, named_otherwise=bool(functions) and not named)


def burn() -> None:
    while True:
        pass


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--slack", type=float, default=0.05, help="seconds of excess that do not count")
    parser.add_argument("--busy", type=int, default=0, metavar="N", help="processes that compute beside it")
    given = parser.parse_args()
    found: list[Block] = []
    with ExitStack() as stack:
        for _ in range(given.busy):
            process = multiprocessing.get_context("spawn").Process(target=burn, daemon=True)
            process.start()
            stack.callback(process.kill)
        cluster = stack.enter_context(LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0"))
        client = stack.enter_context(Client(cluster))
        client.register_plugin(EfficiencyPlugin())
        client.gather(client.map(str, range(8)))
        for _ in range(given.repeats):
            for where in ("worker", "scheduler"):
                for kind in KINDS:
                    found += [run(client, where, kind, seconds) for seconds in LENGTHS]
    print(f"{'loop':10} {'kind':8} {'blocks':>6} {'found':>6} {'named':>6} {'wrong':>6}  excess (s): median, largest")
    for where in ("worker", "scheduler"):
        for kind in KINDS:
            those = [block for block in found if (block.where, block.kind) == (where, kind)]
            excess = [block.told_seconds - block.seconds for block in those if block.told_seconds is not None]
            figures = f"{median(excess):+.3f}, {max(excess):+.3f}" if excess else "-"
            named, wrong = sum(block.named for block in those), sum(block.named_otherwise for block in those)
            print(f"{where:10} {kind:8} {len(those):6} {len(excess):6} {named:6} {wrong:6}  {figures}")
    named, wrong = sum(block.named for block in found), sum(block.named_otherwise for block in found)
    longer = sum(block.told_seconds is not None and block.told_seconds > block.seconds + given.slack for block in found)
    holds = (
        figure("named", named, of=len(found), at_least=CLAIMED_NAMED * len(found)),
        figure("named as something else", wrong, at_most=0),
        figure("longer than they were", longer, at_most=0),
    )
    return int(not all(holds))


if __name__ == "__main__":
    sys.exit(main())
