"""Stragglers: feeds the watch for stragglers from heartbeats, and logs, sends and calls back what it found."""

from __future__ import annotations

import inspect
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from distributed.scheduler import heartbeat_interval

from dask_efficiency.buckets import Bucket
from dask_efficiency.checks import RefusedPayload
from dask_efficiency.cluster import ClusterLedger
from dask_efficiency.heartbeats import header
from dask_efficiency.plugins.guard import Guard
from dask_efficiency.plugins.names import STRAGGLERS_TOPIC
from dask_efficiency.straggler.finding import Finding
from dask_efficiency.straggler.online import StragglerWatch
from dask_efficiency.straggler.task_rate_heartbeats import MissedRates, ReceivedRates, read_task_rates
from dask_efficiency.straggler.wording import describe

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import WorkerState

logger = logging.getLogger("dask_efficiency")

#: Length of an interval in which workers are compared; it is two heartbeats at least.
INTERVAL_SECONDS = 2.5


class Stragglers:
    """Watches the workers of a cluster. If it fails, it says so once and the meter goes on without it.

    Parameters
    ----------
    scheduler
        The scheduler.
    cluster
        Its accounts.
    on_straggler
        Gives the option of this name.
    """

    def __init__(self, scheduler: Scheduler, cluster: ClusterLedger, on_straggler: Callable[[], Any]) -> None:
        self._scheduler = scheduler
        self._cluster = cluster
        self._on_straggler = on_straggler
        self._watch = StragglerWatch()
        #: Address to the name of the worker that is, or was last, there.
        self._names: dict[str, str] = {}
        #: What heartbeats told of those that are there, by address.
        self._rates: dict[str, ReceivedRates] = {}
        #: Workers whose task rates were refused, which is logged once.
        self._refused: set[str] = set()
        self._guard = Guard("the watch for stragglers", "dask_efficiency looks for stragglers no more")

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The stragglers of now, the most certain first."""
        return self._named(self._watch.findings)

    def between(self, start: float, stop: float) -> list[dict[str, Any]]:
        """Those of an interval, in seconds since the epoch, as plain data."""
        return [finding.to_dict() for finding in self._named(self._watch.findings_between(start, stop))]

    def worker_joined(self, address: str, ws: WorkerState) -> None:
        """A worker is there."""
        self._guard(self._join, address, ws)

    def _join(self, address: str, ws: WorkerState) -> None:
        self._names[address] = str(ws.name)
        self._watch.joined(address, host=ws.host, group=_group(ws), at=time.monotonic_ns())

    def worker_left(self, address: str) -> None:
        """A worker was removed."""
        self._rates.pop(address, None)
        self._guard(self._watch.left, address, now=time.time())

    def take_heartbeat(self, address: str, ws: WorkerState, payload: Any, at: int) -> None:
        """Take the task rates that a heartbeat carries, if it carries any."""
        if isinstance(payload, Mapping) and "pace" in payload:
            self._guard(self._take_task_rates, address, ws, payload, at)

    def _take_task_rates(self, address: str, ws: WorkerState, payload: Mapping[str, Any], at: int) -> None:
        presence = self._cluster.present.get(address)
        if presence is None:
            return
        sender = header(payload)
        try:
            found = read_task_rates(payload["pace"], sender[0] if sender else "", self._rates.get(address))
        except RefusedPayload as refusal:
            if address not in self._refused:
                self._refused.add(address)
                logger.warning("dask_efficiency refused the task rates of %s: %s", address, refusal)
            return
        if isinstance(found, MissedRates):
            presence.missed = True
            return
        self._rates[address] = found
        paused, spilling = (
            presence.activity.get(str(bucket), 0) / 1e9 / max(1, presence.nthreads)
            for bucket in (Bucket.PAUSED, Bucket.SPILL)
        )
        lag = ws.metrics.get("event_loop_interval")
        lag = float(lag) if isinstance(lag, (int, float)) else math.nan
        held = float(ws.nbytes)
        gpu = presence.snapshot.gpu if presence.snapshot is not None else None
        kernels = gpu.kernels if gpu is not None else ()
        self._watch.receive(
            address, found.rates, at=at, paused=paused, spilling=spilling, held=held, lag=lag, kernels=kernels
        )

    def poll(self, at: int) -> None:
        """Compare the workers, when an interval is over."""
        self._guard(self._poll, at)

    def _poll(self, at: int) -> None:
        seconds = max(INTERVAL_SECONDS, 2 * float(heartbeat_interval(len(self._scheduler.workers))))
        change = self._watch.poll(at=at, now=time.time(), interval_seconds=seconds)
        for finding in self._named(change.found):
            logger.warning("Straggler: %s", describe(finding))
            self._scheduler.log_event(STRAGGLERS_TOPIC, {"action": "straggler", **finding.to_dict()})
            self._call(finding)
        for finding in self._named(change.cleared):
            logger.info("No straggler any more: %s", finding.worker or finding.host)
            self._scheduler.log_event(STRAGGLERS_TOPIC, {"action": "straggler-cleared", **finding.to_dict()})
        # Past findings are by address too.
        if len(self._names) > 2 * len(self._cluster.present) + 1_000:
            there = {*self._cluster.present, *(past.finding.worker for past in self._watch.past)}
            self._names = {address: name for address, name in self._names.items() if address in there}
            self._refused &= there

    def _call(self, finding: Finding) -> None:
        """Call the user's function, and await what it returns on the event loop."""
        action = self._on_straggler()
        if not callable(action):
            return

        async def act(result: Any) -> None:
            try:
                await result
            except Exception:
                logger.exception("on_straggler failed for %r", finding.worker or finding.host)

        try:
            result = action(self._scheduler, finding)
        except Exception:
            logger.exception("on_straggler failed for %r", finding.worker or finding.host)
        else:
            if inspect.isawaitable(result):
                self._scheduler._ongoing_background_tasks.call_soon(act, result)

    def _named(self, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """With names in place of addresses."""
        return tuple(replace(f, worker=self._names.get(f.worker, f.worker)) if f.worker else f for f in findings)


def _group(ws: WorkerState) -> tuple[Any, ...]:
    """Equal for workers that were made alike: by threads, memory limit, resources and GPU."""
    gpu = ws.extra.get("gpu") if isinstance(ws.extra, Mapping) else None
    model = str(gpu.get("name")) if isinstance(gpu, Mapping) else ""
    return ws.nthreads, f"{ws.memory_limit or 0:.1e}", tuple(sorted(ws.resources.items())), model
