"""WindowDetails: causes, profiles and skew of a worker's window, and their merger over all workers."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dask_efficiency.accounts.buckets import CAUSES, Bucket
from dask_efficiency.accounts.checks import RefusedPayload, counts, listed, mapping, short, text, whole
from dask_efficiency.accounts.lines import Frame, HolderRow, Holdup, SampleRow, Stack
from dask_efficiency.accounts.metered import Metered
from dask_efficiency.accounts.skew import TaskSizes, decode_sizes, encode_sizes, merge_sizes

#: Frames of a stack that are sent, the innermost; a guess above what samplers keep (48).
MAX_DEPTH = 60
#: Rows of a window's merged profile, the costliest first: 2.5 MB, as a row takes some 500 bytes. A guess.
MAX_ROWS = 5_000
#: Long holds of each kind that are kept, the longest first. A guess: reports show fewer.
MAX_HOLDS = 20
_NONCPU = frozenset(CAUSES[Bucket.THREAD_NONCPU])
_OVERHEAD = frozenset(CAUSES[Bucket.OVERHEAD])


@dataclass(frozen=True, slots=True)
class WindowDetails:
    """Causes, profiles and skew of a worker's window, in nanoseconds."""

    #: Of ``thread-noncpu``, by (span, prefix) and bare cause.
    causes: Mapping[tuple[str, str], Mapping[str, int]] = field(default_factory=dict)
    #: Of ``overhead``, by bare cause.
    overhead: Mapping[str, int] = field(default_factory=dict)
    #: Time in which threads of libraries computed in place of free slots, by (span, prefix).
    free_slot_library: Mapping[tuple[str, str], int] = field(default_factory=dict)
    profile: Mapping[SampleRow, int] = field(default_factory=dict)
    holders: Mapping[HolderRow, int] = field(default_factory=dict)
    gil_holds: tuple[Holdup, ...] = ()
    loop_blocks: tuple[Holdup, ...] = ()
    #: Durations and result sizes of tasks, by prefix.
    skew: Mapping[str, TaskSizes] = field(default_factory=dict)
    #: Nanoseconds, bytes and counts.
    metered: Mapping[Metered, int] = field(default_factory=dict)


def encode_details(details: WindowDetails, *, limit: int) -> dict[str, Any]:
    """Encode as plain data for msgpack, with the ``limit`` costliest rows of each profile; the rest as ``(other)``."""
    stacks = StackNumbers()
    return {
        "causes": [[span, prefix, dict(row)] for (span, prefix), row in details.causes.items()],
        "overhead": dict(details.overhead),
        "beside": [[span, prefix, ns] for (span, prefix), ns in details.free_slot_library.items()],
        "profile": [
            [place.bucket, place.cause, place.prefix, stacks.number(place.stack), ns]
            for place, ns in costliest(details.profile, limit).items()
        ],
        "holders": [
            [holder.prefix, holder.holder, stacks.number(holder.stack), ns]
            for holder, ns in costliest(details.holders, limit).items()
        ],
        "gil_holds": [[hold.ns, hold.holder, stacks.number(hold.stack)] for hold in details.gil_holds],
        "loop_blocks": [[hold.ns, hold.holder, stacks.number(hold.stack)] for hold in details.loop_blocks],
        "skew": encode_sizes(details.skew),
        "metered": [[*metered, value] for metered, value in details.metered.items()],
        "frames": [list(frame) for frame in stacks.frames],
        "stacks": stacks.rows,
    }


def decode_details(payload: object) -> WindowDetails:
    """Check and read what :func:`encode_details` made; raises :class:`RefusedPayload`."""
    fields = mapping("details", payload)
    frames = [_frame(entry) for entry in listed("details.frames", fields.get("frames"))]
    stacks = [
        tuple(_one_of("details.frames", frames, i) for i in listed("details.stacks", entry))
        for entry in listed("details.stacks", fields.get("stacks"))
    ]

    def stack(number: object) -> Stack:
        found: Stack = _one_of("details.stacks", stacks, number)
        return found

    causes = {}
    for span, prefix, row in _entries("causes", fields, 3):
        causes[text("details.span", span), text("details.prefix", prefix)] = counts("details.causes", row, _NONCPU)
    library = {}
    for span, prefix, ns in _entries("beside", fields, 3):
        library[text("details.span", span), text("details.prefix", prefix)] = whole("details.beside", ns)
    profile = {}
    for bucket, cause, prefix, at, ns in _entries("profile", fields, 5):
        place = SampleRow(
            text("details.bucket", bucket), text("details.cause", cause), text("details.prefix", prefix), stack(at)
        )
        profile[place] = whole("details.profile", ns)
    holders = {}
    for prefix, holder, at, ns in _entries("holders", fields, 4):
        key = HolderRow(text("details.prefix", prefix), text("details.holder", holder), stack(at))
        holders[key] = whole("details.holders", ns)

    def holds(name: str) -> tuple[Holdup, ...]:
        return tuple(
            Holdup(whole(f"details.{name}", ns), text(f"details.{name}", holder), stack(at))
            for ns, holder, at in _entries(name, fields, 3)
        )

    return WindowDetails(
        causes=causes,
        overhead=counts("details.overhead", fields.get("overhead"), _OVERHEAD),
        free_slot_library=library,
        profile=profile,
        holders=holders,
        gil_holds=holds("gil_holds"),
        loop_blocks=holds("loop_blocks"),
        skew=decode_sizes(fields.get("skew")),
        metered={
            Metered(*(text("details.metered", name) for name in names)): whole("details.metered", value)
            for *names, value in _entries("metered", fields, len(Metered._fields) + 1)
        },
    )


