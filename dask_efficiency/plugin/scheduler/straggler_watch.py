"""StragglerReporter: feeds the watch for stragglers from heartbeats; logs, sends and calls back its findings."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from distributed import Scheduler
from distributed.scheduler import WorkerState, heartbeat_interval

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.checks import RefusedPayload
from dask_efficiency.accounts.cluster.account import place
from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.intake import as_float, fitting, whole_number
from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.accounts.stalls import StalledWork
from dask_efficiency.accounts.wire.heartbeats import REPEATS, header
from dask_efficiency.plugin.guard import Guard
from dask_efficiency.plugin.names import STRAGGLERS_TOPIC
from dask_efficiency.plugin.scheduler.joining import gpu_model
from dask_efficiency.show.log import logger
from dask_efficiency.straggler.breakdowns import RecentWaiting, decided
from dask_efficiency.straggler.online import StragglerWatch
from dask_efficiency.straggler.task_rates import MissedRates, ReceivedRates, read_task_rates
from dask_efficiency.straggler.wording import as_finding

#: Heartbeat whose task rates are not read yet, and its arrival.
_Unread = tuple[WorkerState, Mapping[str, Any], int]
#: Seconds of an interval of comparison; at least two heartbeats.
INTERVAL_SECONDS = 2.5
#: Longest time between two polls, seconds; that of the meter's poller.
POLL_SECONDS = 0.5
#: CPU seconds of a poll; later polls do the rest.
MAX_POLL_SECONDS = 0.004
#: Task rates read in one poll, at least: they take 1 ms. Rates are read once in an interval, as late as possible.
MIN_READ_A_POLL = 20
#: Task rates read in one poll, at most: 5 ms; the rest waits for the next interval.
MAX_READ_A_POLL = 100
#: Heartbeats after the last read one, from which the next is read at once: two more may be lost.
MAX_UNREAD = REPEATS - 1


class StragglerReporter:
    """Watches a cluster's workers; ``on_straggler`` gives that option. After a failure the meter goes on without."""

    def __init__(self, scheduler: Scheduler, cluster: ClusterLedger, on_straggler: Callable[[], Any]) -> None:
        self._scheduler, self._cluster, self._on_straggler = scheduler, cluster, on_straggler
        self._watch = StragglerWatch()
        #: Finds outliers by the workers' metrics, where a wing does:
        #: :class:`~dask_efficiency.fleet.scheduler.outlier_watch.OutlierWatch`.
        self.outliers: Any = None
        self._waiting = RecentWaiting()
        self._announced: dict[str, SlowWorker] = {}
        #: Name of the present or last worker at each address.
        self._names: dict[str, str] = {}
        #: Findings on workers before they had tasks, with their addresses.
        self._flagged: list[tuple[SlowWorker, set[str]]] = []
        self._rates: dict[str, ReceivedRates] = {}
        #: Newest unread heartbeats by address: for this interval, and for the next, of the workers in ``_done``, which
        #: were read in this one.
        self._unread: dict[str, _Unread] = {}
        self._later: dict[str, _Unread] = {}
        self._done: set[str] = set()
        self._began: int | None = None
        self._refused: set[str] = set()
        self._guard = Guard("the watch for stragglers", "dask_efficiency no longer looks for stragglers")

    @property
    def findings(self) -> tuple[SlowWorker, ...]:
        """Stragglers of now, the most certain first; then outliers by metrics, and workers that joined slow."""
        found = self._with_outliers(self._watch.findings, self._outliers)
        known = {(finding.worker, finding.host) for finding in found}
        flagged = (finding for finding, _ in self._flagged if (finding.worker, finding.host) not in known)
        return (*found, *flagged)

    def flag(self, finding: SlowWorker, addresses: set[str]) -> None:
        """Add a finding on workers before they had tasks; it holds until they leave."""
        self._flagged.append((finding, addresses))
        self.call(finding)

    def between(self, start: float, stop: float) -> list[dict[str, Any]]:
        """Stragglers of an interval, in seconds since the epoch, as plain data."""
        outliers = () if self.outliers is None else self.outliers.findings_between(start, stop)
        found = self._with_outliers(self._watch.findings_between(start, stop), outliers)
        return [finding.to_dict() for finding in found]

    @property
    def _outliers(self) -> tuple[SlowWorker, ...]:
        return () if self.outliers is None else self.outliers.findings

    def _with_outliers(self, found: tuple[SlowWorker, ...], outliers: tuple[SlowWorker, ...]) -> tuple[SlowWorker, ...]:
        """Findings by name, plus other outliers: findings by tasks take precedence, as they have the effect."""
        named = self._named(found)
        known = {finding.subject for finding in named}
        return (*named, *(finding for finding in outliers if finding.subject not in known))

    def worker_joined(self, address: str, ws: WorkerState) -> None:
        """Watch a worker that joined."""
        self._guard(self._join, address, ws)

    def _join(self, address: str, ws: WorkerState) -> None:
        self._names[address] = fitting(ws.name)
        self._watch.joined(address, host=ws.host, group=comparable(ws), at=time.monotonic_ns())

    def worker_left(self, address: str) -> None:
        """Forget a worker that was removed."""
        for table in (self._rates, self._unread, self._later):
            table.pop(address, None)
        self._done.discard(address)
        self._flagged = [(finding, left) for finding, those in self._flagged if (left := those - {address})]
        self._guard(self._watch.left, address, now=time.time())
        if self.outliers is not None:
            self.outliers.left(self._names.get(address, address), now=time.time())

    def take_heartbeat(self, address: str, ws: WorkerState, payload: Any, at: int) -> None:
        """Keep or read the task rates of a heartbeat, if it has any."""
        if not isinstance(payload, Mapping) or "pace" not in payload:
            return
        table = self._later if address in self._done else self._unread
        rates, last = payload["pace"], self._rates.get(address)
        seq = rates.get("n") if isinstance(rates, Mapping) else None
        if last is not None and type(seq) is int and last.seq < seq < last.seq + MAX_UNREAD:
            table[address] = ws, payload, at
            return
        before = self._unread.pop(address, None) or self._later.pop(address, None)
        if before is not None and last is not None and type(seq) is int and seq > last.seq + REPEATS:
            # This one has the changes since a state that only the one before has.
            self._guard(self._read_task_rates, address, *before)
        self._guard(self._read_task_rates, address, ws, payload, at)

    def _read_some(self, at: int, seconds: float, in_time: Callable[[], bool]) -> None:
        """Read the task rates that can wait no longer, spread evenly over the polls of the interval."""
        left = seconds if self._began is None else seconds - (at - self._began) / 1e9
        polls = max(1, 1 + math.ceil(left / POLL_SECONDS))  # with this one
        if polls > 1 and len(self._unread) <= MIN_READ_A_POLL * polls:
            return
        some = min(MAX_READ_A_POLL, math.ceil(len(self._unread) / polls))
        for address in list(islice(self._unread, some)):
            if not in_time():
                return
            self._read_task_rates(address, *self._unread.pop(address))
            self._done.add(address)

    def _read_task_rates(self, address: str, ws: WorkerState, payload: Mapping[str, Any], at: int) -> None:
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
        paused, spilling = (ns / 1e9 / max(1, presence.nthreads) for ns in presence.account[_PAUSED_AND_SPILL].tolist())
        self._watch.receive(
            address,
            found.rates,
            at=at,
            paused=paused,
            spilling=spilling,
            held=float(whole_number(ws.nbytes)),
            lag=as_float(ws.metrics.get("event_loop_interval")),
            kernels=() if presence.gpu is None else presence.gpu.kernels,
        )

    def poll(self, at: int, read_interval_seconds: float = 0.0) -> None:
        """Compare the workers, when an interval is over, which is no shorter than that between two heartbeats read."""
        self._guard(self._poll, at, read_interval_seconds)

    def _poll(self, at: int, read_interval_seconds: float) -> None:
        last, comparing = self._watch.last, self._watch.comparing
        heartbeat = float(heartbeat_interval(len(self._scheduler.workers)))
        seconds = max(INTERVAL_SECONDS, 2 * heartbeat, read_interval_seconds)
        began = time.thread_time()

        def in_time() -> bool:
            return time.thread_time() - began < MAX_POLL_SECONDS

        self._read_some(at, seconds, in_time)
        change = self._watch.poll(at=at, now=time.time(), interval_seconds=seconds, in_time=in_time)
        if not comparing and (self._watch.comparing or self._watch.last != last):
            self._began = at
            self._waiting.follow({address: one.account for address, one in self._cluster.present.items()})
            self._unread |= self._later
            self._later.clear()
            self._done.clear()
        self._announce(self._named(change.found), self._named(change.cleared))
        if self.outliers is not None:
            self.outliers.poll(at=at, now=time.time())
        self._announce_outliers()
        # Past findings need names too.
        if len(self._names) > 2 * len(self._cluster.present) + 1_000:
            there = {*self._cluster.present, *(past.finding.worker for past in self._watch.past)}
            self._names = {address: name for address, name in self._names.items() if address in there}
            self._refused &= there

    def _announce_outliers(self) -> None:
        """Announce the beginning and the end of each outlier that is no straggler by its tasks."""
        outliers = {finding.subject: finding for finding in self._outliers}
        if not (outliers or self._announced):
            return
        by_tasks = {finding.subject for finding in self._named(self._watch.findings)}
        now = {name: one for name, one in outliers.items() if name not in by_tasks}
        found = [one for name, one in now.items() if name not in self._announced]
        cleared = [one for name, one in self._announced.items() if name not in now and name not in by_tasks]
        self._announced = now
        self._announce(tuple(found), tuple(cleared))

    def _announce(self, found: tuple[SlowWorker, ...], cleared: tuple[SlowWorker, ...]) -> None:
        for finding in found:
            logger.warning("Straggler: %s", ". ".join(as_finding(finding).lines))
            self._scheduler.log_event(STRAGGLERS_TOPIC, {"action": "straggler", **finding.to_dict()})
            self.call(finding)
        for finding in cleared:
            logger.info("No straggler any more: %s", finding.worker or finding.host)
            self._scheduler.log_event(STRAGGLERS_TOPIC, {"action": "straggler-cleared", **finding.to_dict()})

    def call(self, finding: SlowWorker | StalledWork) -> None:
        """Call the user's function, and await its coroutine on the event loop."""
        action = self._on_straggler()
        if not callable(action):
            return

        failed = partial(logger.exception, "on_straggler failed for %r", finding.subject)

        async def act(result: Any) -> None:
            try:
                await result
            except Exception:
                failed()

        try:
            result = action(self._scheduler, finding)
        except Exception:
            failed()
        else:
            if inspect.isawaitable(result):
                self._scheduler._ongoing_background_tasks.call_soon(act, result)

    def _named(self, findings: tuple[SlowWorker, ...]) -> tuple[SlowWorker, ...]:
        """Replace addresses by names, and add the causes that breakdowns show."""
        return tuple(
            replace(decided(f, self._waiting.cause(f.worker)), worker=self._names.get(f.worker, f.worker))
            if f.worker
            else f
            for f in findings
        )


#: Indices, in an account, of time in which no thread progressed.
_PAUSED_AND_SPILL = [place("activity", bucket) for bucket in (Bucket.PAUSED, Bucket.SPILL)]


def comparable(ws: WorkerState) -> tuple[Any, ...]:
    """Key of comparable workers: threads, memory limit, resources and GPU."""
    return ws.nthreads, f"{ws.memory_limit:.1e}", tuple(sorted(ws.resources.items())), gpu_model(ws)
