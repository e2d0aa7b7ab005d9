"""WindowDetails: profiles and skew of a worker's window, and their merger over all workers."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any, TypeVar

from dask_efficiency.accounts.checks import (
    MAX_NANOSECONDS,
    RefusedPayload,
    listed,
    mapping,
    shared_texts,
    short,
    wholes,
)
from dask_efficiency.accounts.lines import Frame, HolderRow, Holdup, SampleRow, Stack
from dask_efficiency.accounts.metered import AT_PEAK, BYTE_SECONDS, BYTES, MEMORY, PROCESS, Metered
from dask_efficiency.accounts.rows import MAX_ROWS, add
from dask_efficiency.accounts.skew import TaskSizes, decode_sizes, encode_sizes, merge_sizes

#: Frames of a stack that are sent, the innermost; a guess above what samplers keep (48).
MAX_DEPTH = 60
#: Long holds of each kind that are kept, the longest first. A guess: reports show fewer.
MAX_HOLDS = 20
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class WindowDetails:
    """Profiles and skew of a worker's window, in nanoseconds."""

    profile: Mapping[SampleRow, int] = field(default_factory=dict)
    holders: Mapping[HolderRow, int] = field(default_factory=dict)
    #: Number of looks.
    lock_looks: Mapping[HolderRow, int] = field(default_factory=dict)
    gil_holds: tuple[Holdup, ...] = ()
    loop_blocks: tuple[Holdup, ...] = ()
    skew: Mapping[str, TaskSizes] = field(default_factory=dict)


def encode_details(details: WindowDetails, *, limit: int) -> dict[str, Any]:
    """Encode as plain data for msgpack, with the ``limit`` costliest rows of each profile; the rest as ``(other)``."""
    stacks = StackNumbers()

    def rows(table: Iterable[tuple[Any, ...]]) -> list[list[Any]]:
        """Rows, whose stacks travel as numbers."""
        return [[stacks.number(value) if isinstance(value, tuple) else value for value in row] for row in table]

    return {
        "profile": rows((*place, ns) for place, ns in costliest(details.profile, limit).items()),
        "holders": rows((*holder, ns) for holder, ns in costliest(details.holders, limit).items()),
        "lock_looks": rows((*holder, looks) for holder, looks in costliest(details.lock_looks, limit).items()),
        "gil_holds": rows(details.gil_holds),
        "loop_blocks": rows(details.loop_blocks),
        "skew": encode_sizes(details.skew),
        "frames": [list(frame) for frame in stacks.frames],
        "stacks": stacks.rows,
    }


def decode_details(payload: object) -> WindowDetails:
    """Check and read what :func:`encode_details` made; raises :class:`RefusedPayload`."""
    fields = mapping("details", payload)

    def rows(field: str, **columns: Callable[[str, Sequence[Any]], Sequence[Any]]) -> Iterator[tuple[Any, ...]]:
        """Rows of a field, each column read by its function at once: answers are full of them."""
        entries = listed(f"details.{field}", fields.get(field))
        for entry in entries:
            if not isinstance(entry, (list, tuple)) or len(entry) != len(columns):
                raise RefusedPayload(f"a row of details.{field} is {short(entry)}; expected {len(columns)} values")
        given = zip(*entries, strict=True) if entries else [()] * len(columns)
        read = (read(f"details.{field}.{name}", of) for (name, read), of in zip(columns.items(), given, strict=True))
        return zip(*read, strict=True)

    texts = shared_texts
    frames = [*starmap(Frame, rows("frames", function=texts, file=texts, line=wholes))]
    stacks: list[Stack] = [
        tuple(_at("details.frames", frames, listed("details.stacks", entry)))
        for entry in listed("details.stacks", fields.get("stacks"))
    ]

    def of_stack(_: str, numbers: Sequence[Any]) -> list[Stack]:
        return _at("details.stacks", stacks, numbers)

    def of_holders(field: str) -> dict[HolderRow, int]:
        found = rows(field, prefix=texts, holder=texts, stack=of_stack, n=wholes)
        return {HolderRow(*key): n for *key, n in found}

    def holdups(field: str) -> tuple[Holdup, ...]:
        return tuple(starmap(Holdup, rows(field, ns=wholes, holder=texts, stack=of_stack, doing=texts)))

    profile = rows("profile", bucket=texts, cause=texts, prefix=texts, stack=of_stack, ns=wholes)
    return WindowDetails(
        profile={SampleRow(*key): ns for *key, ns in profile},
        holders=of_holders("holders"),
        lock_looks=of_holders("lock_looks"),
        gil_holds=holdups("gil_holds"),
        loop_blocks=holdups("loop_blocks"),
        skew=decode_sizes(fields.get("skew")),
    )


