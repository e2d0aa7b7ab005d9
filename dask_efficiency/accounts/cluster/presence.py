"""Presence: a worker from joining to leaving, the check that a snapshot can be its own, and counts of those present."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.cluster.account import WHERE, WIDTH, AccountPart, NamedSums, Totals, named
from dask_efficiency.accounts.cluster.losses import Loss
from dask_efficiency.accounts.gpu import DeviceTotals, GpuTotals
from dask_efficiency.accounts.memory import MemoryLevels
from dask_efficiency.accounts.processors import Processors, ProcessorTime
from dask_efficiency.accounts.wire.gpu import HeldGpu
from dask_efficiency.accounts.wire.heartbeats import Received, header
from dask_efficiency.accounts.worker.balance import results_of


class WorkerStay(NamedTuple):
    """A worker from joining to leaving, by the cluster's clock in nanoseconds; None where it is still there."""

    joined: int
    left: int | None
    nthreads: int


def attendance(stays: Iterable[WorkerStay], *, start: int, stop: int) -> dict[str, int]:
    """Count the workers present between two instants, a restarted one twice, and the most of them at one time."""
    there = [stay for stay in stays if stay.joined < stop and (stay.left is None or stay.left > start)]
    # of one instant, leaving comes before joining
    turns = [(max(start, stay.joined), 1, stay.nthreads) for stay in there]
    turns += [(stay.left, -1, -stay.nthreads) for stay in there if stay.left is not None]
    turns.sort()
    most = [max(accumulate((turn[i] for turn in turns), initial=0)) for i in (1, 2)]
    return {"workers": len(there), "most_workers": most[0], "most_threads": most[1]}


#: Departed workers whose stays are remembered, to count those that came and went, and ended ledgers whose incarnations
#: are, to recognize late snapshots. A guess that bounds memory.
MAX_DEPARTED = 10_000
#: Nanoseconds that a worker may claim beyond its age, besides 1 % of it, for clocks that drift. A guess.
SLACK_NS = 5_000_000_000
#: Activities of a GPU, which add up to the time that it was watched.
GPU_ACTIVITIES = ("kernels", "copies", "idle")


