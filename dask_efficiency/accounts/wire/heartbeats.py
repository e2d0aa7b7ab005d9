"""Heartbeats: snapshots as what changed in them, written on the worker and read on the scheduler.

A heartbeat says after which of its worker's former states it tells all changes: the one before the last few, so that
some may be lost. It fits whatever state since then the scheduler has; the first ones, and one every so often, tell
everything. A scheduler that has none that fits asks for everything. Totals travel, not differences: what was lost,
came twice or late cannot be counted twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import repeat
from operator import add
from typing import Any, NamedTuple

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
from dask_efficiency.accounts.wire.packed import Ints, Rows, RowView, Table, TableWriter, Texts, column_sums, read_table
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

_SETTLED = tuple(map(str, (*FREE_BUCKETS, *TASK_BUCKETS)))
_TASKS = tuple(map(str, Outcome))
_ACTIVE = tuple(map(str, ACTIVE_BUCKETS))
_CAUSED = (Bucket.THREAD_NONCPU, Bucket.OVERHEAD)
_CAUSES = tuple(name_of(bucket, cause) for bucket in _CAUSED for cause in CAUSES[bucket])
#: The numbers that travel in each heartbeat, in this order, by group and name.
FIELDS = (
    ("", "nthreads"),
    ("", "elapsed"),
    ("", "running"),
    *(("settled", name) for name in _SETTLED),
    *(("tasks", name) for name in _TASKS),
    *(("active", name) for name in _ACTIVE),
    *(("causes.settled", name) for name in _CAUSES),
    *(("causes.active", name) for name in _CAUSES),
)
#: How error messages refer to them.
NUMBERS = tuple(f"{group}[{name!r}]" if group else name for group, name in FIELDS)
_HEAD = 3
_AT_TASKS = _HEAD + len(_SETTLED)
_AT_ACTIVE = _AT_TASKS + len(_TASKS)
_AT_CAUSES = _AT_ACTIVE + len(_ACTIVE)
_AT_ACTIVE_CAUSES = _AT_CAUSES + len(_CAUSES)
_AT_OUTSIDE = len(NUMBERS)
_AT_HELD = _HEAD + len(FREE_BUCKETS)
_AT_IDLE = _HEAD + FREE_BUCKETS.index(Bucket.IDLE)
#: What causes are of, settled and active.
_WITH_CAUSES = [
    *(_HEAD + _SETTLED.index(str(bucket)) for bucket in _CAUSED),
    *(_AT_ACTIVE + _ACTIVE.index(str(bucket)) for bucket in _CAUSED),
]
_NONCPU_CAUSES = len(CAUSES[Bucket.THREAD_NONCPU])
#: Where they are, in that order.
_OF_CAUSES = [
    part
    for begin, end in ((_AT_CAUSES, _AT_ACTIVE_CAUSES), (_AT_ACTIVE_CAUSES, _AT_OUTSIDE))
    for part in (slice(begin, begin + _NONCPU_CAUSES), slice(begin + _NONCPU_CAUSES, end))
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
        self._prefixes: TableWriter[str] = TableWriter(len(TASK_BUCKETS), rising=True, depth=REPEATS)
        self._gpu: GpuWriter | None = None
        #: The names of what is outside the slots and of the details, and why nobody samples; and since which state.
        self._named: list[Any] | None = None
        self._named_at = -1

    def heartbeat(self, snapshot: Snapshot) -> dict[str, Any]:
        """What changed in the last few heartbeats, or everything; fresh objects each time."""
        payload = self._write(snapshot, self._sent.since())
        self._sent.mark(snapshot.seq)
        self._prefixes.mark()
        if self._gpu is not None:
            self._gpu.mark()
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
            *map(balance.finalized.get, _SETTLED, repeat(0)),
            *map(balance.tasks.get, _TASKS, repeat(0)),
            *map(balance.active.get, _ACTIVE, repeat(0)),
            *map(causes.finalized.get, _CAUSES, repeat(0)),
            *map(causes.active.get, _CAUSES, repeat(0)),
            *snapshot.outside.values(),
            *snapshot.details.values(),
        ]
        self._prefixes.take(balance.prefixes)
        told, names = self._prefixes.write(since)
        if names:
            payload["p"] = names
        named = [list(snapshot.outside), list(snapshot.details), causes.not_sampled]
        if named != self._named:
            self._named, self._named_at = named, seq
        if self._named_at > since:
            payload["t"] = named
        if snapshot.gpu is not None:
            if self._gpu is None:
                self._gpu = GpuWriter(REPEATS)
            self._gpu.take(snapshot.gpu, seq)
            payload["g"], more = self._gpu.write(since)
            told += more
        payload["b"] = told
        return payload


# -- on the scheduler ------------------------------------------------------------------------------


class Missed(NamedTuple):
    """A heartbeat that tells of changes since a state which the scheduler does not have."""

    incarnation: str
    seq: int


#: The names of what is outside the slots, and of the details, and why nobody samples.
Texted = tuple[tuple[str, ...], tuple[str, ...], str]


class Gain(NamedTuple):
    """What a snapshot adds to the one before."""

    #: By how much each of its numbers grew; what is not of the accounts, and causes, may shrink.
    numbers: Ints
    #: Places of the prefixes that grew (others may be among them), and by how much.
    at: Rows
    prefixes: Ints

    @property
    def idle(self) -> int:
        """Nanoseconds that slots were idle."""
        return int(self.numbers[_AT_IDLE])

    @property
    def beside(self) -> Ints:
        """What is outside the slots, and then the details."""
        return self.numbers[_AT_OUTSIDE:]


class Received(NamedTuple):
    """A worker's last snapshot as the scheduler has it, and what that added to the one before."""

    incarnation: str
    seq: int
    final: bool
    #: Its :data:`NUMBERS`, then those outside the slots and the details.
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
        numbers, (outside, details, not_sampled) = self.numbers, self.named
        nthreads, elapsed, running = self.head
        beside = numbers[_AT_OUTSIDE:].tolist()
        causes = SnapshotCauses(
            _named(_CAUSES, numbers, _AT_CAUSES), _named(_CAUSES, numbers, _AT_ACTIVE_CAUSES), not_sampled
        )
        balance = Balance(
            nthreads=nthreads,
            elapsed=elapsed,
            running=running,
            finalized=_named(_SETTLED, numbers, _HEAD),
            prefixes=RowView(self.prefixes),
            tasks=self.tasks,
            active=_named(_ACTIVE, numbers, _AT_ACTIVE),
        )
        return Snapshot(
            incarnation=self.incarnation,
            seq=self.seq,
            balance=balance,
            outside=dict(zip(outside, beside, strict=False)),
            details=dict(zip(details, beside[len(outside) :], strict=True)),
            final=self.final,
            gpu=None if self.gpu is None else self.gpu.totals,
            causes=causes,
        )

    @property
    def head(self) -> tuple[int, int, int]:
        """``nthreads``, and nanoseconds that elapsed and that are running, of the ledger."""
        nthreads, elapsed, running = self.numbers[:_HEAD].tolist()
        return nthreads, elapsed, running

    @property
    def tasks(self) -> dict[str, int]:
        """Finalized tasks by :class:`~dask_efficiency.accounts.worker.balance.Outcome`."""
        return _named(_TASKS, self.numbers, _AT_TASKS)


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
    numbers = _numbers(fields.get("a"), len(named[0]), len(named[1]))
    grown = _grown(numbers, named, known) if known is not None else numbers
    texts = Texts("b", fields.get("b"))
    change = read_table(
        "prefixes",
        base.prefixes if base is not None else None,
        texts,
        fields.get("p"),
        columns=len(TASK_BUCKETS),
        rising=True,
        check=shared_texts,
    )
    prefixes, at, gained, small = change
    if base is None or gained is None:
        at, gained = _gained("prefixes", prefixes, known.prefixes if known is not None else None)
        sums = column_sums(prefixes.rows, small=small and base is None)
    else:
        if "p" in fields and gained.min(initial=0) < 0:
            raise RefusedPayload("prefixes has a row that shrank")
        sums = list(map(add, base.sums, column_sums(gained, small=small)))
    for bucket, told, finalized in zip(TASK_BUCKETS, sums, numbers[_AT_HELD:_AT_TASKS].tolist(), strict=True):
        # A free slot, which is no prefix's, may wait for spilling too.
        if told > finalized or (told < finalized and bucket is not Bucket.SPILL):
            raise RefusedPayload(f"prefixes hold {told} ns of {str(bucket)!r}; expected {finalized}, as settled")
    gpu = None
    if "g" in fields:
        gpu = read_gpu(fields["g"], texts, base.gpu if base is not None else None)
    texts.end()
    final = flag("f", fields.get("f", False))
    return Received(incarnation, seq, final, numbers, named, prefixes, sums, gpu, Gain(grown, at, gained))


