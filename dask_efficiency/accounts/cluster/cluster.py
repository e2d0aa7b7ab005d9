"""ClusterLedger: the scheduler's accounts, by presence of a worker, in totals that never shrink."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.buckets import Breakdown, Bucket, combine
from dask_efficiency.accounts.causes import CAUSES, name_of
from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.cluster.account import PARTS, WHERE, WIDTH, Part, gained, named, place
from dask_efficiency.accounts.cluster.attendance import Stay, attendance
from dask_efficiency.accounts.cluster.exact import ExactSums, NamedSums
from dask_efficiency.accounts.cluster.idle import IdleWeights
from dask_efficiency.accounts.cluster.losses import Loss, by_prefix
from dask_efficiency.accounts.cluster.presence import Presence, check_snapshot, is_stale
from dask_efficiency.accounts.cluster.totals import Totals, WorkClock
from dask_efficiency.accounts.gpu.sums import add_totals
from dask_efficiency.accounts.gpu.totals import GpuTotals
from dask_efficiency.accounts.processors import Processors, decode_processors
from dask_efficiency.accounts.wire.heartbeats import BESIDE, Gain, Missed, Received, header, read
from dask_efficiency.accounts.wire.wire import NotMeasured
from dask_efficiency.accounts.worker.balance import TASK_BUCKETS

#: Departed workers whose names are not kept any more are recorded under this one.
DEPARTED = "(departed)"

#: Refusals in a row after which a worker counts as not measured, for good.
MAX_REFUSALS = 3

#: How long after a worker's removal its last snapshot may still arrive (on retirement the event
#: that carries it comes after the removal).
GRACE_NS = 2_000_000_000

#: A worker without any snapshot for this long counts as not measured. Heartbeats of a thousand workers are 6 s apart,
#: those of ten thousand 51 s.
SILENT_NS = 30_000_000_000

#: Ledgers that ended, by their incarnation, to know their late snapshots from those of a new one.
MAX_ENDED = 10_000

#: Workers that left whose stays are remembered, for the number of those that came and went.
MAX_DEPARTED = 10_000

#: Workers that left whose losses are remembered.
MAX_LOSSES = 1_000

#: Activities and details that have names of their own; later ones share one.
MAX_ACTIVITIES = 1_000

#: How much later each snapshot may make a ledger's beginning again: clocks drift, and one that seemed to
#: come too early (the wall clock was set) must not count for ever.
DRIFT_NS = 1_000_000

_UNMEASURED, _PAUSED, _IDLE, _NO_WORK = (
    [place("recorded", bucket), place("activity", bucket)]
    for bucket in (Bucket.UNMEASURED, Bucket.PAUSED, Bucket.IDLE, Bucket.NO_WORK)
)
_CAUSES_OF_IDLE = {
    cause: [place(part, name_of(Bucket.IDLE, cause)) for part in ("causes", "cause_activity")]
    for cause in CAUSES[Bucket.IDLE]
}

#: A departed worker's name is among the recent ones for this long.
RECENT_NS = 60_000_000_000


class ClusterLedger:
    """Accounts of all workers that were ever present since ``at``.

    For every presence of a worker the finalized buckets and ``running`` add up to nthreads times
    the time since it joined, up to its last snapshot; once it has left, up to its removal or, where
    they are later, its final snapshot. What no snapshot covers is ``unmeasured`` or, of a worker that left
    without a final snapshot, ``retiring`` where it closed in order and ``lost-worker`` where it vanished.
    Totals only grow, whatever arrives: lost, repeated and late snapshots cost nothing, and refused ones
    are counted and named.

    Parameters
    ----------
    at
        Monotonic nanoseconds, by the clock that all methods' ``at`` is read from.
    max_names, max_prefixes
        Names of departed workers, and task prefixes, that are kept.
    history
        Totals of earlier instants that are kept, for questions in retrospect.
    """

    def __init__(self, *, at: int, max_names: int = 5_000, max_prefixes: int = 1_000, history: int = 4_096) -> None:
        self.started = at
        self.work = WorkClock(at=at)
        self.present: dict[str, Presence] = {}
        self.history: deque[Totals] = deque(maxlen=history)
        #: Snapshots refused, repeated or late, by what was wrong.
        self.refused = 0
        self.stale = 0
        #: Those that could not be read, as too many before them were lost.
        self.missed = 0
        #: Worker name to the reason why (part of) its time is ``unmeasured``.
        self.reasons: dict[str, str] = {}
        self._max_names = max_names
        self._leaving: list[Presence] = []
        self._departed: deque[Stay] = deque(maxlen=MAX_DEPARTED)
        #: Incarnations of ledgers that ended, oldest first.
        self._ended: dict[str, None] = {}
        #: The account of all presences, and those of the closed ones by worker name, which may be large; each name that
        #: is known is there.
        self._account = ExactSums(1, WIDTH)
        self._closed: dict[str, NDArray[np.object_]] = {}
        #: What the free slots of each worker were free for, for whoever sees that.
        self.idle = IdleWeights(at=at)
        self._left_at: dict[str, int] = {}
        self._prefixes = NamedSums(max_prefixes, len(TASK_BUCKETS))
        #: Workers that went, oldest first; what of their time was their running tasks'; what was recomputed since.
        self.losses: deque[Loss] = deque(maxlen=MAX_LOSSES)
        self._lost = NamedSums(max_prefixes, 1)
        self._recomputed = NamedSums(MAX_LOSSES, 2)
        self._beside = {group: NamedSums(MAX_ACTIVITIES, 1) for group in BESIDE}
        #: GPU accounts of the ledgers that ended, by worker name.
        self._gpus: dict[str, GpuTotals] = {}

    # -- what happens to workers -------------------------------------------------------------

    def worker_joined(self, address: str, name: str, nthreads: int, *, at: int, asked: int | None = None) -> Presence:
        """Begin a worker's presence; at an address still in use, end the old one.

        A worker that was present before the plugin was asked to meter at ``asked``, before all had answered.
        """
        if address in self.present:
            self.worker_left(address, at=at)
        presence = Presence(address, name, nthreads, at, asked=asked, without_work=self.work.without_work(at=at))
        self.present[address] = presence
        self.work.set_workers(True, at=at)
        self._closed.setdefault(name, _NOTHING)
        self._left_at.pop(name, None)
        return presence

    def worker_closing(self, address: str) -> None:
        """Note that a worker closes in order, or is told to by the scheduler: when it has left, it is not lost."""
        if address in self.present:
            self.present[address].closing = True

    def worker_left(self, address: str, *, at: int) -> None:
        """End a worker's presence; its accounts are closed when its final snapshot has come, or after a grace."""
        presence = self.present.pop(address, None)
        if presence is None:
            return
        self.work.set_workers(bool(self.present), at=at)
        presence.left = at
        if presence.received is not None:  # a later snapshot may have travelled quicker than the first one
            presence.joined = min(presence.joined, max(presence.began, self.started))
        loss = presence.loss
        loss.worker, loss.left, loss.in_order = presence.name, at, presence.closing
        self.losses.append(loss)
        self._left_at[presence.name] = at
        uncovered = presence.nthreads * (at - presence.joined) - presence.recorded_ns
        presence.running = max(0, uncovered)
        self._leaving.append(presence)
        if presence.off or (presence.received is not None and presence.received.final):
            self._close(presence)

    def close_departed(self, *, at: int, grace: int = GRACE_NS) -> None:
        """Close the accounts of the workers that left longer ago than ``grace`` nanoseconds."""
        for presence in list(self._leaving):
            assert presence.left is not None
            if at - presence.left >= grace:
                self._close(presence)

    def receive(self, address: str, payload: object, *, at: int) -> None:
        """Record what a worker sent, or count it as stale.

        Raises
        ------
        RefusedPayload
            If it must not be recorded; it is counted, and after :data:`MAX_REFUSALS` in a row the
            worker is not measured any more.
        """
        presence = self.find(address, payload)
        if presence is None or presence.off:
            self.stale += 1
            return
        sender = header(payload)
        if sender is not None and (sender[0] in self._ended or is_stale(*sender, presence.received)):
            self.stale += 1
            return
        try:
            found = read(payload, presence.received)
            if isinstance(found, NotMeasured):
                self.switch_off(presence, found.reason, at=at)
                return
            if isinstance(found, Missed):
                presence.missed = True
                self.missed += 1
                return
            check_snapshot(found, presence, at)
        except RefusedPayload as refusal:
            self._refuse(presence, str(refusal), at)
            raise
        presence.missed = False
        presence.refusals = 0
        self._record_snapshot(presence, found, at)
        if presence.left is not None:
            # Its final snapshot may be of an instant after its removal: it was there until then.
            covered = -(-(presence.recorded_ns + presence.running) // presence.nthreads)
            presence.left = max(presence.left, presence.joined + covered)
            presence.running = max(0, presence.nthreads * (presence.left - presence.joined) - presence.recorded_ns)
            if found.final:
                self._close(presence)

    def take_processors(self, presence: Presence | None, payload: object) -> None:
        """Store the processors of a worker's host that it may use.

        Raises
        ------
        RefusedPayload
            If that cannot be; it is counted.
        """
        if presence is None or payload is None:
            return
        try:
            presence.processors = decode_processors(payload)
        except RefusedPayload:
            self.refused += 1
            raise

    @property
    def processors(self) -> dict[str, Processors]:
        """Processors of each worker that reported them, by address."""
        return {address: one.processors for address, one in self.present.items() if one.processors is not None}

    def find(self, address: str, payload: object) -> Presence | None:
        """Find the presence that sent a payload: a final snapshot may come when its address is in use again."""
        sender = header(payload)
        incarnation = None if sender is None else sender[0]
        for presence in self._leaving:
            known = presence.received.incarnation if presence.received else None
            if presence.address == address and known is not None and known == incarnation:
                return presence
        if address in self.present:
            return self.present[address]
        # Its final snapshot may also be its first, if it was there for less than a heartbeat.
        return next((p for p in self._leaving if p.address == address and p.received is None), None)

    def last_at(self, address: str) -> Presence | None:
        """Find the worker at an address, or the last one that has just left it."""
        gone = (presence for presence in reversed(self._leaving) if presence.address == address)
        return self.present.get(address) or next(gone, None)

    def switch_off(self, presence: Presence, reason: str, *, at: int) -> None:
        """Stop measuring a worker: its time from its last snapshot on is ``unmeasured``."""
        presence.off = True
        self._explain(presence, reason)
        presence.running = 0
        self._cover(presence, Bucket.UNMEASURED, at if presence.left is None else presence.left)

    def accrue(self, *, at: int, silent: int = SILENT_NS) -> None:
        """Record the time of workers that are not measured, and switch off those that were silent for too long."""
        for presence in self.present.values():
            if presence.off:
                self._cover(presence, Bucket.UNMEASURED, at)
            elif presence.received is None and at - presence.joined > silent:
                self.switch_off(presence, f"no snapshot in {silent // 10**9} s", at=at)

    def remember(self, *, at: int) -> None:
        """Add the present totals to the history."""
        self.history.append(self.totals(at=at))

    # -- what the accounts say ---------------------------------------------------------------

    @property
    def running(self) -> int:
        """Thread-nanoseconds that are not finalized yet."""
        return sum(presence.running for presence in self._open())

    @property
    def leaving(self) -> bool:
        """True while the accounts of any worker that left are open."""
        return bool(self._leaving)

    @property
    def closing(self) -> list[Presence]:
        """Workers that left in order, and whose final snapshot has not come."""
        return [presence for presence in self._leaving if presence.closing]

    def attendance(self, *, start: int, stop: int) -> dict[str, int]:
        """Workers that came and went; see :func:`~dask_efficiency.accounts.cluster.attendance.attendance`."""
        here = (Stay(presence.joined, presence.left, presence.nthreads) for presence in self._open())
        return attendance([*self._departed, *here], start=start, stop=stop)

    @property
    def nthreads(self) -> int:
        """Threads of the workers that are there."""
        return sum(presence.nthreads for presence in self.present.values())

    def totals(self, *, at: int) -> Totals:
        """The cluster's totals now."""
        work = self.work
        without = work.without_work(at=at), work.without_workers(at=at)
        return Totals(at, self.finalized(), self.running, *without, self._of_all("causes"))

    def finalized(self) -> dict[str, int]:
        """Finalized nanoseconds by bucket."""
        return self._of_all("recorded")

    def finalized_by_worker(self, names: Iterable[str] | None = None) -> dict[str, dict[str, int]]:
        """Finalized nanoseconds by worker name, of all or of these workers; a bucket without time may be missing."""
        return self._by_worker("recorded", names)

    def by_worker(self) -> dict[str, Breakdown]:
        """All time since the accounts began, ``running`` included, by worker name."""
        rows = self.finalized_by_worker()
        for presence in self._open():
            row = rows.setdefault(presence.name, {})
            row[Bucket.RUNNING] = row.get(Bucket.RUNNING, 0) + presence.running
        return {name: Breakdown(row) for name, row in rows.items()}

    def activity(self) -> dict[str, int]:
        """Nanoseconds by what every slot was doing, by :data:`ACTIVITIES`, running tasks included."""
        return self._of_all("activity")

    def activity_by_worker(self, names: Iterable[str] | None = None) -> dict[str, dict[str, int]]:
        """Nanoseconds by worker name, of all or of these workers; an activity without time may be missing."""
        return self._by_worker("activity", names)

    def causes_by_worker(self) -> dict[str, dict[str, int]]:
        """Known causes of finalized time: nanoseconds by :data:`~dask_efficiency.accounts.causes.NAMES` and worker."""
        return self._by_worker("causes")

    def cause_activity(self) -> dict[str, int]:
        """Known causes of :meth:`activity`, in nanoseconds by :data:`~dask_efficiency.accounts.causes.NAMES`."""
        return self._of_all("cause_activity")

    def cause_activity_by_worker(self, names: Iterable[str] | None = None) -> dict[str, dict[str, int]]:
        """Causes of activities by worker name, of all or of these workers; a cause without time may be missing."""
        return self._by_worker("cause_activity", names)

    @property
    def tasks(self) -> dict[str, int]:
        """Finalized tasks by :class:`~dask_efficiency.accounts.worker.balance.Outcome`."""
        return {outcome: n for outcome, n in self._of_all("tasks").items() if n}

    @property
    def outside(self) -> dict[str, int]:
        """Nanoseconds of what workers did outside their slots, by name."""
        return self._sums_beside("outside")

    @property
    def details(self) -> dict[str, int]:
        """Nanoseconds of parts of buckets, by name."""
        return self._sums_beside("details")

    @property
    def amounts(self) -> dict[str, int]:
        """Bytes and counts of data that were moved, by ``way/unit``."""
        return self._sums_beside("amounts")

    def _sums_beside(self, group: str) -> dict[str, int]:
        return {name: n for name, (n,) in self._beside[group].by_name().items() if n}

    @property
    def not_sampled(self) -> dict[str, str]:
        """Reasons why workers' threads are not sampled, by worker name."""
        found = ((p.name, p.received.named.not_sampled) for p in self._open() if p.received is not None)
        return {name: reason for name, reason in found if reason}

    def recent_names(self, *, at: int) -> set[str]:
        """Names of the workers that are there, or left less than :data:`RECENT_NS` ago."""
        here = {presence.name for presence in self._open()}
        return here | {name for name, left in self._left_at.items() if at - left < RECENT_NS}

    @property
    def recomputed(self) -> dict[str, tuple[int, ...]]:
        """Nanoseconds and tasks that were recomputed, by the mark of the worker with which their results were lost."""
        return {mark: row for mark, row in self._recomputed.by_name().items() if any(row)}

    def by_prefix(self) -> dict[str, Breakdown]:
        """Finalized time of the tasks, by prefix, and of those that ran on workers that were lost."""
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
        """GPU accounts since the cluster's began, by name of each worker that has asked for a GPU.

        Each is as that worker saw it: of a GPU that several workers use, see :meth:`gpu_workers`, none sees what
        the others do, and its idle time is only that it was idle for that worker.
        """
        found = dict(self._gpus)
        for presence in self._open():
            if (gpu := presence.gpu) is not None:
                _add_gpu(found, presence.name, gpu)
        return found

    def gpu_of(self, worker: Presence) -> GpuTotals:
        """GPU accounts of one worker, which is present and has asked for a GPU."""
        found = {worker.name: self._gpus[worker.name]} if worker.name in self._gpus else {}
        for presence in (worker, *self._leaving):
            if presence.name == worker.name and (gpu := presence.gpu) is not None:
                _add_gpu(found, presence.name, gpu)
        return found[worker.name]

    def gpu_readings(self, address: str) -> Mapping[str, Mapping[str, float]] | None:
        """Last readings of the GPU sensors of a worker that is present, by GPU; None without any."""
        presence = self.present.get(address)
        gpu = None if presence is None else presence.gpu
        return None if gpu is None else gpu.readings

    def gpu_workers(self) -> dict[str, int]:
        """Count the present workers that use each GPU, by its UUID."""
        found: dict[str, int] = {}
        for presence in self.present.values():
            if (gpu := presence.gpu) is not None:
                for device in gpu.devices:
                    found[device.uuid] = found.get(device.uuid, 0) + 1
        return found

    def breakdown(self) -> Breakdown:
        """All time since the accounts began, ``running`` included."""
        return combine((Breakdown(self.finalized()), Breakdown({Bucket.RUNNING: self.running})))

    # -- recording ---------------------------------------------------------------------------

    def _open(self) -> Iterator[Presence]:
        yield from self.present.values()
        yield from self._leaving

    def _of_all(self, part: Part) -> dict[str, int]:
        """A part of the account of all, by name."""
        return dict(zip(PARTS[part], self._account.rows()[0][WHERE[part]], strict=True))

    def _by_worker(self, part: Part, names: Iterable[str] | None = None) -> dict[str, dict[str, int]]:
        """A part of the accounts by worker name, of all that ever were or of these."""
        closed, where = self._closed, WHERE[part]
        found = {name: closed[name][where] for name in (closed if names is None else names) if name in closed}
        for presence in self._open():
            if presence.name in found:
                found[presence.name] = found[presence.name] + presence.account[where]
        return {name: named(row, part) for name, row in found.items()}

    def _record(self, presence: Presence, more: NDArray[np.int64]) -> None:
        presence.account += more
        self._account.add(0, more, most=int(more.max()))

    def _cover(self, presence: Presence, bucket: str, upto: int) -> None:
        """Record all time of a worker until ``upto`` that is not recorded yet."""
        life = presence.nthreads * (upto - presence.joined)
        more = np.zeros(WIDTH, np.int64)
        parts: tuple[Part, Part] = ("recorded", "activity")
        for part in parts:
            more[place(part, bucket)] = max(0, life - int(presence.account[WHERE[part]].sum()))
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
        # As of the instant at which the snapshot was taken, not of its arrival; where the ledger turns out to have
        # begun earlier, the clock of work does not run backwards.
        without = max(presence.without_work, self.work.without_work(at=presence.began + elapsed))
        more = gained(gain.numbers)
        idle = gain.idle
        if idle:
            idle -= self._in_the_gap(presence, received, then, idle, at)
            no_work = min(idle, presence.nthreads * (without - presence.without_work))
            idle -= no_work
            more[_NO_WORK] = no_work
        by_cause = self.idle.split(presence, idle, at=presence.began + elapsed)
        paused = by_cause.pop(Bucket.PAUSED, 0)
        more[_IDLE] = idle - paused
        more[_PAUSED] += paused
        for cause, ns in by_cause.items():
            more[_CAUSES_OF_IDLE[cause]] = ns
        self._record(presence, more)
        self._record_names(presence, received, gain, then)
        presence.running = running
        presence.without_work = without
        presence.received = received._replace(gain=None)

    def _begin(self, presence: Presence, *, began: int) -> None:
        """A worker's ledger began: what came before is not measured."""
        presence.began = began
        if presence.received is None and began < presence.joined:
            # A worker that was there first is known to be metered when all others have answered, too.
            presence.joined = max(began, min(presence.joined, self.started))
            presence.without_work = self.work.without_work(at=presence.joined)
        presence.asked = None
        # From joining, or from what the former meter reported, to this ledger's first instant.
        self._cover(presence, Bucket.UNMEASURED, began)
        presence.without_work = max(presence.without_work, self.work.without_work(at=began))

    @staticmethod
    def _in_the_gap(presence: Presence, received: Received, then: Received | None, idle: int, at: int) -> int:
        """Idle time of a snapshot that is counted in the gap before its ledger already.

        The gap includes the time that the first snapshot travelled. A later one that travelled quicker shows by how
        much the total is ahead of the clock.
        """
        nthreads, elapsed, _ = received.head
        before = 0 if then is None else then.head[0] * then.head[1] - then.head[2]
        ahead = presence.recorded_ns + nthreads * elapsed - before - presence.nthreads * (at - presence.joined)
        ahead = min(ahead, int(presence.account[_UNMEASURED[0]]) - presence.taken_off)
        found = min(idle, max(0, ahead))
        presence.taken_off += found
        return found

    def _record_names(self, presence: Presence, now: Received, gain: Gain, then: Received | None) -> None:
        """Record the numbers that have names: by prefix, by mark of a lost worker, and outside the slots."""
        most = sum(now.sums) - (sum(then.sums) if then else 0)
        if most:
            places = _places(presence, "prefixes", self._prefixes, now.prefixes.names)
            self._prefixes.add(places[gain.at], gain.prefixes, most=most)
        if len(gain.recomputed):
            places = _places(presence, "recomputed", self._recomputed, now.recomputed.names)
            self._recomputed.add(places, gain.recomputed, most=int(gain.recomputed.max()) * len(places))
        more = np.maximum(gain.beside, 0)[:, None]
        for (group, sums), names in zip(self._beside.items(), now.named.beside, strict=True):
            grown, more = more[: len(names)], more[len(names) :]
            if names:
                sums.add(_places(presence, group, sums, names), grown, most=sum(grown[:, 0].tolist()))

    def _close(self, presence: Presence) -> None:
        """Close the accounts of a worker that left: record the time that no snapshot covers."""
        self._leaving.remove(presence)
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
        self._departed.append(Stay(presence.joined, presence.left, presence.nthreads))
        self._fold_names()

    def _divide(self, presence: Presence, last: Received) -> None:
        """Record the part of a lost worker's time that its running tasks held."""
        loss, lost = presence.loss, place("recorded", Bucket.LOST_WORKER)
        loss.ns = int(presence.account[lost])
        loss.prefixes = by_prefix(loss.ns, presence.nthreads, last.holding, loss.had_to_do)
        if loss.prefixes:
            gained = np.array([[ns] for ns in loss.prefixes.values()], np.int64)
            self._lost.add(self._lost.places([*loss.prefixes]), gained, most=loss.ns)

    def _end(self, last: Received | None, name: str) -> None:
        """End a ledger: no later snapshot of it is recorded."""
        if last is not None:
            if last.gpu is not None:
                _add_gpu(self._gpus, name, last.gpu.totals)
            self._ended[last.incarnation] = None
            if len(self._ended) > MAX_ENDED:
                del self._ended[next(iter(self._ended))]

    def _fold_names(self) -> None:
        closed = self._closed
        excess = len(closed) - self._max_names
        if excess <= 0:
            return
        kept = {presence.name for presence in self._open()} | {DEPARTED}
        for name in [name for name in closed if name not in kept][:excess]:
            closed[DEPARTED] = closed.get(DEPARTED, _NOTHING) + closed.pop(name)
            if name in self._gpus:
                _add_gpu(self._gpus, DEPARTED, self._gpus.pop(name))
            self.reasons.pop(name, None)
            self._left_at.pop(name, None)

    def _refuse(self, presence: Presence, reason: str, at: int) -> None:
        self.refused += 1
        presence.refusals += 1
        if presence.refusals >= MAX_REFUSALS:
            self.switch_off(presence, f"snapshots refused: {reason}", at=at)

    def _explain(self, presence: Presence, reason: str) -> None:
        presence.reason = reason
        self.reasons[presence.name] = reason


def _add_gpu(totals: dict[str, GpuTotals], name: str, more: GpuTotals) -> None:
    totals[name] = add_totals(totals[name], more) if name in totals else more


#: An account without any time, of numbers of any size.
_NOTHING: NDArray[np.object_] = np.zeros(WIDTH, object)


def _places(presence: Presence, kind: str, sums: NamedSums, names: Sequence[str | None]) -> NDArray[np.intp]:
    """Find the rows in which a presence's numbers of these names are added up."""
    known = presence.places.get(kind)
    if known is None or known[0] is not names:
        known = presence.places[kind] = names, sums.places(names)
    return known[1]