@dataclass(eq=False, slots=True)
class Presence:
    """A worker from joining to leaving."""

    address: str
    name: str
    nthreads: int
    joined: int
    #: Time of its threads: its finalized time with ``running``, and its activities, add up to nthreads x time covered.
    account: NDArray[np.int64] = field(default_factory=lambda: np.zeros(WIDTH, np.int64))
    running: int = 0
    received: Received | None = None
    #: Instant at which the last snapshot was recorded; 0 without any.
    heard: int = 0
    #: True if heartbeats were missed, so that the next readable one is a complete one.
    missed: bool = False
    #: Names of its prefixes and other named numbers by kind, and their rows in the cluster's sums.
    places: dict[str, tuple[Sequence[str | None], NDArray[np.intp]]] = field(default_factory=dict)
    #: Beginning of its ledger: the earliest by any snapshot's arrival and age.
    began: int = 0
    #: Thread-nanoseconds before its ledgers; and the idle ones that were left out, as these count them already.
    gaps: int = 0
    taken_off: int = 0
    #: Instant at which a worker that was there first was asked to meter; its first snapshot may be as old.
    asked: int | None = None
    there_first: bool = False
    #: Earliest :meth:`settled` instant, from which on its time without work is known; None for ``joined``.
    since: int | None = None
    #: ``without_work`` of the cluster when the last snapshot was taken.
    without_work: int = 0
    refusals: int = 0
    reason: str | None = None
    off: bool = False
    left: int | None = None
    first_task: int | None = None
    processors: Processors | None = None
    #: Time of its processors, as its last heartbeat or answer that has it says.
    used: ProcessorTime | None = None
    #: Its memory, as its last heartbeat that was read says.
    memory: MemoryLevels | None = None
    #: True if its closing was announced, so that it is not lost.
    closing: bool = False
    loss: Loss = field(default_factory=Loss)
    #: Tasks whose results it has reported to the scheduler.
    finished: int = 0

    @property
    def held_gpu(self) -> HeldGpu | None:
        """The GPU accounts of its last snapshot, as they came; ``devices`` lack the shares of prefixes."""
        return None if self.received is None else self.received.gpu

    @property
    def gpu(self) -> GpuTotals | None:
        """The GPU accounts of its last snapshot."""
        return None if self.held_gpu is None else self.held_gpu.totals

    @property
    def devices(self) -> Sequence[DeviceTotals]:
        """Its GPUs at its last snapshot, without shares of prefixes."""
        return () if self.held_gpu is None else self.held_gpu.devices

    @property
    def unreported(self) -> int:
        """Finished tasks that are in no snapshot yet."""
        tasks = {} if self.received is None else self.received.tasks
        return max(0, self.finished - results_of(tasks))

    def part(self, part: AccountPart) -> dict[str, int]:
        """A part of its account by name; zeros are left out."""
        return named(self.account[WHERE[part]], part)

    @property
    def finalized_ns(self) -> int:
        """Thread-nanoseconds that are finalized so far."""
        return int(np.add.reduce(self.account[WHERE["finalized"]]))

    @property
    def activity_ns(self) -> int:
        """Thread-nanoseconds that are recorded so far, running tasks included."""
        return int(np.add.reduce(self.account[WHERE["activity"]]))

    @property
    def covered(self) -> int:
        """Instant up to which its time is recorded; where its first snapshot travelled slowly, it may be to come."""
        return self.joined - -self.activity_ns // self.nthreads

    def end(self, at: int) -> None:
        """Let it have left at an instant, or when what is recorded of it ends: a snapshot may be of a later one."""
        self.left = max(at, self.covered)
        self.running = self.nthreads * (self.left - self.joined) - self.finalized_ns

    def totals(self, at: int) -> Totals:
        """Totals to compare with later ones."""
        return Totals(at, self.part("finalized"), self.running)

    def settled(self, started: int) -> int:
        """Instant at which it joined, accounts having ``started``: one that was there first, when its ledger began.

        A later snapshot may have travelled quicker than the first one, and move it back.
        """
        return self.joined if self.received is None else min(self.joined, max(self.began, started))

    def take_off(self, received: Received, then: Received | None, idle: int, at: int, *, joined: int) -> int:
        """Part of a snapshot's idle time that is counted already, or not at all, as its first snapshot came slowly.

        ``joined`` is the :meth:`settled` instant.
        """
        nthreads, elapsed, _ = received.head
        before = 0 if then is None else then.head[0] * then.head[1] - then.head[2]
        ahead = self.finalized_ns + nthreads * elapsed - before - self.nthreads * (at - joined)
        # A worker that was there first may have been metered before the accounts started.
        earlier = nthreads * max(0, joined - self.began) if self.there_first else 0
        ahead = min(ahead, self.gaps + earlier - self.taken_off)
        found = min(idle, max(0, ahead))
        self.taken_off += found
        return found

    def rows_of(self, kind: str, sums: NamedSums, names: Sequence[str | None]) -> NDArray[np.intp]:
        """Rows of ``sums`` to which its numbers of these names are added."""
        known = self.places.get(kind)
        if known is None or known[0] is not names:
            known = self.places[kind] = names, sums.places(names)
        return known[1]