def _numbers(value: object, outside: int, details: int) -> Ints:
    """All :data:`NUMBERS`, which add up, and so many more."""
    if not isinstance(value, (list, tuple)) or len(value) != len(NUMBERS) + outside + details:
        raise RefusedPayload(f"a is {short(value)}; expected {len(NUMBERS)} + {outside} + {details} numbers")
    if {*map(type, value)} != {int} or min(value) < 0 or max(value) > MAX_NANOSECONDS:
        names = (*NUMBERS, *["outside"] * outside, *["details"] * details)
        for name, number in zip(names, value, strict=True):
            whole(name, number)
        raise RefusedPayload(f"a is {short(value)}; expected whole numbers")
    nthreads, elapsed, running = value[:_HEAD]
    # Of so few numbers, Python has the sums sooner than NumPy.
    held, active = sum(value[_AT_HELD:_AT_TASKS]), sum(value[_AT_ACTIVE:_AT_CAUSES])
    recorded = sum(value[_HEAD:_AT_HELD]) + held + running
    if recorded != nthreads * elapsed:
        raise RefusedPayload(f"the buckets hold {recorded} ns; expected nthreads x elapsed = {nthreads} x {elapsed} ns")
    if active != held + running:
        raise RefusedPayload(f"active holds {active} ns; expected {held + running}, as settled and running")
    for i, (part, at) in enumerate(zip(_OF_CAUSES, _WITH_CAUSES, strict=True)):
        if (told := sum(value[part])) and told != value[at]:
            raise RefusedPayload(
                f"causes.{('settled', 'active')[i // 2]} holds {told} ns of {str(_CAUSED[i % 2])!r}; "
                f"expected {value[at]}, as in the accounts"
            )
    return np.array(value, np.int64)


