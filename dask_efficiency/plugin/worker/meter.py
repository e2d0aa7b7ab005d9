"""WorkerMeter: feeds a worker's ledger from Dask's hooks, and ships it with the heartbeat."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from dataclasses import replace
from time import monotonic_ns, thread_time_ns
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from distributed.core import Status

from dask_efficiency.accounts.processors import encode_processors
from dask_efficiency.accounts.wire.heartbeats import REPORT_SECONDS, HeartbeatWriter
from dask_efficiency.accounts.wire.wire import OWN_WORK, Snapshot, encode_not_measured, encode_window
from dask_efficiency.accounts.worker.balance import Outcome, Used, WindowBalance
from dask_efficiency.accounts.worker.ledger import Ledger
from dask_efficiency.plugin.names import (
    ASK_FINAL_SNAPSHOT,
    CLOCK,
    CLOSE,
    EVERYTHING,
    FINAL_SNAPSHOT,
    FLUSH,
    METRIC,
    OP,
    OPEN,
    PREFLIGHT,
    RECORD,
    SENSORS,
)
from dask_efficiency.plugin.processors import own_processors
from dask_efficiency.plugin.worker.causes import WorkerCauses
from dask_efficiency.plugin.worker.fine_metrics import BY_MEMORY_MANAGER, FineMetrics
from dask_efficiency.plugin.worker.gpu import WorkerGpu
from dask_efficiency.plugin.worker.hooks import WorkerHooks
from dask_efficiency.plugin.worker.loop_spills import LoopSpills
from dask_efficiency.plugin.worker.pending import PendingTasks
from dask_efficiency.plugin.worker.process_metrics import ProcessMetrics
from dask_efficiency.plugin.worker.process_threads import ProcessThreads
from dask_efficiency.plugin.worker.sensors.readings import WorkerSensors
from dask_efficiency.plugin.worker.threads import TaskThreads
from dask_efficiency.preflights.worker.preflight import OWN_TEST, WorkerPreflight
from dask_efficiency.runs.recording.worker.recorder import WorkerRecorder
from dask_efficiency.straggler.task_rates import RatedTask
from dask_efficiency.torch_traces.worker_profiles import Requests, TaskProfiles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from distributed import Worker

    from dask_efficiency.plugin.worker.half import WorkerHalf

logger = logging.getLogger("dask_efficiency")

#: A heartbeat repeats the last new one that is less old. A quarter less than is wanted, because they do not keep step.
REPEAT_NS = round(0.75e9 * REPORT_SECONDS)

_METERS: WeakKeyDictionary[Worker, WorkerMeter] = WeakKeyDictionary()


def attach(worker: Worker, plugin: WorkerHalf) -> WorkerMeter:
    """Meter a worker; one that this session metered a moment ago goes on with the same accounts."""
    meter = _METERS.get(worker)
    if meter is None or meter.session != plugin.session or meter.off is not None:
        meter = WorkerMeter(worker, plugin)
        _METERS[worker] = meter
    meter.attach(plugin)
    return meter


class WorkerMeter:
    """One worker's meter: the hooks, the executors' measurements, and the answers to the scheduler."""

    def __init__(self, worker: Worker, plugin: WorkerHalf) -> None:
        self.worker = worker
        self.session = plugin.session
        #: Why it measures nothing any more; None while it works.
        self.off: str | None = None
        self._state = worker.state
        self._plugin = plugin
        self._incarnation = uuid.uuid4().hex
        self._seq = 0
        self._heartbeats = HeartbeatWriter()
        at = monotonic_ns()
        self._ledger = Ledger(worker.state.nthreads, at=at, max_prefixes=plugin.max_prefixes)
        self._metrics = FineMetrics(worker.digests_total)
        #: How fast it does its tasks, to be compared with other workers; None where reading that failed.
        self._process_metrics: ProcessMetrics | None = ProcessMetrics(worker)
        #: What its host says beside that.
        self._sensors = WorkerSensors(worker)
        self._threads = TaskThreads(worker)
        #: Tests it before a job starts.
        self._preflight = WorkerPreflight(worker)
        #: What its process did beside the tasks; None where reading it failed.
        self._process: ProcessThreads | None = ProcessThreads(self._threads, lambda: self._preflight.in_threads)
        self._gpu = WorkerGpu(worker, self._threads)
        self._causes = WorkerCauses(
            worker, self._threads, lambda key: self._hooks.slots.reservation_of(key), enabled=plugin.waiting
        )
        self._spills = LoopSpills(
            worker,
            self._ledger,
            self._threads,
            lambda: self._hooks.catch_up(),
            lambda at: self._hooks.look_back(at),
            self._fail,
        )
        self._pending = PendingTasks(
            self._ledger,
            self._metrics,
            worker.state.stimulus_log,
            threads=self._threads,
            spills=self._spills,
            library=self._causes.library,
            use=self._gpu.use,
            rate=self._rate,
        )
        self._recorder: WorkerRecorder | None = None
        #: Its final snapshot, once it is made.
        self._final: dict[str, Any] | None = None
        #: Why the last recording ended early.
        self._recorder_off: str | None = None
        #: CPU time of making heartbeats.
        self._heartbeats_ns = 0
        #: What the last heartbeat carried, and when it was new; None where the next one is to be new.
        self._last_heartbeat: dict[str, Any] | None = None
        self._reported_at: int | None = None
        #: Answers that wait to be sent; heartbeats say nothing newer before them.
        self._answers = 0
        self._hooks = WorkerHooks(
            worker,
            self._ledger,
            self._pending,
            self._spills,
            self._threads,
            failed=self._fail,
            recorder_failed=self._recorder_failed,
            at=at,
        )
        for window in plugin.windows:
            self._open_window(window, at)

    # -- coming and going --------------------------------------------------------------------

    def attach(self, plugin: WorkerHalf) -> None:
        """Put the hooks in place."""
        self._plugin = plugin
        self.worker.metrics[METRIC] = self.heartbeat
        self.worker.handlers[OP] = self.handle
        self._threads.attach()
        self._spills.start()
        self._gpu.start(plugin.gpu)
        self._causes.start(enabled=plugin.waiting)
        self._sensors.start(enabled=plugin.sensors)
        self._hooks.attach(plugin)
        self._record(plugin.recording, plugin.profile)

    def detach(self) -> None:
        """Take the hooks away, and send the final snapshot of a worker that closes."""
        try:
            if self.off is None and self._closes():
                self.worker.log_event(FINAL_SNAPSHOT, self._final_snapshot())
        except Exception as error:
            self._fail(error)
        self._remove()

    def _remove(self) -> None:
        worker = self.worker
        self._preflight.close()
        self._record(None)
        self._hooks.detach()
        if worker.metrics.get(METRIC) == self.heartbeat:
            del worker.metrics[METRIC]
        if worker.handlers.get(OP) == self.handle:
            del worker.handlers[OP]
        self._gpu.stop()
        if self.off is None:
            try:  # while the watch that saw them can be asked
                self._pending.rest(at=monotonic_ns())
            except Exception as error:
                self._fail(error)
        self._causes.stop()
        self._sensors.stop()
        self._spills.stop()
        self._threads.restore()

    def _closes(self) -> bool:
        return self.worker.status not in (Status.running, Status.paused, Status.closing_gracefully)

    def _final_snapshot(self) -> dict[str, Any]:
        """The end of the accounts; the same again where they have ended already."""
        if self._final is not None:
            return self._final
        if self._recorder is not None:
            self._recorder.flush(closing=True)
        self._hooks.catch_up()
        self._gpu.stop()
        at = monotonic_ns()
        self._catch_up(at)
        self._pending.rest(at=at)
        self._ledger.finalize_all(Outcome.CANCELLED, at=at)
        windows = {}
        for window in self._ledger.windows:
            balance = self._close_window(window, at)
            if balance is not None:
                windows[window] = encode_window(balance)
        self._final = {
            "worker": self.worker.address,
            "session": self.session,
            "snapshot": self._heartbeats.everything(self._snapshot(at, final=True)),
            "windows": windows,
            **self._processors(),
        }
        return self._final

    def _fail(self, error: Exception) -> None:
        """Log once and measure nothing more; the worker goes on as if we were not there."""
        if self.off is not None:
            return
        self.off = f"the meter failed: {type(error).__name__}: {error}"[:500]
        logger.error("dask_efficiency switched its meter on %s off", self.worker.address, exc_info=error)
        self._record(None)
        self._hooks.detach()
        self._gpu.stop()
        self._causes.stop()
        self._sensors.stop()
        self._spills.stop()
        self._threads.restore()

    def _rate(self, tasks: Sequence[RatedTask]) -> None:
        """These succeeded."""
        if self._process_metrics is not None:
            try:
                self._process_metrics.counter.add(tasks)
            except Exception as error:
                self._process_metrics_failed(error)

    def _process_metrics_failed(self, error: Exception) -> None:
        """Report no more how fast its tasks are done; the accounts go on."""
        self._process_metrics = None
        logger.error("dask_efficiency no longer reports how fast %s is", self.worker.address, exc_info=error)

    # -- recording ---------------------------------------------------------------------------

    def _record(self, recording: str | None, profile: Requests | None = None) -> None:
        """Begin a recording, or end the one that goes on; ``profile`` says which tasks are profiled meanwhile."""
        former = self._recorder
        if (former.recording if former is not None else None) == recording:
            if former is not None and former.profiles is not None:
                former.profiles.ask(profile or {})
            return
        self._recorder = None
        if former is not None:
            former.stop()
        try:
            self._recorder_off = None
            if recording is not None:
                profiles = TaskProfiles(self._state.tasks, self._threads.profile)
                self._recorder = WorkerRecorder(
                    self.worker, recording, self._threads.meter.done, self._recorder_failed, profiles
                )
                profiles.ask(profile or {})
        except Exception as error:
            self._recorder_failed(error)
        self._hooks.record(self._recorder)
        self._spills.watch.on_stretch = None if self._recorder is None else self._recorder.at_disk
        self._threads.meter.recording = self._recorder is not None

    def _recorder_failed(self, error: Exception) -> None:
        """Log once and record nothing more; metering goes on."""
        reason = f"the recorder failed: {type(error).__name__}: {error}"[:500]
        logger.error("dask_efficiency switched its recorder on %s off", self.worker.address, exc_info=error)
        self._record(None)
        self._recorder_off = reason

    def _flush(self) -> dict[str, Any]:
        """Send what is recorded; gives the number of the last batch, or why there is none."""
        if self._recorder is not None:
            try:
                answer = {"seq": self._recorder.flush(running=True)}
                if self._recorder.profiles is not None and self._recorder.profiles.unwritten:
                    answer["unwritten"] = self._recorder.profiles.unwritten
                return answer
            except Exception as error:
                self._recorder_failed(error)
        return {"recorder_off": self._recorder_off or "it does not record"}

    # -- answers -----------------------------------------------------------------------------

    def heartbeat(self, worker: Worker) -> dict[str, Any]:
        """What travels with a heartbeat: totals, so that a lost one costs nothing, and one may repeat the last.

        Not a coroutine, though upstream would await it: two heartbeats at once would then mix up its
        own digests, and that closes the worker.
        """
        if self.off is None:
            try:
                began = thread_time_ns()
                at, then = monotonic_ns(), self._reported_at
                if self._last_heartbeat is not None and (
                    self._answers or self._spills.keep_back() or (then is not None and at - then < REPEAT_NS)
                ):
                    return dict(self._last_heartbeat)
                self._gpu.check()
                self._catch_up(at)
                payload = self._heartbeats.heartbeat(self._snapshot(at))
                if self._process_metrics is not None:
                    try:
                        core_wait = None if self._process is None else self._process.core_wait.all
                        payload["pace"] = self._process_metrics.encode(
                            self._threads.live(), cpu=self._threads.cpu(), core_wait=core_wait
                        )
                    except Exception as error:
                        self._process_metrics_failed(error)
                sensors = self._sensors.tell()
                if sensors:
                    payload[SENSORS] = sensors
                self._hooks.sample()
                if self._recorder is not None:
                    try:
                        self._recorder.flush()
                    except Exception as error:
                        self._recorder_failed(error)
                self._heartbeats_ns += thread_time_ns() - began
                self._last_heartbeat, self._reported_at = payload, at
                return dict(payload)
            except Exception as error:
                self._fail(error)
        return encode_not_measured(str(self.off))

    async def handle(
        self,
        action: str,
        window: str = "",
        limit: int = 300,
        profile: Requests | None = None,
        preflight: Mapping[str, Any] | None = None,
        delay: float = 0.0,
    ) -> dict[str, Any]:
        """Answer the scheduler, with profiles of at most ``limit`` rows; ``delay`` seconds after what it tells of.

        ``snapshot``, or ``open`` or ``close`` a window at this instant; ``clock``; ``record``, where the
        window is the recording or nothing and ``profile`` which tasks are profiled in it, and ``flush`` what was
        recorded; ``everything`` in the next heartbeats; ``last-words`` of a worker that closes; ``preflight``, a step
        of a test.
        """
        if action == PREFLIGHT:
            return await self._preflight.handle(preflight or {})
        if action == CLOCK:
            return {"at": monotonic_ns(), "wall": time.time_ns() - monotonic_ns()}
        if action == RECORD:
            if self.off is None:
                self._record(window or None, profile)
            return {}
        if action == FLUSH:
            if self._recorder is not None and self._recorder.profiles is not None:
                await self._recorder.profiles.catch_up()
            return self._flush()
        if action == EVERYTHING:
            self._reported_at = None
            self._heartbeats.begin_anew()
            if self._process_metrics is not None:
                self._process_metrics.begin_anew()
            return {}
        if self.off is None:
            try:
                if action == ASK_FINAL_SNAPSHOT:
                    return self._final_snapshot() if self._closes() else {}
                self._hooks.catch_up()
                await self._gpu.catch_up()
                at = monotonic_ns()
                self._catch_up(at)
                answer: dict[str, Any] = {
                    "snapshot": self._heartbeats.everything(self._snapshot(at)),
                    **self._processors(),
                }
                if action == OPEN:
                    self._open_window(window, at)
                elif action == CLOSE:
                    balance = self._close_window(window, at)
                    if balance is not None:
                        answer["window"] = encode_window(balance, limit=limit)
                if delay > 0:
                    self._answers += 1
                    try:
                        await asyncio.sleep(delay)
                    finally:
                        self._answers -= 1
                return answer
            except Exception as error:
                self._fail(error)
        return {"snapshot": encode_not_measured(str(self.off))}

    def _processors(self) -> dict[str, Any]:
        """What this worker may use of its host, under its name in an answer; nothing where nobody can tell."""
        try:
            return {"processors": encode_processors(own_processors())}
        except Exception:  # a bound of the ideal runtime is missing then, and no figure is wrong
            logger.exception("dask_efficiency cannot tell which processors %s may use", self.worker.address)
            return {}

    def _open_window(self, window: str, at: int) -> None:
        self._ledger.open_window(window, at=at)
        self._causes.open_window(window, self._pending.overhead)
        self._pending.sizes.open_window(window)

    def _close_window(self, window: str, at: int) -> WindowBalance | None:
        balance = self._ledger.close_window(window, at=at)
        skew = self._pending.sizes.close_window(window)
        if balance is None:
            return None
        balance = self._causes.close_window(window, balance, self._pending.overhead)
        return replace(balance, details=replace(balance.details, skew=skew))

    def _catch_up(self, at: int) -> None:
        """Bring the ledger up to now; called between stimuli, so that all fine metrics have arrived."""
        self._causes.catch_up()
        self._hooks.catch_up()
        self._pending.all(at=at)
        self._hooks.look_back(at)
        self._hooks.observe(at)

    def _snapshot(self, at: int, *, final: bool = False) -> Snapshot:
        self._seq += 1
        outside = self._metrics.outside()
        seceded = self._hooks.slots.seceded_ns(at)
        if self._spills.unnoticed is not None:
            outside[BY_MEMORY_MANAGER] = self._spills.unnoticed
        if seceded:
            outside["seceded tasks"] = seceded
        if self._threads.actors:
            outside["actor methods"] = self._threads.actors
        if self._preflight.spent:
            outside[OWN_TEST] = self._preflight.spent
        if self._heartbeats_ns:
            outside[OWN_WORK] = self._heartbeats_ns + self._hooks.cost.spent + self._causes.spent + self._sensors.spent
        details = self._metrics.details() | self._pending.details
        if self._process is not None:
            try:
                self._process.read()
                if self._causes.not_sampled:  # else it is a cause
                    details.update(self._process.details)
                outside.update(self._process.outside)
            except Exception as error:
                self._process = None
                logger.error("dask_efficiency no longer reports what %s waits for", self.worker.address, exc_info=error)
        if self._threads.not_measured:
            details["thread-noncpu: CPU not measured"] = self._threads.not_measured
        held, spilled = self._ledger.held, self._spills.watch.between
        used = self._threads.so_far(held, spilled, self._causes.library_so_far) | self._pending.used_so_far()
        used.update(
            (task.reservation, Used(*task.used))
            for task in self._hooks.slots.seceded()
            if task.reservation and task.used
        )
        balance = self._ledger.balance(at=at, used=used)
        gpu = self._gpu.totals(unknown_tasks=self._pending.unknown)
        causes = self._causes.of_snapshot(balance, self._pending.overhead)
        return Snapshot(self._incarnation, self._seq, balance, outside, details, final, gpu, causes)
