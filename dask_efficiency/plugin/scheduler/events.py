"""LoggedEvents: why workers leave, and their final snapshots, by events that anybody may log on the scheduler.

Each field is checked before anything is changed, so that an odd event costs only itself.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from distributed import Scheduler
from distributed.scheduler import WorkerState

from dask_efficiency.accounts.checks import flag, keys, listed, mapping, text, whole
from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.cluster.presence import Presence
from dask_efficiency.accounts.cluster.windows import ClusterWindow
from dask_efficiency.accounts.worker.answer import decode_answer
from dask_efficiency.accounts.worker.log import prefix_of
from dask_efficiency.plugin.guard import DataGuard
from dask_efficiency.plugin.names import FINAL_SNAPSHOT
from dask_efficiency.plugin.scheduler import departures
from dask_efficiency.plugin.scheduler.outstanding import WorkTracker
from dask_efficiency.plugin.scheduler.registration import Registration


class Accounts(Protocol):
    """Accounts of the workers, which keep what the events tell."""

    scheduler: Scheduler
    cluster: ClusterLedger
    work: WorkTracker

    def server_at(self, address: str) -> WorkerState | None:
        """State of a worker that is there, or is just being removed."""

    def take_snapshot(self, address: str, payload: Any, at: int) -> None:
        """Read a worker's snapshot, which arrived at ``at``."""

    def take_about_process(self, address: str, presence: Presence | None, message: Mapping[str, Any]) -> None:
        """Read what came with a snapshot."""


class LoggedEvents:
    """Reads events for the accounts of one registration, the ``ClusterAccounts`` that make it."""

    def __init__(self, meter: Registration, accounts: Accounts, odd: DataGuard) -> None:
        self._meter, self._accounts, self._odd = meter, accounts, odd

    def __call__(self, topic: object, message: object) -> None:
        """Read an event if it is one of upstream's or ours; one that is odd is logged, once of each kind."""
        if not isinstance(topic, str) or not isinstance(message, Mapping):
            return
        action = message.get("action")
        if topic == FINAL_SNAPSHOT:
            self._odd("a final snapshot", self._take_final_snapshot, message)
        elif topic == departures.NANNY_KILLS:
            self._odd("an event of a nanny that kills its worker", self._killed, message)
        elif topic == departures.SCHEDULER and action == departures.SILENT:
            self._odd("an event of silent workers", self._silent, message)
        elif action == departures.CLOSING:
            self._odd("an event of a worker that closes", self._closing, topic, message)
        elif action == departures.REMOVED:
            self._odd("an event of a worker that was removed", self._removed, topic, message)

    def _closing(self, address: str, message: Mapping[str, Any]) -> None:
        reason = departures.on_closing(message.get("reason"))
        self._accounts.cluster.worker_closing(address)
        self._explain([address], reason)

    def _silent(self, message: Mapping[str, Any]) -> None:
        workers = [text("a worker", address) for address in listed("workers", message.get("workers", ()))]
        self._explain(workers, departures.silent(message))

    def _killed(self, message: Mapping[str, Any]) -> None:
        loss = self._accounts.cluster.loss_at(text("worker", message.get("worker")))
        # This is the reason, even if the worker or its log gave another one first, because of the nanny's signal.
        if loss is not None:
            loss.reason = departures.for_memory(message, loss.memory_limit)
            if message.get("rss") is not None:
                loss.sample_memory(whole("rss", message["rss"]), at=time.monotonic_ns())

    def _explain(self, addresses: Iterable[str], reason: str) -> None:
        """Note the reason why workers go, or have gone, unless there is one."""
        for loss in self._accounts.cluster.losses_at(addresses):
            loss.reason = loss.reason or reason

    def _removed(self, address: str, message: Mapping[str, Any]) -> None:
        """Note the removal of a worker, before its tasks move on."""
        accounts = self._accounts
        presence, ws = accounts.cluster.present.get(address), accounts.server_at(address)
        if presence is None or ws is None:
            return
        stimulus_id = text("stimulus_id", message.get("stimulus_id"))
        expected = flag("expected", message.get("expected", False))
        tasks = accounts.scheduler.tasks
        assigned = keys("processing-tasks", message.get("processing-tasks", ()))
        had = [tasks[key] for key in assigned if key in tasks]
        loss = presence.loss
        if expected:
            accounts.cluster.worker_closing(address)
        accounts.work.results_lost(loss.mark, stimulus_id)
        reason, loss.noticed = departures.on_removal(stimulus_id, expected=expected, nanny=bool(ws.nanny))
        loss.reason = loss.reason or reason
        loss.assigned = Counter(prefix_of(ts.prefix.name) for ts in had)
        loss.in_threads = departures.in_threads(ws, had)

    def _take_final_snapshot(self, message: Mapping[str, Any]) -> None:
        """Take a snapshot of this registration, and the windows that came with it."""
        accounts = self._accounts
        if message.get("session") != self._meter.session:
            return
        address, snapshot = text("worker", message.get("worker")), message.get("snapshot")
        windows = mapping("windows", message.get("windows", {}))
        presence = accounts.cluster.find(address, snapshot)
        if presence is None:
            return
        accounts.take_snapshot(address, snapshot, time.monotonic_ns())
        accounts.take_about_process(address, presence, message)
        for window_id, payload in windows.items():
            if (opened := self._meter.windows.get(window_id)) is not None:
                self._odd("a window of a final snapshot", self._take_window, opened.window, presence, payload)

    def _take_window(self, window: ClusterWindow, presence: Presence, payload: object) -> None:
        window.worker_closed(presence, decode_answer(payload), at=time.monotonic_ns())
