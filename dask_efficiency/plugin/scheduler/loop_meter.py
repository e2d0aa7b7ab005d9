"""LoopMeter: time of the scheduler's event loop, by handler, by plugin, and by kind of messages.

Handlers, periodic callbacks and messages are timed at each call. A plugin's ``transition`` runs several times for each
task, and timing every call would cost the scheduler some percent: so plugins are timed in some calls of each handler,
at most one in :data:`LOOK_NS`, and their share of these stands for their share of all. In the same way, all other
callbacks are timed in some turns of the loop. A thread that samples the loop's stack would be less code, and wrong:
Python lets it run where the loop sends and receives, and hardly ever in the midst of a handler. It sees well only what
blocks the loop for long.
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
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from threading import get_ident
from time import monotonic_ns as clock
from time import thread_time_ns
from types import CoroutineType, coroutine
from typing import Any

from distributed import Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin
from tornado.ioloop import PeriodicCallback

from dask_efficiency.accounts.cluster import scheduler_loop
from dask_efficiency.accounts.cluster.scheduler_loop import LoopFunction, LoopTime, LoopTotals, SchedulerLoop
from dask_efficiency.accounts.intake import fitting
from dask_efficiency.accounts.lines import Frame, Holdup, has_nothing_to_do
from dask_efficiency.plugin import patches
from dask_efficiency.plugin.guard import Guard
from dask_efficiency.plugin.loop_blocks import LoopBlocks, LoopLook
from dask_efficiency.plugin.message_contents import code_of
from dask_efficiency.plugin.messages import MESSAGES_HERE, Tally
from dask_efficiency.plugin.patches import Replacements
from dask_efficiency.plugin.scheduler.loop_thread import LoopThread
from dask_efficiency.plugin.stacks import MAX_WALKED, Stacks, frames_of_others, has_gil

#: Nanoseconds between two calls of a handler in which plugins are timed, at least: some 50 samples a second.
LOOK_NS = 20_000_000
#: CPU time, for each handler, that placing and removing the timers, and their calls, may take, as a share of the time;
#: and what one call takes.
MAX_SHARE, HOOK_NS = 0.0005, 1_000
#: Seconds between two looks of the thread, on average: half of the shortest block that is reported.
INTERVAL_SECONDS = 0.05
#: Share of the turns' time in which callbacks are timed, at most: each takes some microseconds longer. A guess.
MAX_LOOKED_AT = 0.03
#: Turns up to which no event waits long enough to tell, nanoseconds.
SHORT_NS = 100_000
#: Turns that are left out at most before one is looked at. A guess.
MAX_LEFT_OUT = 4
#: Blocks of the event loop that are kept, the last ones.
MAX_BLOCKS = 1_000
#: Kinds of plugins that are distinguished, so that new classes all the time cost no more memory.
MAX_KINDS = 500
#: Handlers that last as long as a connection and call stream handlers; they are not timed.
_CONNECTIONS = frozenset({"register-client", "register-worker"})
#: Hooks that are called rarely, and timed at each call.
_HOOKS = ("update_graph", "restart", "add_worker", "remove_worker", "add_client", "remove_client", "log_event")


#: Time of a turn that is no callback's.
BETWEEN = LoopFunction(scheduler_loop.STEP, "(between callbacks)", Frame("", "", 0))


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
        #: Instant from which callbacks are timed in the next turn, and turns that are left out then.
        self._step_due = self._left_out = self._step_began = 0
        self._stepping = Replacements()
        #: Time of handlers so far; of the turns that were looked at; and of all callbacks in this one.
        self._handled = self._looked = self._in_steps = 0
        self._steps: _HookTimes = {}
        #: Instant since which the loop has nothing to do, 0 while it is busy.
        self._idle_since = 0
        self._knows_waits = False
        #: Nanoseconds for which the loop has waited for messages so far; 0 if unknown.
        self.waited = 0
        self._squares = self._gc = self._gc_began = 0
        self._with_work = self._waited_with_work = 0
        #: Waits for a core outside of `select`, in all and with work.
        self._core = self._core_with_work = 0
        self._blocks: deque[tuple[int, Holdup]] = deque(maxlen=MAX_BLOCKS)
        self._stacks = Stacks()
        self._closing = threading.Event()
        self._ident = self._native_id = 0
        #: Time of messages on the loop's thread, and who asked for it.
        self._messages, self._of_messages = Tally(0), object()
        self._first = LoopTotals(at=clock(), waited=None)

    def start(self) -> None:
        """Begin; called once, on the event loop."""
        self.guard(self._start)

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        self._ident, self._native_id = threading.get_ident(), threading.get_native_id()
        self._knows_waits = bool(self._replacements.put(patches.SELECT, loop, self._timed_select))
        self._first = LoopTotals(at=clock(), waited=0 if self._knows_waits else None)
        self._put()
        gc.callbacks.append(self._collecting)
        self._messages = MESSAGES_HERE.start(self._of_messages)
        # The process may have had other schedulers before.
        self._first = replace(self._first, handlers=MESSAGES_HERE.on_loop(self._ident))
        thread = threading.Thread(target=self._watch, args=(loop,), name="dask-efficiency-scheduler", daemon=True)
        thread.start()

    def stop(self) -> None:
        """Put everything back; safe to call twice."""
        self._closing.set()
        MESSAGES_HERE.stop(self._of_messages)
        self._take_off_transitions()
        self._stepping.put_back()
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
        turned = clock()

        def timed_select(timeout: float | None = None) -> Any:
            nonlocal turned
            self._idle_since = began = clock()
            turn = began - turned
            if turn > SHORT_NS:
                self._squares += turn * turn
            try:
                found = select(timeout)
            finally:  # also with more to do it waits, for the GIL
                turned = clock()
                self.waited += turned - began
                self._idle_since = 0
            if turned >= self._step_due:  # always while it is timed
                self.guard(*(self._end_steps, began) if self._step_began else (self._begin_steps, turned))
            return found

        return timed_select

    def _begin_steps(self, at: int) -> None:
        """Time the callbacks of this turn, unless chance leaves it out: turns after long ones are not as others."""
        if self._left_out:
            self._left_out -= 1
            return
        self._left_out = random.randrange(MAX_LEFT_OUT)
        if self._closing.is_set():
            return
        self._step_began, self._step_due = at, 0
        self._stepping.put(patches.STEP, None, self._timed_step)

    def _end_steps(self, at: int) -> None:
        self._stepping.put_back()
        looked, self._in_steps = at - self._step_began - self._in_steps, 0
        self._looked += at - self._step_began
        self._add_step(BETWEEN, looked)
        self._step_due, self._step_began = at + max(LOOK_NS, round((at - self._step_began) / MAX_LOOKED_AT)), 0

    def _timed_step(self, run: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def timed_step(handle: Any) -> Any:
            if not self._step_began or get_ident() != self._ident:
                return run(handle)
            what, messages = self.guard(_step_of, handle), self._messages
            began, before = clock(), self._handled + messages.ns
            try:
                return run(handle)
            finally:
                took = clock() - began
                self._in_steps += took
                if what is not None:
                    self._add_step(what, took - self._handled - messages.ns + before)

        return timed_step

    def _add_step(self, what: LoopFunction, ns: int) -> None:
        if what in self._steps or len(self._steps) < MAX_KINDS:
            spent = self._steps.setdefault(what, [0, 0])
            spent[0] += max(0, ns)
            spent[1] += 1

    def _collecting(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._gc_began = clock()
        elif self._gc_began:
            self._gc += clock() - self._gc_began
            self._gc_began = 0

    def _timed(self, kind: str, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        row = self._rows.setdefault(LoopFunction(kind, name, code_of(function)), _Row())
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
                found = function(*args, **kwargs)
            finally:
                took = clock() - began
                row.ns += took
                row.calls += 1
                self._handled += took
            # Of ``client.run_on_scheduler``, the function is called as its coroutine is awaited.
            return _awaited(found, partial(self._time, row)) if type(found) is CoroutineType else found

        return timed

    def _time(self, row: _Row, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a handler; the messages that it reads and writes count by themselves."""
        messages = self._messages
        began, before = clock(), messages.ns
        try:
            return function(*args, **kwargs)
        finally:
            took = clock() - began - messages.ns + before
            row.ns += took
            row.calls += 1
            self._handled += took

    def _look(self, row: _Row, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a handler, and time plugins meanwhile."""
        if self._looking is not None or self._closing.is_set():
            return self._time(row, function, *args, **kwargs)
        began, before, timed = thread_time_ns(), row.ns, sum(calls for _, calls in row.hooks.values())
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
            timed = sum(calls for _, calls in row.hooks.values()) - timed
            cost += thread_time_ns() - began + HOOK_NS * timed
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
            self._kinds[kind, hook] = LoopFunction(scheduler_loop.HOOK, name, code_of(getattr(plugin, hook)))
        return self._kinds[kind, hook]

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        thread = LoopThread(self._ident, self._native_id)
        blocks = LoopBlocks(
            self._scheduler,
            lambda: self._look_at(*thread.waits()),
            lambda block: self._blocks.append((clock(), block)),
            partial(MESSAGES_HERE.during, self._ident),
        )
        try:
            at, has_work = clock(), False
            waited = self._waited_until(at)
            # A scheduler may be left open when its event loop is closed.
            while not loop.is_closed():
                interval = INTERVAL_SECONDS * (0.5 + random.random())
                if self._closing.wait(interval):
                    break
                last, last_waited, last_core, had_work = at, waited, thread.core, has_work
                at, has_work = clock(), self._has_work()
                waited = self._waited_until(at)
                thread.look(round(interval * 1e9), waited)
                blocks.look(wanted=True)
                self._core = thread.core
                if had_work and has_work:
                    self._with_work += at - last
                    self._waited_with_work += waited - last_waited
                    self._core_with_work += thread.core - last_core
            if not self._closing.is_set():  # else a callback of the garbage collector would keep the scheduler
                self.stop()
        except Exception as error:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self.guard.fail, error)
        finally:
            blocks.close()
            thread.close()

    def _look_at(self, waits: LoopLook, ident: int | None) -> LoopLook:
        """Add the stack of the loop, and that of the thread which held the GIL, such as the client's in a script."""
        if not has_gil():  # frames change while they are walked
            return waits
        frames = frames_of_others()
        stack = self._stacks.loop(frames.get(self._ident), MAX_WALKED)
        found = waits._replace(stack=None if has_nothing_to_do(stack) else stack)
        if ident is None:
            return found
        name = next((each.name for each in threading.enumerate() if each.ident == ident), "")
        frame = frames.get(ident)
        # By now it does something else.
        waits_now = frame is not None and frame.f_code.co_filename == threading.__file__
        held_at = () if waits_now else self._stacks.task(frame)
        return found._replace(holder=fitting(f"(thread {name[:100]})"), held_at=held_at)

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
            core=self._core,
            with_work=self._with_work,
            waited_with_work=self._waited_with_work,
            core_with_work=self._core_with_work,
            handlers={
                part: LoopTime(row.ns, row.calls, row.looked_ns, row.looked_calls, _copied(row.hooks))
                for part, row in self._rows.items()
            }
            | MESSAGES_HERE.on_loop(self._ident),
            looked=self._looked,
            steps=_copied(self._steps),
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


async def _awaited(awaited: Any, step: Callable[[Callable[[Any], Any], Any], Any]) -> Any:
    """Coroutine of :func:`_in_steps`; Dask takes no other awaitable from a handler."""
    return await _in_steps(awaited, step)


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


def _step_of(handle: Any) -> LoopFunction:
    """Function or coroutine that a callback of an event loop goes on with."""
    callback, args = handle._callback, [*(handle._args or ())]
    if getattr(callback, "__name__", "") == "_run_callback" and args:  # of Tornado
        callback = args[0]
    task = getattr(callback, "__self__", None)
    if isinstance(task, asyncio.Task):
        coroutine = task.get_coro()
        callback, frame = getattr(coroutine, "cr_code", None), getattr(coroutine, "cr_frame", None)
        if callback is PeriodicCallback._run.__code__ and frame is not None:
            callback = frame.f_locals["self"].callback
    code = code_of(callback)
    return LoopFunction(scheduler_loop.STEP, code.function, code)


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


def _copied(spent: _HookTimes) -> dict[LoopFunction, tuple[int, int]]:
    return {part: (ns, calls) for part, (ns, calls) in spent.items()}
