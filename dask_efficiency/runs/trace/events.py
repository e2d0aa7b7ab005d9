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

#: A longer name is cut.
_NAME_LENGTH = 200

_AT_ONCE = 4096


@dataclass(slots=True)
class Written:
    """How many events were written, by what Perfetto makes of them."""

    slices: int = 0
    instants: int = 0
    flows: int = 0
    counters: int = 0


@dataclass(frozen=True, slots=True)
class WrittenSlice:
    """A slice that was written, for an arrow to begin or end in."""

    process: int
    track: int
    start: int
    stop: int


class TraceEvents:
    """Events of one file; instants are integer nanoseconds, users' names are cut and escaped.

    Parameters
    ----------
    file
        Binary, open for writing.
    origin
        The instant that is 0 in the file: microseconds since the epoch would lose their fractions
        in a double.

    Notes
    -----
    The caller sees to it that slices on a track nest or do not overlap, and writes an arrow after both
    of its slices: the reader drops what does not, without a word.
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
        """A new group of tracks; groups stand in the order in which they are made."""
        number = self._next()
        self._name("process", number, number, name)
        return number

    def track(self, process: int, name: str) -> int:
        """A new track of a process, below those before it."""
        number = self._next()
        self._name("thread", process, number, name)
        return number

    def _next(self) -> int:
        # small, and no process has the number of a track: the reader would take it for its main thread
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
        """A stretch of time on a track."""
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
        """Something that happened at once."""
        where = f'"pid":{process},"tid":{track},"ts":{self._at(at)}'
        self._put(f'{{"ph":"i","s":"t",{where},"name":{quoted(name)},"cat":"{category}"}}')
        self.written.instants += 1

    def counter(self, process: int, at: int, name: str, values: Mapping[str, float]) -> None:
        """Figures that hold from an instant on; those that are no number are left out."""
        known = {key: value for key, value in values.items() if math.isfinite(value)}
        if known:
            args = json.dumps(known, allow_nan=False)
            self._put(f'{{"ph":"C","pid":{process},"ts":{self._at(at)},"name":"{name}","args":{args}}}')
            self.written.counters += len(known)

    def arrow(self, source: WrittenSlice, target: WrittenSlice, name: str, category: str) -> None:
        """From the end of a slice to the start of another; none where that would go back in time or miss a slice.

        The reader lets it leave from the slice's last child, if it has one.
        """
        self.flow(source, min(source.stop - 1, target.start), target, target.start, name, category)

    def flow(
        self, source: WrittenSlice, leaves: int, target: WrittenSlice, arrives: int, name: str, category: str
    ) -> None:
        """From an instant in a slice to one in another, or in the same; none that goes back in time or misses it."""
        if not (source.start <= leaves < source.stop and target.start <= arrives < target.stop and leaves <= arrives):
            return
        number = self._next()
        # the reader keeps name and category of an arrow only, and pairs its ends by all three
        same = f'"id":{number},"name":{quoted(name)},"cat":"{category}"'
        self._put(f'{{"ph":"s","pid":{source.process},"tid":{source.track},"ts":{self._at(leaves)},{same}}}')
        # without "bp" it would end in the next slice
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
    """A user's name as JSON, in ASCII, cut."""
    return json.dumps(name[:_NAME_LENGTH])


def _microseconds(ns: int) -> str:
    # a float would not keep the digits of a long recording
    return f"{'-' if ns < 0 else ''}{abs(ns) // 1000}.{abs(ns) % 1000:03d}"


def lanes(start: Int64, stop: Int64, wanted: Int64 | None = None) -> Int64:
    """A lane for each interval, so that no two in a lane overlap; touching is no overlap.

    Parameters
    ----------
    start, stop
        In any order; none stops before its start.
    wanted
        The lane that each should have if it is free then, not negative; ``MISSING`` has no wish.

    Returns
    -------
    array
        From 0. Those whose wish cannot be had come after the lanes that were wished for; among
        them as few lanes as will do.
    """
    wishes = np.full(len(start), MISSING) if wanted is None else wanted
    found = np.empty(len(start), np.int64)
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
        found[row] = lane
    return found