class Presences:
    """Workers that are present, and those that left and whose accounts are still open."""

    def __init__(self) -> None:
        #: By address; and those that left, until their accounts close.
        self.present: dict[str, Presence] = {}
        self.leaving: list[Presence] = []
        self._departed: deque[WorkerStay] = deque(maxlen=MAX_DEPARTED)

    def open(self) -> Iterator[Presence]:
        """Presences whose accounts are open."""
        return chain(self.present.values(), self.leaving)

    @property
    def closing(self) -> list[Presence]:
        """Workers that left in order, and whose final snapshot has not come."""
        return [presence for presence in self.leaving if presence.closing]

    def attendance(self, *, start: int, stop: int) -> dict[str, int]:
        """Count the workers that came and went, see :func:`attendance`."""
        here = [WorkerStay(presence.joined, presence.left, presence.nthreads) for presence in self.open()]
        return attendance([*self._departed, *here], start=start, stop=stop)

    @property
    def nthreads(self) -> int:
        """Threads of the workers that are there."""
        return sum(presence.nthreads for presence in self.present.values())

    @property
    def processors(self) -> dict[str, Processors]:
        """Processors of each worker that reported them, by address."""
        return {address: one.processors for address, one in self.present.items() if one.processors is not None}

    def find(self, address: str, payload: object) -> Presence | None:
        """Find the presence that sent a payload: a final snapshot may come when its address is in use again."""
        sender = header(payload)
        incarnation = None if sender is None else sender[0]
        gone = [presence for presence in self.leaving if presence.address == address]
        for presence in gone:
            if presence.received is not None and presence.received.incarnation == incarnation:
                return presence
        # Its final snapshot may also be its first, if it was there for less than a heartbeat.
        return self.present.get(address) or next((one for one in gone if one.received is None), None)

    @property
    def not_sampled(self) -> dict[str, str]:
        """Reasons why workers' threads are not sampled, by worker name."""
        return {p.name: why for p in self.open() if p.received is not None and (why := p.received.named.not_sampled)}

    def gpu_readings(self, address: str) -> Mapping[str, Mapping[str, float]] | None:
        """Last readings of the GPU sensors of a worker that is present, by GPU; None without any."""
        presence = self.present.get(address)
        held = None if presence is None else presence.held_gpu
        return None if held is None else held.readings

    def gpu_workers(self) -> dict[str, int]:
        """Count the present workers that use each GPU, by its UUID."""
        return dict(Counter(device.uuid for presence in self.present.values() for device in presence.devices))


def is_stale(incarnation: str, seq: int, last: Received | None) -> bool:
    """Check if a snapshot repeats the last one of its ledger, or is older."""
    return last is not None and incarnation == last.incarnation and seq <= last.seq


def with_slack(age: int) -> int:
    """Nanoseconds that a worker may claim of so many that have passed here."""
    return age + SLACK_NS + age // 100


def check_snapshot(received: Received, presence: Presence, at: int) -> None:
    """Refuse a snapshot that cannot be of this worker; the reader checks the accounts."""
    nthreads, elapsed, _ = received.head
    if nthreads != presence.nthreads:
        raise RefusedPayload(f"nthreads is {nthreads}; expected {presence.nthreads}")
    age = at - (presence.joined if presence.asked is None else min(presence.asked, presence.joined))
    over = elapsed - with_slack(age)
    if over > 0:
        raise RefusedPayload(f"{elapsed / 1e9:.3f} s metered; expected at most the {age / 1e9:.3f} s since it joined")
    last = presence.received
    if last is None or last.incarnation != received.incarnation:
        beyond = presence.finalized_ns + presence.nthreads * over
        if beyond > 0:
            raise RefusedPayload(
                f"{elapsed / 1e9:.3f} s metered; expected {beyond / presence.nthreads / 1e9:.3f} s less, "
                "for the rest is recorded already"
            )


def own_gpus(present: Iterable[Presence]) -> dict[str, dict[str, int]]:
    """Nanoseconds by activity of the GPUs that one worker uses alone, by a key that stays the same."""
    found = [(worker, device) for worker in present for device in worker.devices]
    several = shared(device.uuid for _, device in found)
    return {
        f"{worker.address} {worker.joined} {device.uuid}": {name: getattr(device, name) for name in GPU_ACTIVITIES}
        for worker, device in found
        if device.uuid not in several
    }


def shared(uuids: Iterable[str]) -> set[str]:
    """GPUs that several workers use."""
    return {uuid for uuid, users in Counter(uuids).items() if users > 1}
