"""Blocks of event loops in a report: what they held up, and what they were."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from dask_efficiency.accounts.buckets import Bucket, cause_name
from dask_efficiency.accounts.cluster.scheduler_loop import LoopBlock
from dask_efficiency.accounts.lines import EVENT_LOOP, NO_CORE, NOWHERE, Frame, Stack, blamed, is_own
from dask_efficiency.report.culprits import holder_text, place_text
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.recipe_text import Weighted
from dask_efficiency.report.values import LongHold
from dask_efficiency.show.figures import workers_named
from dask_efficiency.show.finding import MOST

#: Causes of idle time that ends with a message.
FOR_SCHEDULER = ("scheduler", "round-trips")
#: Share of the time of all blocked event loops from which one worker's are named.
ONE_WORKER = 0.8


def blocks_of_scheduler(report: EfficiencyReport) -> Sequence[LoopBlock]:
    """Blocks of the scheduler's event loop."""
    return report.scheduler_loop.blocks if report.scheduler_loop is not None else ()


def own_blocks(report: EfficiencyReport) -> list[LongHold | LoopBlock]:
    """Blocks of all event loops by what these did themselves."""
    blocks: list[LongHold | LoopBlock] = [*report.loop_blocks, *blocks_of_scheduler(report)]
    return [block for block in blocks if block.holder == EVENT_LOOP]


def waited_for_blocks(report: EfficiencyReport, blocks: Sequence[LongHold | LoopBlock]) -> float:
    """Share of the idle time for the scheduler and for round trips that blocks of event loops explain.

    A block of a worker's holds up its threads, one of the scheduler's all threads.
    """
    causes = report.causes_ns(Bucket.IDLE)
    waited = sum(causes.get(cause, 0) for cause in FOR_SCHEDULER) / 1e9
    threads = report.nthreads
    held_up = sum(
        block.seconds * (threads.get(block.worker, 1) if isinstance(block, LongHold) else report.threads)
        for block in blocks
    )
    return held_up / waited if waited else 0.0


def overhead_blocked(report: EfficiencyReport, blocks: Sequence[LongHold]) -> float:
    """Share of the workers' overhead that blocks of their event loops explain, at most all of each worker's."""
    overhead = {name: row[Bucket.OVERHEAD] for name, row in report.by_worker.items()}
    blocked = dict.fromkeys(overhead, 0.0)
    for block in blocks:
        if block.worker in blocked:
            blocked[block.worker] += block.seconds * report.nthreads.get(block.worker, 1)
    whole = sum(overhead.values())
    return sum(min(blocked[name], overhead[name]) for name in overhead) / whole if whole else 0.0


def most_of(blocks: Sequence[LongHold], meant: Callable[[LongHold], bool]) -> bool:
    """True if most of the time of blocks is of this sort."""
    return sum(block.seconds for block in blocks if meant(block)) > MOST * sum(block.seconds for block in blocks)


def is_run(frame: Frame) -> bool:
    """True for the function of Dask's that calls what ``client.run`` was given."""
    return frame.function == "run" and frame.file.replace("\\", "/").endswith("/distributed/worker.py")


def place_on_worker(blocks: Sequence[LongHold]) -> str:
    """Place of blocks, with their worker if most of the time is of one: ```clog` in etl.py:8, on worker w1``."""
    seconds = defaultdict[str, float](float)
    for block in blocks:
        seconds[block.worker] += block.seconds
    worker = max(seconds, key=lambda worker: seconds[worker], default="")
    if not seconds[worker] > ONE_WORKER * sum(seconds.values()):
        return place_of_blocks(blocks)
    place = place_of_blocks([block for block in blocks if block.worker == worker])
    return ", on ".join(filter(None, (place, workers_named([worker]))))


def stacks_beside_tasks(report: EfficiencyReport) -> dict[str, Weighted]:
    """Stacks behind losses that are in no task's thread, by kind, with weights in nanoseconds of threads.

    Threads that wait for the scheduler, or for event loops, wait for what blocked these; what no block explains is of
    no place. Those that have no task ready wait for what the client does while there is work.
    """
    threads = report.nthreads
    of_workers = [(block, block.seconds * threads.get(block.worker, 1)) for block in report.loop_blocks]
    of_scheduler = [(block, block.seconds * report.threads) for block in blocks_of_scheduler(report)]
    idle, overhead = report.causes_ns(Bucket.IDLE), report.causes_ns(Bucket.OVERHEAD)
    for_scheduler = sum(idle.get(cause, 0) for cause in FOR_SCHEDULER)
    overheads = (Bucket.OVERHEAD, *(cause_name(Bucket.OVERHEAD, cause) for cause in overhead))
    at_work = [(row.stack, float(row.ns - row.idle_ns)) for row in report.client]
    return {
        **{
            cause_name(Bucket.IDLE, cause): _within(for_scheduler, *of_workers, *of_scheduler)
            for cause in FOR_SCHEDULER
        },
        cause_name(Bucket.IDLE, "graph"): _within(idle.get("graph", 0), *of_scheduler),
        **dict.fromkeys(overheads, _within(report.breakdown.ns(Bucket.OVERHEAD), *of_workers)),
        **dict.fromkeys((Bucket.IDLE, cause_name(Bucket.IDLE, "parallelism")), at_work),
    }


def _within(whole_ns: float, *blocks: tuple[LongHold | LoopBlock, float]) -> list[tuple[Stack, float]]:
    found = [(block.stack, seconds * 1e9) for block, seconds in blocks if block.stack and block.holder != NO_CORE]
    return [*found, ((NOWHERE,), max(0.0, whole_ns - sum(ns for _, ns in found)))]


def place_of_blocks(blocks: Sequence[LongHold | LoopBlock]) -> str:
    """Place that most of the time of blocks is at, with its thread if not the event loop's; empty if unknown."""
    seconds = defaultdict[str, float](float)
    for block in blocks:
        seconds[_place_of(block)] += block.seconds
    return max(seconds, key=lambda place: seconds[place], default="")


def _place_of(block: LongHold | LoopBlock) -> str:
    where = place_text(blamed(block.stack))
    if block.doing and not any(map(is_own, block.stack)):
        return block.doing
    if block.doing:  # the user's own code, as an object of its class is pickled
        return f"{where}, {block.doing}"
    return where if block.holder == EVENT_LOOP else holder_text(block.holder, blamed(block.stack))


def held_by_client(report: EfficiencyReport, blocks: Sequence[LoopBlock]) -> str:
    """Place at which the client kept the GIL from the scheduler, in whose process it is; empty if that was another.

    It has samples at the line of the longest block, or about as long holds of the GIL with something else after them.
    """
    longest = max(blocks, key=lambda block: block.seconds, default=None)
    if longest is None:
        return ""
    there, held = blamed(longest.stack), [row for row in report.client if row.held_ns]
    if not any(blamed(row.stack)[1:] == there[1:] for row in report.client if there.file):
        if not held or sum(row.held_ns for row in held) < MOST * 1e9 * sum(block.seconds for block in blocks):
            return ""
        there = blamed(max(held, key=lambda row: row.held_ns).stack)
    return f"the client's own code, {place_text(there)}" if there.file else ""
