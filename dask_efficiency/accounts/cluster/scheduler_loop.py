"""SchedulerLoop: the time of the scheduler's event loop in a window, by handler, hook and block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import starmap
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.lines import EVENT_LOOP, Frame, Holdup, Stack
from dask_efficiency.accounts.rows import MAX_LISTED, growth
from dask_efficiency.accounts.skew import Sketch

STREAM, COMM, CALLBACK, HOOK = "stream handler", "comm handler", "periodic callback", "hook of a plugin"
#: Messages as they are serialized, and deserialized.
SENDING, RECEIVING = "sending", "receiving"
#: Stands for the object that a task carries: its function, which is pickled by value, as those of scripts are.
BY_VALUE = "function by value"
#: Other callbacks, and steps of coroutines.
STEP = "callback"


class LoopFunction(NamedTuple):
    """A function that the event loop calls, or a kind of messages."""

    kind: str
    #: ``task-finished``; of a hook ``Burner.transition``; of messages ``tasks``, or their operation.
    name: str
    #: Of tasks that are sent, their function.
    code: Frame
    #: Of tasks and results, their prefix, and the type of what takes long to pickle.
    of_prefix: str = ""
    carries: str = ""


#: Nanoseconds and calls.
HookTimes = Mapping[LoopFunction, tuple[int, int]]


class LoopTime(NamedTuple):
    """Cumulative time and number of calls."""

    ns: int = 0
    calls: int = 0
    looked_ns: int = 0
    looked_calls: int = 0
    hooks: Mapping[LoopFunction, tuple[int, int]] = {}
    #: Bytes of messages, and bins of a :class:`~dask_efficiency.accounts.skew.Sketch` of the sizes of tasks in them.
    total_bytes: int = 0
    #: None if they are not known.
    sizes: Mapping[int, int] | None = {}


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
    #: Waits of its thread for a core while it had something to do, in all and with work outstanding.
    core: int = 0
    core_with_work: int = 0
    #: Time of the turns whose callbacks were timed, and what these took beside handlers and messages.
    looked: int = 0
    steps: HookTimes = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class KeptTotals:
    """Totals as a history keeps them, many of them: what is by handler and hook as one array."""

    rest: LoopTotals
    #: A handler, or a hook whose calls were all measured; a handler twice, for its calls that were looked at; a handler
    #: and a hook in these; another callback three times.
    names: tuple[tuple[LoopFunction, ...], ...]
    #: Nanoseconds and calls; of messages in the second row their bytes.
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, totals: LoopTotals) -> KeptTotals:
        """Totals, to be kept."""
        found: dict[tuple[LoopFunction, ...], tuple[int, int]] = {}
        for part, spent in totals.handlers.items():
            if spent.calls or spent.ns:
                found[(part,)] = spent.ns, spent.calls
                found[part, part] = spent.looked_ns or spent.total_bytes, spent.looked_calls
                found.update({(part, hook): times for hook, times in spent.hooks.items() if times[1]})
        found.update({(hook,): times for hook, times in totals.hooks.items() if times[1]})
        found.update({(step, step, step): times for step, times in totals.steps.items()})
        rows = np.array([*found.values()], np.int64).reshape(-1, 2)
        return cls(replace(totals, handlers={}, hooks={}, steps={}), tuple(found), rows)

    @property
    def totals(self) -> LoopTotals:
        """The totals that were kept."""
        whole: dict[LoopFunction, tuple[int, int]] = {}
        looked: dict[LoopFunction, tuple[int, int]] = {}
        hooks: dict[LoopFunction, dict[LoopFunction, tuple[int, int]]] = {}
        steps: dict[LoopFunction, tuple[int, int]] = {}
        for (part, *within), (ns, calls) in zip(self.names, self.rows.tolist(), strict=True):
            if not within:
                whole[part] = ns, calls
            elif within == [part]:
                looked[part] = ns, calls
            elif within == [part, part]:
                steps[part] = ns, calls
            else:
                hooks.setdefault(part, {})[within[0]] = ns, calls
        handlers = {
            part: LoopTime(*whole[part], total_bytes=times[0], sizes=None)
            if part.kind in (SENDING, RECEIVING)
            else LoopTime(*whole[part], *times, hooks.get(part, {}))
            for part, times in looked.items()
        }
        exact = {hook: times for hook, times in whole.items() if hook not in looked}
        return replace(self.rest, handlers=handlers, hooks=exact, steps=steps)


@dataclass(frozen=True, slots=True)
class LoopPart:
    """Time that a handler, a callback, a plugin's hook or a kind of messages took of the scheduler's event loop."""

    kind: str
    name: str
    function: str
    file: str
    line: int
    #: Estimated from a sample of the calls for a plugin's ``transition``; hooks' time is part of the handlers'.
    seconds: float
    calls: int
    #: Of tasks and results, their prefix, and the type of the object that takes long to pickle.
    of_prefix: str = ""
    carries: str = ""
    #: Bytes of all these messages; and those of one task or graph, to 1 %.
    total_bytes: int = 0
    median_bytes: int = 0
    largest_bytes: int = 0

    @property
    def title(self) -> str:
        """``"tasks of quote"``, or its name."""
        return f"{self.name} of {self.of_prefix}" if self.of_prefix else self.name

    @property
    def stack(self) -> Stack:
        """Stack of one frame: the function's first line."""
        return (Frame(self.function, self.file, self.line),)


