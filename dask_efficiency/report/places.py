"""Places of losses: a line, tasks that all waited for, workers, or what keeps the scheduler busy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import attrgetter

from dask_efficiency.accounts.buckets import HELD, UNKNOWN, Bucket
from dask_efficiency.accounts.metered import SECONDS
from dask_efficiency.plugin.names import ALL_WORKERS
from dask_efficiency.report.blocks import FOR_SCHEDULER
from dask_efficiency.report.computing import own_line
from dask_efficiency.report.conditions import Conditions
from dask_efficiency.report.culprits import senders
from dask_efficiency.report.kinds import SPILLS
from dask_efficiency.report.lost_time import CauseLoss
from dask_efficiency.report.made import asked_by, built_by, names
from dask_efficiency.report.memory import byte_seconds
from dask_efficiency.report.messages import RESULTS, loads
from dask_efficiency.report.metered import own_labels, spilled_text
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.skew import held_up, longest, ran_alone, recorded_tasks
from dask_efficiency.report.turnover import how_lost
from dask_efficiency.report.values import Culprit
from dask_efficiency.report.wall_clock import client_doing, client_line
from dask_efficiency.show.figures import format_count, name_of, named, sentence
from dask_efficiency.show.finding import MOST

#: Loss that spilling explains where it is much: workers' event loops write and read.
LATE_LOOPS = "overhead/event-loop"
#: Share of the time of a culprit that a user's label must cover to be named: waits just outside it share the line's
#: cause. A guess.
COVERED = 0.9
#: Part of a culprit's time from which another line is mentioned with it. By judgement.
ALIKE = 0.5
#: Part of the tasks from which the line that sent most of them is named beside others. By judgement.
PART = 0.25


def place_of_loss(report: EfficiencyReport, facts: Conditions, part: CauseLoss, culprits: Sequence[Culprit]) -> str:
    """Place to blame: a line, the task that all waited for, or what keeps the scheduler busy."""
    if part.bucket in (Bucket.LOST_WORKER, Bucket.RECOMPUTED):
        return lost_worker(report, part.bucket)
    if part.bucket in (Bucket.SPILL, Bucket.PAUSED) and facts.memory.size:
        return facts.memory.size + _most_memory(report)
    if part.bucket in (Bucket.PAUSED, Bucket.UNMEASURED):
        return workers_of(report, part.bucket)
    if part.bucket is Bucket.OVERHEAD and facts.overhead_of_blocks:
        return sentence(facts.blocked_by)
    if part.kind == LATE_LOOPS and facts.spilling >= SPILLS and facts.memory.size:
        return facts.memory.size
    if part.bucket is Bucket.IDLE:
        if part.cause in ("graph", *FOR_SCHEDULER):
            return _who_held_up(facts, part.cause) or _most_of_time(report, part.cause)
        if part.cause in ("parallelism", ""):
            return _long_task(report, facts) or sender_of_most(report)
        return _most_of_time(report, part.cause)
    if part.bucket is Bucket.CONSTRAINED:
        return _asks_for_resources(report) or _most_of_time(report, "imbalance")
    if part.bucket is Bucket.WAITING_ON_DATA:
        return _most_sent(report)
    causes = (part.cause,) if part.cause else (UNKNOWN, "")
    of_tasks = part.bucket is Bucket.THREAD_NONCPU
    culprit = next((one for one in culprits if one.bucket == part.bucket and one.cause in causes), None)
    moved = spilled_text(report.moved) if part.bucket is Bucket.SPILL else ""
    if culprit is None:
        return moved
    if part.bucket is Bucket.OVERHEAD and not (culprit.line or culprit.prefix):
        return sender_of_most(report)
    label = _user_label(report, culprit) if of_tasks else ""
    text = _culprit_text(report, culprit) + label + _more_lines(part, culprit, culprits)
    return ": ".join(filter(None, (text, moved)))


def _most_memory(report: EfficiencyReport) -> str:
    """Prefix of the results that had most of the memory, and of the disk, over time."""
    sizes = {prefix: sum(parts) for prefix, parts in byte_seconds(report.metered).items()}
    most = max(sizes, key=sizes.__getitem__, default="")
    if not most or sizes[most] <= MOST * sum(sizes.values()):
        return ""
    return f", most for results of {name_of(most)}{asked_by(report, most)}"


def _most_sent(report: EfficiencyReport) -> str:
    """Tasks of which most bytes of results went from worker to worker, and the line that sent them."""
    sent = Counter[str]()
    for load in loads(report):
        if load.what == RESULTS and load.prefix:
            sent[load.prefix] += round(load.nbytes)
    (prefix, nbytes), *_ = sent.most_common(1) or [("", 0)]
    if not nbytes or nbytes <= MOST * sent.total():
        return sender_of_most(report)
    return f"most for results of {name_of(prefix)}{asked_by(report, prefix)}"


def sender_of_most(report: EfficiencyReport) -> str:
    """Line that sent most tasks; if several did, the one at which the client waited most."""
    lines = senders(report, {prefix: skew.count for prefix, skew in report.skew.items()})
    (line, n), *_ = lines.most_common(1) or [("", 0)]
    if line and n > MOST * lines.total():
        return f"computed by {sentence(line)}"
    waits = client_doing(report, lambda row: row.ns - row.idle_ns if row.activity in ("wait", "send") else 0)
    if at := sentence(client_line(report, waits, least=MOST)):
        return f"most for {at}"
    if not line or n <= PART * lines.total():
        return ""
    return f"computed by {sentence(line)}" + ("" if line.endswith(" more lines") else " and by other lines")


def _more_lines(part: CauseLoss, culprit: Culprit, culprits: Sequence[Culprit]) -> str:
    """Number of other lines that cost nearly as much, unless this one has most of the loss."""
    if not culprit.line or culprit.held_by or culprit.seconds * 1e9 > MOST * part.ns:
        return ""
    same = [one for one in culprits if (one.bucket, one.cause) == (culprit.bucket, culprit.cause) and one.line]
    alike = sum(one.seconds >= ALIKE * culprit.seconds for one in same) - 1
    return f"; and {format_count(alike, 'more line')}" if alike else ""


def _who_held_up(facts: Conditions, cause: str) -> str:
    """Place of what kept the scheduler, or the workers' event loops, from answering."""
    if cause in FOR_SCHEDULER and (facts.imports or facts.gil_taken):
        return "" if facts.imports else sentence(facts.gil_held_by)
    if facts.loop_held:
        return sentence(facts.loop_by)
    # Where event loops waited for a core, or the scheduler was busy, the advice is on that.
    of_blocks = cause in FOR_SCHEDULER and facts.loops_blocked and not (facts.scheduler_busy or facts.loops_starved)
    return sentence(facts.blocked_by) if of_blocks else ""


