"""Heartbeats: snapshots as what changed in them, written on the worker and read on the scheduler.

A heartbeat says after which of its worker's former states it tells all changes: the one before the last few, so that
some may be lost. It fits whatever state since then the scheduler has; the first ones, and one every so often, tell
everything. A scheduler that has none that fits asks for everything. Totals travel, not differences: what was lost,
came twice or late cannot be counted twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import islice, repeat
from operator import add
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.causes import CAUSES, name_of
from dask_efficiency.accounts.checks import (
    MAX_NANOSECONDS,
    RefusedPayload,
    flag,
    listed,
    mapping,
    shared_texts,
    short,
    text,
    whole,
)
from dask_efficiency.accounts.gpu.heartbeats import GpuWriter, HeldGpu, read_gpu
from dask_efficiency.accounts.wire.tables import Ints, Table, TableWriter, column_sums, read_table
from dask_efficiency.accounts.wire.wire import SCHEMA, NotMeasured, Snapshot, SnapshotCauses, check_schema
from dask_efficiency.accounts.worker.activity import ACTIVE_BUCKETS
from dask_efficiency.accounts.worker.balance import FREE_BUCKETS, TASK_BUCKETS, Balance, Outcome

#: Seconds between two snapshots of a worker in its heartbeats, at least: nobody looks more often. Those of a cluster of
#: up to ten workers are half a second apart, and every other one repeats the last.
REPORT_SECONDS = 1.0

#: New heartbeats that each change is told in. The scheduler looks twice a second at what came last, and reads task
#: rates less often; a connection that breaks loses one more. Of large clusters it reads as few as every fourth.
REPEATS = 4

#: One heartbeat of so many tells everything, should asking for it fail.
EVERYTHING = 128

_Number = TypeVar("_Number")

_CAUSED = (Bucket.THREAD_NONCPU, Bucket.OVERHEAD)
_CAUSES = tuple(name_of(bucket, cause) for bucket in _CAUSED for cause in CAUSES[bucket])


class Group(NamedTuple):
    """Numbers of each heartbeat that are of one kind."""

    fields: tuple[str, ...]
    unit: str
    #: What they add up to.
    adds_to: str = ""


#: The numbers of each heartbeat, in this order, by group.
GROUPS = {
    "": Group(("nthreads", "elapsed", "running"), "threads, ns of the ledger, ns of tasks that are not settled"),
    "settled": Group((*map(str, FREE_BUCKETS), *map(str, TASK_BUCKETS)), "ns", "nthreads x elapsed - running"),
    "tasks": Group((*map(str, Outcome),), "tasks"),
    "active": Group((*map(str, ACTIVE_BUCKETS),), "ns", "settled time of tasks + running"),
    "causes.settled": Group(_CAUSES, "ns", "settled time of each bucket that has causes, where any is known"),
    "causes.active": Group(_CAUSES, "ns", "active time of each"),
}
#: What stands beside the accounts under names of its own; fields of a snapshot.
BESIDE = ("outside", "details", "amounts")

#: Group and name of each number, and how error messages refer to them.
FIELDS = tuple((group, name) for group, (names, *_) in GROUPS.items() for name in names)
NUMBERS = tuple(f"{group}[{name!r}]" if group else name for group, name in FIELDS)


def _where(group: str, names: Sequence[str]) -> slice:
    """Where numbers of a group are that follow one another."""
    begin = FIELDS.index((group, names[0]))
    return slice(begin, begin + len(names))


_OF = {group: _where(group, names) for group, (names, *_) in GROUPS.items()}
_FREE, _HELD = _where("settled", FREE_BUCKETS), _where("settled", TASK_BUCKETS)
_IDLE = FIELDS.index(("settled", Bucket.IDLE))
_BESIDE = slice(len(FIELDS), None)
#: What only grows.
_TOTALS = slice(_OF["settled"].start, _OF["active"].stop)
#: Where causes are, and where what they add up to is.
_CAUSED_BY = [
    (_where(f"causes.{group}", [name_of(bucket, cause) for cause in CAUSES[bucket]]), FIELDS.index((group, bucket)))
    for group in ("settled", "active")
    for bucket in _CAUSED
]


# -- on the worker ---------------------------------------------------------------------------------


class Sent:
    """Which heartbeats were sent, and so since which state the next one tells what changed."""

    def __init__(self) -> None:
        self._last: deque[int] = deque(maxlen=REPEATS)
        self._heartbeats = 0

    def since(self) -> int:
        """A state's number; -1 where the next heartbeat tells everything."""
        self._heartbeats += 1
        everything = len(self._last) < REPEATS or self._heartbeats % EVERYTHING == 0
        return -1 if everything else self._last[0]

    def mark(self, seq: int) -> None:
        """A heartbeat was made."""
        self._last.append(seq)

    def begin_anew(self) -> None:
        """Tell everything in as many heartbeats as tell of a change."""
        self._last.clear()


