"""conditions_of: what a report says that decides on findings and their cures."""

from __future__ import annotations

import math
import re
from collections import Counter

from dask_efficiency.accounts.buckets import GOOD, HELD, Breakdown, Bucket, cause_name
from dask_efficiency.accounts.cluster.history import WITHOUT_ACCOUNT
from dask_efficiency.accounts.cluster.scheduler_loop import RECEIVING, SENDING, STEP, STREAM
from dask_efficiency.accounts.lines import (
    CHILD_CPU,
    EVENT_LOOP,
    NO_CORE,
    NOWHERE,
    Frame,
    blamed,
    is_import,
    is_the_users,
    place_of,
)
from dask_efficiency.accounts.metered import of_shuffles
from dask_efficiency.accounts.waits import CHILD, CLUSTER, LOCK, SHUFFLE, place_of_wait
from dask_efficiency.accounts.worker.balance import Outcome
from dask_efficiency.report.blocks import (
    blocks_of_scheduler,
    held_by_client,
    is_run,
    most_of,
    overhead_blocked,
    own_blocks,
    place_of_blocks,
    place_on_worker,
    waited_for_blocks,
)
from dask_efficiency.report.conditions import NOTHING_MOVED, OF_THREADS, ROUND_TRIPS, Conditions
from dask_efficiency.report.gil import longest_holder, share_of_holders, under_gil, works_on_text
from dask_efficiency.report.gpu import waiting_seconds
from dask_efficiency.report.made import made_singly
from dask_efficiency.report.memory_needs import needs_of
from dask_efficiency.report.messages import kind_of, loads, objects_fetched
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.sizes import sizes_of
from dask_efficiency.report.skew import larger_input, longest_slept, median_seconds, ran_alone, ran_in_turn
from dask_efficiency.report.turnover import FEW_STAYED, came_and_went
from dask_efficiency.report.values import ClientRow, LongHold
from dask_efficiency.report.wall_clock import (
    client_doing,
    client_phase,
    need_last,
    sending,
    time_of_client_counts,
    waited_in_turn,
)
from dask_efficiency.show.figures import format_count
from dask_efficiency.show.finding import MOST

#: Share of a client's sleep with work outstanding from which it may have waited for that. A guess.
POLLS = 0.1
#: Handler of ``client.run_on_scheduler``.
RUN_FUNCTION = "run_function"
#: Parts of the scheduler's event loop that tasks' own traffic takes.
_OF_TASKS = (STREAM, SENDING, RECEIVING, STEP)
#: Parts that take workers' events in and hand them on, as of ``Worker.log_event`` and ``client.forward_logging``.
_OF_EVENTS = ("event", "log-event")
#: Functions of Dask's that look for tasks in each item of what they are given.
_BY_ITEM = re.compile(
    r"(?:unpack_collections|unpack_remotedata|pack_data|parse_input|convert_legacy_task)(?:\.<locals>.*)?$|NestedContainer\."
)


