"""A report in one sentence."""

from __future__ import annotations

from collections import Counter

from dask_efficiency.accounts.buckets import GOOD, Bucket
from dask_efficiency.accounts.causes import UNKNOWN
from dask_efficiency.accounts.lines import NOWHERE, place_of
from dask_efficiency.accounts.profile import Frame
from dask_efficiency.report.advice import Facts, advice, facts_of
from dask_efficiency.report.clauses import CURED, at_line, long_task, loss_name, skewed, slow_worker, where
from dask_efficiency.report.culprits import computed_by, find_culprits
from dask_efficiency.report.gpu import summary
from dask_efficiency.report.largest import Largest, largest_losses
from dask_efficiency.report.lines import line_times
from dask_efficiency.report.lost_time import LostTime, lost_time
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.skew import held_up, input_of
from dask_efficiency.report.wall_clock import WORTH_SAYING, largest_is_elsewhere, took
from dask_efficiency.runs.path.verdict import SEE_WHAT, without_length
from dask_efficiency.show.figures import (
    Scale,
    format_seconds,
    format_share,
    format_thread_time,
    harmless,
    readable,
    sentence,
    shorten,
)

#: From this share of the tasks on, it is said that they were computed again.
MANY_REPEATS = 0.25

#: From this efficiency on, the line is named on which most of the useful time went.
MOSTLY_USEFUL = 0.5

#: A smaller part of the time is within what simulations are wrong by.
MIN_SAVING = 0.02


def verdict(report: EfficiencyReport) -> str:
    """The report in one sentence, without a full stop.

    Its thread times are those of the table of lost time: rounded together, so that they agree.
    """
    whole = report.breakdown
    if not whole:
        return "Nothing was recorded: the window holds no thread time"
    there = whole.total_ns - whole.ns(Bucket.NO_WORK)
    if not there:
        return f"Nothing ran: there was no work in any of {format_thread_time(whole.total_ns)}"
    table = lost_time(report)
    unit = f"thread-{table.thread_scale.word}"
    finalized = there - whole.ns(Bucket.RUNNING)
    if not finalized:
        return f"Too early to tell: {table.total.thread_time} {unit} are still running and nothing has ended"
    if whole.ns(Bucket.UNMEASURED) == finalized:
        clauses = [f"Nothing was measured: all of {table.finalized} {unit} are unmeasured{_reason(report)}"]
    else:
        judged = [_efficiency(report, table, unit)]
        length = [clause for clause in (took(report),) if clause]
        witnesses = [*_path(report), *_stragglers(report), *_long_task(report)]
        # What most of the wall clock went to comes first; of the work on the cluster, the best witness.
        leading = [*length, *witnesses, *judged] if largest_is_elsewhere(report) else [*witnesses, *judged, *length]
        clauses = [*leading, *_largest_loss(report, table, unit), *_repeats(report)]
    clauses += _gpus(report)
    if table.running and whole.ns(Bucket.RUNNING) >= WORTH_SAYING * there:
        clauses.append(f"{table.running.thread_time} {unit} are still running")
    first = clauses[0][:1].upper() + clauses[0][1:]
    return "; ".join([first, *clauses[1:]])


def _path(report: EfficiencyReport) -> list[str]:
    """The best witness first: what the run waited for, without the question that the report itself answers."""
    if report.path is None or not report.path.verdict:
        return []
    said = readable(sentence(without_length(report.path.verdict)))
    return [said if _mostly_unknown(report) else said.partition(SEE_WHAT)[0]]


def _stragglers(report: EfficiencyReport) -> list[str]:
    """The one that is most certain, and how many more there are."""
    if not report.stragglers:
        return []
    first, *more = report.stragglers
    others = f", and {len(more)} more" if more else ""
    return [f"{slow_worker(first)}{others}"]


def _long_task(report: EfficiencyReport) -> list[str]:
    """The longest of a recorded run; else the one for which all else waited."""
    if report.long_tail:
        return [long_task(one, report.skew.get(one.prefix)) for one in report.long_tail[:1]]
    return [skewed(prefix, one, input_of(report, one)) for prefix, one in held_up(report).items()][:1]


def _efficiency(report: EfficiencyReport, table: LostTime, unit: str) -> str:
    if not report.useful_seconds:
        useful = "none"
    elif not report.losses:
        useful = "all"
    else:
        useful = table.useful.thread_time
    said = f"{format_share(report.efficiency)} efficient: {useful} of {table.finalized} {unit} were useful"
    return said + (_useful_line(report) if report.efficiency >= MOSTLY_USEFUL else "")