class HeartbeatWriter:
    """What a worker's heartbeats, and its answers, carry of its snapshots, which are given in order."""

    def __init__(self) -> None:
        self._sent = Sent()
        self._prefixes: TableWriter[str] = TableWriter(len(TASK_BUCKETS))
        self._gpu: GpuWriter | None = None
        #: The names of what stands beside the accounts, and why nobody samples; and since which state.
        self._named: list[Any] | None = None
        self._named_at = -1

    def heartbeat(self, snapshot: Snapshot) -> dict[str, Any]:
        """What changed in the last few heartbeats, or everything; fresh objects each time."""
        payload = self._write(snapshot, self._sent.since())
        self._sent.mark(snapshot.seq)
        return payload

    def everything(self, snapshot: Snapshot) -> dict[str, Any]:
        """All of a snapshot, for an answer; fresh objects each time."""
        return self._write(snapshot, -1)

    def begin_anew(self) -> None:
        """The scheduler misses something: tell everything in the next heartbeats."""
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
            *map(balance.finalized.get, GROUPS["settled"].fields, repeat(0)),
            *map(balance.tasks.get, GROUPS["tasks"].fields, repeat(0)),
            *map(balance.active.get, GROUPS["active"].fields, repeat(0)),
            *map(causes.finalized.get, _CAUSES, repeat(0)),
            *map(causes.active.get, _CAUSES, repeat(0)),
            *(number for group in BESIDE for number in getattr(snapshot, group).values()),
        ]
        self._prefixes.take(seq, balance.prefixes)
        payload["b"], payload["p"] = self._prefixes.write(since)
        named = [*(list(getattr(snapshot, group)) for group in BESIDE), causes.not_sampled]
        if named != self._named:
            self._named, self._named_at = named, seq
        if self._named_at > since:
            payload["t"] = named
        if snapshot.gpu is not None:
            if self._gpu is None:
                self._gpu = GpuWriter()
            self._gpu.take(snapshot.gpu, seq)
            payload["g"] = self._gpu.write(since)
        return payload


# -- on the scheduler ------------------------------------------------------------------------------


class Missed(NamedTuple):
    """A heartbeat that tells of changes since a state which the scheduler does not have."""

    incarnation: str
    seq: int


class Texted(NamedTuple):
    """The names of :data:`BESIDE`, and why nobody samples."""

    beside: tuple[tuple[str, ...], ...]
    not_sampled: str


class Gain(NamedTuple):
    """What a snapshot adds to the one before."""

    #: By how much each of its numbers grew; what is not of the accounts, and causes, may shrink.
    numbers: Ints
    #: Places of the prefixes that grew (others may be among them), and by how much.
    at: Ints
    prefixes: Ints

    @property
    def idle(self) -> int:
        """Nanoseconds that slots were idle."""
        return int(self.numbers[_IDLE])

    @property
    def beside(self) -> Ints:
        """The numbers of :data:`BESIDE`, one group after the other."""
        return self.numbers[_BESIDE]


