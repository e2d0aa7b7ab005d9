"""Stragglers: feeds the scheduler's watch from heartbeats, and reports what it finds as events and in the log."""

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
from dask_efficiency.straggler.finding import Finding
from dask_efficiency.straggler.online import StragglerWatch
from dask_efficiency.straggler.task_rates import decode
from dask_efficiency.straggler.wording import describe
from dask_efficiency.wire import RefusedSnapshot

if TYPE_CHECKING:
    from distributed.scheduler import WorkerState

    from dask_efficiency.plugins.scheduler.meter import ClusterMeter

logger = logging.getLogger("dask_efficiency")

#: Topic of the events that report a straggler: ``client.get_events``, ``client.subscribe_topic``.
TOPIC = "dask-efficiency"

#: An interval is this long, and two heartbeats at least.
INTERVAL_SECONDS = 2.5


class Stragglers:
    """The watch of one meter. If it fails, it logs that once and the meter goes on without it."""

    def __init__(self, meter: ClusterMeter) -> None:
        self._meter = meter
        self._watch = StragglerWatch()
        self._names: dict[str, str] = {}
        #: Workers whose task rates were refused, which is logged once.
        self._refused: set[str] = set()
        #: Why nothing is watched any more; None while it works.
        self.off: str | None = None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The stragglers of now, the most certain first."""
        return self._named(self._watch.findings)

    def between(self, start: float, stop: float) -> list[dict[str, Any]]:
        """Those of an interval, in seconds since the epoch, as plain data."""
        return [finding.to_dict() for finding in self._named(self._watch.findings_between(start, stop))]

    def joined(self, address: str, ws: WorkerState) -> None:
        """A worker is there."""
        self._names[address] = str(ws.name)
        self._try(self._watch.joined, address, host=ws.host, group=_group(ws), at=self._meter.now())

    def left(self, address: str) -> None:
        """A worker was removed."""
        self._try(self._watch.left, address, now=time.time())

    def receive(self, address: str, ws: WorkerState, payload: Any, at: int) -> None:
        """Take in what a heartbeat carries, if it carries that."""
        if isinstance(payload, Mapping) and "pace" in payload:
            self._try(self._receive, address, ws, payload["pace"], at)

    def _receive(self, address: str, ws: WorkerState, payload: Any, at: int) -> None:
        presence = self._meter.cluster.present.get(address)
        if presence is None:
            return
        try:
            rates = decode(payload)
        except RefusedSnapshot as refusal:
            if address not in self._refused:
                self._refused.add(address)
                logger.warning("dask_efficiency refused the task rates of %s: %s", address, refusal)
            return
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
            address, rates, at=at, paused=paused, spilling=spilling, held=held, lag=lag, kernels=kernels
        )

    def poll(self, at: int) -> None:
        """Judge, when an interval is over."""
        self._try(self._poll, at)

    def _poll(self, at: int) -> None:
        seconds = max(INTERVAL_SECONDS, 2 * float(heartbeat_interval(len(self._meter.scheduler.workers))))
        change = self._watch.poll(at=at, now=time.time(), interval_seconds=seconds)
        for finding in self._named(change.found):
            logger.warning("Straggler: %s", describe(finding))
            self._meter.scheduler.log_event(TOPIC, {"action": "straggler", **finding.to_dict()})
            self._call(finding)
        for finding in self._named(change.cleared):
            logger.info("No straggler any more: %s", finding.worker or finding.host)
            self._meter.scheduler.log_event(TOPIC, {"action": "straggler-cleared", **finding.to_dict()})
        # Past findings are by address too.
        if len(self._names) > 2 * len(self._meter.cluster.present) + 1_000:
            there = {*self._meter.cluster.present, *(past.finding.worker for past in self._watch.past)}
            self._names = {address: name for address, name in self._names.items() if address in there}
            self._refused &= there

    def _call(self, finding: Finding) -> None:
        """Have the user's callable do what it will, now or as a task of the event loop."""
        action = self._meter.options.on_straggler
        if not callable(action):
            return

        async def act(result: Any) -> None:
            try:
                await result
            except Exception:
                logger.exception("on_straggler failed for %r", finding.worker or finding.host)

        try:
            result = action(self._meter.scheduler, finding)
        except Exception:
            logger.exception("on_straggler failed for %r", finding.worker or finding.host)
        else:
            if inspect.isawaitable(result):
                self._meter.scheduler._ongoing_background_tasks.call_soon(act, result)

    def _named(self, findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
        """With names in place of addresses."""
        return tuple(replace(f, worker=self._names.get(f.worker, f.worker)) if f.worker else f for f in findings)

    def _try(self, function: Callable[..., object], *args: Any, **kwargs: Any) -> None:
        if self.off is not None:
            return
        try:
            function(*args, **kwargs)
        except Exception as error:
            self.off = f"the watch for stragglers failed: {type(error).__name__}: {error}"[:500]
            logger.error("dask_efficiency looks for stragglers no more", exc_info=error)


def _group(ws: WorkerState) -> tuple[Any, ...]:
    """Equal for workers that were made alike: by threads, memory limit, resources and GPU."""
    gpu = ws.extra.get("gpu") if isinstance(ws.extra, Mapping) else None
    model = str(gpu.get("name")) if isinstance(gpu, Mapping) else ""
    return ws.nthreads, f"{ws.memory_limit or 0:.1e}", tuple(sorted(ws.resources.items())), model
