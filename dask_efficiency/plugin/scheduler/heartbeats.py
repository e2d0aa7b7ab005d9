"""Heartbeats on the scheduler: which have arrived, which of them are read, and the numbers in them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

import numpy as np
from distributed import Scheduler
from distributed.scheduler import WorkerState, heartbeat_interval
from numpy.typing import NDArray

from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.cluster.presence import is_stale
from dask_efficiency.accounts.intake import as_float
from dask_efficiency.accounts.sensors import HOST_SENSORS, decode_sensors
from dask_efficiency.accounts.wire.heartbeats import REPEATS, REPORT_SECONDS, header, is_repeated
from dask_efficiency.plugin.names import METRIC, SENSORS
from dask_efficiency.plugin.scheduler.straggler_watch import POLL_SECONDS

#: Share of a core that polls may take; beyond, each worker's heartbeats are read less often.
MAX_SHARE = 0.015
#: Time constant, seconds, of the smoothed costs of polls: a burst of joining workers changes little.
SMOOTHED_SECONDS = 20.0


class HeartbeatShare:
    """Chooses the heartbeats to read within a share of a core, from workers whose last turn is longest ago."""

    def __init__(self) -> None:
        #: Exponentially weighted sums: heartbeats that arrived, and that were read; CPU seconds of reading, and of the
        #: rest of the polls.
        self._arrived = self._read = self._reading_seconds = self._other_seconds = 0.0
        self._at: int | None = None
        self._turns: dict[str, int] = {}
        self._numbers = count(1)
        #: Fraction of a heartbeat carried over from the last choice.
        self._rest = 0.0

    def every(self, longest: float) -> float:
        """Mean number of heartbeats of a worker for each that is read, 1 to ``longest``."""
        if not self._read:
            return 1.0
        wanted = self._arrived * self._reading_seconds / self._read
        room = MAX_SHARE * SMOOTHED_SECONDS - self._other_seconds
        if wanted <= room:
            return 1.0
        return max(1.0, min(longest, wanted / room if room > 0 else math.inf))

    def choose(self, arrived: Sequence[str], *, longest: float, must: Callable[[str], bool]) -> list[str]:
        """Choose among workers with a new heartbeat those that are read, and all that ``must`` be."""
        every = self.every(longest)
        if every == 1:
            chosen = list(arrived)
        else:
            some = len(arrived) / every + self._rest
            waiting = sorted(arrived, key=lambda worker: self._turns.get(worker, 0))
            chosen, others = waiting[: int(some)], waiting[int(some) :]
            self._rest = some - len(chosen)
            chosen += [worker for worker in others if must(worker)]
        self._turns.update(zip(chosen, self._numbers, strict=False))
        return chosen

    def left(self, worker: str) -> None:
        """Forget a worker."""
        self._turns.pop(worker, None)

    def spent(
        self, at: int, other_seconds: float, *, arrived: int = 0, read: int = 0, reading_seconds: float = 0.0
    ) -> None:
        """Note a poll's CPU seconds of reading and of the rest, and the heartbeats that arrived and that were read."""
        kept = 1.0 if self._at is None else math.exp((self._at - at) / 1e9 / SMOOTHED_SECONDS)
        self._at = at
        self._arrived = kept * self._arrived + arrived
        self._read = kept * self._read + read
        self._reading_seconds = kept * self._reading_seconds + reading_seconds
        self._other_seconds = kept * self._other_seconds + other_seconds


#: Rounds between two heartbeats of a worker. Each looks at every worker, so large clusters have fewer; more would only
#: make arrivals more exact.
ROUNDS_A_HEARTBEAT = 6.0
#: Longest time between two rounds, seconds: the refresh of live views.
MAX_ROUND_SECONDS = 1.0
#: Longest time without reading a worker, seconds: the watch for stragglers looks back four minutes.
MAX_AGE_SECONDS = 60.0


class Omission(NamedTuple):
    """Heartbeat that was skipped, and its arrival."""

    payload: Any
    at: int


