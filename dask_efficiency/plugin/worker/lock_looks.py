"""Looks at waits: what tasks wait for, and who may hold it, by the stacks of all threads of a process."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from dask_efficiency.accounts.lines import LOOKS, WAITING, Frame, HolderRow, Stack, is_own
from dask_efficiency.accounts.waits import THREAD, place_of_wait, taker, told_cause
from dask_efficiency.plugin.worker.children import has_children
from dask_efficiency.plugin.worker.wait_states import LOCK, POLLS, SLEEP

#: Prefix of a thread's task, or its name in parentheses, and its stack.
Thread = tuple[str, Stack]
_PACKAGE = re.compile(r".*[\\/](?:site|dist)-packages[\\/][^\\/]+")


def told(state: str, stack: Stack) -> tuple[str, bool]:
    """Cause of a wait at a lock, or of a sleep, by its stack as well; and True if it polls a lock.

    What it waits for may be no lock. And C code that sleeps, and was not asked to, waits for a lock of its own, such as
    that of a database's file.
    """
    polls = state == POLLS and bool(stack) and "sleep" not in stack[-1].function
    otherwise = LOCK if polls or state == LOCK else SLEEP
    return told_cause(stack, has_children=has_children()) or otherwise, polls


def rows_of_look(waiting: Sequence[Thread], others: Sequence[Thread]) -> Counter[HolderRow]:
    """Rows of one look by the prefix that waits at locks: the look, its waiting threads, and who may hold the lock.

    A lock has one holder at each look at which somebody waits, so over many looks its place is in nearly all of them,
    and another's is not. Whoever waits at a lock as well holds none that matters here.
    """
    found: Counter[HolderRow] = Counter()
    by_prefix: defaultdict[str, list[Stack]] = defaultdict(list)
    for prefix, stack in waiting:
        if stack and place_of_wait(stack) != THREAD:  # a queue or a future has no holder
            by_prefix[prefix].append(stack)
    for prefix, stacks in by_prefix.items():
        found[HolderRow(prefix, LOOKS, ())] = 1
        found[HolderRow(prefix, WAITING, ())] = len(stacks)
        for who, stack in set(_candidates(prefix, stacks[0], others)):
            found[HolderRow(prefix, who, stack)] = 1
    return found


def _candidates(prefix: str, waits: Stack, others: Iterable[Thread]) -> list[Thread]:
    """Threads that may hold a lock: in the function that takes it, or else in its library, or in the prefix's code.

    Of the first that function is kept, and of the user's own what it calls, as there the lock is held.
    """
    takes = waits[taker(waits)]
    kept = 2 if is_own(takes) else 1
    inside = [(who, stack[i : i + kept]) for who, stack in others for i in _last(takes, stack)]
    if inside:
        return inside
    found = _PACKAGE.match(takes.file)
    package = found[0] if found is not None else "?"  # begins no file's name
    of_library = [each for each in others if any(frame.file.startswith(package) for frame in each[1])]
    return of_library or [(who, stack) for who, stack in others if who == prefix and stack]


def _last(takes: Frame, stack: Stack) -> list[int]:
    """Innermost position of a function in a stack, if it is there."""
    return [i for i, frame in enumerate(stack) if (frame.function, frame.file) == (takes.function, takes.file)][-1:]