class Received(NamedTuple):
    """A worker's last snapshot as the scheduler has it, and what that added to the one before."""

    incarnation: str
    seq: int
    final: bool
    #: Its :data:`NUMBERS`, then those of :data:`BESIDE`.
    numbers: Ints
    named: Texted
    prefixes: Table[str]
    #: By :data:`~dask_efficiency.accounts.worker.balance.TASK_BUCKETS`, nanoseconds of all prefixes.
    sums: Sequence[int]
    gpu: HeldGpu | None
    #: None once it is recorded.
    gain: Gain | None

    @property
    def snapshot(self) -> Snapshot:
        """The same under names, made when it is asked for."""
        numbers, not_sampled = self.numbers, self.named.not_sampled
        nthreads, elapsed, running = self.head
        beside = dict(zip(BESIDE, grouped(self.named, numbers[_BESIDE].tolist()), strict=True))
        causes = SnapshotCauses(_named("causes.settled", numbers), _named("causes.active", numbers), not_sampled)
        balance = Balance(
            nthreads=nthreads,
            elapsed=elapsed,
            running=running,
            finalized=_named("settled", numbers),
            prefixes=self.prefixes.by_name,
            tasks=self.tasks,
            active=_named("active", numbers),
        )
        return Snapshot(
            incarnation=self.incarnation,
            seq=self.seq,
            balance=balance,
            final=self.final,
            gpu=None if self.gpu is None else self.gpu.totals,
            causes=causes,
            **beside,
        )

    @property
    def head(self) -> tuple[int, int, int]:
        """``nthreads``, and nanoseconds that elapsed and that are running, of the ledger."""
        nthreads, elapsed, running = self.numbers[_OF[""]].tolist()
        return nthreads, elapsed, running

    @property
    def tasks(self) -> dict[str, int]:
        """Finalized tasks by :class:`~dask_efficiency.accounts.worker.balance.Outcome`."""
        return _named("tasks", self.numbers)


def header(payload: object) -> tuple[str, int] | None:
    """Whose payload it is, and which of its; None where that cannot be told."""
    if isinstance(payload, Mapping) and type(payload.get("i")) is str and type(payload.get("n")) is int:
        return payload["i"], payload["n"]
    return None


def is_repeated(payload: object, last: object) -> bool:
    """Whether a heartbeat is the one before, once more."""
    sender = header(payload)
    return sender is not None and sender == header(last)


