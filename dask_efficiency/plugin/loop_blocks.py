"""LoopBlocks: times for which a server's event loop was blocked, and what it was that blocked it.

A block lasts from when Dask's own tick was due until it comes, in the loop's first turn after it. Who is to blame is
another question: a thread that is in the midst of a call may only wait for a core on a crowded host, or for the GIL
that another thread holds. So each look divides the time since the look before by what the kernel counts: waits for a
core, waits for the GIL, and the rest, which is the loop's own doing. The calls that more than half of the own time was
in are named, from the outermost inwards, however little of the block it was; but nobody is if it was far too short to
be a block without the crowd.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from time import monotonic as time
from typing import Any, NamedTuple

from dask_efficiency.accounts.lines import EVENT_LOOP, MAX_DEPTH, NO_CORE, Frame, Holdup, Stack
from dask_efficiency.plugin import patches
from dask_efficiency.plugin.patches import Replacements
from dask_efficiency.plugin.thread_clocks import ThreadClocks

#: Shortest block of an event loop that is reported, seconds: five of Dask's ticks.
MIN_SECONDS = 0.1
#: Seconds of a block that one thread must have spent at work to be blamed: half of the shortest block.
MIN_OWN_SECONDS = 0.05
#: Times that a thread which only wants to look is given a core, from which it waited for the GIL all the time: then it
#: wakes up each switch interval, on a crowded host to wait for a core. Without, it is once or twice.
GIL_TURNS = 4
#: Blocks between two looks, which are at most some seconds apart.
MAX_OVER = 100


class LoopLook(NamedTuple):
    """Use of the time of an event loop's thread since the look before, as one look tells it."""

    #: Nanoseconds for which it waited for a core, counted when it got it, and for the GIL; the rest was its own doing.
    core: int = 0
    gil: int = 0
    #: Nanoseconds on a CPU: of the rest at least.
    cpu: int = 0
    #: True if it runs, or waits for a core: then the rest may be a part of that wait, which is not counted yet.
    is_ready: bool = False
    #: Stack of the loop: None if it has nothing to do, empty if that is not known.
    stack: Stack | None = ()
    #: Thread that held the GIL meanwhile, with its stack; empty if none did for long.
    holder: str = ""
    held_at: Stack = ()


class LoopClocks:
    """Divides the time of a loop's thread between two looks: CPU, waits for a core, and the rest."""

    def __init__(self, at: int, clocks: ThreadClocks) -> None:
        self._at, self._clocks = at, clocks
        #: Nanoseconds since the look before. The kernel counts a wait for a core when it is over, so the rest may be
        #: part of one that goes on, and is less than nothing in the look after it.
        self.cpu = self.core = self.rest = 0

    def read(self, at: int, clocks: ThreadClocks) -> None:
        """Take the clocks of a look."""
        self.cpu, self.core = max(0, clocks.cpu - self._clocks.cpu), max(0, clocks.core - self._clocks.core)
        self.rest = at - self._at - self.cpu - self.core
        self._at, self._clocks = at, clocks


class _Spent:
    """Seconds of a block by the thread to blame, and by its calls."""

    def __init__(self) -> None:
        self.core = 0.0
        #: The loop's own time, and of that the time on a CPU; and by stack.
        self.own, self.cpu = defaultdict[Stack, float](float), defaultdict[Stack, float](float)
        #: By holder of the GIL and its stack; an empty one for waits for the GIL that nobody held for long.
        self.gil = defaultdict[tuple[str, Stack], float](float)
        #: Stack of the last look, None if it found the loop with nothing to do, and the instant of the last such look.
        self.last: Stack | None = None
        self.idle_at = -math.inf
        #: Own time of the last looks that may have been a wait for a core.
        self.doubtful = 0.0

    def add(self, found: LoopLook, seconds: float, longer: float, *, is_over: bool = False) -> None:
        """Divide the last ``seconds`` that a look is about, which is about so much ``longer`` in all."""
        stack = self.last if is_over else found.stack
        core, gil, cpu = found.core / 1e9, min(found.gil / 1e9, seconds), found.cpu / 1e9
        self.core += core
        if gil > 0:
            self.gil[found.holder, found.held_at] += gil
        if stack is not None:
            own = seconds - core - gil
            if own > 0:
                self.own[stack] += own
            elif self.last is not None:  # a wait for a core that is over now was the own time of the look before
                self.own[self.last] -= min(-own, self.doubtful)
            self.doubtful = max(0.0, self.doubtful + own) if found.is_ready else 0.0
            self.cpu[stack] += max(0.0, min(cpu - longer, seconds))
        self.last = stack

    def most(self) -> tuple[str, float, Stack]:
        """Thread that did most, the seconds of that, and the calls that most of it was in."""
        # Other work before the block may have made the rest too little.
        own = max((self.own, self.cpu), key=lambda table: sum(table.values()))
        held = defaultdict[str, float](float)
        for (holder, _), seconds in self.gil.items():
            held[holder] += seconds if holder else 0.0
        holder = max(held, key=lambda holder: held[holder], default="")
        if held[holder] > sum(own.values()):
            stacks = {stack: seconds for (of, stack), seconds in self.gil.items() if of == holder}
            return holder, held[holder], heaviest_path(stacks)
        path = heaviest_path({stack: seconds for stack, seconds in own.items() if seconds > 0})
        return EVENT_LOOP, sum(own.values()), path


