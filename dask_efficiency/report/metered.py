"""Counts of Dask's ``context_meter``: P2P shuffles by phase, and users' own labels."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dask_efficiency.accounts.buckets import HELD, Breakdown
from dask_efficiency.accounts.metered import (
    BARRIERS,
    BYTES,
    COUNT,
    DASK_LABELS,
    EXECUTE,
    FLUSH,
    OF_SHUFFLES,
    P2P,
    RECEIVE,
    SECONDS,
)
from dask_efficiency.accounts.rows import add, cap
from dask_efficiency.report.values import Amount, MeteredRow
from dask_efficiency.show.figures import format_bytes

#: Prefixes of the labels of each phase of P2P shuffles in tasks; other time is the rest.
_IN_TASKS = {"shard": "p2p-shard-partition", "wait for room to send": "p2p-comms-limiter", "unpack": "p2p-get-output"}
BARRIER, REST = "barrier", "rest"
#: Label prefixes that mark a task prefix as one of shuffles.
_MARKS = ("p2p-shard", "p2p-get-output", "p2p-disk-read")


@dataclass(frozen=True, slots=True)
class ShuffleTimes:
    """Times and bytes of the P2P shuffles of a window."""

    #: Nanoseconds that tasks of shuffles held threads, by phase: ``shard``, ``wait for room to send``, ``barrier``,
    #: ``unpack`` and ``rest``; they add up to those tasks' part of the accounts.
    held_ns: Mapping[str, int]
    #: Background seconds outside the threads: ``send``, ``receive`` and ``disk``; several may overlap.
    background: Mapping[str, float]
    #: Messages between workers, and of workers to themselves, by size in memory.
    sent: Amount
    written: Amount
    read: Amount
    #: Worker to the seconds for which it still sent while others waited at barriers.
    at_barriers: Mapping[str, float]


def shuffle_times(rows: Iterable[MeteredRow], by_prefix: Mapping[str, Breakdown]) -> ShuffleTimes | None:
    """Times of P2P shuffles by phase; None if there was none."""
    rows = list(rows)
    in_tasks = [row for row in rows if row.context == EXECUTE and row.label.startswith(OF_SHUFFLES)]
    background_rows = [row for row in rows if row.context == P2P]
    if not in_tasks and not background_rows:
        return None
    prefixes = {row.prefix for row in in_tasks if row.label.startswith(_MARKS)}
    barriers = {prefix for prefix in by_prefix if prefix.startswith(BARRIERS)}
    held: dict[str, int] = {}
    for prefix in (prefixes | barriers) & by_prefix.keys():
        ns = by_prefix[prefix].ns(*HELD)
        known = {BARRIER: ns} if prefix in barriers else _known(in_tasks, prefix)
        parts = cap(known, ns)
        add(held, {**parts, REST: ns - sum(parts.values())})
    order = (*list(_IN_TASKS)[:2], BARRIER, "unpack", REST)
    background: defaultdict[str, float] = defaultdict(float)
    at_barriers: defaultdict[str, float] = defaultdict(float)
    for row in background_rows:
        if row.unit == SECONDS and row.label == FLUSH:
            at_barriers[row.worker] += row.value
        elif row.unit == SECONDS and row.label != "idle":
            phase = RECEIVE if row.label == RECEIVE else "disk" if row.prefix == "background-disk" else "send"
            background[phase] += row.value
    disk = [row for row in background_rows if row.prefix == "background-disk"]
    pieces = _amount(row for row in disk if row.label == "disk-write").count
    return ShuffleTimes(
        held_ns={phase: held[phase] for phase in order if held.get(phase)},
        background=background,
        sent=_amount(row for row in background_rows if (row.prefix, row.label) == ("background-comms", "process")),
        # upstream's bytes of ``disk-write`` miss arrays, as it sums exhausted frames
        written=Amount(_amount(row for row in disk if row.label == "process").nbytes if pieces else 0, pieces),
        read=_amount(row for row in in_tasks if row.label == "p2p-disk-read"),
        at_barriers=at_barriers,
    )


def _known(in_tasks: Iterable[MeteredRow], prefix: str) -> dict[str, int]:
    found = dict.fromkeys(_IN_TASKS, 0)
    for row in in_tasks:
        if row.prefix == prefix and row.unit == SECONDS:
            for phase, begins in _IN_TASKS.items():
                if row.label.startswith(begins):
                    found[phase] += round(row.value * 1e9)
    return found


def _amount(rows: Iterable[MeteredRow]) -> Amount:
    found: defaultdict[str, float] = defaultdict(float)
    for row in rows:
        found[row.unit] += row.value
    return Amount(round(found[BYTES]), round(found[COUNT]))


def own_labels(rows: Iterable[MeteredRow]) -> dict[tuple[str, str, str], float]:
    """Values of users' own labels by label, unit and prefix; the largest of each unit first."""
    found: defaultdict[tuple[str, str, str], float] = defaultdict(float)
    for row in rows:
        if row.context == EXECUTE and not row.label.startswith(OF_SHUFFLES) and row.label not in DASK_LABELS:
            found[row.label, row.unit, row.prefix] += row.value
    return dict(sorted(found.items(), key=lambda item: (item[0][1] != SECONDS, item[0][1], -item[1])))


#: Contexts of transfers, by what the worker does in them; and their labels in words, in order.
TRANSFER_CONTEXTS = {"gather-dep": "receiving", "get-data": "sending"}
_TRANSFER_LABELS = {
    "network": "waiting for the other side and the network",
    "serialize": "serializing",
    "compress": "compressing",
    "decompress": "decompressing",
    "deserialize": "deserializing",
}


def transfer_times(rows: Iterable[MeteredRow]) -> dict[str, dict[str, float]]:
    """Seconds that workers took to receive results of others and to send theirs, by part; several run at a time."""
    found: defaultdict[tuple[str, str], float] = defaultdict(float)
    for row in rows:
        if row.context in TRANSFER_CONTEXTS and row.unit == SECONDS:
            found[row.context, row.label] += row.value
    times = {
        way: {words: found[context, label] for label, words in _TRANSFER_LABELS.items() if found[context, label] > 0}
        for context, way in TRANSFER_CONTEXTS.items()
    }
    return {way: parts for way, parts in times.items() if parts}


def spilled_text(moved: Mapping[str, Amount]) -> str:
    """Bytes that were spilled and read back, in words; may be empty."""
    shown = [way for way in ("spilled", "read-back") if way in moved]
    return ", ".join(f"{format_bytes(moved[way].nbytes)} {way.replace('-', ' ')}" for way in shown)
