"""TraceEvents: writes the Trace Event Format so that Perfetto's own reader drops nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import IO, Any

import numpy as np

from dask_efficiency.accounts.tables import MISSING, Int64

#: Characters of a name; a longer one is cut.
_NAME_LENGTH = 200
#: Events that are written together; they are some 500 kB.
_AT_ONCE = 4096


@dataclass(slots=True)
class Written:
    """Numbers of written events, by their type in Perfetto."""

    slices: int = 0
    instants: int = 0
    flows: int = 0
    counters: int = 0


@dataclass(frozen=True, slots=True)
class WrittenSlice:
    """Written slice, for an arrow to begin or end in."""

    process: int
    track: int
    start: int
    stop: int


class TraceEvents:
    """Writer of the events of one file; instants are integer nanoseconds, users' names are cut and escaped.

    ``origin`` is the instant that is 0 in the file: microseconds since the epoch would lose their fractions in a
    double. The caller must nest slices on a track or keep them apart, and write an arrow after both of its slices: the
    reader silently drops anything else.
    """

    def __init__(self, file: IO[bytes], origin: int) -> None:
        self.written = Written()
        self._file = file
        self._origin = origin
        self._number = 0
        self._waiting: list[str] = []
        self._before = ""
        file.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')

    def process(self, name: str) -> int:
        """Add a group of tracks, below those before it."""
        number = self._next()
        self._name("process", number, number, name)
        return number

    def track(self, process: int, name: str) -> int:
        """Add a track to a process, below those before it."""
        number = self._next()
        self._name("thread", process, number, name)
        return number

    def _next(self) -> int:
        # A small number, and different for tracks and processes: the reader would take a track for its main thread.
        self._number += 1
        return self._number

    def _name(self, what: str, process: int, track: int, name: str) -> None:
        where = f'"ph":"M","pid":{process},"tid":{track}'
        self._put(f'{{{where},"name":"{what}_name","args":{{"name":{quoted(name)}}}}}')
        self._put(f'{{{where},"name":"{what}_sort_index","args":{{"sort_index":{track}}}}}')

    def slice(
        self,
        process: int,
        track: int,
        start: int,
        stop: int,
        name: str,
        category: str,
        *,
        colour: str = "",
        args: Mapping[str, Any] | None = None,
    ) -> WrittenSlice:
        """Write an interval on a track."""
        more = f',"cname":"{colour}"' if colour else ""
        if args:
            more += f',"args":{json.dumps(args, allow_nan=False)}'
        self._put(
            f'{{"ph":"X","pid":{process},"tid":{track},"ts":{self._at(start)},"dur":{_microseconds(stop - start)},'
            f'"name":{quoted(name)},"cat":"{category}"{more}}}'
        )
        self.written.slices += 1
        return WrittenSlice(process, track, start, stop)

    def instant(self, process: int, track: int, at: int, name: str, category: str) -> None:
        """Write an instant event."""
        where = f'"pid":{process},"tid":{track},"ts":{self._at(at)}'
        self._put(f'{{"ph":"i","s":"t",{where},"name":{quoted(name)},"cat":"{category}"}}')
        self.written.instants += 1

    def counter(self, process: int, at: int, name: str, values: Mapping[str, float]) -> None:
        """Write values that hold from an instant on; those that are not finite are left out."""
        known = {key: value for key, value in values.items() if math.isfinite(value)}
        if known:
            args = json.dumps(known, allow_nan=False)
            self._put(f'{{"ph":"C","pid":{process},"ts":{self._at(at)},"name":"{name}","args":{args}}}')
            self.written.counters += len(known)

    def arrow(self, source: WrittenSlice, target: WrittenSlice, name: str, category: str) -> None:
        """Write an arrow from the end of a slice to the start of another, unless it would go back in time or miss one.

        The reader draws it from the slice's last child, if there is one.
        """
        self.flow(source, min(source.stop - 1, target.start), target, target.start, name, category)

    def flow(
        self, source: WrittenSlice, leaves: int, target: WrittenSlice, arrives: int, name: str, category: str
    ) -> None:
        """Write an arrow between instants in two slices, or in one, unless it would go back in time or miss one."""
        if not (source.start <= leaves < source.stop and target.start <= arrives < target.stop and leaves <= arrives):
            return
        number = self._next()
        # The reader pairs the ends of an arrow by all three, and keeps name and category only.
        same = f'"id":{number},"name":{quoted(name)},"cat":"{category}"'
        self._put(f'{{"ph":"s","pid":{source.process},"tid":{source.track},"ts":{self._at(leaves)},{same}}}')
        # Without "bp" it would end in the next slice.
        self._put(f'{{"ph":"f","bp":"e","pid":{target.process},"tid":{target.track},"ts":{self._at(arrives)},{same}}}')
        self.written.flows += 1

    def close(self) -> None:
        """Write the end of the file, which stays open."""
        self._flush()
        self._file.write(b"\n]}\n")

    def _put(self, event: str) -> None:
        self._waiting.append(event)
        if len(self._waiting) >= _AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            self._file.write((self._before + ",\n".join(self._waiting)).encode("ascii"))
            self._before = ",\n"
            self._waiting.clear()

    def _at(self, instant: int) -> str:
        return _microseconds(instant - self._origin)


def quoted(name: str) -> str:
    """Cut a user's name, and encode it as JSON in ASCII."""
    return json.dumps(name[:_NAME_LENGTH])


def _microseconds(ns: int) -> str:
    # A float would lose digits of a long recording.
    return f"{'-' if ns < 0 else ''}{abs(ns) // 1000}.{abs(ns) % 1000:03d}"


def lanes(start: Int64, stop: Int64, wanted: Int64 | None = None) -> Int64:
    """Choose a lane for each interval, from 0, so that no two in a lane overlap; touching is no overlap.

    An interval gets its ``wanted`` lane if that is free then. The others are put in as few lanes as possible, after all
    wanted ones.
    """
    wishes = np.full(len(start), MISSING) if wanted is None else wanted
    chosen = np.empty(len(start), np.int64)
    ends: dict[int, int] = {}
    free: list[int] = []
    busy: list[tuple[int, int]] = []
    beyond = max(int(wishes.max(initial=MISSING)), MISSING) + 1
    starts, stops, wish = start.tolist(), stop.tolist(), wishes.tolist()
    for row in np.lexsort((stop, start)).tolist():
        at, lane = starts[row], wish[row]
        if lane < 0 or ends.get(lane, at) > at:
            while busy and busy[0][0] <= at:
                heappush(free, heappop(busy)[1])
            if free:
                lane = heappop(free)
            else:
                lane, beyond = beyond, beyond + 1
            heappush(busy, (stops[row], lane))
        else:
            ends[lane] = stops[row]
        chosen[row] = lane
    return chosen