def _grown(now: Ints, named: Texted, known: Received) -> Ints:
    """By how much each number grew; refuses accounts that shrank."""
    then = known.numbers
    if named is not known.named and named[:2] != known.named[:2]:
        beside: list[int] = []
        numbers = then[_AT_OUTSIDE:].tolist()
        for names, former in zip(named[:2], known.named[:2], strict=True):
            before = dict(zip(former, numbers, strict=False))
            beside += map(before.get, names, repeat(0))
            numbers = numbers[len(former) :]
        then = np.concatenate([then[:_AT_OUTSIDE], np.array(beside, np.int64)])
    grown = now - then
    if grown[1] < 0 or np.minimum.reduce(grown[_HEAD:_AT_CAUSES]) < 0:
        for at in (1, *range(_HEAD, _AT_CAUSES)):  # what runs may end
            if grown[at] < 0:
                unit = " ns" if at == 1 else ""
                raise RefusedPayload(f"{NUMBERS[at]} shrank from {then[at]} to {now[at]}{unit}")
    return grown


def _named(names: Sequence[str], numbers: Ints, begin: int) -> dict[str, int]:
    """Some of the numbers by name, those that are not 0."""
    return {name: n for name, n in zip(names, numbers[begin : begin + len(names)].tolist(), strict=True) if n}


def _texts(value: object) -> Texted:
    entries = listed("t", value)
    if len(entries) != 3:
        raise RefusedPayload(f"t is {short(value)}; expected names, names and a text")
    outside, details, not_sampled = entries
    return _names("outside", outside), _names("details", details), text("causes.not_sampled", not_sampled)


def _names(name: str, value: object) -> tuple[str, ...]:
    names = tuple(shared_texts(name, listed(name, value)))
    if len(set(names)) < len(names):
        raise RefusedPayload(f"{name} has a name twice: {short(names)}")
    return names


def _gained(name: str, now: Table[str], then: Table[str] | None) -> tuple[Rows, Ints]:
    """By how much each row of a table grew that was told in full, or under other names.

    Raises
    ------
    RefusedPayload
        If one shrank.
    """
    at = slice(0, len(now.rows))
    if then is None:
        return at, now.rows
    places = {each: place for place, each in enumerate(now.names)}
    index = np.array([places.get(each, -1) for each in then.names], np.intp)
    kept = index >= 0
    gained = now.rows.copy()
    gained[index[kept]] -= then.rows[kept]
    if gained.min(initial=0) < 0 or then.rows[~kept].any():
        for former, each in enumerate(then.names):
            before = then.rows[former]
            after = now.rows[places[each]] if each in places else np.zeros_like(before)
            if (after < before).any():
                raise RefusedPayload(
                    f"{name}[{each!r:.80}] shrank from {tuple(before.tolist())} to {tuple(after.tolist())}"
                )
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
