"""Memory of workers: its levels in a heartbeat, and why results are kept."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate
from typing import Any, NamedTuple, TypeVar

from dask_efficiency.accounts.checks import RefusedPayload, listed, short, text, whole
from dask_efficiency.accounts.intake import whole_number
from dask_efficiency.accounts.rows import MAX_APART, MAX_ROWS, OTHER
from dask_efficiency.accounts.wire.heartbeats import REPEATS

_Name = TypeVar("_Name", bound=Hashable)

#: Key, in a heartbeat, of the levels of a worker's memory.
LEVELS = "m"
#: Prefixes in a heartbeat, those with the largest results; the others count as one. A guess that bounds a heartbeat.
MAX_LEVELS = 8
#: Stands for a number of bytes that the system does not give.
NOT_MEASURED = -1
#: Nanoseconds of a millisecond: byte-seconds travel as whole byte-milliseconds.
_MILLISECOND = 1_000_000


class Why(StrEnum):
    """Reason why a result is kept at an instant: the first that applies."""

    #: It is the input of a task that runs.
    RUNNING = "running"
    #: A task that needs it could run, and waits for a thread.
    QUEUED = "queued"
    #: It is of a root task, no client holds it, and those that need it wait for a thread or for other root tasks.
    AHEAD = "ahead"
    #: All that need it wait for results of other tasks.
    BLOCKED = "blocked"
    #: Nothing needs it but a client, which holds a future of it.
    FUTURE = "future"
    #: Nobody needs it, and it is about to be released.
    UNNEEDED = "unneeded"


class Kept(NamedTuple):
    """Results that are kept for one reason."""

    prefix: str
    why: Why
    #: Prefix of the tasks that need them, or the client that holds futures of them; empty of none.
    needed_by: str = ""
    #: Prefix of the results for which these wait; empty of none.
    waits_for: str = ""


class Worked(NamedTuple):
    """Memory of one task while it ran, in bytes beyond the results that are held."""

    #: The most, less what there was at its start; while tasks ran beside it, its equal share of that.
    most: int
    #: Beyond results at its start, and what was added until its end, with its result.
    before: int
    grown: int
    #: True if no other task ran meanwhile.
    alone: bool


@dataclass(frozen=True, slots=True)
class MemoryLevels:
    """Memory of a worker at a heartbeat, in bytes; :data:`NOT_MEASURED` where the system does not tell."""

    #: Memory of the process, and the most since the last heartbeat that was read: of the kernel, where it tells.
    process: int
    peak: int
    #: Results in memory, and those on disk, by their sizes in memory: estimates by Dask's ``sizeof``.
    held: int
    spilled: int
    #: Size on disk.
    disk: int
    #: Results in memory and on disk of the prefixes with the largest, and of all others; they add up.
    prefixes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    #: Number of the heartbeat.
    number: int = 0

    @property
    def unmanaged(self) -> int:
        """Memory of the process beyond results; below 0 where their sizes are estimated too high, or shared."""
        return self.process - self.held


def largest(levels: Mapping[str, tuple[int, int]], at_most: int = MAX_LEVELS) -> dict[str, tuple[int, int]]:
    """The prefixes that hold most, and all others as one."""
    ranked = sorted(((sum(row), prefix) for prefix, row in levels.items() if any(row)), reverse=True)
    found = {prefix: levels[prefix] for _, prefix in ranked[:at_most]}
    rest = [levels[prefix] for _, prefix in ranked[at_most:]]
    if rest:
        before = found.get(OTHER, (0, 0))
        found[OTHER] = before[0] + sum(held for held, _ in rest), before[1] + sum(spilled for _, spilled in rest)
    return found


def encode_levels(levels: MemoryLevels, peaks: Iterable[int]) -> list[Any]:
    """Encode for a heartbeat: the peaks up to the last heartbeats, as one may not be read, then the levels."""
    prefixes = (each for prefix, row in levels.prefixes.items() for each in (prefix, *map(whole_number, row)))
    return [
        *(
            levels.number,
            [*peaks],
            levels.process,
            whole_number(levels.held),
            whole_number(levels.spilled),
            levels.disk,
        ),
        *prefixes,
    ]


def decode_levels(payload: object, last: MemoryLevels | None = None) -> MemoryLevels:
    """Check and read what :func:`encode_levels` made, after the last; raises :class:`RefusedPayload`."""
    given = listed("memory", payload, 6 + 3 * (MAX_LEVELS + 1))
    if len(given) < 6 or len(given) % 3:
        raise RefusedPayload(f"memory is {short(payload)}; expected six values, then three for each prefix")
    number, peaks, process, held, spilled, disk, *rows = given
    number = whole("memory.number", number)
    unread = max(number - (0 if last is None else last.number), 1)
    return MemoryLevels(
        number=number,
        process=_level("process", process),
        peak=max(
            [_level("peak", peak) for peak in listed("memory.peaks", peaks, REPEATS)][-unread:], default=NOT_MEASURED
        ),
        held=whole("memory.held", held),
        spilled=whole("memory.spilled", spilled),
        disk=_level("disk", disk),
        prefixes={
            text("memory.prefix", prefix): (whole("memory.held", in_memory), whole("memory.spilled", on_disk))
            for prefix, in_memory, on_disk in zip(rows[::3], rows[1::3], rows[2::3], strict=True)
        },
    )


def _level(name: str, value: object) -> int:
    return NOT_MEASURED if value == NOT_MEASURED else whole(f"memory.{name}", value)


def byte_milliseconds(rows: Mapping[_Name, int]) -> dict[_Name, int]:
    """Convert byte-nanoseconds to whole byte-milliseconds; they add up to those of the sum, rounded down."""
    found, running, given = {}, 0, 0
    for name, exact in rows.items():
        running += exact
        found[name] = running // _MILLISECOND - given
        given += found[name]
    return found


#: Points of a :class:`LowerEnvelope`. A guess: the slope of so many takes a millisecond.
MAX_POINTS = 64
#: Nanoseconds of its first points.
FIRST_POINT_NS = 50_000_000
#: Points from which a slope means something. By judgement.
MIN_POINTS = 8


class LowerEnvelope:
    """The least values of a quantity in equal stretches of time, which grow longer as time goes on."""

    def __init__(self, *, at: int) -> None:
        self._began, self._width = at, FIRST_POINT_NS
        #: By number of the stretch: instant and least value.
        self._points: dict[int, tuple[int, int]] = {}

    def add(self, at: int, value: int) -> None:
        """Note a value at an instant, nanoseconds."""
        number = max(0, at - self._began) // self._width
        point = self._points.get(number)
        if point is None or value < point[1]:
            self._points[number] = at, value
        while len(self._points) > MAX_POINTS:
            self._width *= 2
            points, self._points = self._points, {}
            for point in points.values():
                self.add(*point)

    def slope(self) -> float | None:
        """Growth by second that stays; None of too few points: the median of the slopes between all (Theil, Sen).

        What falls later has not stayed: a point counts with the least of those from it on.
        """
        points = sorted(self._points.values())
        if len(points) < MIN_POINTS:
            return None
        stays = [*accumulate((value for _, value in reversed(points)), min)][::-1]
        points = [(at, value) for (at, _), value in zip(points, stays, strict=True)]
        slopes = sorted(
            (value - before) / (at - then) * 1e9
            for i, (at, value) in enumerate(points)
            for then, before in points[:i]
            if at > then
        )
        return slopes[len(slopes) // 2] if slopes else None


class KeptWindow:
    """Reasons why results were kept in a window, by looks at them: what one look saw holds until the next."""

    def __init__(self, *, at: int) -> None:
        self.at = at
        #: Byte-nanoseconds, and nanoseconds of results, by reason.
        self.nbytes: dict[Kept, int] = {}
        self.results: dict[Kept, float] = {}
        #: By worker, and of all together under an empty name: the most memory of processes that a look saw, and the
        #: bytes by reason then.
        self.peaks: dict[str, tuple[int, Mapping[Kept, int]]] = {}

    def accrue(self, seen: Mapping[Kept, tuple[int, float]], *, at: int) -> None:
        """Add bytes and numbers of results that were kept until an instant."""
        elapsed = at - self.at
        if elapsed <= 0:
            return
        self.at = at
        for kept, (nbytes, results) in seen.items():
            if kept not in self.nbytes and len(self.nbytes) >= MAX_APART:
                kept = Kept(OTHER, kept.why)
            self.nbytes[kept] = self.nbytes.get(kept, 0) + nbytes * elapsed
            self.results[kept] = self.results.get(kept, 0) + results * elapsed

    def note(self, worker: str, process: int, nbytes: Mapping[Kept, int]) -> None:
        """Note the memory of a worker's process at a look, or of all."""
        room = not worker or worker in self.peaks or len(self.peaks) < MAX_ROWS
        if room and process > self.peaks.get(worker, _NO_PEAK)[0]:
            self.peaks[worker] = process, nbytes


_NO_PEAK: tuple[int, Mapping[Kept, int]] = (0, {})