class MergedProfiles:
    """Details of one window, merged over all workers."""

    def __init__(self) -> None:
        self.profile: dict[SampleRow, int] = {}
        self.holders: dict[HolderRow, int] = {}
        #: With the worker's name.
        self.gil_holds: list[tuple[str, Holdup]] = []
        self.loop_blocks: list[tuple[str, Holdup]] = []
        self.skew: dict[str, TaskSizes] = {}
        #: By worker name; under an empty name once there are too many.
        self.metered: dict[tuple[str, Metered], int] = {}

    def add(self, worker: str, details: WindowDetails) -> None:
        """Add the details of one worker."""
        self.profile = _merged(self.profile, details.profile)
        self.holders = _merged(self.holders, details.holders)
        self.gil_holds = _longest(self.gil_holds, worker, details.gil_holds)
        self.loop_blocks = _longest(self.loop_blocks, worker, details.loop_blocks)
        merge_sizes(self.skew, details.skew)
        for metered, value in details.metered.items():
            kept = (worker, metered), ("", metered), ("", metered.rest)
            room = len(self.metered) < MAX_ROWS, len(self.metered) < 2 * MAX_ROWS, True
            key = next(key for key, free in zip(kept, room, strict=True) if free or key in self.metered)
            self.metered[key] = self.metered.get(key, 0) + value


def costliest(rows: Mapping[Any, int], limit: int) -> dict[Any, int]:
    """Keep the ``limit`` costliest rows of a profile; the others lose their stacks, and so share rows."""
    if len(rows) <= limit:
        return dict(rows)
    kept = dict(heapq.nlargest(limit, rows.items(), key=lambda item: item[1]))
    for key, ns in rows.items():
        if key not in kept:
            rest = key._replace(stack=())
            kept[rest] = kept.get(rest, 0) + ns
    return kept


def _merged(rows: dict[Any, int], more: Mapping[Any, int]) -> dict[Any, int]:
    for key, ns in more.items():
        rows[key] = rows.get(key, 0) + ns
    # Cut only at twice the bound, so that it is not cut for each worker.
    return costliest(rows, MAX_ROWS) if len(rows) > 2 * MAX_ROWS else rows


def _longest(holds: list[tuple[str, Holdup]], worker: str, more: Iterable[Holdup]) -> list[tuple[str, Holdup]]:
    every = [*holds, *((worker, hold) for hold in more)]
    return heapq.nlargest(MAX_HOLDS, every, key=lambda item: item[1].ns)


class StackNumbers:
    """Table of distinct stacks and frames, so that each is sent once."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self._numbers: dict[Stack, int] = {}
        self.frames: dict[Frame, int] = {}

    def number(self, stack: Stack) -> int:
        """Row number of a stack."""
        stack = stack[-MAX_DEPTH:]
        if stack not in self._numbers:
            self._numbers[stack] = len(self.rows)
            self.rows.append([self.frames.setdefault(frame, len(self.frames)) for frame in stack])
        return self._numbers[stack]


def _entries(name: str, fields: Mapping[str, Any], length: int) -> Iterable[list[Any] | tuple[Any, ...]]:
    for entry in listed(f"details.{name}", fields.get(name)):
        if not isinstance(entry, (list, tuple)) or len(entry) != length:
            raise RefusedPayload(f"a row of details.{name} is {short(entry)}; expected {length} values")
        yield entry


def _frame(entry: object) -> Frame:
    if not isinstance(entry, (list, tuple)) or len(entry) != 3:
        raise RefusedPayload(f"a frame of details is {short(entry)}; expected a function, a file and a line")
    function, file, line = entry
    return Frame(text("details.function", function), text("details.file", file), whole("details.line", line))


def _one_of(name: str, values: list[Any], index: object) -> Any:
    if type(index) is not int or not 0 <= index < len(values):
        raise RefusedPayload(f"{name} has number {short(index)}; expected one of {len(values)}")
    return values[index]