@dataclass(frozen=True, slots=True)
class LoopBlock:
    """One stretch of time in which the scheduler's event loop did nothing else."""

    seconds: float
    stack: Stack
    #: Thread that did it: the loop's own, or ``(thread MainThread)`` that held the GIL meanwhile.
    holder: str = EVENT_LOOP
    #: Messages that it was at work on, in words.
    doing: str = ""


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
    #: Time of all handlers, callbacks and messages, and of plugins' hooks, which is part of it.
    handlers_seconds: float
    hooks_seconds: float
    handlers: tuple[LoopPart, ...] = ()
    hooks: tuple[LoopPart, ...] = ()
    blocks: tuple[LoopBlock, ...] = ()


def between(then: LoopTotals, now: LoopTotals, blocks: Iterable[Holdup] = ()) -> SchedulerLoop:
    """Compute the event loop's time between two instants, without waiting for a core: that is not its own business."""
    elapsed = now.at - then.at
    handlers = {part: _gained(spent, then.handlers.get(part, LoopTime())) for part, spent in now.handlers.items()}
    hooks = _estimated(handlers, _less(now.hooks, then.hooks))
    waited = None if now.waited is None or then.waited is None else now.waited - then.waited
    outside = elapsed - (waited or 0)
    core = min(now.core - then.core, max(0, outside))
    with_work = now.with_work - then.with_work
    idle = now.waited_with_work - then.waited_with_work + now.core_with_work - then.core_with_work
    if core:
        own = 1.0 - core / outside
        handlers = {part: _scaled(spent, own) for part, spent in handlers.items()}
        hooks = {part: (int(own * ns), calls) for part, (ns, calls) in hooks.items()}
        outside -= core
    rest = max(0, outside - sum(spent.ns for spent in handlers.values())) if waited is not None else 0
    handlers |= _other_steps(_less(now.steps, then.steps), outside, now.looked - then.looked, rest)
    known = waited is not None and elapsed > 0
    longest = sorted(blocks, key=lambda block: -block.ns)[:MAX_LISTED]
    return SchedulerLoop(
        seconds=elapsed / 1e9,
        busy_seconds=max(0, outside) / 1e9 if waited is not None else None,
        lag_seconds=(now.squares - then.squares) / (2e9 * elapsed) if known else None,
        busy_with_work=min(1.0, max(0.0, 1 - idle / with_work)) if known and with_work > 0 else None,
        gc_seconds=(now.gc - then.gc) / 1e9,
        handlers_seconds=sum(spent.ns for spent in handlers.values()) / 1e9,
        hooks_seconds=sum(ns for ns, _ in hooks.values()) / 1e9,
        handlers=_costliest(handlers),
        hooks=_costliest({part: LoopTime(ns, calls) for part, (ns, calls) in hooks.items()}),
        blocks=tuple(
            LoopBlock(block.ns / 1e9, tuple(map(_as_text, block.stack)), block.holder, block.doing) for block in longest
        ),
    )


def _other_steps(steps: HookTimes, busy: int, looked: int, rest: int) -> dict[LoopFunction, LoopTime]:
    """Extrapolate the time of other callbacks from the turns that were looked at, to the rest of the time at most."""
    longer = busy / looked if looked > 0 else 0.0
    found = {part: (round(longer * ns), round(longer * calls)) for part, (ns, calls) in steps.items() if ns > 0}
    whole = sum(ns for ns, _ in found.values())
    fits = min(1.0, rest / whole) if whole else 0.0
    return {part: LoopTime(int(fits * ns), max(1, calls)) for part, (ns, calls) in found.items()}


def _less(now: HookTimes, then: HookTimes) -> HookTimes:
    none = 0, 0
    return {part: (ns - then.get(part, none)[0], n - then.get(part, none)[1]) for part, (ns, n) in now.items()}


def _gained(now: LoopTime, then: LoopTime) -> LoopTime:
    looked = now.looked_ns - then.looked_ns, now.looked_calls - then.looked_calls
    known = now.sizes is not None and then.sizes is not None
    moved = now.total_bytes - then.total_bytes, growth(now.sizes or {}, then.sizes or {}) if known else None
    return LoopTime(now.ns - then.ns, now.calls - then.calls, *looked, _less(now.hooks, then.hooks), *moved)


def _scaled(spent: LoopTime, factor: float) -> LoopTime:
    return spent._replace(ns=int(factor * spent.ns))  # parts add up to no more than the whole


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


def _costliest(parts: Mapping[LoopFunction, LoopTime]) -> tuple[LoopPart, ...]:
    took = sorted((each for each in parts.items() if each[1].calls > 0), key=lambda each: (-each[1].ns, each[0]))
    return tuple(starmap(_part, took[:MAX_LISTED]))


def _part(part: LoopFunction, spent: LoopTime) -> LoopPart:
    sizes = Sketch()
    sizes.bins = dict(spent.sizes or {})
    median, largest = (round(sizes.quantile(q)) if sizes.count else 0 for q in (0.5, 1.0))
    code, of = _as_text(part.code), (part.of_prefix, part.carries)
    return LoopPart(part.kind, part.name, *code, spent.ns / 1e9, spent.calls, *of, spent.total_bytes, median, largest)


def _as_text(frame: Frame) -> Frame:
    """A frame that can be sent: file names may hold bytes that are no text."""
    return frame._replace(file=frame.file.encode("utf-8", "backslashreplace").decode())
