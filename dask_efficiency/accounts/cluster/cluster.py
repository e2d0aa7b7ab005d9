"""ClusterLedger: the scheduler's accounts, by presence of a worker, in totals that never shrink."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.buckets import CAUSES, Breakdown, Bucket, cause_name
from dask_efficiency.accounts.checks import MAX_NANOSECONDS, RefusedPayload
from dask_efficiency.accounts.cluster.account import (
    PARTS,
    WHERE,
    WIDTH,
    AccountPart,
    ExactSums,
    NamedSums,
    Totals,
    gained,
    named,
    place,
)
from dask_efficiency.accounts.cluster.failures import FailedAs
from dask_efficiency.accounts.cluster.history import ClusterHistory, HistoryPoint, gpus_at, workers_at
from dask_efficiency.accounts.cluster.idle import IdleWeights, WorkClock
from dask_efficiency.accounts.cluster.losses import Loss, by_prefix
from dask_efficiency.accounts.cluster.presence import (
    MAX_DEPARTED,
    Presence,
    Presences,
    WorkerStay,
    check_snapshot,
    is_stale,
)
from dask_efficiency.accounts.cluster.scheduler_loop import KeptTotals, LoopTotals
from dask_efficiency.accounts.cluster.timeline import totals_of
from dask_efficiency.accounts.gpu import GpuTotals, add_totals
from dask_efficiency.accounts.memory import LEVELS, decode_levels
from dask_efficiency.accounts.processors import USED, ProcessorTime, decode_processors, decode_used
from dask_efficiency.accounts.rows import MAX_APART
from dask_efficiency.accounts.wire.heartbeats import Gain, Received, header, read
from dask_efficiency.accounts.wire.snapshots import EXTRAS, NotMeasured
from dask_efficiency.accounts.worker.balance import TASK_BUCKETS

#: Stands for departed workers whose names are not kept any more.
DEPARTED = "(departed)"
#: Refusals in a row after which a worker is not measured any more. A guess: one may be an accident.
MAX_REFUSALS = 3
#: Nanoseconds after a worker's removal in which its final snapshot may arrive. A guess: on retirement the event that
#: carries it comes just after the removal.
GRACE_NS = 2_000_000_000
#: Nanoseconds without any snapshot after which a worker is not measured. Heartbeats of a thousand workers are 6 s
#: apart, those of ten thousand 51 s.
SILENT_NS = 30_000_000_000
#: Nanoseconds by which each snapshot may move a ledger's beginning later again: clocks drift, and a snapshot that
#: seemed too early must not count for ever. A guess.
DRIFT_NS = 1_000_000

#: Nanoseconds for which a departed worker's name counts as recent, and one that is exported stays so. A guess: some
#: scrapes of Prometheus, so that its series can be drawn.
RECENT_NS = 60_000_000_000

#: An empty account of Python's integers.
_NOTHING: NDArray[np.object_] = np.zeros(WIDTH, object)
_PAUSED, _IDLE, _NO_WORK = (
    [place("finalized", bucket), place("activity", bucket)] for bucket in (Bucket.PAUSED, Bucket.IDLE, Bucket.NO_WORK)
)
_CAUSES_OF_IDLE = {
    cause: [place(part, cause_name(Bucket.IDLE, cause)) for part in ("causes", "cause_activity")]
    for cause in CAUSES[Bucket.IDLE]
}


class ClusterLedger(Presences):
    """Accounts of all workers that were ever present since ``at``, by the clock that all methods' ``at`` is read from.

    Totals only grow, whatever arrives; refused snapshots are counted and named. The essay of
    :mod:`~dask_efficiency.accounts.cluster` says which bucket has time that no snapshot covers.
    """

    def __init__(self, *, at: int, max_names: int = 5_000, max_prefixes: int = MAX_APART, history: int = 4_096) -> None:
        super().__init__()
        self.started = at
        self.work = WorkClock(at=at)
        self.history = ClusterHistory(history)
        #: Counts of snapshots that were refused; repeated or late; and not readable after lost ones.
        self.refused = self.stale = self.missed = 0
        self.reasons: dict[str, str] = {}
        #: Name and reason of each worker that is there and has no accounts, by address.
        self.turned_away: dict[str, tuple[str, str]] = {}
        self._max_names = max_names
        #: Incarnations of ledgers that ended, oldest first.
        self._ended: dict[str, None] = {}
        #: Account of all presences; and those of closed ones by worker name, one for each known name.
        self._account = ExactSums(1, WIDTH)
        self._closed: dict[str, NDArray[np.object_]] = {}
        self.idle = IdleWeights(at=at)
        self._left_at: dict[str, int] = {}
        self._prefixes = NamedSums(max_prefixes, len(TASK_BUCKETS))
        #: Departed workers, oldest first; the lost time of their running tasks; and time recomputed since.
        self.losses: deque[Loss] = deque(maxlen=MAX_APART)
        self._lost = NamedSums(max_prefixes, 1)
        self._recomputed = NamedSums(MAX_APART, 2)
        #: Tasks that failed for good.
        self.failures: dict[FailedAs, int] = {}
        self._extras = {group: NamedSums(MAX_APART, 1) for group in EXTRAS}
        #: GPU accounts of the ledgers that ended, by worker name.
        self._gpus: dict[str, GpuTotals] = {}

    def worker_joined(self, address: str, name: str, nthreads: int, *, at: int, asked: int | None = None) -> Presence:
        """Begin a worker's presence, and end one at its address; it may have been ``asked`` to meter before."""
        self.worker_left(address, at=at)
        without = self.work.without_work(at=at)
        presence = Presence(
            address, name, nthreads, at, asked=asked, there_first=asked is not None, without_work=without
        )
        self.present[address] = presence
        self.work.set_workers(True, at=at)
        self._closed.setdefault(name, _NOTHING)
        self._left_at.pop(name, None)
        return presence

    def turn_away(self, address: str, name: str, reason: str) -> None:
        """Name a worker that joined and has no accounts, as what it says of itself cannot be counted with."""
        self.turned_away[address] = name, reason

    @property
    def not_measured(self) -> dict[str, str]:
        """Reasons why workers are, or were, not measured, by name."""
        return self.reasons | dict(self.turned_away.values())

    def loss_at(self, address: str) -> Loss | None:
        """Find the loss of the worker at an address, or of the last one that left it."""
        return next(iter(self.losses_at([address])), None)

    def losses_at(self, addresses: Iterable[str]) -> list[Loss]:
        """Find the losses of the workers at addresses, or else of the last ones that left them, in any order."""
        wanted = set(addresses)
        found = {address: self.present[address].loss for address in wanted & self.present.keys()}
        wanted -= found.keys()
        found |= {loss.address: loss for loss in (self.losses if wanted else ()) if loss.address in wanted}
        return [*found.values()]

    def worker_closing(self, address: str) -> None:
        """Note that a worker closes in order, so that it is not lost when it has left."""
        if address in self.present:
            self.present[address].closing = True

    def worker_left(self, address: str, *, at: int) -> None:
        """End a worker's presence; its accounts close when its final snapshot has come, or after a grace."""
        self.turned_away.pop(address, None)
        presence = self.present.pop(address, None)
        if presence is None:
            return
        self.work.set_workers(bool(self.present), at=at)
        presence.joined = presence.settled(self.started)
        presence.end(at)
        presence.loss.worker, presence.loss.left, presence.loss.in_order = presence.name, at, presence.closing
        self.losses.append(presence.loss)
        self._left_at[presence.name] = at
        self.leaving.append(presence)
        if presence.off or (presence.received is not None and presence.received.final):
            self._close(presence)

    def close_departed(self, *, at: int, grace: int = GRACE_NS) -> None:
        """Close the accounts of the workers that left longer ago than ``grace`` nanoseconds."""
        for presence in list(self.leaving):
            if at - presence.loss.left >= grace:
                self._close(presence)

    def receive(self, address: str, payload: object, *, at: int) -> None:
        """Record a worker's snapshot; one that is stale is counted, and one that is refused counted and raised."""
        presence, sender = self.find(address, payload), header(payload)
        if (
            presence is None
            or presence.off
            or (sender is not None and (sender[0] in self._ended or is_stale(*sender, presence.received)))
        ):
            self.stale += 1
            return
        try:
            found = read(payload, presence.received)
            if isinstance(found, NotMeasured):
                self.switch_off(presence, found.reason, at=at)
                return
            if found is None:
                presence.missed = True
                self.missed += 1
                return
            check_snapshot(found, presence, at)
            given: Mapping[str, object] = payload if isinstance(payload, Mapping) else {}
            if (used := given.get(USED)) is not None:
                presence.used = decode_used(used)
            if LEVELS in given:  # of a heartbeat; nothing once memory is not measured any more
                levels = given[LEVELS]
                presence.memory = None if levels is None else decode_levels(levels, presence.memory)
        except RefusedPayload as refusal:
            self.refused += 1
            presence.refusals += 1
            if presence.refusals >= MAX_REFUSALS:
                self.switch_off(presence, f"snapshots refused: {refusal}", at=at)
            raise
        presence.missed, presence.refusals = False, 0
        self._record_snapshot(presence, found, at)
        if presence.left is not None:
            presence.end(presence.left)
            if found.final:
                self._close(presence)

    def take_processors(self, presence: Presence | None, payload: object) -> None:
        """Store the processors that a worker may use; a refused payload is counted and raised."""
        if presence is None or payload is None:
            return
        try:
            presence.processors = decode_processors(payload)
            presence.used = presence.processors.used
        except RefusedPayload:
            self.refused += 1
            raise

    def switch_off(self, presence: Presence, reason: str, *, at: int) -> None:
        """Stop measuring a worker: its time from its last snapshot on is ``unmeasured``."""
        presence.off = True
        presence.joined = presence.settled(self.started)
        self._explain(presence, reason)
        presence.running = 0
        self._cover(presence, Bucket.UNMEASURED, at if presence.left is None else presence.left)

    def accrue(self, *, at: int, silent: int = SILENT_NS) -> None:
        """Record the time of unmeasured workers, and switch off those that were silent for too long."""
        for presence in list(self.present.values()):  # an exporter's thread may be reading
            if presence.off:
                self._cover(presence, Bucket.UNMEASURED, at)
            elif presence.received is None and at - presence.joined > silent:
                self.switch_off(presence, f"no snapshot in {silent // 10**9} s", at=at)

    def remember(self, *, at: int, scheduler: ProcessorTime | None = None, loop: LoopTotals | None = None) -> None:
        """Add the present accounts to the history, with those of the scheduler's process and of its event loop."""
        kept = None if loop is None else KeptTotals.of(loop)
        self.history.add(replace(self.point(at=at), scheduler=scheduler, loop=kept))

    # -- reports ----------------------------------------------------------------------------

    @property
    def running(self) -> int:
        """Thread-nanoseconds that are not finalized yet."""
        return sum(presence.running for presence in self.open())

    def totals(self, *, at: int) -> Totals:
        """The cluster's totals now."""
        without = self.work.without_work(at=at), self.work.without_workers(at=at)
        return Totals(at, self.part("finalized"), self.running, *without, self.part("causes"))

    def point(self, *, at: int) -> HistoryPoint:
        """The accounts by worker and by prefix now, to compare with later ones."""
        without = self.work.without_work(at=at), self.work.without_workers(at=at)
        return HistoryPoint(
            at,
            *without,
            workers_at(self, without[0], at=at),
            {name: account for name, account in self._closed.items() if account is not _NOTHING},
            self._prefixes.by_name(),
            self._lost.by_name(),
            self.recomputed,
            self.extras(),
            dict(self.idle.parallelism),
            dict(self.failures),
            gpus_at(self, self._gpus),
            totals_of(self._account.rows()[0]),
        )

    def part(self, part: AccountPart) -> dict[str, int]:
        """A part of the account of all presences by name, zeros included."""
        return dict(zip(PARTS[part], self._account.rows()[0][WHERE[part]], strict=True))

    def part_by_worker(self, part: AccountPart, names: Iterable[str] | None = None) -> dict[str, dict[str, int]]:
        """A part of the accounts by worker name, of all workers ever or of these; zeros are left out."""
        closed, where = self._closed, WHERE[part]
        found = {name: closed[name][where] for name in (closed if names is None else names) if name in closed}
        for presence in self.open():
            if presence.name in found:
                found[presence.name] = found[presence.name] + presence.account[where]
        return {name: named(row, part) for name, row in found.items()}

    def by_worker(self) -> dict[str, Breakdown]:
        """Time since the accounts began by worker name, with ``running``."""
        rows = self.part_by_worker("finalized")
        for presence in self.open():
            row = rows.setdefault(presence.name, {})
            row[Bucket.RUNNING] = row.get(Bucket.RUNNING, 0) + presence.running
        return {name: Breakdown(row) for name, row in rows.items()}

    @property
    def tasks(self) -> dict[str, int]:
        """Finalized tasks by :class:`~dask_efficiency.accounts.worker.balance.Outcome`."""
        return {outcome: n for outcome, n in self.part("tasks").items() if n}

    def extra(self, group: str) -> dict[str, int]:
        """Sums of one of :data:`EXTRAS` by name: time outside slots, parts of buckets, and data by ``way/unit``."""
        return {name: min(n, MAX_NANOSECONDS) for name, (n,) in self._extras[group].by_name().items() if n}

    def extras(self) -> tuple[dict[str, int], ...]:
        """Sums of each of :data:`EXTRAS`."""
        return tuple(map(self.extra, EXTRAS))

    def recent_names(self, *, at: int) -> set[str]:
        """Names of the workers that are there, or left less than :data:`RECENT_NS` ago."""
        here = {presence.name for presence in self.open()}
        return here | {name for name, left in self._left_at.items() if at - left < RECENT_NS}

    @property
    def recomputed(self) -> dict[str, tuple[int, ...]]:
        """Recomputed nanoseconds and tasks, by the mark of the worker that lost the results."""
        return {mark: row for mark, row in self._recomputed.by_name().items() if any(row)}

    def by_prefix(self) -> dict[str, Breakdown]:
        """Finalized and lost time of tasks by prefix."""
        rows: dict[str, dict[str, int]] = {
            prefix: dict(zip(TASK_BUCKETS, row, strict=True)) for prefix, row in self._prefixes.by_name().items()
        }
        for prefix, (ns,) in self._lost.by_name().items():
            rows.setdefault(prefix, {})[Bucket.LOST_WORKER] = ns
        return {prefix: Breakdown(row) for prefix, row in rows.items()}

    def finalized_by_prefix(self) -> dict[str, tuple[int, ...]]:
        """Finalized nanoseconds by prefix, by :data:`~dask_efficiency.accounts.worker.balance.TASK_BUCKETS`."""
        return self._prefixes.by_name()

    def gpu_by_worker(self) -> dict[str, GpuTotals]:
        """GPU accounts by worker name, as each one sees its GPUs: ``idle`` means idle for that worker."""
        found = dict(self._gpus)
        for presence in self.open():
            _add_gpu(found, presence.name, presence.gpu)
        return found

    def gpu_of(self, worker: Presence) -> GpuTotals:
        """GPU accounts of one worker, which is present and has asked for a GPU."""
        name = worker.name
        found = {name: self._gpus[name]} if name in self._gpus else {}
        for presence in (worker, *(one for one in self.leaving if one.name == name)):
            _add_gpu(found, name, presence.gpu)
        return found[name]

    def breakdown(self) -> Breakdown:
        """Time since the accounts began, with ``running``."""
        return Breakdown({**self.part("finalized"), Bucket.RUNNING: self.running})

    # -- recording ---------------------------------------------------------------------------

    def _record(self, presence: Presence, more: NDArray[np.int64]) -> None:
        presence.account += more
        self._account.add(0, more, most=int(more.max()))

    def _cover(self, presence: Presence, bucket: str, upto: int) -> None:
        """Record all time of a worker until ``upto``, and of its running tasks, that is not recorded yet.

        Of unmeasured time, as much as passed without work is ``no-work``.
        """
        upto = max(upto, presence.covered)
        life, no_work = presence.nthreads * (upto - presence.joined), 0
        if life > MAX_NANOSECONDS:
            return  # as for snapshots: there are no larger numbers
        finalized, activity = life - presence.finalized_ns, life - presence.activity_ns
        if bucket == Bucket.UNMEASURED:
            without = max(presence.without_work, self.work.without_work(at=upto))
            no_work = min(activity, presence.nthreads * (without - presence.without_work))
            presence.without_work = without
        more = np.zeros(WIDTH, np.int64)
        more[place("finalized", bucket)] = finalized - no_work
        more[place("activity", bucket)] = activity - no_work
        more[_NO_WORK] = no_work
        if more.any():
            self._record(presence, more)

    def _record_snapshot(self, presence: Presence, received: Received, at: int) -> None:
        gain = received.gain
        assert gain is not None
        _, elapsed, running = received.head
        then = presence.received
        if then is None or then.incarnation != received.incarnation:
            self._end(then, presence.name)
            then = None
            self._begin(presence, began=at - elapsed)
        presence.began = min(presence.began + DRIFT_NS, at - elapsed)
        joined = presence.settled(self.started)
        since = presence.joined if presence.since is None else presence.since
        if joined < since:  # time that it was there for, too, and that may have been without work
            presence.without_work -= self.work.without_work(at=since) - self.work.without_work(at=joined)
            presence.since = joined
        # As of the instant of the snapshot, not of its arrival. If the ledger turns out to have begun earlier, the
        # clock of work does not run backwards; and what passed without work since the last snapshot is no-work, however
        # late that one came.
        now = self.work.without_work(at=presence.began + elapsed)
        without = max(presence.without_work, now)
        passed = 0 if then is None else now - self.work.without_work(at=presence.began + then.head[1])
        more = gained(gain.numbers)
        idle = gain.idle
        if idle:
            idle -= presence.take_off(received, then, idle, at, joined=joined)
            no_work = min(idle, presence.nthreads * max(without - presence.without_work, passed))
            idle -= no_work
            more[_NO_WORK] = no_work
        by_cause = self.idle.split(presence, idle, at=presence.began + elapsed)
        paused = by_cause.pop(Bucket.PAUSED, 0)
        more[_IDLE] = idle - paused
        more[_PAUSED] += paused
        for cause, ns in by_cause.items():
            more[_CAUSES_OF_IDLE[cause]] = ns
        self._record(presence, more)
        self._record_names(presence, received, gain)
        presence.running = running
        presence.without_work = without
        presence.received, presence.heard = received._replace(gain=None), at

    def _begin(self, presence: Presence, *, began: int) -> None:
        """Begin a worker's ledger: the time before is not measured."""
        presence.began = began
        if presence.received is None and began < presence.joined:
            # A worker that was there first is known to be metered only when all others have answered.
            presence.joined = max(began, min(presence.joined, self.started))
            presence.without_work = self.work.without_work(at=presence.joined)
        presence.asked = None
        # From joining, or from what the former meter reported, to this ledger's first instant.
        recorded = presence.activity_ns
        self._cover(presence, Bucket.UNMEASURED, began)
        presence.gaps += presence.activity_ns - recorded
        presence.without_work = max(presence.without_work, self.work.without_work(at=began))

    def _record_names(self, presence: Presence, now: Received, gain: Gain) -> None:
        """Record the named numbers: by prefix, by mark of a lost worker, and outside the accounts."""
        if gain.prefixes.any():
            nthreads, elapsed, _ = now.head
            places = presence.rows_of("prefixes", self._prefixes, now.prefixes.names)
            self._prefixes.add(places[gain.at], gain.prefixes, most=nthreads * elapsed)
        if len(gain.recomputed):
            places = presence.rows_of("recomputed", self._recomputed, now.recomputed.names)
            self._recomputed.add(places, gain.recomputed, most=int(gain.recomputed.max()) * len(places))
        more = np.maximum(gain.extras, 0)[:, None]
        for (group, sums), names in zip(self._extras.items(), now.named.extras, strict=True):
            grown, more = more[: len(names)], more[len(names) :]
            if names:
                sums.add(presence.rows_of(group, sums, names), grown, most=sum(grown[:, 0].tolist()))

    def _close(self, presence: Presence) -> None:
        """Close the accounts of a worker that left: record the time that no snapshot covers."""
        self.leaving.remove(presence)
        assert presence.left is not None
        presence.running = 0
        self.idle.worker_left(presence)
        self._end(presence.received, presence.name)
        if presence.off or presence.received is None or presence.received.final:
            if presence.reason is None and presence.received is None:
                self._explain(presence, "it left before its first snapshot")
            self._cover(presence, Bucket.UNMEASURED, presence.left)
        else:
            self._cover(presence, Bucket.RETIRING if presence.closing else Bucket.LOST_WORKER, presence.left)
            self._divide(presence, presence.received)
        self._closed[presence.name] = self._closed.get(presence.name, _NOTHING) + presence.account
        self._departed.append(WorkerStay(presence.joined, presence.left, presence.nthreads))
        self._fold_names()

    def _divide(self, presence: Presence, last: Received) -> None:
        """Record the part of a lost worker's time that its running tasks held."""
        loss, lost = presence.loss, place("finalized", Bucket.LOST_WORKER)
        loss.ns = int(presence.account[lost])
        loss.prefixes = by_prefix(loss.ns, presence.nthreads, last.holding, loss.assigned)
        if loss.prefixes:
            gained = np.array([[ns] for ns in loss.prefixes.values()], np.int64)
            self._lost.add(self._lost.places([*loss.prefixes]), gained, most=loss.ns)

    def _end(self, last: Received | None, name: str) -> None:
        """End a ledger: no later snapshot of it is recorded."""
        if last is not None:
            _add_gpu(self._gpus, name, None if last.gpu is None else last.gpu.totals)
            self._ended[last.incarnation] = None
            if len(self._ended) > MAX_DEPARTED:
                del self._ended[next(iter(self._ended))]

    def _fold_names(self) -> None:
        closed = self._closed
        excess = len(closed) - self._max_names
        if excess <= 0:
            return
        kept = {presence.name for presence in self.open()} | {DEPARTED}
        for name in [name for name in closed if name not in kept][:excess]:
            closed[DEPARTED] = closed.get(DEPARTED, _NOTHING) + closed.pop(name)
            _add_gpu(self._gpus, DEPARTED, self._gpus.pop(name, None))
            self.reasons.pop(name, None)
            self._left_at.pop(name, None)

    def _explain(self, presence: Presence, reason: str) -> None:
        presence.reason = self.reasons[presence.name] = reason


def _add_gpu(totals: dict[str, GpuTotals], name: str, more: GpuTotals | None) -> None:
    if more is not None:
        totals[name] = add_totals(totals[name], more) if name in totals else more