def conditions_of(report: EfficiencyReport) -> Conditions:
    """Conditions of a report."""
    whole = report.breakdown
    finalized = whole.total_ns - whole.ns(Bucket.NO_WORK, Bucket.RUNNING)
    tasks = sum(n for outcome, n in report.tasks.items() if outcome != WITHOUT_ACCOUNT)
    wall, noncpu = report.cluster_seconds, whole[Bucket.THREAD_NONCPU]
    in_threads = whole.ns(*GOOD, Bucket.THREAD_NONCPU) / 1e9
    cpu = whole.ns(Bucket.THREAD_CPU, Bucket.LIBRARY_THREADS)
    chain = alone = math.nan
    if (path := report.path) is not None and path.makespan_seconds > 0 and path.divisible:
        task = ran_alone(report)
        chain = path.floor_seconds / path.makespan_seconds
        alone = task.alone_seconds / path.makespan_seconds if task is not None else 0.0
    waited_for = _waited_for(report)
    waiting = report.waiting
    children = sum(row.ns for row in report.profile if row.bucket == CHILD_CPU) / 1e9
    busy, by, share = _loop(report)
    holds = [block for block in blocks_of_scheduler(report) if block.holder not in (EVENT_LOOP, NO_CORE)]
    starved = [block for block in report.loop_blocks if block.holder == NO_CORE]
    by_work = [block for block in report.loop_blocks if block.holder != NO_CORE]
    saves = report.savings.get(ROUND_TRIPS)
    of_threads = [report.savings[kind].seconds for kind in OF_THREADS if kind in report.savings]
    doing, sender, single, loop = client_doing(report), sending(report), made_singly(report)[1], report.scheduler_loop
    return Conditions(
        task_seconds=in_threads / tasks if tasks else math.nan,
        median_seconds=median_seconds(report),
        threads=report.threads,
        held_threads=whole.ns(*HELD) / 1e9 / wall if wall else math.nan,
        cores=math.nan if report.cores is None else report.cores,
        others=report.others_share or 0.0,
        cores_used=_cores_used(report),
        libraries=whole.ns(Bucket.LIBRARY_THREADS) / cpu if cpu else math.nan,
        gil_of_loops=share_of_holders(report, lambda holder: holder.holder == EVENT_LOOP),
        under_gil=under_gil(report),
        under_gil_of_holder=under_gil(report, longest_holder(report)),
        gil_of_text=share_of_holders(report, lambda holder: any(map(works_on_text, holder.stack))),
        places={cause: _place(report, cause) for cause in (LOCK, CLUSTER)},
        children_seconds=children,
        children_share=children / waiting[CHILD] if waiting.get(CHILD) else 0.0,
        short_of_cores=waiting.get("core", 0.0) > waiting.get("gil", 0.0),
        one_thread_each=bool(report.nthreads) and max(report.nthreads.values()) == 1,
        gpu_waiting=waiting_seconds(report.details) / noncpu if noncpu else 0.0,
        spilling=whole.ns(Bucket.SPILL) / finalized if finalized else 0.0,
        spilled=report.moved.get("spilled", NOTHING_MOVED),
        read_back=report.moved.get("read-back", NOTHING_MOVED),
        # A single task that is most of the run is no chain.
        chain=math.nan if alone >= MOST else chain,
        alone=alone,
        larger_input=larger_input(report, waited_for),
        waited_for=waited_for,
        graphs=report.graphs,
        rounds=report.rounds,
        tasks_per_graph=tasks / report.graphs if report.graphs else math.nan,
        fills_workers=_fills_workers(report, waited_for),
        importing=waited_for_blocks(report, [block for block in own_blocks(report) if is_import(block.stack)]),
        blocked=waited_for_blocks(report, report.loop_blocks),
        blocked_by=place_on_worker(by_work),
        overhead_blocked=overhead_blocked(report, by_work),
        run_blocks=most_of(by_work, lambda block: block.holder == EVENT_LOOP and any(map(is_run, block.stack))),
        own_code_blocks=most_of(by_work, _is_own_code),
        task_blocks=most_of(by_work, lambda block: block.holder != EVENT_LOOP),
        starved=waited_for_blocks(report, starved),
        gil_held=waited_for_blocks(report, holds),
        gil_held_by=held_by_client(report, holds) or place_of_blocks(holds),
        saturation=math.nan if report.worker_saturation is None else report.worker_saturation,
        saturation_needed=saturation_needed(report),
        threads_save=max(of_threads) / wall if of_threads and wall > 0 else math.nan,
        saturation_saves=saves.seconds / wall if saves is not None and wall > 0 else math.nan,
        memory=needs_of(report),
        sizes=sizes_of(report),
        loop_busy=busy,
        loop_by=by,
        loop_share=share,
        loop_of_events=_events(report)[0] > MOST,
        loop_of_results=_results(report) > MOST,
        client_phase=client_phase(report),
        client_activity=doing.activity if doing is not None and time_of_client_counts(report) else "",
        building=sum(row.ns for row in report.client if _goes_by_item(row)) / 1e9 / tasks if tasks else 0.0,
        polls=_polls(report),
        sent_by=sender.line.function if sender is not None and sender.by_library else "",
        made_singly=single.called if single.frames else "",
        singles=single.frames,
        in_turn=sender is not None and sender.share > MOST and waited_in_turn(report, sender.line),
        needs_last=(in_loop := need_last(report)) > 0,
        in_loop=in_loop,
        objects_fetched=objects_fetched(report),
        data_in_graphs=any(kind_of(load) in ("large-graph", "heavy-tasks") for load in loads(report)),
        scatters=sum(part.calls for part in loop.handlers if part.name == "scatter") if loop is not None else 0,
        failed_attempts=report.tasks.get(Outcome.FAILED, 0),
        failed=sum(failure.tasks for failure in report.failures),
        joining=not report.not_measured,
        came_and_went=bool(came_and_went(report.attendance, times=FEW_STAYED)),
        ran_in_turn=ran_in_turn(report, waited_for),
        longest_slept=longest_slept(report),
    )


def _goes_by_item(row: ClientRow) -> bool:
    inside = (frame.function for frame in row.stack if not is_the_users(frame.file))
    return row.activity == "build" and any(map(_BY_ITEM.match, inside))


def _polls(report: EfficiencyReport) -> bool:
    sleeping = [(row.ns, row.idle_ns) for row in report.client if row.activity == "sleep"]
    return sum(ns - idle for ns, idle in sleeping) > POLLS * sum(ns for ns, _ in sleeping)


def _is_own_code(block: LongHold) -> bool:
    return block.holder == EVENT_LOOP and is_the_users(blamed(block.stack).file)


def _cores_used(report: EfficiencyReport) -> float:
    used = report.ideal_bounds.get("cores", math.nan)
    return used / report.cluster_seconds + (report.others_share or 0.0) if report.cluster_seconds else math.nan