def _useful_line(report: EfficiencyReport) -> str:
    """The line on which most of the useful time went, where it is known: a faster run begins there."""
    useful = [each for each in line_times(report) if each.bucket in GOOD]
    of_lines: Counter[tuple[Frame, str]] = Counter()
    for each in useful:
        of_lines[each.place, each.prefix] += each.ns
    (place, prefix), most = next(iter(of_lines.most_common(1)), ((NOWHERE, ""), 0))
    if not place.file or most < sum(each.ns for each in useful) / 2:
        return ""
    by = computed_by(report, place, prefix)
    computed = f", computed by {sentence(by)}" if by else ""
    return f", most of them {at_line(place.function, place_of(place), prefix)}{computed}"


def _largest_loss(report: EfficiencyReport, table: LostTime, unit: str) -> list[str]:
    losses = largest_losses(report)
    if not losses:
        return []
    first, *close = losses
    clauses = [_loss(report, table, first, unit, "the largest loss is"), *_cured(report, first)]
    clauses += [_loss(report, table, second, unit, "next is") for second in close]
    unmeasured = {loss.bucket: loss.share for loss in report.losses}.get(Bucket.UNMEASURED, 0.0)
    if unmeasured >= WORTH_SAYING and Bucket.UNMEASURED not in {largest.bucket for largest in losses}:
        clauses.append(f"{format_share(unmeasured)} was not measured")
    return clauses


def _loss(report: EfficiencyReport, table: LostTime, largest: Largest, unit: str, said: str) -> str:
    row = table.row_of(largest.bucket, largest.cause)
    size = f"{row.thread_time} {unit}" + (f", worth {row.money}" if row.money else "")
    if largest.cause:
        facts = facts_of(report)
        name = loss_name(largest.bucket, largest.cause, in_libraries=facts.in_libraries)
        return f"{said} {name}, {size}{_to_do(report, facts, largest, table.thread_scale)}"
    if largest.bucket is Bucket.THREAD_NONCPU and _mostly_unknown(report):
        # Where nobody looked, it may hold what libraries' own threads computed, which is no loss.
        return f"{row.label} is {size}, and why threads waited is not known"
    return f"{said} {row.label}, {size}"


def _mostly_unknown(report: EfficiencyReport) -> bool:
    waiting = report.waiting
    return not waiting or waiting.get(UNKNOWN, 0.0) > sum(waiting.values()) / 2


def _to_do(report: EfficiencyReport, facts: Facts, largest: Largest, scale: Scale) -> str:
    """The line to blame, and what to do about the largest loss."""
    same = (one for one in find_culprits(report) if (one.bucket, one.cause) == (largest.bucket, largest.cause))
    culprit = next(same, None)
    # What tasks waited for while threads were idle stands in the advice.
    line = where(culprit) if culprit is not None and largest.bucket is not Bucket.IDLE else ""
    if line and culprit is not None and culprit.seconds < largest.ns / 2e9:
        line = f"{scale.figure(culprit.seconds)} of them {line}"
    todo = advice(largest.bucket, facts, largest.cause)
    return (f", {line}" if line else "") + (f": {todo}" if todo else "")


def _cured(report: EfficiencyReport, largest: Largest) -> list[str]:
    """How long the recorded run takes with the cure of its largest loss: one promise, where no straggler makes one."""
    found, took = report.without_largest_seconds, report.cluster_seconds
    cure = CURED.get((largest.bucket, largest.cause))
    if not cure or found is None or not 0 <= found <= took * (1 - MIN_SAVING):
        return []
    if report.stragglers and report.stragglers[0].seconds_lost:
        return []
    return [f"{cure} it takes {format_seconds(found)} instead of {format_seconds(took)}"]


def _repeats(report: EfficiencyReport) -> list[str]:
    """How many tasks computed what had been computed before, where that is worth words."""
    again, tasks = sum(repeat.tasks for repeat in report.repeats.values()), sum(report.tasks.values())
    if not tasks or again < MANY_REPEATS * tasks:
        return []
    times = max(repeat.times for repeat in report.repeats.values())
    return [f"{again} of {tasks} tasks made what had been made before, up to {times} times: persist() it"]


def _gpus(report: EfficiencyReport) -> list[str]:
    found = summary(report.gpu)
    if found is None or not found.elapsed:
        return []
    idle = format_share(found.shares_of_time["idle"])
    return [f"the GPU{'s were' if len(found.own) > 1 else ' was'} idle {idle} of the time"]


def _reason(report: EfficiencyReport) -> str:
    reasons = set(report.not_measured.values())
    return f" ({shorten(harmless(reasons.pop()), 80)})" if len(reasons) == 1 else ""