#: Most memory of a worker's process.
_PEAK = Metered(MEMORY, "", "", PROCESS, BYTES)


def _is_at_peak(one: Metered) -> bool:
    return one.context == MEMORY and one.label.endswith(AT_PEAK)


class MergedProfiles:
    """Details of one window, merged over all workers."""

    def __init__(self) -> None:
        self.profile: dict[SampleRow, int] = {}
        self.holders: dict[HolderRow, int] = {}
        self.lock_looks: dict[HolderRow, int] = {}
        #: With the worker's name.
        self.gil_holds: list[tuple[str, Holdup]] = []
        self.loop_blocks: list[tuple[str, Holdup]] = []
        self.skew: dict[str, TaskSizes] = {}
        #: By worker name; under an empty name once there are too many.
        self.metered: dict[tuple[str, Metered], int] = {}
        #: Rows of the workers' own memory among them.
        self._of_workers = 0

    @property
    def spans(self) -> set[str]:
        """Spans of what was metered, by their ids."""
        return {metered.span for _, metered in self.metered}

    def add(self, worker: str, details: WindowDetails, metered: Mapping[Metered, int]) -> None:
        """Add the details of one worker, and what it metered."""
        self.profile = _merged(self.profile, details.profile)
        self.holders = _merged(self.holders, details.holders)
        self.lock_looks = _merged(self.lock_looks, details.lock_looks)
        for holds, more in ((self.gil_holds, details.gil_holds), (self.loop_blocks, details.loop_blocks)):
            every = [*holds, *((worker, hold) for hold in more)]
            holds[:] = heapq.nlargest(MAX_HOLDS, every, key=lambda item: item[1].ns)
        merge_sizes(self.skew, details.skew)
        if (worker, _PEAK) in self.metered:  # it came twice: what was in memory at a peak is that of the higher one
            if metered.get(_PEAK, 0) > self.metered[worker, _PEAK]:
                self.metered = {
                    key: n for key, n in self.metered.items() if key[0] != worker or not _is_at_peak(key[1])
                }
            else:
                metered = {one: n for one, n in metered.items() if not _is_at_peak(one)}
        for one, value in metered.items():
            if (key := self._kept_as(worker, one)) is None:
                continue
            if key not in self.metered:
                self._of_workers += one.is_of_worker
            if key[1].is_level:  # also of a worker that came twice
                self.metered[key] = max(value, self.metered.get(key, value))
                continue
            total = self.metered.get(key, 0) + value
            # Those of large clusters are larger, and travel as several rows.
            self.metered[key] = total if one.unit == BYTE_SECONDS else min(total, MAX_NANOSECONDS)

    def _kept_as(self, worker: str, one: Metered) -> tuple[str, Metered] | None:
        """Name and quantity of a row; None of memory that may not be joined with that of others."""
        key, rows = (worker, one), len(self.metered) - self._of_workers
        # The workers' own memory has its room beside them: 15 rows for each of some thousand workers.
        room = self._of_workers < 10 * MAX_ROWS if one.is_of_worker else rows < MAX_ROWS
        if room or key in self.metered:
            return key
        if one.context == MEMORY and one.is_level:
            return None
        return ("", one) if rows < 2 * MAX_ROWS or ("", one) in self.metered else ("", one.rest)


def costliest(rows: Mapping[Any, int], limit: int) -> dict[Any, int]:
    """Keep the ``limit`` costliest rows of a profile; the others lose their stacks, and so share rows."""
    if len(rows) <= limit:
        return dict(rows)
    kept = dict(heapq.nlargest(limit, rows.items(), key=lambda item: item[1]))
    for key, ns in rows.items():
        if key not in kept:
            add(kept, {key._replace(stack=()): ns})
    return kept


def _merged(rows: dict[Any, int], more: Mapping[Any, int]) -> dict[Any, int]:
    add(rows, more)
    # Cut only at twice the bound, so that it is not cut for each worker.
    return costliest(rows, MAX_ROWS) if len(rows) > 2 * MAX_ROWS else rows


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


def _at(name: str, values: Sequence[_Value], places: Sequence[Any]) -> list[_Value]:
    """Take the values at some places."""
    if wholes(name, places) and (last := max(places)) >= len(values):
        raise RefusedPayload(f"{name} has number {short(last)}; expected one of {len(values)}")
    return [values[place] for place in places]