def _place(report: EfficiencyReport, cause: str) -> str:
    """Place at which tasks waited most of the time, for a cause; empty without one, or samples.

    Where a P2P shuffle moves data, tasks wait until buffers are sent or written, whatever the samples of some show.
    """
    name = cause_name(Bucket.THREAD_NONCPU, cause)
    rows = [row for row in report.profile if row.bucket == Bucket.THREAD_NONCPU and row.cause == cause]
    found: Counter[str] = Counter()
    for row in rows:
        found[place_of_wait(row.stack)] += row.ns
    place, ns = next(iter(found.most_common(1)), ("", 0))
    moving = {row.prefix for row in rows if place_of_wait(row.stack) == SHUFFLE}
    waited = {prefix: row.get(name, 0) for prefix, row in report.causes_by_prefix.items()}
    moved = sum(ns for prefix, ns in waited.items() if of_shuffles(prefix) or prefix in moving)
    if moved > MOST * sum(waited.values()):
        return SHUFFLE
    return place if ns > MOST * found.total() else ""


def _waited_for(report: EfficiencyReport) -> str:
    """Prefix that everything waited for, for most of the time without parallelism."""
    waited = report.waited_for
    longest = max(waited, key=lambda prefix: waited[prefix], default="")
    return longest if waited and waited[longest] > MOST * sum(waited.values()) else ""


def saturation_needed(report: EfficiencyReport) -> float:
    """Saturation at which each slot has its next task on the worker for the length of a round trip.

    In a slot, a task of length ``t`` is followed by a gap ``g``. The tasks queued on the worker must cover the gap
    twice, as round trips vary. A worker with ``n`` threads is sent ``ceil(saturation x n)`` tasks.
    """
    now, held = report.worker_saturation, report.breakdown.ns(*HELD)
    threads = report.nthreads.values()
    if now is None or not held or not threads or not math.isfinite(now):
        return math.nan
    queued = sum(max(0, math.ceil(now * n) - n) for n in threads) / sum(threads)
    gaps = report.causes_ns(Bucket.IDLE).get("round-trips", 0) / held
    return max(2.0, math.ceil(2 * (1 + queued + 2 * gaps)) / 2)


def _loop(report: EfficiencyReport) -> tuple[float, str, float]:
    loop = report.scheduler_loop
    if loop is None or loop.busy_with_work is None or not loop.busy_seconds:
        return math.nan, "", 0.0
    of_events, events = _events(report)
    if of_events > MOST:
        return loop.busy_with_work, f"{format_count(events, 'event')} that workers sent{_logged_at(report)}", of_events
    own = [part for part in (*loop.handlers, *loop.hooks) if part.kind not in _OF_TASKS or is_the_users(part.file)]
    most = max(own, key=lambda part: part.seconds, default=None)
    if most is not None and most.seconds > MOST * loop.busy_seconds:
        where = f" in {place_of(most.stack[0])}" if most.file else ""
        if most.name == RUN_FUNCTION:  # what it called
            where = f": {place_of_blocks([one for one in loop.blocks if one.holder == EVENT_LOOP])}"
        return loop.busy_with_work, f"{most.kind} `{most.name}`{where}", most.seconds / loop.busy_seconds
    return loop.busy_with_work, loop.handlers[0].title if loop.handlers else "", 0.0


def _events(report: EfficiencyReport) -> tuple[float, int]:
    """Share of the scheduler's busy time that took events such as log records of workers, and how many there were."""
    loop = report.scheduler_loop
    if loop is None or not loop.busy_seconds:
        return 0.0, 0
    parts = [part for part in loop.handlers if part.name in _OF_EVENTS]
    # Hooks are part of the handlers' time: what a plugin of the user's takes is its own.
    hooks = sum(part.seconds for part in loop.hooks if part.name.endswith(".log_event") and is_the_users(part.file))
    seconds = max(0.0, sum(part.seconds for part in parts) - hooks)
    return seconds / loop.busy_seconds, max((part.calls for part in parts), default=0)


def _results(report: EfficiencyReport) -> float:
    """Share of the scheduler's busy time that took results on their way to clients."""
    loop = report.scheduler_loop
    if loop is None or not loop.busy_seconds:
        return 0.0
    return sum(part.seconds for part in loop.handlers if part.name.startswith("results")) / loop.busy_seconds


def _logged_at(report: EfficiencyReport) -> str:
    """Line of the tasks that sent events longest, in words; empty if none was seen."""
    longest = Counter[Frame]()
    for row in report.profile:
        if any(frame.function == "Worker.log_event" for frame in row.stack):
            longest[blamed(row.stack)] += row.ns
    (line, _), *_ = longest.most_common(1) or [(NOWHERE, 0)]
    return f", most at {place_of(line)}" if line.file else ""


def _fills_workers(report: EfficiencyReport, prefix: str) -> bool:
    skew, whole = report.skew.get(prefix), report.by_prefix.get(prefix)
    one_each = skew is not None and skew.count == len(report.by_worker) > 1 and skew.times_longer < 2
    return one_each or (whole is not None and has_own_threads(whole))


def has_own_threads(whole: Breakdown) -> bool:
    """True if such tasks compute, and do so for more than a third of their time in threads of libraries."""
    return 3 * whole.ns(Bucket.LIBRARY_THREADS) > whole.ns(*HELD) and whole.ns(Bucket.THREAD_CPU) > 0