def _culprit_text(report: EfficiencyReport, culprit: Culprit) -> str:
    """Holder of the GIL if known, else the line of the loss, or its prefix, with the holder of its lock."""
    computed = f", computed by {sentence(culprit.computed_by)}" if culprit.computed_by else ""
    held_by = f"held by {sentence(culprit.held_by)}" if culprit.held_by else ""
    if held_by and culprit.cause == "gil":
        waits = f", while `{name_of(culprit.function)}`, {name_of(culprit.line)}, waits"  # the user's own, then
        return held_by + (computed or (waits if culprit.line and not names(held_by, culprit.line) else ""))
    computed += built_by(report, culprit.prefix) if computed else ""
    if not culprit.line:
        of_tasks = f"tasks of {name_of(culprit.prefix)}" if culprit.prefix else ""
        return ", ".join(filter(None, (of_tasks + computed, held_by)))
    called = f"`{name_of(culprit.function)}`, " if culprit.function else ""
    tasks = f" (tasks of {name_of(culprit.prefix)})" if culprit.prefix and culprit.prefix != culprit.function else ""
    called_at = f", called at {name_of(culprit.called_at)}" if culprit.called_at else ""
    within = f" in `{name_of(culprit.within)}`" if culprit.within else ""
    return ", ".join(filter(None, (f"{called}{name_of(culprit.line)}{within}{tasks}{called_at}{computed}", held_by)))


