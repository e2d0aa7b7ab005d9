"""Findings of tasks that failed, were given up, never ended, or were outstanding: they come before what costs time."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.cluster.failures import KILLED, REFUSED
from dask_efficiency.report.conditions import NOTHING_KNOWN
from dask_efficiency.report.conditions_of import conditions_of
from dask_efficiency.report.kinds import BESIDE, page_of
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.stalls import STALLED, findings_of
from dask_efficiency.report.turnover import how_lost, killer_texts
from dask_efficiency.report.values import Failure, Unfinished
from dask_efficiency.show.figures import DETAIL_LENGTH, format_count, format_seconds, harmless, name_of, named, shorten
from dask_efficiency.show.finding import MOST, Finding

#: Share of a block's tasks from which those outstanding at its end are a finding, and share of its time from which one
#: that still runs stands still. By judgement.
MANY = 0.1
_TOO_LARGE = re.compile(rf"has (\S+ \S+) {REFUSED}.* memory_limit set to (\S+ \w+)")
#: Kinds of failures that end a computation.
FATAL = ("killed-worker", "refused")
#: Stalls that are findings. By judgement: others follow from them.
MAX_STALLED = 2
#: Kinds of these findings, in the order in which they are shown.
ENDINGS = (*STALLED, *FATAL, "error", "never-ended", "held-up", "outstanding", "interrupted")
#: Losses that follow where a computation was given up or interrupted: threads had nothing to do, and workers died.
_FOLLOWS = frozenset(
    {
        *(Bucket.IDLE, Bucket.UNMEASURED, Bucket.LOST_WORKER, Bucket.RECOMPUTED, Bucket.FAILED, Bucket.CANCELLED),
        *(Bucket.PAUSED, "small-tasks", "client", "seceded", "no-workers"),
    }
)


def endings(report: EfficiencyReport) -> list[Finding]:
    """Findings of a report's failed and outstanding tasks; no saving is known of any."""
    by_kind: dict[str, list[Failure]] = {}
    for failure in report.failures:
        by_kind.setdefault(_kind_of(failure), []).append(failure)
    texts = {kind: (BESIDE[kind].title, _failed(report, kind, failed)) for kind, failed in by_kind.items()}
    # A block that ended well after all has none.
    stalled = findings_of(report.stalls) if report.ended_by or report.unfinished else []
    all_stalled = stalled and (report.ended_by or _stalled_tasks(report) > MOST * _number(report))
    if not all_stalled and (outstanding := _outstanding(report)) is not None:
        kind, title, where = outstanding
        texts[kind] = title, where
    facts = conditions_of(report) if texts else NOTHING_KNOWN
    ended = [
        Finding(kind, title, where=where, advice=BESIDE[kind].advised(facts), page=page_of(kind))
        for kind, (title, where) in sorted(texts.items(), key=lambda item: ENDINGS.index(item[0]))
    ]
    return [*stalled[:MAX_STALLED], *ended]


def follows(first: Iterable[Finding], report: EfficiencyReport, kind: str) -> bool:
    """True if another finding only follows from these, so that its cure would cure nothing."""
    kinds = {one.kind for one in first}
    bucket = kind.partition("/")[0]
    if "outstanding" in kinds:
        return True
    if kinds.intersection(STALLED) and _stalled_for_most(report):
        return bucket in _FOLLOWS
    if kinds.intersection(FATAL) or "never-ended" in kinds or (report.ended_by and "error" in kinds):
        return bucket in _FOLLOWS
    return ("error" in kinds and bucket == Bucket.FAILED) or ("held-up" in kinds and bucket in _FOLLOWS)


def ending_clause(report: EfficiencyReport) -> str:
    """End of a headline that says how the window ended, ``", until KeyboardInterrupt"``; may be empty."""
    if report.ended_by:
        return f", until {name_of(report.ended_by.partition(':')[0])}"
    kinds = [one.kind for one in endings(report)]
    if "outstanding" in kinds:
        return f"; {format_count(_number(report), 'task')} outstanding"
    failed = sum(failure.tasks for failure in report.failures)
    return f"; {format_count(failed, 'task')} failed" if failed else ""


def _kind_of(failure: Failure) -> str:
    if failure.error.startswith(KILLED):
        return "killed-worker"
    return "refused" if REFUSED in failure.error else "error"


def _failed(report: EfficiencyReport, kind: str, failed: list[Failure]) -> str:
    """Most frequent error with its tasks and line, the number of others, and the first of the workers that died."""
    most, *others = sorted(failed, key=lambda one: -one.tasks)
    of_prefix = f"{format_count(most.tasks, 'task')} of {name_of(most.prefix)}"
    at = f", {name_of(most.line)}" if most.line else ""
    more = f", and {format_count(len(others), 'more error')}" if others else ""
    text = f"{shorten(harmless(most.error), DETAIL_LENGTH)} in {of_prefix}{at}{more}"
    if kind == "refused" and (figures := _TOO_LARGE.search(most.error)):
        return f"{of_prefix}: {name_of(figures[1])} of input, and a memory limit of {name_of(figures[2])}{more}"
    lost = [one for one in report.lost_workers if one.worker and not one.in_order]
    if kind != "killed-worker" or not lost:
        return text
    return "; ".join([*(killer_texts(lost) or [text]), how_lost(lost[0], report.skew)])


def _number(report: EfficiencyReport) -> int:
    return sum(one.tasks for one in report.unfinished)


def _stalled_tasks(report: EfficiencyReport) -> int:
    return sum(one.tasks for one in report.stalls)


def _stalled_for_most(report: EfficiencyReport) -> bool:
    """True if the run ended while work stood still, or it did for most of the window."""
    longest = max((one.seconds for one in report.stalls), default=0.0)
    return bool(report.ended_by) or longest > MOST * report.window_seconds


def _outstanding(report: EfficiencyReport) -> tuple[str, str, str] | None:
    """Kind, title and place of the finding of outstanding tasks, if they are worth one."""
    if not report.unfinished:
        return None
    number, tasks = _number(report), format_count(_number(report), "task")
    held_up = max(report.unfinished, key=lambda one: sum(one.held_up.values()))
    if held_up.held_up:
        of_prefix = format_count(sum(held_up.held_up.values()), "task")
        where = f"{of_prefix} of {name_of(held_up.prefix)} on worker {named([*held_up.held_up])}"
        return "held-up", BESIDE["held-up"].title, where
    longest = max(report.unfinished, key=lambda one: (one.seconds, one.tasks))
    where = f"{format_count(longest.tasks, 'task')} of {name_of(longest.prefix)}"
    if longest.running:
        where += f", running for {format_seconds(longest.seconds)} on worker {named([*longest.running])}"
    if report.ended_by:
        if report.failures and not longest.running:  # they waited for what failed
            return None
        kind = "never-ended" if _stands_still(report, longest) else "interrupted"
        return kind, f"{tasks} had not ended", where
    if number < MANY * (number + sum(report.tasks.values())):
        return None
    return "outstanding", f"{tasks} {_were(number)} outstanding when the block ended", where


def _stands_still(report: EfficiencyReport, longest: Unfinished) -> bool:
    """True if tasks have run for long, or none runs."""
    return not longest.running or longest.seconds >= MANY * report.window_seconds


def _were(number: int) -> str:
    return "was" if number == 1 else "were"
