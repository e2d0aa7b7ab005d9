"""Computing: useful time that a cure would spare, such as Python by row."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.lines import (
    BUILT_IN,
    NATIVE,
    PYTHON,
    Stack,
    blamed,
    caller,
    innermost,
    is_servant,
    is_the_users,
    place_of,
)
from dask_efficiency.accounts.waits import LOCK, THREAD
from dask_efficiency.report.bounds import CORE, without_others
from dask_efficiency.report.conditions import NOTHING_KNOWN, Conditions
from dask_efficiency.report.culprits import lost_stacks, senders
from dask_efficiency.report.cures import with_recipe
from dask_efficiency.report.kinds import BESIDE, FOR_LOCKS, UNDER_GIL, holds_any, page_of, shares_cores
from dask_efficiency.report.made import asked_by
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.report.recipes import recipe_for
from dask_efficiency.report.values import ProfileRow
from dask_efficiency.show.figures import format_count, format_share, name_of, sentence
from dask_efficiency.show.finding import KNOWN, MOST, Finding

#: Kind of the finding.
COMPUTING = "computing"
#: Kind of the finding of any other code that keeps threads busy.
BUSY, LOADING, AGAIN = "busy", "loading", "busy-again"
#: Names of functions that read or load, and of tasks.
READS = re.compile(r"(?:^|[._])(?:read|load|open|decompress)")
_READ_TASKS = re.compile(r"read[-_]\w+(?:-fused)?")
#: Share of the time of such code that is taken to be in vain, to rank it; and all waiting for the GIL, as a share of
#: it, that needs no finding of its own. By judgement.
MAY_GO, LITTLE = 0.2, 0.1
#: Part of the time, and of the number, of one line's tasks from which another line's are taken for the same work; and
#: share of that work that is taken to be in vain. By judgement.
ALIKE, IN_VAIN = 0.7, 0.4
#: File of a library, from its package on; and part of the names of functions that have none of their own.
_IN_PACKAGE, _LOCAL_NAME = (
    re.compile(r"(?:-packages|[\\/](?:python|pypy)[\d.]+t?)[\\/](?!\w+-packages)(.+)$"),
    re.compile(r"<\w+>$"),
)
#: Causes of waiting that threads have as others compute likewise: these take turns with them.
_TURNS = ("gil", "core", LOCK)
#: Share of all thread time from which what computes is worth a finding: then its cure may spare most of a run; and of
#: that, from which its waiting for the GIL is named; and share from which what is read or sent again is. By judgement.
WORTH_COMPUTING, WORTH_AVOIDING = 0.3, 0.2
#: Times as long as threads that take turns wait for a core because event loops and the client take turns, too. By
#: judgement.
WITH_LOOPS = 1.25
GIL = "thread-noncpu/gil"


def computing(
    report: EfficiencyReport, facts: Conditions, exact: Sequence[ProfileRow]
) -> tuple[Finding | None, frozenset[str]]:
    """Finding of what threads computed under the GIL, if that is much of all thread time.

    It has the recipe for what computes, if there is one; otherwise it is of Python in the user's own functions. Also
    returns the kinds of losses that it explains: the GIL, or a lock of its own, is waited for while a recipe's code
    holds it.

    Only what was seen under the GIL counts: the same functions of a library may compute outside of it, as where a row's
    function calls NumPy.
    """
    rows = _computed(report, exact)
    of_python = [(stack, ns) for _, how, stack, ns in rows if how != NATIVE]
    prefixes: Counter[str] = Counter()
    for prefix, how, _, ns in rows:
        prefixes[prefix] += ns if how != NATIVE else 0
    recipe = recipe_for(COMPUTING, of_python, prefixes=prefixes, lines=senders(report, prefixes))
    if recipe is None:
        found = _of_rows(report, [row for row in rows if row[1] == PYTHON], _is_in_own_code, 0.0)
        return found and _if_again(report, found, rows), frozenset()
    waits = [row for row in exact if row.bucket == Bucket.THREAD_NONCPU and row.cause in _TURNS]
    whole = {cause: sum(row.ns for row in waits if row.cause == cause) for cause in _TURNS}
    # What threads wait for a core because of other processes is not this code's.
    not_others = 1.0 - min(1.0, _others_ns(report) / whole["core"]) if whole["core"] else 0.0
    # A lock is this code's if it waits there itself, not something that it calls.
    there = [row for row in waits if recipe.fits(row.stack[-1:] if row.cause == LOCK else row.stack)]
    waited = _sums((row.cause, row.ns) for row in there)
    turns = sum((not_others if cause == "core" else 1.0) * ns for cause, ns in waited.items())
    found = _of_rows(report, rows, recipe.fits, turns)
    if found is None:
        return None, frozenset()
    holders = lost_stacks(report, exact).get(GIL, ())
    held_by_it = sum(ns for stack, ns in holders if recipe.fits(stack))
    advice = found.advice if holds_any(recipe.unless_fact, facts) else recipe.advice
    where = _with_turns(report, found, waited)
    found = replace(found, where=where, title=recipe.title, advice=advice, page=recipe.page)
    explained = {
        GIL: 2 * held_by_it > sum(ns for _, ns in holders),
        FOR_LOCKS: waited[LOCK] >= (1.0 - LITTLE) * whole[LOCK] > 0,
    }
    return found, frozenset(kind for kind, is_explained in explained.items() if is_explained)


def busy(
    report: EfficiencyReport, facts: Conditions, exact: Sequence[ProfileRow]
) -> tuple[Finding | None, frozenset[str]]:
    """Finding of one function of the user's, or else of tasks of one prefix, that took most of all thread time.

    Whether it can take less is not known, so it counts little beside what can be saved. Also returns the kinds of
    losses that it explains: waiting for the cores that it computes on, for threads of a library that compute for it,
    and for the GIL where that is little beside it.
    """
    waits = [row for row in exact if row.bucket == Bucket.THREAD_NONCPU]
    rows = [(prefix, stack, ns) for prefix, _, stack, ns in _computed(report, exact) if stack]
    # A library's own threads compute meanwhile.
    in_library = facts.places.get(LOCK) == THREAD and facts.cores_used - facts.others > MOST
    rows += [(row.prefix, row.stack, row.ns) for row in waits if in_library and row.cause == LOCK]
    functions = _sums((_own_function(stack), ns) for _, stack, ns in rows)
    function = max(functions, key=functions.__getitem__, default="")
    prefixes = _sums((prefix, ns) for prefix, stack, ns in rows if _own_function(stack) == function)
    if not function and prefixes:
        (line, _), *_ = senders(report, prefixes).most_common(1)
        alike = {prefix: ns for prefix, ns in prefixes.items() if line and report.computed_by.get(prefix) == line}
        prefixes = Counter(alike or dict(prefixes.most_common(1)))

    def fits(prefix: str, stack: Stack) -> bool:
        return prefix in prefixes and _own_function(stack) == function

    there = [(stack, ns) for prefix, stack, ns in rows if fits(prefix, stack)]
    held = sum(ns for _, ns in there)
    whole = _sums((row.cause, row.ns) for row in waits)
    waited = _sums((row.cause, row.ns) for row in waits if fits(row.prefix, row.stack))
    # Of more, the threads of a library have the cores.
    most_core = WITH_LOOPS * max(facts.cores, facts.threads - facts.cores) * held
    takes_turns = shares_cores(facts) and waited["core"] * facts.cores <= most_core
    in_turn = waited["core"] if takes_turns else 0
    loads = sum(ns for stack, ns in there if reads(stack) or _is_load(stack)) > MOST * held
    kind = LOADING if loads or (not function and any(map(_READ_TASKS.fullmatch, prefixes))) else BUSY
    place = _where_busy(report, prefixes, there) + (", or waiting for its turn" if in_turn > held else "")
    # Where most of the time is useful, or waits for its turn, even a part of that is what can be looked at.
    mostly = sum(ns for *_, ns in rows) + in_turn > MOST * report.thread_seconds * 1e9
    least = WORTH_COMPUTING if mostly else MOST
    found = much_of_time(report, kind, held + in_turn, place, least=least, weight=MAY_GO, facts=facts)
    if found is None:
        return None, frozenset()
    explained = {
        CORE: takes_turns and waited["core"] > MOST * whole["core"],
        GIL: whole["gil"] < LITTLE * held,
        FOR_LOCKS: in_library and waited[LOCK] > MOST * whole[LOCK],
    }
    if function and _computes_again(report, prefixes, [stack for stack, _ in there]):
        found = _as_again(found, IN_VAIN / MAY_GO)
    cured = with_recipe(report, found, there, prefixes, facts)
    if cured is not found and found.page != page_of(AGAIN):  # with its cure, it is known what is in vain
        cured = replace(cured, evidence={**cured.evidence, KNOWN: cured.evidence[KNOWN] * IN_VAIN / MAY_GO})
    return cured, frozenset(kind for kind, is_explained in explained.items() if is_explained)


def _with_turns(report: EfficiencyReport, found: Finding, waited: Mapping[str, int]) -> str:
    """Place of a finding, with what its threads waited for the GIL, or for a lock, if that is much of its time."""
    what, ns = max(("the GIL", waited["gil"]), ("a lock in it", waited[LOCK]), key=lambda each: each[1])
    part = ns / found.evidence["share_of_thread_time"] / (1e9 * report.thread_seconds - _others_ns(report))
    return f"{found.where}, {format_share(part)} of it waiting for {what}" if part >= WORTH_COMPUTING else found.where


def _if_again(report: EfficiencyReport, found: Finding, rows: Sequence[tuple[str, str, Stack, int]]) -> Finding:
    """Name it as computed again if the user's function of most of it computes as much for each of several lines."""
    own = _sums((_own_function(stack), ns) for _, how, stack, ns in rows if how == PYTHON and _is_in_own_code(stack))
    function = max(own, key=own.__getitem__, default="")
    there = [(prefix, stack, ns) for prefix, _, stack, ns in rows if function and _own_function(stack) == function]
    prefixes = _sums((prefix, ns) for prefix, _, ns in there)
    again = _computes_again(report, prefixes, [stack for _, stack, _ in there])
    return _as_again(found, IN_VAIN) if again else found


