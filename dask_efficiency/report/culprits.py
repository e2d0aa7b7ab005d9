"""Culprits: the lines of code that lost most time, with reasons and holders of the GIL."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dask_efficiency.accounts.buckets import GOOD, cause_name
from dask_efficiency.accounts.lines import EVENT_LOOP, LOOKS, WAITING, Frame, Stack, blamed, caller, is_own, place_of
from dask_efficiency.accounts.waits import LOCK, taker
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.stacks import exact_stacks
from dask_efficiency.report.values import Culprit, ProfileRow
from dask_efficiency.show.figures import format_count
from dask_efficiency.show.finding import MOST


def lost_stacks(report: EfficiencyReport, rows: Iterable[ProfileRow]) -> dict[str, list[tuple[Stack, int]]]:
    """Stacks that have each loss, or that cause it, by kind of finding, with nanoseconds.

    Of waits for the GIL these are the stacks of its holders, where these were seen.
    """
    found: defaultdict[str, list[tuple[Stack, int]]] = defaultdict(list)
    for row in rows:
        if row.bucket not in GOOD:
            found[cause_name(row.bucket, row.cause)].append((row.stack, row.ns))
    if holders := [(row.stack, row.ns) for row in report.gil_holders]:
        found["thread-noncpu/gil"] = holders
    return found


def lost_prefixes(rows: Iterable[ProfileRow]) -> defaultdict[str, Counter[str]]:
    """Nanoseconds of each loss by prefix, by kind of finding; the prefix is empty where the loss is no task's."""
    found = defaultdict[str, Counter[str]](Counter)
    for row in rows:
        found[cause_name(row.bucket, row.cause)][row.prefix] += row.ns
    return found


def senders(report: EfficiencyReport, prefixes: Mapping[str, int]) -> Counter[str]:
    """Lines that sent the tasks of these prefixes, with their weights; under an empty name where it is not known."""
    found: Counter[str] = Counter()
    for prefix, weight in prefixes.items():
        found[report.computed_by.get(prefix, "")] += weight
    return found


@dataclass(frozen=True, slots=True)
class LineTime:
    """Exact cost of one line of code, for one reason, in tasks of one prefix."""

    bucket: str
    cause: str
    prefix: str
    #: The line, with the function that it called, as in :func:`blamed`; :data:`NOWHERE` without a sample.
    place: Frame
    ns: int


def line_times(rows: Iterable[ProfileRow]) -> tuple[LineTime, ...]:
    """All time of a report's exact stacks by line of code, the most costly first."""
    found: Counter[tuple[str, str, str, Frame]] = Counter()
    for row in rows:
        found[row.bucket, row.cause, row.prefix, _place(row)] += row.ns
    return tuple(LineTime(*key, ns=ns) for key, ns in found.most_common())


def _place(row: ProfileRow) -> Frame:
    place = blamed(row.stack)
    if row.cause == LOCK and row.stack and not is_own(place):
        return row.stack[taker(row.stack)]  # that takes the lock, however deep in its library
    return place


#: Looks at waits for a lock from which its holder is named. A guess.
MIN_LOOKS = 3
#: Culprits of a report; :meth:`~dask_efficiency.EfficiencyReport.to_frame` by line has all. By eye.
MAX_CULPRITS = 20


def find_culprits(report: EfficiencyReport, rows: Iterable[ProfileRow] | None = None) -> tuple[Culprit, ...]:
    """Lines that lost most time, at most :data:`MAX_CULPRITS`, the most costly first.

    Times by bucket, cause and prefix are exact, and divided over lines in proportion to samples. ``rows`` are the
    report's exact stacks, where these are known already.
    """
    rows = [row for row in (exact_stacks(report) if rows is None else rows) if row.bucket not in GOOD]
    lost = line_times(rows)[:MAX_CULPRITS]
    held_by = {"gil": _gil_held_by(report), "lock": _locks_held_by(report)}
    called_at = _called_at(lost, rows)
    return tuple(
        Culprit(
            each.bucket,
            each.cause,
            each.prefix,
            place_of(each.place),
            each.place.function,
            each.ns / 1e9,
            held_by.get(each.cause, {}).get(each.prefix, ""),
            # of a library's line, or without one, the user's line that sent the tasks
            "" if is_own(each.place) else report.computed_by.get(each.prefix, ""),
            *called_at.get((each.bucket, each.cause, each.prefix, each.place), ("", "")),
        )
        for each in lost
    )


