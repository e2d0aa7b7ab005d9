"""SchedulerLoop: the time of the scheduler's event loop in a window, by handler, hook and block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from dask_efficiency.accounts.lines import Frame, Holdup, Stack

#: Handlers, and hooks, that a window lists, the costliest first. A guess: reports show fewer.
MAX_PARTS = 10
#: Blocks that a window lists, the longest first. A guess: reports show fewer.
MAX_BLOCKS = 10

STREAM, COMM, CALLBACK, HOOK = "stream handler", "comm handler", "periodic callback", "hook of a plugin"


class LoopFunction(NamedTuple):
    """A function that the event loop calls."""

    kind: str
    #: ``task-finished``; of a hook ``Burner.transition``.
    name: str
    code: Frame


#: Nanoseconds and calls.
HookTimes = Mapping[LoopFunction, tuple[int, int]]


class LoopTime(NamedTuple):
    """Cumulative time and number of calls."""

    ns: int = 0
    calls: int = 0
    looked_ns: int = 0
    looked_calls: int = 0
    hooks: Mapping[LoopFunction, tuple[int, int]] = {}


@dataclass(frozen=True, slots=True)
class LoopTotals:
    """Cumulative figures of the event loop at one instant, in nanoseconds."""

    at: int
    waited: int | None
    #: Sum of the squares of its turns.
    squares: int = 0
    gc: int = 0
    #: Time with work outstanding, and its part without anything to do.
    with_work: int = 0
    waited_with_work: int = 0
    handlers: Mapping[LoopFunction, LoopTime] = field(default_factory=dict)
    #: Hooks whose calls were all measured.
    hooks: HookTimes = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LoopPart:
    """Time that a handler, a callback or a plugin's hook took of the scheduler's event loop."""

    kind: str
    name: str
    function: str
    file: str
    line: int
    #: Estimated from a sample of the calls for a plugin's ``transition``; hooks' time is part of the handlers'.
    seconds: float
    calls: int

    @property
    def stack(self) -> Stack:
        """Stack of one frame: the function's first line."""
        return (Frame(self.function, self.file, self.line),)


@dataclass(frozen=True, slots=True)
class LoopBlock:
    """One stretch of time in which the scheduler's event loop did nothing else."""

    seconds: float
    stack: Stack


@dataclass(frozen=True, slots=True)
class SchedulerLoop:
    """Time of the scheduler's event loop in a window."""

    #: Length of the window, and the time in it in which the loop had something to do; what is unknown is None.
    seconds: float
    busy_seconds: float | None
    #: Mean time that an event waits until the loop turns.
    lag_seconds: float | None
    #: Busy share of the time with work outstanding, in [0, 1].
    busy_with_work: float | None
    gc_seconds: float
    #: Time of all handlers and periodic callbacks, and of plugins' hooks, which is part of it.
    handlers_seconds: float
    hooks_seconds: float
    handlers: tuple[LoopPart, ...] = ()
    hooks: tuple[LoopPart, ...] = ()
    blocks: tuple[LoopBlock, ...] = ()


def between(then: LoopTotals, now: LoopTotals, blocks: Iterable[Holdup] = ()) -> SchedulerLoop:
    """Compute the event loop's time between two instants."""
    elapsed = now.at - then.at
    handlers = {part: _gained(spent, then.handlers.get(part, LoopTime())) for part, spent in now.handlers.items()}
    hooks = _estimated(handlers, _less(now.hooks, then.hooks))
    waited = None if now.waited is None or then.waited is None else now.waited - then.waited
    with_work, idle = now.with_work - then.with_work, now.waited_with_work - then.waited_with_work
    known = waited is not None and elapsed > 0
    longest = sorted(blocks, key=lambda block: -block.ns)[:MAX_BLOCKS]
    return SchedulerLoop(
        seconds=elapsed / 1e9,
        busy_seconds=max(0, elapsed - waited) / 1e9 if waited is not None else None,
        lag_seconds=(now.squares - then.squares) / (2e9 * elapsed) if known else None,
        busy_with_work=min(1.0, max(0.0, 1 - idle / with_work)) if known and with_work > 0 else None,
        gc_seconds=(now.gc - then.gc) / 1e9,
        handlers_seconds=sum(spent.ns for spent in handlers.values()) / 1e9,
        hooks_seconds=sum(ns for ns, _ in hooks.values()) / 1e9,
        handlers=_costliest({part: (spent.ns, spent.calls) for part, spent in handlers.items()}),
        hooks=_costliest(hooks),
        blocks=tuple(LoopBlock(block.ns / 1e9, tuple(map(_as_text, block.stack))) for block in longest),
    )


def _less(now: HookTimes, then: HookTimes) -> HookTimes:
    none = 0, 0
    return {part: (ns - then.get(part, none)[0], n - then.get(part, none)[1]) for part, (ns, n) in now.items()}


def _gained(now: LoopTime, then: LoopTime) -> LoopTime:
    looked = now.looked_ns - then.looked_ns, now.looked_calls - then.looked_calls
    return LoopTime(now.ns - then.ns, now.calls - then.calls, *looked, _less(now.hooks, then.hooks))


def _estimated(handlers: Mapping[LoopFunction, LoopTime], exact: HookTimes) -> HookTimes:
    """Extrapolate the hooks' time from the handlers' calls that were looked at to all of them."""
    found = dict(exact)
    for spent in handlers.values():
        longer = spent.ns / spent.looked_ns if spent.looked_ns else 0.0
        more = spent.calls / spent.looked_calls if spent.looked_calls else 0.0
        for part, (ns, calls) in spent.hooks.items():
            before = found.get(part, (0, 0))
            found[part] = before[0] + min(spent.ns, round(longer * ns)), before[1] + round(more * calls)
    return found


def _costliest(parts: HookTimes) -> tuple[LoopPart, ...]:
    took = sorted((each for each in parts.items() if each[1][1] > 0), key=lambda each: (-each[1][0], each[0]))
    return tuple(
        LoopPart(part.kind, part.name, *_as_text(part.code), seconds=ns / 1e9, calls=calls)
        for part, (ns, calls) in took[:MAX_PARTS]
    )


def _as_text(frame: Frame) -> Frame:
    """A frame that can be sent: file names may hold bytes that are no text."""
    return frame._replace(file=frame.file.encode("utf-8", "backslashreplace").decode())
