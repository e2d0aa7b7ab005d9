"""Time that the outstanding tasks will yet take, from what tasks of their prefixes took, and the pace so far."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import NamedTuple

from dask_efficiency.accounts.checks import listed, seconds

#: Relative growth of the number of known tasks that counts as a graph: lost results that are computed again are fewer.
#: A guess.
GROWTH = 0.02
#: Multiples of the longest time between graphs after which no more are expected. By judgement.
QUIET_GAPS = 2.0
#: Tasks that must have ended before anything is said. Chosen, as all below, by ``python -m benchmarks.time_left``, on
#: the runs in `tests/data` and a part of one half of FlowBench's.
MIN_ENDED = 10
#: Share of the outstanding tasks that may be of prefixes of which none has ended.
MAX_UNSEEN = 0.05
#: Shares of the time so far over which the pace is taken.
PARTS = (1.0, 0.5, 0.25)
#: Relative errors of what is left by which the interval is wider than paces differ.
BELOW, ABOVE = 0.25, 0.3
#: Power of the highest pace so far at which tasks may yet be done by threads that have been idle: 0 is all of them. The
#: geometric mean.
SOONER = 0.5
#: Share of the time so far of a task which has run for longer than others that it may yet take.
OVERRUN = 0.5
#: Multiples of the longest mean of a prefix by which the last tasks may take longer.
TAIL = 1.0
#: Multiples of the longest mean that those of prefixes of which none has ended may take.
UNSEEN = 2.0
#: Ratio of the ends of an interval from which it says nothing.
MAX_RATIO = 3.5
#: Looks that are kept; of more, every other one is forgotten.
MAX_LOOKS = 128


class PrefixTasks(NamedTuple):
    """Tasks of a prefix at one instant."""

    #: Number of those that have not ended, and seconds so far of each of them that runs.
    tasks: int
    running: tuple[float, ...]
    #: Number of those that have ended, and their seconds in all.
    ended: int
    seconds: float


@dataclass(frozen=True, slots=True)
class TimeLeft:
    """Seconds until the outstanding tasks are done, and the interval in which they are expected to be."""

    seconds: float
    least: float
    most: float


def encode_left(left: TimeLeft | None) -> list[float] | None:
    """Encode as plain data for msgpack."""
    return None if left is None else list(astuple(left))


def decode_left(payload: object) -> TimeLeft | None:
    """Check and read what :func:`encode_left` made; raises :class:`RefusedPayload`."""
    if payload is None:
        return None
    about, least, most = (seconds("time left", one) for one in listed("time left", payload, 3))
    return TimeLeft(about, least, most)


class _Look(NamedTuple):
    """Seconds so far of threads that were there, and of tasks; and the instant at which all was expected to end."""

    at: float
    nthreads: int
    threads: float
    tasks: float
    end: float | None = None


class TimeLeftEstimate:
    """Estimates how long outstanding tasks will take, by looks at a cluster in the order of time.

    The pace is how much of the threads' time became time of tasks: over all of the time since the last graph, its last
    half and its last quarter. What is left by that pace is as uncertain as these differ, and as much as the expected
    end has moved since half of that time. It may be done sooner by threads that have been idle; and later if a prefix
    gets on more slowly than all together, as where its tasks wait for each other.
    """

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._looks: list[_Look] = []
        #: Number of tasks that are known, ended ones too; instant of the last graph, how many had ended by then, and
        #: the longest time between two graphs.
        self._known, self._grown, self._ended, self._gap = 0, 0.0, 0, 0.0
        #: By prefix: instant since that graph at which tasks were first seen, and their seconds by then.
        self._begun: dict[str, tuple[float, float]] = {}

    def look(self, at: float, prefixes: Mapping[str, PrefixTasks], nthreads: int) -> TimeLeft | None:
        """Time left at an instant in seconds; None where it cannot be said."""
        outstanding = sum(one.tasks for one in prefixes.values())
        if not outstanding:
            self._forget()
            return None
        ended = sum(one.ended for one in prefixes.values())
        spent = sum(one.seconds + sum(one.running) for one in prefixes.values())
        if outstanding + ended > (1 + GROWTH) * self._known:
            self._gap = max(self._gap, at - self._grown) if self._known else 0.0
            self._known, self._grown, self._ended, self._looks = outstanding + ended, at, ended, []
            self._begun = {}
        last = self._looks[-1] if self._looks else _Look(at, nthreads, 0.0, spent)
        now = _Look(at, nthreads, last.threads + nthreads * (at - last.at), spent)
        for name, one in prefixes.items():
            if name not in self._begun and (one.running or one.ended):
                self._begun[name] = at, one.seconds + sum(one.running)
        left = self._left(now, prefixes)
        self._looks.append(now if left is None else now._replace(end=at + left.seconds))
        if len(self._looks) > MAX_LOOKS:
            self._looks = self._looks[::2]
        quiet = at - self._grown >= QUIET_GAPS * self._gap
        return left if quiet and left is not None and left.most <= MAX_RATIO * left.least else None

    def _left(self, now: _Look, prefixes: Mapping[str, PrefixTasks]) -> TimeLeft | None:
        nthreads = now.nthreads
        outstanding = sum(one.tasks for one in prefixes.values())
        unseen = sum(one.tasks for one in prefixes.values() if not one.ended)
        ended = sum(one.ended for one in prefixes.values()) - self._ended
        if ended < MIN_ENDED or unseen > MAX_UNSEEN * outstanding or not (nthreads and self._looks):
            return None
        #: Seconds of tasks that are left, without those that are overdue, of the longest, and prefix after prefix; and
        #: those that one prefix takes at its own pace.
        work = sure = longest = waves = alone = 0.0
        for name, one in prefixes.items():
            if one.tasks and one.ended:
                mean = one.seconds / one.ended
                # Of a task that has run for longer than others, half of its time may be left.
                rest = [max(mean - seconds, OVERRUN * seconds) for seconds in one.running]
                waiting = max(one.tasks - len(rest), 0)
                its_sure = sum(max(mean - seconds, 0.0) for seconds in one.running) + mean * waiting
                work += sum(rest) + mean * waiting
                sure += its_sure
                began, before = self._begun[name]
                if (done := one.seconds + sum(one.running) - before) > 0.0:
                    alone = max(alone, its_sure * (now.at - began) / done)
                longest = max(longest, mean if waiting else 0.0, *rest)
                waves += max(math.ceil(waiting / nthreads) * mean, *rest, 0.0)
        then = [self._before(now.at - part * (now.at - self._grown)) for part in PARTS]
        paces = [(now.tasks - one.tasks) / max(now.threads - one.threads, now.at - one.at) for one in then]
        if min(paces) <= 0.0:
            return None
        new = math.ceil(unseen / nthreads) * UNSEEN * longest
        seconds = max(work / nthreads / paces[1], longest)
        # Threads that came or went moved it by themselves.
        is_known = then[1].end is not None and then[1].nthreads == nthreads
        moved = now.at + seconds - (then[1].end or 0.0) if is_known else 0.0
        soon = max(paces) ** SOONER if max(paces) < 1.0 else max(paces)
        least = (1 - BELOW) * sure / nthreads / soon + min(moved, 0.0)
        most = max((1 + ABOVE) * work / nthreads / min(paces) + TAIL * longest, waves) + new + max(moved, 0.0)
        return TimeLeft(seconds, max(min(least, seconds), 0.0), max(most, seconds, alone))

    def _before(self, at: float) -> _Look:
        """Last look by an instant, or the first one."""
        return self._looks[max(bisect_right(self._looks, at, key=lambda look: look.at) - 1, 0)]