def read(payload: object, last: Received | None = None) -> Received | NotMeasured | Missed:
    """Check a payload and read it.

    Parameters
    ----------
    payload
        What a :class:`HeartbeatWriter` made, or :func:`~dask_efficiency.accounts.wire.wire.encode_not_measured`.
    last
        What was read of this worker last, if anything was; an older payload than this must not come here.

    Returns
    -------
    Received, NotMeasured or Missed
        Of what is received the same holds as of what was sent in full: see below.

    Raises
    ------
    RefusedPayload
        On another schema, a missing or mistyped field, a negative, fractional (so NaN too) or
        absurdly large number, too many or too long names, buckets that do not
        add up to nthreads x elapsed, prefixes that do not add up to the buckets (to at most ``spill``) or that
        shrank, or GPU accounts out of order.
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
            return Missed(incarnation, seq)
        base = known
    named = _texts(fields.get("t")) if "t" in fields or base is None else base.named
    numbers = _numbers(fields.get("a"), [*map(len, named.beside)])
    grown = _grown(numbers, named, known) if known is not None else numbers
    change = read_table(
        "prefixes",
        base.prefixes if base is not None else None,
        fields.get("b"),
        fields.get("p"),
        columns=len(TASK_BUCKETS),
        check=shared_texts,
    )
    prefixes, at, gained, kept = change
    if base is None or not kept:
        at, gained = _gained("prefixes", prefixes, known.prefixes if known is not None else None)
        sums = column_sums(prefixes.rows)
    else:
        if gained.min(initial=0) < 0:
            _gained("prefixes", prefixes, base.prefixes)
        sums = list(map(add, base.sums, column_sums(gained)))
    for bucket, told, finalized in zip(TASK_BUCKETS, sums, numbers[_HELD].tolist(), strict=True):
        # A free slot, which is no prefix's, may wait for spilling too.
        if told > finalized or (told < finalized and bucket is not Bucket.SPILL):
            raise RefusedPayload(f"prefixes hold {told} ns of {str(bucket)!r}; expected {finalized}, as settled")
    gpu = None
    if "g" in fields:
        gpu = read_gpu(fields["g"], base.gpu if base is not None else None)
    final = flag("f", fields.get("f", False))
    return Received(incarnation, seq, final, numbers, named, prefixes, sums, gpu, Gain(grown, at, gained))


def _numbers(value: object, beside: Sequence[int]) -> Ints:
    """All :data:`NUMBERS`, which add up, and so many more of each group of :data:`BESIDE`."""
    if not isinstance(value, (list, tuple)) or len(value) != len(NUMBERS) + sum(beside):
        numbers = " + ".join(map(str, (len(NUMBERS), *beside)))
        raise RefusedPayload(f"a is {short(value)}; expected {numbers} numbers")
    if {*map(type, value)} != {int} or min(value) < 0 or max(value) > MAX_NANOSECONDS:
        names = (*NUMBERS, *(name for name, n in zip(BESIDE, beside, strict=True) for _ in range(n)))
        for name, number in zip(names, value, strict=True):
            whole(name, number)
        raise RefusedPayload(f"a is {short(value)}; expected whole numbers")
    nthreads, elapsed, running = value[_OF[""]]
    # Of so few numbers, Python has the sums sooner than NumPy.
    held, active = sum(value[_HELD]), sum(value[_OF["active"]])
    recorded = sum(value[_FREE]) + held + running
    if recorded != nthreads * elapsed:
        raise RefusedPayload(f"the buckets hold {recorded} ns; expected nthreads x elapsed = {nthreads} x {elapsed} ns")
    if active != held + running:
        raise RefusedPayload(f"active holds {active} ns; expected {held + running}, as settled and running")
    for causes, whole_at in _CAUSED_BY:
        if (told := sum(value[causes])) and told != value[whole_at]:
            group, bucket = FIELDS[whole_at]
            raise RefusedPayload(
                f"causes.{group} holds {told} ns of {bucket!r}; expected {value[whole_at]}, as in the accounts"
            )
    return np.array(value, np.int64)


def _grown(now: Ints, named: Texted, known: Received) -> Ints:
    """By how much each number grew; refuses accounts that shrank."""
    then = known.numbers
    if named is not known.named and named.beside != known.named.beside:
        beside: list[int] = []
        for names, before in zip(named.beside, grouped(known.named, then[_BESIDE].tolist()), strict=True):
            beside += map(before.get, names, repeat(0))
        then = np.concatenate([then[: len(FIELDS)], np.array(beside, np.int64)])
    grown = now - then
    if grown[1] < 0 or np.minimum.reduce(grown[_TOTALS]) < 0:
        for at in (1, *range(_TOTALS.start, _TOTALS.stop)):  # what runs may end
            if grown[at] < 0:
                unit = " ns" if at == 1 else ""
                raise RefusedPayload(f"{NUMBERS[at]} shrank from {then[at]} to {now[at]}{unit}")
    return grown


def _named(group: str, numbers: Ints) -> dict[str, int]:
    """The numbers of a group by name, those that are not 0."""
    return {name: n for name, n in zip(GROUPS[group].fields, numbers[_OF[group]].tolist(), strict=True) if n}


def grouped(named: Texted, numbers: Sequence[_Number]) -> list[dict[str, _Number]]:
    """Numbers of :data:`BESIDE` that follow one another, by group and name."""
    left = iter(numbers)
    return [dict(zip(names, islice(left, len(names)), strict=True)) for names in named.beside]


def _texts(value: object) -> Texted:
    entries = listed("t", value)
    if len(entries) != len(BESIDE) + 1:
        raise RefusedPayload(f"t is {short(value)}; expected names of {len(BESIDE)} groups and a text")
    *beside, not_sampled = entries
    names = tuple(_names(group, names) for group, names in zip(BESIDE, beside, strict=True))
    return Texted(names, text("causes.not_sampled", not_sampled))


def _names(name: str, value: object) -> tuple[str, ...]:
    names = tuple(shared_texts(name, listed(name, value)))
    if len(set(names)) < len(names):
        raise RefusedPayload(f"{name} has a name twice: {short(names)}")
    return names


def _gained(name: str, now: Table[str], then: Table[str] | None) -> tuple[Ints, Ints]:
    """By how much each row of a table grew that was told in full, or under other names.

    Raises
    ------
    RefusedPayload
        If one shrank.
    """
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
    """All of a single snapshot."""
    return HeartbeatWriter().everything(snapshot)


def decode(payload: object) -> Snapshot | NotMeasured:
    """Read what :func:`encode` made; raises :class:`RefusedPayload` as :func:`read`."""
    found = read(payload)
    if isinstance(found, Missed):
        raise RefusedPayload(f"s is {short(mapping('snapshot', payload)['s'])}; expected all of a snapshot")
    return found if isinstance(found, NotMeasured) else found.snapshot