def _computes_again(report: EfficiencyReport, prefixes: Counter[str], stacks: Iterable[Stack]) -> bool:
    """True if several lines sent the same, in tasks that are not named after what is called in them."""
    called = {frame.function for stack in stacks for frame in stack}
    named = sum(ns for prefix, ns in prefixes.items() if prefix in called)
    return named <= LITTLE * prefixes.total() and _several_times(report, prefixes)


def _as_again(found: Finding, times: float) -> Finding:
    """Finding of what is computed again, which counts as many times as much."""
    again = BESIDE[AGAIN]
    evidence = {**found.evidence, KNOWN: found.evidence[KNOWN] * times}
    return replace(found, title=again.title, advice=again.advice, page=page_of(AGAIN), evidence=evidence)


def _several_times(report: EfficiencyReport, prefixes: Mapping[str, int]) -> bool:
    """True if several lines each sent as many tasks of these prefixes, which took about as long: likely the same."""
    tasks: Counter[str] = Counter()
    for prefix in prefixes:
        tasks[report.computed_by.get(prefix, "")] += report.skew[prefix].count if prefix in report.skew else 0
    times = senders(report, prefixes)
    (line, most), *_ = times.most_common(1) or [("", 0)]
    alike = [
        one
        for one, ns in times.items()
        if one and ns >= ALIKE * most and ALIKE * tasks[line] <= tasks[one] <= tasks[line] / ALIKE
    ]
    return line in alike and len(alike) > 1


