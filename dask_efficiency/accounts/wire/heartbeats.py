"""Heartbeats: changes of snapshots, written on the worker and read on the scheduler.

A heartbeat holds all changes since one of its worker's former states, some heartbeats back, so that a few may be lost.
It can be applied to that state and to any later one. The first heartbeats, and one in :data:`EVERYTHING`, are complete;
a scheduler whose state is too old asks for a complete one. Totals travel, not differences: a heartbeat that is lost,
repeated or late is never counted twice.

Keys are letters, as a thousand workers send them each second; in brackets those that are left out where nothing is
said:

======== ===================================================================================
schema   version of the message
i, n     incarnation of the ledger, and number of the snapshot in it
[s]      number of the state since which it holds the changes; without it, it is complete
[f]      True for the last snapshot: the worker is closing
a        all numbers of :data:`~dask_efficiency.accounts.wire.snapshots.GROUPS`, then of EXTRAS
b, p     rows of prefixes that changed, and new names (:mod:`~dask_efficiency.accounts.wire.tables`)
[h]      prefix, nanoseconds and slots of what runs, in turn
[r]      rows and new names of recomputed time, by the worker that lost the results
[t]      names of EXTRAS by group, then why threads are not sampled; if they changed
[g]      GPUs (:mod:`~dask_efficiency.accounts.wire.gpu`)
[off]    reason, in place of all else, of a worker that is not metered
======== ===================================================================================
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice, repeat
from typing import Any, NamedTuple

import numpy as np

from dask_efficiency.accounts.buckets import CAUSES, Bucket, cause_name
from dask_efficiency.accounts.checks import (
    MAX_NANOSECONDS,
    RefusedPayload,
    listed,
    mapping,
    shared_texts,
    short,
    text,
    whole,
    wholes,
)
from dask_efficiency.accounts.intake import fitting
from dask_efficiency.accounts.wire.gpu import GpuWriter, HeldGpu, check_grown, read_gpu
from dask_efficiency.accounts.wire.snapshots import (
    CAUSED_BUCKETS,
    EXTRAS,
    FIELDS,
    GROUPS,
    NUMBERS,
    SCHEMA,
    NotMeasured,
    Snapshot,
    SnapshotCauses,
    check_schema,
)
from dask_efficiency.accounts.wire.tables import Ints, TableWriter, WireTable, column_sums, read_table
from dask_efficiency.accounts.worker.balance import FREE_BUCKETS, TASK_BUCKETS, Balance

#: Least seconds between two snapshots of a worker: no reader looks more often. Dask's heartbeats of up to ten workers
#: are 0.5 s apart, so every other one repeats the last snapshot.
REPORT_SECONDS = 1.0
#: Heartbeats that carry each change. Of large clusters the scheduler reads as few as every fourth, and a connection
#: that breaks may lose one more; the next complete heartbeat mends that.
REPEATS = 4
#: One heartbeat in this many is complete, in case asking for one fails. A guess: its bytes average out.
EVERYTHING = 128


def _where(group: str, names: Sequence[str]) -> slice:
    """Slice of consecutive numbers of a group."""
    begin = FIELDS.index((group, names[0]))
    return slice(begin, begin + len(names))


_OF = {group: _where(group, names) for group, names in GROUPS.items()}
_FREE, _HELD = _where("finalized", FREE_BUCKETS), _where("finalized", TASK_BUCKETS)
_IDLE, _RECOMPUTED = (FIELDS.index(("finalized", bucket)) for bucket in (Bucket.IDLE, Bucket.RECOMPUTED))
_EXTRAS = slice(len(FIELDS), None)
#: Numbers that only grow.
_TOTALS = slice(_OF["finalized"].start, _OF["activity"].stop)
#: Slice of causes, and position of their sum.
_CAUSED_BY = [
    (_where(causes, [cause_name(bucket, cause) for cause in CAUSES[bucket]]), FIELDS.index((group, bucket)))
    for group, causes in (("finalized", "causes"), ("activity", "cause_activity"))
    for bucket in CAUSED_BUCKETS
]


# -- on the worker ---------------------------------------------------------------------------------


class Sent:
    """Numbers of the last heartbeats, and so the state since which the next one holds the changes."""

    def __init__(self) -> None:
        self._last: deque[int] = deque(maxlen=REPEATS)
        self._heartbeats = 0

    def since(self) -> int:
        """Number of that state; -1 if the next heartbeat must be complete."""
        self._heartbeats += 1
        everything = len(self._last) < REPEATS or self._heartbeats % EVERYTHING == 0
        return -1 if everything else self._last[0]

    def mark(self, seq: int) -> None:
        """Note a heartbeat."""
        self._last.append(seq)

    def begin_anew(self) -> None:
        """Make the next :data:`REPEATS` heartbeats complete."""
        self._last.clear()


class HeartbeatWriter:
    """Encodes a worker's snapshots, given in order, for its heartbeats and answers."""

    def __init__(self) -> None:
        self._sent = Sent()
        self._prefixes: TableWriter[str] = TableWriter(len(TASK_BUCKETS))
        self._recomputed: TableWriter[str] = TableWriter(2)
        self._gpu: GpuWriter | None = None
        #: Texts of the last snapshot, and the state of their last change.
        self._named: list[Any] | None = None
        self._named_at = -1

    def heartbeat(self, snapshot: Snapshot) -> dict[str, Any]:
        """Encode the changes of the last few heartbeats, or everything, as fresh objects."""
        payload = self._write(snapshot, self._sent.since())
        self._sent.mark(snapshot.seq)
        return payload

    def everything(self, snapshot: Snapshot) -> dict[str, Any]:
        """Encode a whole snapshot, for an answer, as fresh objects."""
        return self._write(snapshot, -1)

    def begin_anew(self) -> None:
        """Make the next heartbeats complete, because the scheduler misses something."""
        self._sent.begin_anew()

    def _write(self, snapshot: Snapshot, since: int) -> dict[str, Any]:
        balance, causes, seq = snapshot.balance, snapshot.causes, snapshot.seq
        payload: dict[str, Any] = {"schema": SCHEMA, "i": snapshot.incarnation, "n": seq}
        if since >= 0:
            payload["s"] = since
        if snapshot.final:
            payload["f"] = True
        payload["a"] = [
            balance.nthreads,
            balance.elapsed,
            balance.running,
            *map(balance.finalized.get, GROUPS["finalized"], repeat(0)),
            *map(balance.tasks.get, GROUPS["tasks"], repeat(0)),
            *map(balance.active.get, GROUPS["activity"], repeat(0)),
            *map(causes.finalized.get, GROUPS["causes"], repeat(0)),
            *map(causes.active.get, GROUPS["cause_activity"], repeat(0)),
            *(number for group in EXTRAS for number in getattr(snapshot, group).values()),
        ]
        self._prefixes.take(seq, balance.prefixes)
        payload["b"], payload["p"] = self._prefixes.write(since)
        if balance.holding:
            payload["h"] = [each for prefix, row in balance.holding.items() for each in (prefix, *row)]
        if balance.recomputed:
            self._recomputed.take(seq, balance.recomputed)
            payload["r"] = self._recomputed.write(since)
        named = [*(list(getattr(snapshot, group)) for group in EXTRAS), fitting(causes.not_sampled)]
        if named != self._named:
            self._named, self._named_at = named, seq
        if self._named_at > since:
            payload["t"] = named
        if snapshot.gpu is not None:
            if self._gpu is None:
                self._gpu = GpuWriter()
            payload["g"] = self._gpu.write(snapshot.gpu, seq, since)
        return payload