def _user_label(report: EfficiencyReport, culprit: Culprit) -> str:
    """User's own label under which tasks of the culprit's prefix spent nearly all of the culprit's time, or more."""
    of_prefix = {
        label: n
        for (label, unit, prefix), n in own_labels(report.metered).items()
        if (unit, prefix) == (SECONDS, culprit.prefix)
    }
    label = max(of_prefix, key=lambda label: of_prefix[label], default="")
    return f", in your label {name_of(label)}" if label and of_prefix[label] >= COVERED * culprit.seconds else ""


def _long_task(report: EfficiencyReport, facts: Conditions) -> str:
    """Task that all else waited for; in a chain, the tasks that all waited for most."""
    found = recorded_tasks(report) or [longest(report, prefix) for prefix in held_up(report)]
    if facts.alone >= MOST and (task := ran_alone(report)) is not None:
        same = next((one for one in report.long_tail if one.key == task.longest_key), None)
        where = f"Task {name_of(task.longest_key)}" if same is None else same.finding(task.alone_seconds).where
        prefix = next((name for name, one in report.skew.items() if one is task), "")
        return where + asked_by(report, prefix)
    if found and not facts.chained:
        prefixes = [one.prefix for one in report.long_tail] or [*held_up(report)]
        return found[0].where + asked_by(report, prefixes[0])
    return _sent(report, facts.waited_for)


def _sent(report: EfficiencyReport, prefix: str) -> str:
    """Tasks of a prefix, the user's line that they are at, unless they are called like its function, and the sender."""
    if not prefix:
        return ""
    own = own_line((row.stack, row.ns) for row in report.profile if row.prefix == prefix and row.stack)
    at_work = f", mostly in {own}" if own and not own.startswith(f"`{name_of(prefix)}`") else ""
    return f"tasks of {name_of(prefix)}{at_work}{asked_by(report, prefix)}"


def _most_of_time(report: EfficiencyReport, cause: str) -> str:
    """Tasks that ran most of the time: others like them queued, of workers that had too many."""
    if cause != "imbalance":
        return sender_of_most(report)
    held = {prefix: row.ns(*HELD) for prefix, row in report.by_prefix.items()}
    most = max(held, key=lambda prefix: held[prefix], default="")
    return _sent(report, most) if held and held[most] > MOST * sum(held.values()) else sender_of_most(report)


def _asks_for_resources(report: EfficiencyReport) -> str:
    """Tasks that asked for a resource where they were sent, with that line; empty if no line says so."""
    asked = {prefix for prefix, line in report.computed_by.items() if "resources=" in line}
    held = {prefix: row.ns(*HELD) for prefix, row in report.by_prefix.items() if prefix in asked}
    return _sent(report, max(held, key=lambda prefix: held[prefix])) if held else ""


def lost_worker(report: EfficiencyReport, bucket: Bucket) -> str:
    """Worker whose loss cost most, with the reason, and the number of others."""
    cost = attrgetter("ns" if bucket is Bucket.LOST_WORKER else "recomputed_ns")
    ranked = sorted(filter(cost, report.lost_workers), key=cost, reverse=True)
    if not ranked:
        return ""
    return how_lost(ranked[0], report.skew) + (f"; and {len(ranked) - 1} more" if len(ranked) > 1 else "")


def workers_of(report: EfficiencyReport, bucket: Bucket) -> str:
    """Workers with time in a bucket, most of it first; of unmeasured time those for which the first reason holds."""
    rows = {name: row.ns(bucket) for name, row in report.by_worker.items() if name != ALL_WORKERS}
    ranked = sorted(filter(rows.__getitem__, rows), key=lambda name: -rows[name])
    if bucket is Bucket.UNMEASURED and report.not_measured:
        ranked = [name for name in ranked if name in report.not_measured]
    if not ranked:
        return ""
    if bucket is not Bucket.UNMEASURED or (reason := report.not_measured.get(ranked[0])) is None:
        return f"worker {named(ranked)}"
    same = [name for name in ranked if report.not_measured[name] == reason]
    others = f", and {len(ranked) - len(same)} for other reasons" if len(same) < len(ranked) else ""
    return f"worker {named(same)} ({sentence(reason)}){others}"
