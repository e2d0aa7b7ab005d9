"""Presence: a worker from joining to leaving, and the check that a snapshot can be its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.cluster.account import WHERE, WIDTH, Part, named
from dask_efficiency.accounts.cluster.losses import Loss
from dask_efficiency.accounts.cluster.totals import Totals
from dask_efficiency.accounts.gpu.totals import DeviceTotals, GpuTotals
from dask_efficiency.accounts.processors import Processors
from dask_efficiency.accounts.wire.heartbeats import Received
from dask_efficiency.accounts.worker.balance import Outcome

#: What a worker may claim beyond the time since it joined, for clocks that drift.
SLACK_NS = 5_000_000_000

#: What a GPU can be doing; they add up to the time that it was watched.
GPU_ACTIVITIES = ("kernels", "copies", "idle")


@dataclass(eq=False, slots=True)
class Presence:
    """A worker from joining to leaving."""

    address: str
    name: str
    nthreads: int
    joined: int
    #: What its threads did so far, see :mod:`~dask_efficiency.accounts.cluster.account`: both its finalized time and
    #: ``running``, and
    #: its activities, add up to nthreads x the time covered.
    account: NDArray[np.int64] = field(default_factory=lambda: np.zeros(WIDTH, np.int64))
    running: int = 0
    #: Its last snapshot.
    received: Received | None = None
    #: True if a later heartbeat was missed, so that the next ones can only be read once everything is sent again.
    missed: bool = False
    #: The names of its table of prefixes, those outside the slots and of its details, and where the cluster adds up
    #: each.
    places: dict[str, tuple[Sequence[str | None], NDArray[np.intp]]] = field(default_factory=dict)
    #: When its ledger began: the least that a snapshot's arrival and age say, for its way only adds.
    began: int = 0
    #: Idle nanoseconds that were left out, as they are among the unmeasured already.
    taken_off: int = 0
    #: When it was asked to meter, of a worker that was there first: its first snapshot may be as old as that.
    asked: int | None = None
    #: ``without_work`` of the cluster when the last snapshot was taken.
    without_work: int = 0
    refusals: int = 0
    #: Why (part of) its time is ``unmeasured``.
    reason: str | None = None
    off: bool = False
    left: int | None = None
    #: When it was given its first task.
    first_task: int | None = None
    #: Its host's processors that it may use; None until it reported them.
    processors: Processors | None = None
    #: Whether it or the scheduler announced that it closes: such a worker is not lost.
    closing: bool = False
    #: Why it went, and what that cost, as far as that is known.
    loss: Loss = field(default_factory=Loss)
    #: Tasks whose results the scheduler has had from it.
    finished: int = 0

    @property
    def gpu(self) -> GpuTotals | None:
        """The GPU accounts of its last snapshot."""
        held = None if self.received is None else self.received.gpu
        return None if held is None else held.totals

    @property
    def unreported(self) -> int:
        """Tasks whose results the scheduler has had, and that are in no snapshot yet."""
        tasks = {} if self.received is None else self.received.tasks
        return max(0, self.finished - tasks.get(Outcome.SUCCEEDED, 0))

    def part(self, part: Part) -> dict[str, int]:
        """A part of its account by name; what is 0 is left out."""
        return named(self.account[WHERE[part]], part)

    @property
    def recorded_ns(self) -> int:
        """Thread-nanoseconds that are finalized so far."""
        return int(np.add.reduce(self.account[WHERE["recorded"]]))

    def totals(self, at: int) -> Totals:
        """Totals to compare with later ones."""
        return Totals(at, self.part("recorded"), self.running)


def is_stale(incarnation: str, seq: int, last: Received | None) -> bool:
    """Check if a snapshot repeats the last one of its ledger, or is older."""
    return last is not None and incarnation == last.incarnation and seq <= last.seq


def check_snapshot(received: Received, presence: Presence, at: int) -> None:
    """Check that a snapshot can be of this worker, and that no time shrinks; the reader checks the accounts.

    Raises
    ------
    RefusedPayload
        Naming what cannot be.
    """
    nthreads, elapsed, _ = received.head
    if nthreads != presence.nthreads:
        raise RefusedPayload(f"nthreads is {nthreads}; expected {presence.nthreads}")
    age = at - (presence.joined if presence.asked is None else min(presence.asked, presence.joined))
    if elapsed > age + SLACK_NS + age // 100:
        raise RefusedPayload(f"{elapsed / 1e9:.3f} s metered; expected at most the {age / 1e9:.3f} s since it joined")
    last = presence.received
    if last is None or last.incarnation != received.incarnation:
        beyond = presence.recorded_ns + presence.nthreads * (elapsed - age - SLACK_NS - age // 100)
        if beyond > 0:
            raise RefusedPayload(
                f"{elapsed / 1e9:.3f} s metered; expected {beyond / presence.nthreads / 1e9:.3f} s less, "
                "for the rest is recorded already"
            )
        return
    if last.gpu is not None:
        _check_gpu(received.gpu.totals if received.gpu is not None else None, last.gpu.totals)


def _check_gpu(now: GpuTotals | None, then: GpuTotals) -> None:
    if now is None:
        raise RefusedPayload("gpu is missing; expected GPU accounts, as before")
    if now.kernel_ns < then.kernel_ns:
        raise RefusedPayload(f"gpu.kernel_ns shrank from {then.kernel_ns} to {now.kernel_ns}")
    devices = {device.uuid: device for device in now.devices}
    for before in then.devices:
        after = devices.get(before.uuid, DeviceTotals(before.uuid))
        for activity in (*GPU_ACTIVITIES, "elapsed"):
            if getattr(after, activity) < getattr(before, activity):
                raise RefusedPayload(
                    f"gpu.devices[{before.uuid!r:.80}].{activity} shrank "
                    f"from {getattr(before, activity)} to {getattr(after, activity)}"
                )