class HeartbeatArrivals:
    """Finds heartbeats that have arrived, are due to be read, or were skipped."""

    def __init__(self, scheduler: Scheduler, cluster: ClusterLedger) -> None:
        self._scheduler, self._cluster = scheduler, cluster
        #: By address: the last payload that was read or skipped. At first the payload of a former registration, which
        #: is not of these accounts.
        self._last = {address: ws.metrics.get(METRIC) for address, ws in scheduler.workers.items()}
        self.share = HeartbeatShare()
        self._left_out: dict[str, Omission] = {}
        #: End of the last round that read all that was due, and start of this one.
        self._polled = self._round = 0

    @property
    def unread(self) -> Collection[str]:
        """Workers of which a heartbeat was skipped and nothing later was read."""
        return self._left_out.keys()

    @property
    def heartbeat_seconds(self) -> float:
        """Time between two heartbeats of a worker, which Dask sets by the number of workers."""
        return float(heartbeat_interval(len(self._scheduler.workers)))

    @property
    def read_interval_seconds(self) -> float:
        """Time between two heartbeats of a worker that are read and have anything new."""
        heartbeat = self.heartbeat_seconds
        return max(REPORT_SECONDS, heartbeat * self.share.every(_longest(heartbeat)))

    def pauses(self, at: int) -> bool:
        """True if it is too early for another round."""
        pause = min(MAX_ROUND_SECONDS, self.heartbeat_seconds / ROUNDS_A_HEARTBEAT)
        # A poll may come a little earlier than it should.
        return pause > POLL_SECONDS and at - self._round < round((pause - POLL_SECONDS / 2) * 1e9)

    def next_round(self, at: int) -> tuple[list[str], dict[str, Omission]]:
        """Choose addresses to read within the share of a core; the other new heartbeats are skipped."""
        self._round = at
        new = self._new_addresses()
        due = self.share.choose(new, longest=_longest(self.heartbeat_seconds), must=self._cannot_wait)
        left_out = {}
        for address in set(new).difference(due) if len(due) < len(new) else ():
            ws = self._scheduler.workers[address]
            left_out[address] = Omission(ws.metrics[METRIC], self._arrival(ws, at))
            self._last[address] = left_out[address].payload
        self._left_out |= left_out
        return due, left_out

    def everything(self, at: int) -> tuple[list[str], int]:
        """Addresses with anything unread, skipped heartbeats included; and the number of new heartbeats."""
        self._round = at
        new = self._new_addresses()
        self._left_out = {address: left for address, left in self._left_out.items() if self._has_news(address, left)}
        return list(dict.fromkeys([*self._left_out, *new])), len(new)

    def take(self, address: str, ws: WorkerState, payload: Any, at: int) -> int:
        """Note that a heartbeat is read; returns its arrival."""
        left = self._left_out.pop(address, None)
        self._last[address] = payload
        return left.at if left is not None and left.payload is payload else self._arrival(ws, at)

    def round_over(self) -> None:
        """Note that all that was due is read."""
        self._polled = self._round

    def worker_left(self, address: str, ws: WorkerState | None, at: int) -> list[Omission]:
        """Forget a worker; returns its heartbeats with anything unread, oldest first."""
        left = [self._left_out.pop(address)] if address in self._left_out else []
        self.share.left(address)
        last = self._last.pop(address, None)
        payload = None if ws is None else ws.metrics.get(METRIC)
        if ws is not None and payload is not None and payload is not last and not is_repeated(payload, last):
            left.append(Omission(payload, self._arrival(ws, at)))
        return [one for one in left if self._has_news(address, one)]

    def _new_addresses(self) -> list[str]:
        """Addresses with a new heartbeat; one quick look at each worker."""
        last = self._last.get
        news = [(address, ws.metrics.get(METRIC)) for address, ws in self._scheduler.workers.items()]
        new = [(address, payload) for address, payload in news if payload is not None and payload is not last(address)]
        return [address for address, payload in new if not is_repeated(payload, last(address))]

    def _arrival(self, ws: WorkerState, at: int) -> int:
        """Arrival of a heartbeat that no earlier poll has seen, whatever a wall clock that was set says."""
        return at - min(max(0, round((time.time() - ws.last_seen) * 1e9)), at - self._polled)

    def _cannot_wait(self, address: str) -> bool:
        """True if the next heartbeat might be unreadable without this one."""
        presence = self._cluster.present.get(address)
        last = None if presence is None else presence.received
        sender = header(self._scheduler.workers[address].metrics[METRIC])
        if presence is None or presence.missed or last is None or sender is None or sender[0] != last.incarnation:
            return True
        left = self._left_out.get(address)
        before = None if left is None else header(left.payload)
        # The next one is expected as far after this one as this came after the one before it: some may have come
        # between two polls.
        return sender[1] - last.seq + sender[1] - (last.seq if before is None else before[1]) > REPEATS

    def _has_news(self, address: str, left: Omission) -> bool:
        """True if a skipped heartbeat has more than what was read of its worker since."""
        presence = self._cluster.present.get(address)
        last = None if presence is None else presence.received
        sender = header(left.payload)
        return last is None or sender is None or not is_stale(*sender, last)


def _longest(heartbeat: float) -> float:
    """Largest number of heartbeats of a worker for each that is read: repeats and :data:`MAX_AGE_SECONDS` bound it."""
    return max(1.0, min(float(REPEATS), MAX_AGE_SECONDS / heartbeat))


#: Path of Dask's own metrics in a heartbeat, by column of series and of the watch for outliers.
DASK_METRICS: dict[str, tuple[str, ...]] = {
    "cpu": ("cpu",),
    "memory": ("memory",),
    "managed": ("managed_bytes",),
    "spilled": ("spilled_bytes", "disk"),
    "net_read": ("host_net_io", "read_bps"),
    "net_write": ("host_net_io", "write_bps"),
    "disk_read": ("host_disk_io", "read_bps"),
    "disk_write": ("host_disk_io", "write_bps"),
    "loop_interval": ("event_loop_interval",),
}
#: Dask gives CPU use in percent, columns have shares.
_PERCENT = 0.01


def dask_metric(metrics: Mapping[str, Any], name: str) -> float:
    """One of :data:`DASK_METRICS`; NaN if it is missing, or no number: users may put their own in its place."""
    value: Any = metrics
    for key in DASK_METRICS[name]:
        value = value.get(key) if isinstance(value, dict) else None
    return as_float(value) * (_PERCENT if name == "cpu" else 1.0)


def host_sensors(metrics: Mapping[str, Any]) -> NDArray[np.float32]:
    """Sensors of the host in their order; NaN for a sensor that is missing or could not be read."""
    payload = metrics.get(METRIC)
    readings = payload.get(SENSORS) if isinstance(payload, Mapping) else None
    if readings is None:
        return _NOTHING
    try:
        return decode_sensors(readings)
    except RefusedPayload:
        return _NOTHING


_NOTHING = np.full(len(HOST_SENSORS), np.nan, np.float32)
_NOTHING.setflags(write=False)
