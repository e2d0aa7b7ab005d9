"""Wall clock of a report: its parts in words, and the bounds of its ideal time."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from dask_efficiency.accounts.lines import NOWHERE, Frame, Stack, blamed, is_servant, is_the_users, place_of
from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.values import DASK_ACTIVITIES, OWN_ACTIVITIES, ClientRow
from dask_efficiency.show.figures import format_number, format_seconds
from dask_efficiency.show.finding import MOST

#: Share of the window, or of the cluster's time, from which a part is mentioned. By judgement.
WORTH_SAYING = 0.05
#: Share of the window from which a client that is not busy with Dask runs its user's own code. By judgement.
OWN_CODE = 0.2

#: Share of the client's time from which one line is named for it. By judgement.
MOSTLY_THERE = 0.3
#: Graphs from which it matters that a client sends each for itself, or when nothing is outstanding. A guess: half or
#: twice as many change no first screen of the runs in tests/data (``benchmarks.studies.constants``).
MANY_GRAPHS = 10

_OF_DASK = re.compile(r"[\\/](?:dask|dask_expr|distributed)[\\/]")

ON_CLUSTER = "of work on the cluster"
NO_WORKERS = "without any worker"
#: Client phases that are work for Dask; the rest of the client's time is the user's own code.
_FOR_DASK = ("optimize", "upload", "gather", "calls")


def wall_clock_known(report: EfficiencyReport) -> bool:
    """True if the report knows how long anything took."""
    return 0 < report.cluster_seconds < math.inf and math.isfinite(report.window_seconds)


def wall_clock_parts(report: EfficiencyReport) -> dict[str, float]:
    """Seconds of the window by part, the largest first; small parts are left out."""
    found = {
        ON_CLUSTER: report.cluster_seconds,
        NO_WORKERS: report.no_workers_seconds,
        client_time_text(report): report.client_seconds,
    }
    worth = {what: seconds for what, seconds in found.items() if seconds >= WORTH_SAYING * report.wall_clock_seconds}
    return dict(sorted(worth.items(), key=lambda item: -item[1]))


def time_of_client_counts(report: EfficiencyReport) -> bool:
    """True if the client's time without work on the cluster is worth a finding."""
    return report.client_seconds >= WORTH_SAYING * report.wall_clock_seconds > 0


def client_time_text(report: EfficiencyReport) -> str:
    """Description of the time without outstanding work."""
    if not report.phases:
        return "without work"
    if mostly_seceded(report):
        return "in tasks that had seceded"
    if doing := client_doing(report):
        return doing.words
    if phase := client_phase(report):
        return f"on the client, mostly its {phase}"
    return (
        "on the client, in your own code"
        if report.client_seconds >= OWN_CODE * report.wall_clock_seconds
        else "on the client"
    )


@dataclass(frozen=True, slots=True)
class ClientDoing:
    """Main use of a client's time, by its samples."""

    #: ``"on the client, computing"``.
    words: str
    #: Activity of most of the time; "own" for several of the user's own code, empty for several of Dask's.
    activity: str
    #: The user's line of most of the time with the function that it called, and its share of the time.
    line: Frame
    share: float
    #: Nanoseconds of work for Dask at that line.
    for_dask_ns: int = 0
    #: The user's own function that the line is in, and the line that called this; empty for work for Dask.
    within: str = ""
    called_at: str = ""
    #: True if the function that it called is not Dask's own, but computes by Dask.
    by_library: bool = False


