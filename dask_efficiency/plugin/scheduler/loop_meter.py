"""LoopMeter: time of the scheduler's event loop, by handler and by plugin.

Handlers and periodic callbacks are timed at each call. A plugin's ``transition`` runs several times for each task, and
timing every call would cost the scheduler some percent: so plugins are timed in some calls of each handler, at most one
in :data:`LOOK_NS`, and their share of these stands for their share of all. A thread that samples the loop's stack would
be less code, and wrong: Python lets it run where the loop sends and receives, and hardly ever in the midst of a
handler. It sees well only what blocks the loop for long.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import random
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial, wraps
from time import monotonic_ns as clock
from time import thread_time_ns
from types import coroutine
from typing import Any

from distributed import Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin

from dask_efficiency.accounts.cluster import scheduler_loop
from dask_efficiency.accounts.cluster.scheduler_loop import LoopFunction, LoopTime, LoopTotals, SchedulerLoop
from dask_efficiency.accounts.lines import Frame, Holdup, Stack
from dask_efficiency.plugin import patches
from dask_efficiency.plugin.guard import Guard
from dask_efficiency.plugin.patches import Replacements
from dask_efficiency.plugin.stacks import LoopBlocks, Stacks, frames_of_others, has_gil, has_nothing_to_do

#: Nanoseconds between two calls of a handler in which plugins are timed, at least: some 50 samples a second.
LOOK_NS = 20_000_000
#: CPU time, for each handler, that placing and removing the timers may take, as a share of the time.
MAX_SHARE = 0.0005
#: Seconds between two looks of the thread, on average: half of the shortest block that is reported.
INTERVAL_SECONDS = 0.05
#: Blocks of the event loop that are kept, the last ones.
MAX_BLOCKS = 1_000
#: Kinds of plugins that are distinguished, so that new classes all the time cost no more memory.
MAX_KINDS = 500
#: Handlers that last as long as a connection and call stream handlers; they are not timed.
_CONNECTIONS = frozenset({"register-client", "register-worker"})
#: Hooks that are called rarely, and timed at each call.
_HOOKS = ("update_graph", "restart", "add_worker", "remove_worker", "add_client", "remove_client", "log_event")


#: Nanoseconds and number of the calls of hooks.
_HookTimes = dict[LoopFunction, list[int]]


@dataclass(slots=True, eq=False)
class _Row:
    """Time of the calls of one handler."""

    ns: int = 0
    calls: int = 0
    looked_ns: int = 0
    looked_calls: int = 0
    hooks: _HookTimes = field(default_factory=dict)
    #: Instant from which plugins are timed in the next call.
    due: int = 0


class LoopMeter:
    """Times the calls of a scheduler's event loop. ``has_work`` is called in a thread: True if work is outstanding."""

    def __init__(self, scheduler: Scheduler, has_work: Callable[[], bool]) -> None:
        self._scheduler, self._has_work = scheduler, has_work
        part = "the meter of the scheduler's event loop"
        self.guard = Guard(part, "dask_efficiency does not time handlers", self.stop)
        self._rows: dict[LoopFunction, _Row] = {}
        self._hooks: _HookTimes = {}
        self._kinds: dict[tuple[type, str], LoopFunction] = {}
        self._replacements = Replacements()
        self._handlers: set[tuple[str, str]] = set()
        #: By identity: plugins with their replacements.
        self._plugins: dict[int, tuple[Any, Replacements]] = {}
        self._looking: Replacements | None = None
        #: Instant since which the loop has nothing to do, 0 while it is busy; and instant since which it is busy.
        self._idle_since, self._turned = 0, clock()
        self._knows_waits = False
        #: Nanoseconds for which the loop has waited for messages so far; 0 if unknown.
        self.waited = 0
        self._squares = self._gc = self._gc_began = 0
        self._with_work = self._waited_with_work = 0
        self._blocks: deque[tuple[int, Holdup]] = deque(maxlen=MAX_BLOCKS)
        self._stacks = Stacks()
        self._closing = threading.Event()
        self._ident = 0
        self._first = LoopTotals(at=clock(), waited=None)

    def start(self) -> None:
        """Begin; called once, on the event loop."""
        self.guard(self._start)

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        self._ident = threading.get_ident()
        self._turned = clock()
        self._knows_waits = bool(self._replacements.put(patches.SELECT, loop, self._timed_select))
        self._first = LoopTotals(at=self._turned, waited=0 if self._knows_waits else None)
        self._put()
        gc.callbacks.append(self._collecting)
        thread = threading.Thread(target=self._watch, args=(loop,), name="dask-efficiency-scheduler", daemon=True)
        thread.start()

    def stop(self) -> None:
        """Put everything back; safe to call twice."""
        self._closing.set()
        self._take_off_transitions()
        if self._collecting in gc.callbacks:
            gc.callbacks.remove(self._collecting)
        for _, replaced in self._plugins.values():
            replaced.put_back()
        self._plugins.clear()
        self._replacements.put_back()

    def refresh(self) -> None:
        """Also time handlers and plugins that came since; call from time to time."""
        if not self._closing.is_set():
            self.guard(self._put)

    def _put(self) -> None:
        scheduler = self._scheduler
        both = {scheduler_loop.STREAM: scheduler.stream_handlers, scheduler_loop.COMM: scheduler.handlers}
        for kind, handlers in both.items():
            for op in list(handlers):
                if (kind, op) not in self._handlers and op not in _CONNECTIONS:
                    self._handlers.add((kind, op))
                    self._replacements.put(patches.HANDLER, (handlers, op), partial(self._timed, kind, op))
        for name, periodic in list(scheduler.periodic_callbacks.items()):
            if (scheduler_loop.CALLBACK, name) not in self._handlers:
                self._handlers.add((scheduler_loop.CALLBACK, name))
                # Each plan of the active memory manager has its own name.
                shown = name.rstrip("-0123456789")
                self._replacements.put(patches.CALLBACK, periodic, partial(self._timed, scheduler_loop.CALLBACK, shown))
        there = {id(plugin): plugin for plugin in scheduler.plugins.values()}
        for gone in self._plugins.keys() - there.keys():
            self._plugins.pop(gone)[1].put_back()
        for number, plugin in there.items():
            if number not in self._plugins:
                self._plugins[number] = plugin, (replaced := Replacements())
                self._put_on(replaced, plugin, _HOOKS, self._hooks)

    def _put_on(self, replaced: Replacements, plugin: Any, hooks: Iterable[str], times: _HookTimes) -> None:
        for hook in hooks:
            if _has(plugin, hook):
                spent = times.setdefault(self._hook(plugin, hook), [0, 0])
                replaced.put(patches.HOOK, (plugin, hook), partial(_timed_hook, spent))

    def _timed_select(self, select: Callable[..., Any]) -> Callable[..., Any]:
        def timed_select(timeout: float | None = None) -> Any:
            self._idle_since = began = clock()
            turn = began - self._turned
            self._squares += turn * turn
            try:
                return select(timeout)
            finally:
                self._turned = now = clock()
                self.waited += now - began
                self._idle_since = 0

        return timed_select

    def _collecting(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._gc_began = clock()
        elif self._gc_began:
            self._gc += clock() - self._gc_began
            self._gc_began = 0

    def _timed(self, kind: str, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        row = self._rows.setdefault(LoopFunction(kind, name, _code(function)), _Row())
        if inspect.iscoroutinefunction(function):

            @wraps(function)
            async def timed_coroutine(*args: Any, **kwargs: Any) -> Any:
                # All steps of a call, or none: one step may have most of the work.
                step = partial(self._look if clock() >= row.due else self._time, row)
                return await _in_steps(function(*args, **kwargs), step)

            return timed_coroutine

        @wraps(function)
        def timed(*args: Any, **kwargs: Any) -> Any:
            began = clock()
            if began >= row.due:
                return self._look(row, function, *args, **kwargs)
            try:
                return function(*args, **kwargs)
            finally:
                row.ns += clock() - began
                row.calls += 1

        return timed

    @staticmethod
    def _time(row: _Row, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a handler."""
        began = clock()
        try:
            return function(*args, **kwargs)
        finally:
            row.ns += clock() - began
            row.calls += 1

    def _look(self, row: _Row, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a handler, and time plugins meanwhile."""
        if self._looking is not None or self._closing.is_set():
            return self._time(row, function, *args, **kwargs)
        began, before = thread_time_ns(), row.ns
        self.guard(self._put_on_transitions, row)
        cost = thread_time_ns() - began
        try:
            return self._time(row, function, *args, **kwargs)
        finally:
            took = row.ns - before
            row.looked_ns += took
            row.looked_calls += 1
            began = thread_time_ns()
            self.guard(self._take_off_transitions)
            cost += thread_time_ns() - began
            row.due = clock() + max(LOOK_NS, round(cost / MAX_SHARE))

    def _put_on_transitions(self, row: _Row) -> None:
        self._looking = replaced = Replacements()
        for plugin in list(self._scheduler.plugins.values()):
            self._put_on(replaced, plugin, ("transition",), row.hooks)

    def _take_off_transitions(self) -> None:
        replaced, self._looking = self._looking, None
        if replaced is not None:
            replaced.put_back()

    def _hook(self, plugin: Any, hook: str) -> LoopFunction:
        kind = type(plugin)
        if (kind, hook) not in self._kinds:
            if len(self._kinds) >= MAX_KINDS:
                return LoopFunction(scheduler_loop.HOOK, "(other)", Frame("", "", 0))
            name = f"{kind.__qualname__.rpartition('.')[2]}.{hook}"
            self._kinds[kind, hook] = LoopFunction(scheduler_loop.HOOK, name, _code(getattr(plugin, hook)))
        return self._kinds[kind, hook]

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            blocks = LoopBlocks(self._scheduler, self._stack, lambda block: self._blocks.append((clock(), block)))
            at, has_work = clock(), False
            waited = self._waited_until(at)
            # A scheduler may be left open when its event loop is closed.
            while not loop.is_closed() and not self._closing.wait(INTERVAL_SECONDS * (0.5 + random.random())):
                blocks.look(wanted=True)
                last, last_waited, had_work = at, waited, has_work
                at, has_work = clock(), self._has_work()
                waited = self._waited_until(at)
                if had_work and has_work:
                    self._with_work += at - last
                    self._waited_with_work += waited - last_waited
            if not self._closing.is_set():  # else a callback of the garbage collector would keep the scheduler
                self.stop()
        except Exception as error:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self.guard.fail, error)

    def _stack(self) -> Stack | None:
        """Stack of the loop; None while it is idle, or without a GIL, as frames then change."""
        found = self._stacks.loop(frames_of_others().get(self._ident)) if has_gil() else ()
        return None if not found or has_nothing_to_do(found) else found

    def _waited_until(self, at: int) -> int:
        waited, since = self.waited, self._idle_since
        return waited + max(0, at - since) if since else waited

    def totals(self) -> LoopTotals:
        """Totals so far; raises RuntimeError with the reason if it failed."""
        if self.guard.off is not None:
            raise RuntimeError(self.guard.off)
        return LoopTotals(
            at=clock(),
            waited=self.waited if self._knows_waits else None,
            squares=self._squares,
            gc=self._gc,
            with_work=self._with_work,
            waited_with_work=self._waited_with_work,
            handlers={
                part: LoopTime(row.ns, row.calls, row.looked_ns, row.looked_calls, _copied(row.hooks))
                for part, row in self._rows.items()
            },
            hooks=_copied(self._hooks),
        )

    def totals_if_known(self) -> LoopTotals | None:
        """Totals so far; None if it failed."""
        return None if self.guard.off else self.totals()

    def between(self, then: LoopTotals | None = None, until: LoopTotals | None = None) -> SchedulerLoop:
        """Time of the event loop between two totals; by default from the start, and until now."""
        then, until = then or self._first, until or self.totals()
        blocks = [block for at, block in list(self._blocks) if at >= then.at and at - block.ns < until.at]
        return scheduler_loop.between(then, until, blocks)


@coroutine
def _in_steps(awaited: Any, step: Callable[[Callable[[Any], Any], Any], Any]) -> Generator[Any, Any, Any]:
    """Await a coroutine, with each of its steps called by ``step``."""
    resume, value = awaited.send, None
    while True:
        try:
            yielded = step(resume, value)
        except StopIteration as done:
            return done.value
        resume = awaited.send
        try:
            value = yield yielded
        except BaseException as error:
            resume, value = awaited.throw, error


def _timed_hook(spent: list[int], hook: Callable[..., Any]) -> Callable[..., Any]:
    def timed_hook(*args: Any, **kwargs: Any) -> Any:
        began = clock()
        try:
            return hook(*args, **kwargs)
        finally:
            spent[0] += clock() - began
            spent[1] += 1

    return timed_hook


def _has(plugin: Any, hook: str) -> bool:
    """True if a plugin overrides a hook."""
    function = getattr(plugin, hook, None)
    return function is not None and getattr(function, "__func__", None) is not getattr(SchedulerPlugin, hook, None)


def _code(function: Any) -> Frame:
    """Name of a function, with the file and line of its beginning."""
    while isinstance(function, partial):
        function = function.func
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return Frame(getattr(function, "__qualname__", ""), "", 0)
    return Frame(code.co_qualname, code.co_filename, code.co_firstlineno)


def _copied(spent: _HookTimes) -> dict[LoopFunction, tuple[int, int]]:
    return {part: (ns, calls) for part, (ns, calls) in spent.items()}