class LoopBlocks:
    """Finds times for which a server's event loop was blocked: Dask's own tick, every 20 ms, is late.

    Asked by one thread at a time, while the loop notes its ticks. ``look_at`` looks at the loop's thread, ``blocked``
    takes each block that is over. ``doing`` says which messages explain an interval of the loop's own, if any do. If
    upstream has no such tick, nothing is reported.
    """

    def __init__(
        self,
        server: Any,
        look_at: Callable[[], LoopLook],
        blocked: Callable[[Holdup], object],
        doing: Callable[[float, float], str] = lambda since, until: "",
    ) -> None:
        self._look_at, self._blocked, self._doing = look_at, blocked, doing
        self._spent = _Spent()
        #: Instants of the look before, of the last tick, and of the one before the block that was looked at.
        self._at = self._ticked = time()
        self._since: float | None = None
        #: Ticks before and after each block that is over, which no look has seen yet.
        self._over: deque[tuple[float, float]] = deque(maxlen=MAX_OVER)
        self._interval = math.inf
        self._replacements = Replacements()
        if self._replacements.put(patches.TICK, server, self._noting):
            self._interval = server.periodic_callbacks["tick"].callback_time / 1e3

    def close(self) -> None:
        """Note no ticks any more."""
        self._replacements.put_back()

    def _noting(self, tick: Callable[[], object]) -> Callable[[], object]:
        def noting() -> object:
            at = time()
            if at - self._ticked > self._interval + MIN_SECONDS:
                self._over.append((self._ticked, at))  # first: a look may come in between
            self._ticked = at
            return tick()

        return noting

    def look(self, wanted: bool) -> None:
        """Look at the loop, unless nobody wants to know."""
        before, self._at = self._at, time()
        if not wanted:
            self._over.clear()
            self._begin()
            return
        due = self._ticked + self._interval
        is_late = self._at - due > MIN_SECONDS / 2
        if not is_late and not self._over:
            self._begin()
            return
        found = self._look_at()
        self.tell(found, before)
        if is_late:
            self._since = due - self._interval
            seconds = self._at - max(before, due)
            self._spent.add(found, seconds, self._at - before - seconds)
            if found.stack is None:  # whatever it does next begins later
                self._spent.idle_at = self._at

    def tell(self, found: LoopLook | None = None, before: float = math.inf) -> None:
        """Report the blocks that are over; a look, and the instant of that before it, tell of what came since."""
        for since, until in [self._over.popleft() for _ in range(len(self._over))]:
            due = since + self._interval
            if since != self._since:  # it came and went since then: nobody saw what the loop did
                self._begin()
            if found is not None:
                seconds = until - max(before, due)
                self._spent.add(found, seconds, self._at - before - seconds, is_over=True)
            self._report(due, until)

    def _report(self, due: float, until: float) -> None:
        """Report a block, with the thread to blame and the calls that it was in."""
        (culprit, spent, path), seconds = self._spent.most(), until - due
        longest = until - max(due, self._spent.idle_at) if culprit == EVENT_LOOP else seconds
        if longest > MIN_SECONDS and spent >= MIN_OWN_SECONDS:
            doing = self._doing(until - longest, until) if culprit == EVENT_LOOP else ""
            block = Holdup(round(longest * 1e9), culprit, path[-MAX_DEPTH:], doing)
        else:
            block = Holdup(round(seconds * 1e9), NO_CORE if self._spent.core > seconds / 2 else EVENT_LOOP, ())
        self._blocked(block)
        self._begin()

    def _begin(self) -> None:
        self._since, self._spent = None, _Spent()


def heaviest_path(stacks: Mapping[Stack, float]) -> Stack:
    """Calls that more than half of the weight is in, from the outermost inwards, each at its heaviest line."""
    whole, left, path = sum(stacks.values()), dict(stacks), list[Frame]()
    while True:
        depth = len(path)
        calls, lines = defaultdict[Frame, float](float), defaultdict[Frame, float](float)
        for stack, weight in left.items():
            if len(stack) > depth:
                calls[stack[depth]._replace(line=0)] += weight
                lines[stack[depth]] += weight
        call = max(calls, key=lambda call: calls[call], default=None)
        if call is None or 2 * calls[call] <= whole:
            return tuple(path)
        left = {stack: left[stack] for stack in left if len(stack) > depth and stack[depth]._replace(line=0) == call}
        path.append(max((line for line in lines if line._replace(line=0) == call), key=lambda line: lines[line]))