def client_doing(
    report: EfficiencyReport, of: Callable[[ClientRow], int] = lambda row: row.idle_ns
) -> ClientDoing | None:
    """Main use of the client's time without work on the cluster, or of another part of it; None without samples."""
    times, lines = Counter[str](), Counter[tuple[str, int]]()
    for row in report.client:
        times[row.activity] += of(row)
        if (place := _asked(row)) != NOWHERE:
            lines[place.file, place.line] += of(row)
    whole = times.total()
    if not whole:
        return None
    (activity, ns), *_ = times.most_common(1)
    own = sum(times[name] for name in OWN_ACTIVITIES)
    if 2 * ns <= whole:
        activity = "own" if 2 * own > whole else ""
    doing = "waiting for the scheduler" if activity == "wait" else (DASK_ACTIVITIES | OWN_ACTIVITIES).get(activity, "")
    words = f"on the client, {doing}".rstrip(", ")
    (line, most), *_ = lines.most_common(1) or [(("", 0), 0)]
    there = [row for row in report.client if _asked(row)[1:] == line]
    calls = Counter[Frame]()
    for row in there:
        calls[_asked(row)] += of(row)
    place = max(calls, key=calls.__getitem__, default=NOWHERE)
    for_dask = sum(of(row) for row in there if row.activity in DASK_ACTIVITIES)
    by_library = any(_calls_dask(place.function, row.stack) for row in there if row.activity in DASK_ACTIVITIES)
    within = called_at = ""
    own_rows = [row for row in there if row.activity in OWN_ACTIVITIES]
    if activity in (*OWN_ACTIVITIES, "own") and own_rows:
        frames = [frame for frame in max(own_rows, key=of).stack if is_the_users(frame.file)]
        if len(frames) > 1 and frames[-1][1:] == place[1:]:
            within, called_at = frames[-1].function, place_of(frames[-2])
    if not within and there and place.function.rpartition(".")[2].startswith("__"):
        frames = [frame for frame in max(there, key=of).stack if is_the_users(frame.file)]
        function = frames[-1].function.partition(".<locals>")[0] if frames and frames[-1][1:] == place[1:] else "<"
        within = "" if function.startswith("<") else function
    return ClientDoing(words, activity, place, most / whole, for_dask, within, called_at, by_library)


def _asked(row: ClientRow) -> Frame:
    """Line that asked for what a client does, with the function that it called, which may be one that calls Dask.

    What Dask does may be to call the user's own function: that is not the line.
    """
    stack = row.stack
    if row.activity in DASK_ACTIVITIES:
        own = next((i for i, frame in enumerate(stack) if is_the_users(frame.file)), 0)
        stack = stack[: next((i for i in range(own, len(stack)) if _OF_DASK.search(stack[i].file)), len(stack)) + 1]
    return blamed(stack)


def _calls_dask(function: str, stack: Stack) -> bool:
    """True if this function of a library other than Dask, and of Python, is at work, and Dask on its behalf."""
    at = next((i for i, frame in enumerate(stack) if frame.function == function and _is_a_librarys(frame.file)), None)
    return at is not None and any(_OF_DASK.search(frame.file) for frame in stack[at + 1 :])


def _is_a_librarys(file: str) -> bool:
    return bool(file) and not is_the_users(file) and not is_servant(file)


def sending(report: EfficiencyReport, of: Callable[[ClientRow], int] = lambda row: row.ns) -> ClientDoing | None:
    """Work for Dask at the client's line that waited for most graphs, with the line's share of all; None if unknown."""
    line = max(report.sent_by, key=lambda line: report.sent_by[line].rounds, default="")
    whole = sum(map(of, report.client))
    there = {row: of(row) for row in report.client if place_of(blamed(row.stack)) == line}
    found = client_doing(report, lambda row: there.get(row, 0) if row.activity in DASK_ACTIVITIES else 0)
    return None if found is None else replace(found, share=sum(there.values()) / whole)


def client_line(report: EfficiencyReport, doing: ClientDoing | None, least: float = MOSTLY_THERE) -> str:
    """Line of most of a client's time in words, with the number of computations that it waited for; may be empty."""
    if doing is None or not doing.share >= least:
        return ""
    place = place_of(doing.line)
    text = f"`{doing.line.function.rpartition('.')[2]}` in {place}" if doing.line.function else place
    if doing.within and doing.within != doing.line.function:
        text = f"{text}, in `{doing.within}`"
    if doing.called_at:
        text = f"{text}, called at {doing.called_at}"
    if doing.activity not in OWN_ACTIVITIES and waited_in_turn(report, doing.line):
        text = f"{report.sent_by[place].graphs} computations one after the other, {text}"
    return text