# -- on the scheduler ------------------------------------------------------------------------------


#: Recomputed nanoseconds and tasks, by the worker that lost the results; empty.
_NONE_RECOMPUTED: WireTable[str] = WireTable((), np.zeros((0, 2), np.int64))


class SnapshotTexts(NamedTuple):
    """Texts of a snapshot: the names of :data:`EXTRAS`, and the reason why threads are not sampled."""

    extras: tuple[tuple[str, ...], ...]
    not_sampled: str


class Gain(NamedTuple):
    """Growth from one snapshot to the next."""

    #: Growth of each number; negative only for causes and numbers outside the accounts.
    numbers: Ints
    #: Places of the prefixes that grew, with some others, and their growth.
    at: Ints
    prefixes: Ints
    recomputed: Ints

    @property
    def idle(self) -> int:
        """Nanoseconds that slots were idle."""
        return int(self.numbers[_IDLE])

    @property
    def extras(self) -> Ints:
        """Growth of the numbers of :data:`EXTRAS`, one group after the other."""
        return self.numbers[_EXTRAS]


class Received(NamedTuple):
    """A worker's last snapshot on the scheduler, and its growth since the one before."""

    incarnation: str
    seq: int
    final: bool
    #: Its :data:`NUMBERS`, then those of :data:`EXTRAS`.
    numbers: Ints
    named: SnapshotTexts
    prefixes: WireTable[str]
    #: Parts of ``running`` by prefix: nanoseconds, and slots held.
    holding: Mapping[str, tuple[int, int]]
    recomputed: WireTable[str]
    gpu: HeldGpu | None
    #: None once it is recorded.
    gain: Gain | None

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot as a value with names, built on each access."""
        numbers, not_sampled = self.numbers, self.named.not_sampled
        nthreads, elapsed, running = self.head
        extras = dict(zip(EXTRAS, _grouped(self.named, numbers[_EXTRAS].tolist()), strict=True))
        causes = SnapshotCauses(_named("causes", numbers), _named("cause_activity", numbers), not_sampled)
        balance = Balance(
            nthreads=nthreads,
            elapsed=elapsed,
            running=running,
            finalized=_named("finalized", numbers),
            prefixes=self.prefixes.by_name,
            tasks=self.tasks,
            active=_named("activity", numbers),
            holding=self.holding,
            recomputed=self.recomputed.by_name,
        )
        return Snapshot(
            incarnation=self.incarnation,
            seq=self.seq,
            balance=balance,
            final=self.final,
            gpu=None if self.gpu is None else self.gpu.totals,
            causes=causes,
            **extras,
        )

    @property
    def head(self) -> tuple[int, int, int]:
        """``nthreads``, and elapsed and running nanoseconds, of the ledger."""
        nthreads, elapsed, running = self.numbers[_OF[""]].tolist()
        return nthreads, elapsed, running

    @property
    def tasks(self) -> dict[str, int]:
        """Finalized tasks by :class:`~dask_efficiency.accounts.worker.balance.Outcome`."""
        return _named("tasks", self.numbers)


def header(payload: object) -> tuple[str, int] | None:
    """Incarnation and number of a payload; None if it has none."""
    if isinstance(payload, Mapping) and type(payload.get("i")) is str and type(payload.get("n")) is int:
        return payload["i"], payload["n"]
    return None


def is_repeated(payload: object, last: object) -> bool:
    """Check if a heartbeat repeats the one before."""
    sender = header(payload)
    return sender is not None and sender == header(last)


def read(payload: object, last: Received | None = None) -> Received | NotMeasured | None:
    """Check and read a payload: a snapshot as complete, and as checked, as one that was sent in full.

    ``last`` is the last snapshot read of this worker, if any, and not younger. Refused are another schema, missing or
    mistyped fields, absurd numbers, too many or too long names, accounts that do not add up, and totals that shrank.
    None is for changes since a state that is not known here.
    """
    fields = mapping("snapshot", payload)
    check_schema(fields.get("schema"))
    if "off" in fields:
        return NotMeasured(text("off", fields["off"]))
    incarnation, seq = text("i", fields.get("i")), whole("n", fields.get("n"))
    known = last if last is not None and last.incarnation == incarnation else None
    base = None
    if "s" in fields:
        if known is None or known.seq < whole("s", fields["s"]):
            return None
        base = known
    named = _texts(fields.get("t")) if "t" in fields or base is None else base.named
    numbers = _numbers(fields.get("a"), [*map(len, named.extras)])
    grown = _grown(numbers, named, known) if known is not None else numbers
    former, rows, names = None if base is None else base.prefixes, fields.get("b"), fields.get("p")
    change = read_table("prefixes", former, rows, names, columns=len(TASK_BUCKETS), check=shared_texts)
    prefixes, at, gained, kept = change
    if base is None or not kept or gained.min(initial=0) < 0:
        at, gained = _gained("prefixes", prefixes, None if known is None else known.prefixes)
    for bucket, held, finalized in zip(TASK_BUCKETS, column_sums(prefixes.rows), numbers[_HELD].tolist(), strict=True):
        # A free slot, which is no prefix's, may wait for spilling too.
        if held > finalized or (held < finalized and bucket is not Bucket.SPILL):
            raise RefusedPayload(f"prefixes hold {held} ns of {str(bucket)!r}; expected {finalized}, as settled")
    recomputed, again = _NONE_RECOMPUTED if base is None else base.recomputed, _NONE_RECOMPUTED.rows
    if "r" in fields:
        recomputed, again = _recomputed(fields["r"], recomputed, known, int(numbers[_RECOMPUTED]))
    gpu = read_gpu(fields["g"], None if base is None else base.gpu) if "g" in fields else None
    if known is not None and known.gpu is not None:
        check_grown(gpu, known.gpu)
    final = fields.get("f", False)
    if not isinstance(final, bool):
        raise RefusedPayload(f"f is {short(final)}; expected True or False")
    holding = _holding(fields["h"], numbers) if "h" in fields else {}
    gain = Gain(grown, at, gained, again)
    return Received(incarnation, seq, final, numbers, named, prefixes, holding, recomputed, gpu, gain)


def _numbers(value: object, extras: Sequence[int]) -> Ints:
    """Check all :data:`NUMBERS` and their sums, and the counts of each group of :data:`EXTRAS`."""
    if not isinstance(value, (list, tuple)) or len(value) != len(NUMBERS) + sum(extras):
        numbers = " + ".join(map(str, (len(NUMBERS), *extras)))
        raise RefusedPayload(f"a is {short(value)}; expected {numbers} numbers")
    if {*map(type, value)} != {int} or min(value) < 0 or max(value) > MAX_NANOSECONDS:
        names = (*NUMBERS, *(name for name, n in zip(EXTRAS, extras, strict=True) for _ in range(n)))
        for name, number in zip(names, value, strict=True):
            whole(name, number)
        raise RefusedPayload(f"a is {short(value)}; expected whole numbers")
    nthreads, elapsed, running = value[_OF[""]]
    # Python sums so few numbers faster than NumPy.
    held, active = sum(value[_HELD]), sum(value[_OF["activity"]])
    recorded = sum(value[_FREE]) + held + running
    if recorded != nthreads * elapsed:
        raise RefusedPayload(f"the buckets hold {recorded} ns; expected nthreads x elapsed = {nthreads} x {elapsed} ns")
    if active != held + running:
        raise RefusedPayload(f"active holds {active} ns; expected {held + running}, as settled and running")
    for causes, whole_at in _CAUSED_BY:
        if (counted := sum(value[causes])) and counted != value[whole_at]:
            group, bucket = FIELDS[whole_at]
            raise RefusedPayload(
                f"causes of {group} hold {counted} ns of {bucket!r}; expected {value[whole_at]}, as in the accounts"
            )
    return np.array(value, np.int64)


def _grown(now: Ints, named: SnapshotTexts, known: Received) -> Ints:
    """Growth of each number; accounts that shrank are refused."""
    then = known.numbers
    if named is not known.named and named.extras != known.named.extras:
        extras: list[int] = []
        for names, before in zip(named.extras, _grouped(known.named, then[_EXTRAS].tolist()), strict=True):
            extras += map(before.get, names, repeat(0))
        then = np.concatenate([then[: len(FIELDS)], np.array(extras, np.int64)])
    grown = now - then
    if grown[1] < 0 or np.minimum.reduce(grown[_TOTALS]) < 0:
        for at in (1, *range(_TOTALS.start, _TOTALS.stop)):  # what runs may end
            if grown[at] < 0:
                unit = " ns" if at == 1 else ""
                raise RefusedPayload(f"{NUMBERS[at]} shrank from {then[at]} to {now[at]}{unit}")
    return grown


def _named(group: str, numbers: Ints) -> dict[str, int]:
    """Numbers of a group by name; zeros are left out."""
    return {name: n for name, n in zip(GROUPS[group], numbers[_OF[group]].tolist(), strict=True) if n}


def _holding(value: object, numbers: Ints) -> dict[str, tuple[int, int]]:
    """Check what runs by prefix: it adds up to ``running``, on no more slots than there are."""
    entries = listed("h", value)
    if len(entries) % 3:
        raise RefusedPayload(f"h is {short(value)}; expected prefixes, nanoseconds and slots in turn")
    names, ns, slots = _names("h", entries[::3]), entries[1::3], entries[2::3]
    wholes("h", [*ns, *slots])
    nthreads, _, running = numbers[_OF[""]].tolist()
    if sum(ns) != running or sum(slots) > nthreads:
        raise RefusedPayload(
            f"h holds {sum(ns)} ns on {sum(slots)} slots; expected {running} ns, as running, on {nthreads} at most"
        )
    return dict(zip(names, zip(ns, slots, strict=True), strict=True))


def _recomputed(
    value: object, base: WireTable[str], known: Received | None, settled: int
) -> tuple[WireTable[str], Ints]:
    """Table of recomputed time, and the growth of each row."""
    entries = listed("r", value)
    if len(entries) != 2:
        raise RefusedPayload(f"r is {short(value)}; expected rows and names")
    table = read_table("recomputed", base, *entries, columns=2, check=shared_texts).table
    _, gained = _gained("recomputed", table, None if known is None else known.recomputed)
    if (held := column_sums(table.rows)[0]) != settled:
        raise RefusedPayload(f"recomputed holds {held} ns; expected {settled}, as settled")
    return table, gained


def _grouped(named: SnapshotTexts, numbers: Sequence[int]) -> list[dict[str, int]]:
    """Split consecutive numbers of :data:`EXTRAS` by group and name."""
    left = iter(numbers)
    return [dict(zip(names, islice(left, len(names)), strict=True)) for names in named.extras]


def _texts(value: object) -> SnapshotTexts:
    entries = listed("t", value)
    if len(entries) != len(EXTRAS) + 1:
        raise RefusedPayload(f"t is {short(value)}; expected names of {len(EXTRAS)} groups and a text")
    *extras, not_sampled = entries
    names = tuple(_names(group, names) for group, names in zip(EXTRAS, extras, strict=True))
    return SnapshotTexts(names, text("causes.not_sampled", not_sampled))


def _names(name: str, value: object) -> tuple[str, ...]:
    names = tuple(shared_texts(name, listed(name, value)))
    if len(set(names)) < len(names):
        raise RefusedPayload(f"{name} has a name twice: {short(names)}")
    return names


def _gained(name: str, now: WireTable[str], then: WireTable[str] | None) -> tuple[Ints, Ints]:
    """Growth of each row of a table by name; refused if one shrank."""
    at = np.arange(len(now.rows))
    if then is None:
        return at, now.rows
    places = {each: place for place, each in enumerate(now.names)}
    gained = now.rows.copy()
    for each, before in zip(then.names, then.rows, strict=True):
        after = now.rows[places[each]] if each in places else np.zeros_like(before)
        if (after < before).any():
            raise RefusedPayload(
                f"{name}[{each!r:.80}] shrank from {tuple(before.tolist())} to {tuple(after.tolist())}"
            )
        if each in places:
            gained[places[each]] -= before
    return at, gained


def encode(snapshot: Snapshot) -> dict[str, Any]:
    """Encode a single snapshot as a whole."""
    return HeartbeatWriter().everything(snapshot)


def decode(payload: object) -> Snapshot | NotMeasured:
    """Read what :func:`encode` made; raises :class:`RefusedPayload`."""
    found = read(payload)
    if found is None:
        raise RefusedPayload(f"s is {short(mapping('snapshot', payload)['s'])}; expected all of a snapshot")
    return found if isinstance(found, NotMeasured) else found.snapshot
