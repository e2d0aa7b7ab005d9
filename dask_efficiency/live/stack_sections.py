"""Document and plain data of what a cluster's threads do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dask_efficiency.accounts.lines import BUILT_IN, EVENT_LOOP, Frame, blamed, has_nothing_to_do, place_of
from dask_efficiency.accounts.thread_looks import FREE, LOOP, OTHER, TASK
from dask_efficiency.live.thread_stacks import AlikeThreads, ClusterStacks
from dask_efficiency.report.stalls import does
from dask_efficiency.show.document import Document, section, with_content
from dask_efficiency.show.figures import (
    ROWS_ON_A_SCREEN,
    format_count,
    format_seconds,
    name_of,
    named,
    natural,
    sentence,
    shorten,
    workers_named,
)
from dask_efficiency.show.finding import MAX_HEADLINE

#: Groups of tasks on the first screen. By eye.
MAX_GROUPS = 10
#: Name of the scheduler among workers.
SCHEDULER = "the scheduler"


def headline(found: ClusterStacks) -> str:
    """Number of threads in tasks, the longest, and who did not answer; no full stop."""
    tasks = [group for group in found.groups if group.kind == TASK]
    number = sum(len(group.threads) for group in tasks)
    text = "No thread runs a task"
    if tasks:
        text = f"{format_count(number, 'thread')} in tasks, the longest for {format_seconds(tasks[0].seconds)}"
    if found.silent:
        text += f"; {workers_named(_sorted(found.silent))} did not answer"
    return shorten(text, MAX_HEADLINE)


def first_screen(found: ClusterStacks) -> Document:
    """Document of the longest tasks and of event loops at work, with the innermost frames."""
    return _document(found, MAX_GROUPS, ROWS_ON_A_SCREEN)


def document(found: ClusterStacks) -> Document:
    """Document of all threads, with all frames."""
    return _document(found, None, None)


def _document(found: ClusterStacks, most: int | None, frames: int | None) -> Document:
    by_kind: dict[str, list[AlikeThreads]] = {TASK: [], LOOP: [], FREE: [], OTHER: []}
    for group in found.groups:
        by_kind[group.kind].append(group)
    loops = by_kind[LOOP]
    idle = [group for group in loops if has_nothing_to_do(group.stack)]
    shown = [*by_kind[TASK][:most], *(group for group in loops if group not in idle)]
    others = by_kind[OTHER] if most is None else []
    return Document(
        "Stacks",
        format_count(found.workers, "worker"),
        headline(found),
        with_content(
            *(section(_title(group), *_lines(group, frames)) for group in (*shown, *others)),
            section("", *_rest(found, by_kind, idle, len(by_kind[TASK][most or len(by_kind[TASK]) :]), most is None)),
            section(
                "Without an answer",
                *(f"{workers_named([name])}: {sentence(found.silent[name])}" for name in _sorted(found.silent)),
                caveat=True,
            ),
            section("Without native frames", *_reasons(found), caveat=True),
        ),
    )


def _title(group: AlikeThreads) -> str:
    number = len(group.threads)
    threads = f" on {format_count(number, 'thread')}" if number > 1 else ""
    if group.kind == TASK:
        usually = "" if group.usual_seconds is None else f", usually {format_seconds(group.usual_seconds)}"
        return f"{name_of(group.prefix)}{threads}: {format_seconds(group.seconds)}{usually}"
    if group.kind == LOOP:
        return f"{EVENT_LOOP} of {_places(group)}"
    return f"{name_of(group.threads[0].name)}{threads}"


def _lines(group: AlikeThreads, most: int | None) -> Iterator[str]:
    """Sentences on what the threads do and where, and their stack, the innermost frame last."""
    doing = does(group.cause, group.stack)
    if group.stack:
        line = blamed(group.stack)
        at = f"{name_of(line.function)}, {name_of(place_of(line))}"
        code = f": {sentence(group.code)}" if group.code else ""
        yield f"{doing}, in {at}{code}" if doing else f"in {at}{code}"
    elif doing:
        yield doing
    if group.kind != LOOP:
        keys = named([look.key for look in group.threads if look.key])
        yield f"{_places(group)}{f': {keys}' if keys else ''}"
    left_out = max(0, len(group.stack) - most) if most is not None else 0
    if left_out:
        yield f"({format_count(left_out, 'frame')} around it)"
    for frame in group.stack[left_out:]:
        yield _frame(frame)


def _frame(frame: Frame) -> str:
    return name_of(frame.function) + (f" ({name_of(place_of(frame))})" if frame.file != BUILT_IN else " (built-in)")


def _places(group: AlikeThreads) -> str:
    """Workers of a group, and the scheduler."""
    workers = _sorted(name for name in group.workers if name)
    return " and ".join([*([workers_named(workers)] if workers else []), *([SCHEDULER] if "" in group.workers else [])])


def _rest(
    found: ClusterStacks,
    by_kind: dict[str, list[AlikeThreads]],
    idle: Sequence[AlikeThreads],
    more_groups: int,
    everything: bool,
) -> Iterator[str]:
    """Sentences on what is not listed."""
    if more_groups:
        yield f"{format_count(more_groups, 'more stack')} of tasks; --all lists them."
    if idle:
        yield f"{format_count(_number(idle), 'event loop')} with nothing to do."
    if by_kind[FREE]:
        yield f"{format_count(_number(by_kind[FREE]), 'thread')} without a task."
    if by_kind[OTHER] and not everything:
        yield f"{format_count(_number(by_kind[OTHER]), 'other thread')}; --all lists them."
    if found.more:
        yield f"{format_count(found.more, 'more thread')} left out."


def _reasons(found: ClusterStacks) -> Iterator[str]:
    by_reason: dict[str, list[str]] = {}
    for name in _sorted(found.not_native):
        by_reason.setdefault(found.not_native[name], []).append(name)
    for reason, workers in by_reason.items():
        yield f"{workers_named(workers)}: {sentence(reason)}"


def _number(groups: Sequence[AlikeThreads]) -> int:
    return sum(len(group.threads) for group in groups)


def _sorted(names: Any) -> list[str]:
    return sorted(names, key=natural)


def to_dict(found: ClusterStacks) -> dict[str, Any]:
    """Plain data for JSON."""
    return {
        "headline": headline(found),
        "workers": found.workers,
        "groups": [
            {
                "kind": group.kind,
                "prefix": group.prefix,
                "cause": group.cause,
                "does": does(group.cause, group.stack),
                "seconds": group.seconds,
                "usual_seconds": group.usual_seconds,
                "line": place_of(blamed(group.stack)),
                "code": group.code,
                "stack": [frame._asdict() for frame in group.stack],
                "threads": [
                    {"worker": look.worker, "thread": look.name, "key": look.key, "seconds": look.ns / 1e9}
                    for look in group.threads
                ],
            }
            for group in found.groups
        ],
        "silent": dict(found.silent),
        "not_native": dict(found.not_native),
        "more": found.more,
    }