def waited_in_turn(report: EfficiencyReport, line: Frame) -> bool:
    """True if a line of the client's sent many graphs, and waited for most of them before it went on."""
    sent = report.sent_by.get(place_of(line))
    return sent is not None and sent.rounds >= MANY_GRAPHS and sent.rounds > MOST * sent.graphs


def need_last(report: EfficiencyReport) -> int:
    """Number of graphs of a line that sent most, of which each is made of what the one before gave; 0 without one."""
    found = (sent.graphs for sent in report.sent_by.values() if sent.needs_last)
    return next((graphs for graphs in found if graphs > MOST * report.graphs), 0)


def sender(report: EfficiencyReport) -> str:
    """Line that waited for most graphs, or sent all tasks; empty if there were several."""
    lines = {*report.computed_by.values()}
    sampled = client_line(report, sending(report), least=0.0)
    return sampled or (lines.pop() if len(lines) == 1 else "")


def work_of_client(report: EfficiencyReport) -> float:
    """Seconds without work on the cluster in which the client worked for Dask, by samples at the line that sends."""
    if report.client:
        doing = sending(report, lambda row: row.idle_ns)
        return doing.for_dask_ns / 1e9 if doing is not None else 0.0
    return report.client_seconds if client_phase(report) else 0.0


def mostly_seceded(report: EfficiencyReport) -> bool:
    """True if tasks that hold no slot, as they called ``secede()``, ran for most of the time without other work."""
    return report.phases.get("seceded", 0.0) > report.client_seconds / 2 > 0


def client_phase(report: EfficiencyReport) -> str:
    """Phase of most of the time without outstanding work; empty unless most of that was work for Dask."""
    for_dask = {name: report.phases.get(name, 0.0) for name in _FOR_DASK}
    if not report.phases or sum(for_dask.values()) <= report.client_seconds / 2:
        return ""
    return max(for_dask, key=lambda name: for_dask[name])


def largest_is_elsewhere(report: EfficiencyReport) -> bool:
    """True if most of the window was not work on the cluster; the headline then begins with that."""
    return wall_clock_known(report) and next(iter(wall_clock_parts(report))) != ON_CLUSTER


def ideal_time_lines(report: EfficiencyReport) -> list[str]:
    """Lower bounds of the ideal runtime, and those that are unknown."""
    bounds = report.ideal_bounds
    if not report.useful_seconds or not wall_clock_known(report):
        return []
    average = "" if float(report.threads).is_integer() else " on average"
    names = {
        "slots": f"{format_number(report.threads)} threads{average}",
        "cores": f"{format_number(report.cores or math.nan)} cores",
        "chain": "the longest chain of tasks",
    }
    known = ", ".join(f"{format_seconds(seconds)} by {names[name]}" for name, seconds in bounds.items())
    unknown = {"cores": "how many cores the workers share", "chain": "the longest chain of tasks (trace=True tells)"}
    missing = " and ".join(what for name, what in unknown.items() if name not in bounds)
    return [f"useful work takes at least {known}" + (f"; not known: {missing}" if missing else "")]


def kept_in_bounds(report: EfficiencyReport) -> tuple[SlowWorker, ...]:
    """Stragglers with costs limited by the ideal runtime, which bounds the run without them, too."""
    if not wall_clock_known(report):
        return report.stragglers
    most = max(report.cluster_seconds - report.ideal_seconds, 0.0)
    return tuple(
        one if one.seconds_lost is None else replace(one, seconds_lost=min(one.seconds_lost, most))
        for one in report.stragglers
    )