def _sums(rows: Iterable[tuple[str, int]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for name, ns in rows:
        found[name] += ns
    return found


def _where_busy(report: EfficiencyReport, prefixes: Counter[str], rows: Sequence[tuple[Stack, int]]) -> str:
    """The user's own function and line of most of the time, with what it called, or the line that sent the tasks."""
    (prefix, _), *_ = prefixes.most_common(1) or [("", 0)]
    skew, line = report.skew.get(prefix), report.computed_by.get(prefix, "")
    tasks = f"{format_count(skew.count, 'task') if skew is not None else 'tasks'} of {name_of(prefix)}"
    own = own_line(rows)
    called = _sums((_called(stack), ns) for stack, ns in rows)
    (function, ns), *_ = called.most_common(1) or [("", 0)]
    if function and not own.startswith(f"`{name_of(function)}`") and ns > MOST * called.total():
        mostly = f", mostly in `{name_of(function)}`{_inside(rows, function)}"
        own, tasks = (f"{own}{mostly}", tasks) if own else ("", f"{tasks}{mostly}")
    if line and not own.startswith(f"`{name_of(prefix)}`"):
        tasks += asked_by(report, prefix)
    return f"{own} ({tasks})" if own else tasks


def _inside(rows: Sequence[tuple[Stack, int]], called: str) -> str:
    """Innermost function of a library in which most of the time of what a line called was, if it is another one."""
    spent, depth = Counter[tuple[str, str]](), dict[tuple[str, str], int]()
    for stack, ns in rows:
        own = max((i for i, frame in enumerate(stack) if is_the_users(frame.file)), default=-1)
        inner = {(frame.function, frame.file): i for i, frame in enumerate(stack[own + 1 :])}
        for function_at, i in inner.items():
            spent[function_at] += ns
            depth[function_at] = max(depth.get(function_at, 0), i)
    most = [each for each, ns in spent.items() if ns > MOST * sum(ns for _, ns in rows)]
    function, file = max(most, key=lambda each: depth[each], default=("", ""))
    if not function or function == called or _LOCAL_NAME.search(function):
        return ""
    found = _IN_PACKAGE.search(file)
    return f", there in `{name_of(function)}`{f' of {name_of(found[1])}' if found else ''}"


def _called(stack: Stack) -> str:
    """Function of a place, or the C code that a task of Dask's is of; empty if it is one of Dask's own."""
    frame = blamed(stack)
    if not is_servant(frame.file):
        return frame.function
    return stack[-1].function if stack[-1].file == BUILT_IN else ""


def reads(stack: Stack, *, by: re.Pattern[str] = READS) -> bool:
    """True if what the user's own code calls there, or what a library does without it, reads by its name."""
    own = max((i for i, frame in enumerate(stack) if is_the_users(frame.file)), default=-1)
    return any(by.search(frame.function) for frame in stack[own + 1 :])


def _is_load(stack: Stack) -> bool:
    """True if a function of the user's reads or loads by its name, and what it calls is C."""
    inner = innermost(stack)
    return is_the_users(inner.file) and READS.search(inner.function) is not None


def _own_function(stack: Stack) -> str:
    """The user's own innermost function, with its file; empty without one."""
    own = next((frame for frame in reversed(stack) if is_the_users(frame.file)), None)
    return f"{own.function} {own.file}" if own is not None else ""


def _of_rows(
    report: EfficiencyReport, rows: list[tuple[str, str, Stack, int]], fits: Callable[[Stack], bool], waited: float
) -> Finding | None:
    """Finding of the rows that fit, and of what threads ``waited`` there; None if it is too little."""
    fitting = [row for row in rows if fits(row[2])]
    computed = sum(ns for *_, ns in fitting)
    held = sum(ns for _, how, _, ns in fitting if how != NATIVE)
    if held < UNDER_GIL * computed:
        return None
    place = own_line((stack, ns) for _, _, stack, ns in fitting) or _sent_by(report, fitting)
    return much_of_time(
        report, COMPUTING, computed + waited, place, share_under_gil=held / computed if computed else 0.0
    )


def much_of_time(
    report: EfficiencyReport,
    kind: str,
    ns: float,
    place: str,
    *,
    least: float = WORTH_COMPUTING,
    weight: float = 1.0,
    facts: Conditions = NOTHING_KNOWN,
    **evidence: float,
) -> Finding | None:
    """Finding, without a promise, of what took much of all thread time; None if it did not.

    It counts as if it could save a ``weight`` of that time.
    """
    others = _others_ns(report)
    whole = report.thread_seconds * 1e9 - others
    share = min(ns / whole, 1.0) if whole > 0 else 0.0
    if share < least:
        return None
    but = " but what other processes took" if others else ""
    where = f"{format_share(share)} of all thread time{but}{f': {place}' if place else ''}"
    found = BESIDE[kind]
    known = weight * share * whole / 1e9 / report.mean_threads
    evidence = {"share_of_thread_time": share, **evidence, KNOWN: known}
    return Finding(kind, found.title, where, advice=found.advised(facts), page=page_of(kind), evidence=evidence)


def _others_ns(report: EfficiencyReport) -> float:
    """Thread time that other processes took."""
    return 1e9 * report.mean_threads * (without_others(report) or 0.0)


def _is_in_own_code(stack: Stack) -> bool:
    return is_the_users(innermost(stack).file)


def _computed(report: EfficiencyReport, exact: Iterable[ProfileRow]) -> list[tuple[str, str, Stack, int]]:
    """Prefix, way of computing, stack and nanoseconds of what computed: exact by prefix, and shared by samples."""
    sampled = [row for row in report.profile if row.bucket == Bucket.THREAD_CPU]
    whole: Counter[str] = Counter()
    for row in sampled:
        whole[row.prefix] += row.ns
    times = _sums((row.prefix, row.ns) for row in exact if row.bucket == Bucket.THREAD_CPU)
    scale = {prefix: times[prefix] / ns for prefix, ns in whole.items() if ns}
    return [(row.prefix, row.cause, row.stack, round(row.ns * scale.get(row.prefix, 0.0))) for row in sampled]


def own_line(rows: Iterable[tuple[Stack, int]]) -> str:
    """The user's own function, and its line, in which most of the time was."""
    functions: Counter[tuple[str, str]] = Counter()
    lines: Counter[tuple[str, str, str, str]] = Counter()
    for stack, ns in rows:
        own = next((frame for frame in reversed(stack) if is_the_users(frame.file)), None)
        if own is not None:
            functions[own.function, own.file] += ns
            lines[own.function, own.file, place_of(own), place_of(caller(stack))] += ns
    if not functions:
        return ""
    (function, file), _ = functions.most_common(1)[0]
    *_, line, called_at = max((key for key in lines if key[:2] == (function, file)), key=lambda key: lines[key])
    called = f", called at {name_of(called_at)}" if called_at else ""
    return f"`{name_of(function)}`, {name_of(line)}{called}"


def _sent_by(report: EfficiencyReport, rows: Iterable[tuple[str, str, Stack, int]]) -> str:
    """Line that sent the tasks in which most of the time was."""
    prefixes: Counter[str] = Counter()
    for prefix, _, _, ns in rows:
        prefixes[prefix] += ns
    return sentence(next((line for line, _ in senders(report, prefixes).most_common(1)), ""))