def _called_at(
    lost: Iterable[LineTime], rows: Iterable[ProfileRow]
) -> dict[tuple[str, str, str, Frame], tuple[str, str]]:
    """The user's own functions that these lines are in, and the lines of tasks' own modules that called them most.

    Functions are left out that are called like the prefix, or called themselves; lines, that are in these modules.
    """
    wanted = {each.place for each in lost if is_own(each.place)}
    found: defaultdict[tuple[str, str, str, Frame], Counter[tuple[str, str]]] = defaultdict(Counter)
    for row in rows:
        place = _place(row)
        if place in wanted:
            own = next(frame for frame in reversed(row.stack) if is_own(frame))
            within = "" if own.function in (place.function, row.prefix) or "<" in own.function else own.function
            found[row.bucket, row.cause, row.prefix, place][within, place_of(caller(row.stack))] += row.ns
    return {key: lines.most_common(1)[0][0] for key, lines in found.items()}


def _gil_held_by(report: EfficiencyReport) -> dict[str, str]:
    """Holder of the GIL for most of the time that tasks of a prefix waited for it, by prefix; several are none."""
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    places: defaultdict[tuple[str, str], Counter[Frame]] = defaultdict(Counter)
    for row in report.gil_holders:
        found[row.prefix][row.holder] += row.ns
        places[row.prefix, row.holder][blamed(row.stack)] += row.ns
    held_by = {}
    for prefix, holders in found.items():
        (holder, ns), *_ = holders.most_common(1)
        if ns > MOST * holders.total():
            held_by[prefix] = holder_text(holder, _main_place(places[prefix, holder]))
    return held_by


def _main_place(places: Counter[Frame]) -> Frame:
    """Place with most of the time; one of the user's own, if theirs have more together."""
    (most, ns), *_ = places.most_common(1)
    own = Counter({place: n for place, n in places.items() if is_own(place)})
    return own.most_common(1)[0][0] if own.total() > ns else most


def _locks_held_by(report: EfficiencyReport) -> dict[str, str]:
    """Place that held the locks in most looks at tasks of a prefix that waited for them, by prefix."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    places: defaultdict[str, Counter[tuple[str, Frame]]] = defaultdict(Counter)
    for row in report.lock_looks:
        if row.holder in (LOOKS, WAITING):
            counts[row.prefix][row.holder] += row.looks
        elif row.stack:
            places[row.prefix][row.holder, blamed(row.stack)] += row.looks
    held_by = {}
    for prefix, found in places.items():
        looks, waiting = counts[prefix][LOOKS], counts[prefix][WAITING]
        ((holder, place), n), *_ = found.most_common(1)
        n = min(n, looks)  # several threads may be there at one look
        if n > MOST * looks and looks >= MIN_LOOKS:
            who = place_text(place) if holder == prefix else holder_text(holder, place)
            threads = format_count(round(waiting / looks), "thread")
            held_by[prefix] = f"{who} (in {n} of {looks} looks, {threads} waiting)"
    return held_by


def holder_text(holder: str, place: Frame) -> str:
    """Holder of the GIL in words: ```f` in etl.py:12 (prefix clean)``, a thread without a task, or the event loop."""
    where = place_text(place)
    if holder == EVENT_LOOP:
        return f"the worker's event loop, {where}" if where else "the worker's event loop"
    if holder.startswith("(thread "):
        return f"{where} {holder}".strip()
    return f"{where} (prefix {holder})" if where else f"tasks of prefix {holder}"


def place_text(place: Frame) -> str:
    """Place in words: ```f` in etl.py:12``; empty if unknown."""
    return f"`{place.function}` in {place_of(place)}" if place.file else ""
