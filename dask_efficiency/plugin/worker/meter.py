"""WorkerMeter: feeds a worker's ledger from Dask's hooks, and sends it with the heartbeat."""

from __future__ import annotations

import asyncio
import sys
import time
import uuid
from dataclasses import replace
from functools import partial
from time import monotonic_ns, thread_time_ns
from typing import Any, Protocol
from weakref import WeakKeyDictionary

from distributed import Worker, __version__
from distributed.core import Status

from dask_efficiency.accounts.checks import amount, text, whole
from dask_efficiency.accounts.intake import fitting
from dask_efficiency.accounts.memory import LEVELS
from dask_efficiency.accounts.processors import USED, ProcessorTime, encode_processors
from dask_efficiency.accounts.rows import MAX_NAMED
from dask_efficiency.accounts.wire.heartbeats import REPORT_SECONDS, HeartbeatWriter
from dask_efficiency.accounts.wire.snapshots import OWN_WORK, Snapshot, encode_not_measured
from dask_efficiency.accounts.worker.answer import WindowAnswer, encode_answer
from dask_efficiency.accounts.worker.balance import Balance, Outcome, Used
from dask_efficiency.accounts.worker.ledger import Ledger
from dask_efficiency.accounts.worker.log import Entry
from dask_efficiency.accounts.worker.slots import Slots
from dask_efficiency.plugin import names, plain
from dask_efficiency.plugin.guard import Guard
from dask_efficiency.plugin.message_contents import telling_receivers
from dask_efficiency.plugin.messages import MESSAGES_HERE
from dask_efficiency.plugin.parts import Parts, WorkerPart
from dask_efficiency.plugin.patches import GET_DATA, Replacements, stays_off
from dask_efficiency.plugin.processors import oom_counter, oom_kills, own_processors, own_time
from dask_efficiency.plugin.version import check_distributed
from dask_efficiency.plugin.worker.aside import AsideThread
from dask_efficiency.plugin.worker.fine_metrics import (
    BY_MEMORY_MANAGER,
    FineMetrics,
    OutsideMetrics,
    ShuffleWatch,
    SpillMetrics,
    left_out,
)
from dask_efficiency.plugin.worker.gpu import WorkerGpu
from dask_efficiency.plugin.worker.hooks import WorkerHooks
from dask_efficiency.plugin.worker.memory import MemoryMeter
from dask_efficiency.plugin.worker.pending import PendingTasks
from dask_efficiency.plugin.worker.process_metrics import ProcessMetrics, ProcessThreads
from dask_efficiency.plugin.worker.sensors.readings import WorkerSensors
from dask_efficiency.plugin.worker.spill_watch import KeptBack, SpillWatch, spill_noter
from dask_efficiency.plugin.worker.thread_looks import ThreadLooks
from dask_efficiency.plugin.worker.threads import TaskThreads
from dask_efficiency.plugin.worker.window_details import MeteredWindows
from dask_efficiency.plugin.worker.worker_causes import WorkerCauses
from dask_efficiency.show.log import logger

check_distributed(__version__)

#: Age, nanoseconds, below which the last new heartbeat is repeated: three quarters of the interval between reports, as
#: heartbeats are not in step with it.
REPEAT_NS = round(0.75e9 * REPORT_SECONDS)
#: Nanoseconds between two readings of the processors' time, of which the kernel writes a line for each: as far apart as
#: the points of the scheduler's history.
PROCESSORS_NS = 5_000_000_000

_METERS: WeakKeyDictionary[Worker, WorkerMeter] = WeakKeyDictionary()


class WorkerHalf(Protocol):
    """Attributes of :class:`~dask_efficiency.plugin.bootstrap.EfficiencyWorkerPlugin`, which travels by value."""

    session: str
    max_prefixes: int
    windows: list[str]
    recording: str | None
    #: Tasks to profile in the recording: number of each prefix, by who asked for them.
    profile: dict[str, dict[str, int]]
    gpu: str
    waiting: bool
    sensors: bool

    def transition(self, key: Any, start: Any, finish: Any, **kwargs: Any) -> None:
        """Dask's hook; the meter may replace it on the instance."""


def attach(worker: Worker, plugin: WorkerHalf) -> WorkerMeter:
    """Meter a worker; a worker that this session metered before goes on with the same accounts."""
    meter = _METERS.get(worker)
    if meter is None or meter.session != plugin.session or meter.off is not None:
        meter = WorkerMeter(worker, plugin)
        _METERS[worker] = meter
    meter.attach(plugin)
    return meter


def stop(worker: Worker, incarnation: str) -> None:
    """Stop a meter that failed, unless another has taken its place; the worker goes on."""
    meter = _METERS.get(worker)
    if meter is not None and meter.incarnation == incarnation:
        meter.stop_measuring()


class WorkerMeter:
    """One worker's meter: the hooks, the executors' measurements, and the answers to the scheduler."""

    def __init__(self, worker: Worker, plugin: WorkerHalf) -> None:
        self.worker = worker
        self.session = plugin.session
        address = worker.address
        self.incarnation = uuid.uuid4().hex
        off = f"dask_efficiency switched its meter on {address} off"
        self._guard = Guard("the meter", off, partial(stop, worker, self.incarnation))
        self._rates_guard = Guard("its task rates", f"dask_efficiency no longer reports how fast {address} is")
        self._threads_guard = Guard("its threads", f"dask_efficiency no longer reports what {address} waits for")
        self._labels_guard = Guard("its labels", f"dask_efficiency no longer reports what labels count on {address}")
        self._parts: Parts[WorkerPart] = Parts("worker", self)
        #: Recording under way when its half arrived, and the tasks to profile in it.
        self.asked_to_record = plugin.recording, plugin.profile
        self._seq = 0
        self._heartbeats = HeartbeatWriter()
        self._heartbeats_ns = 0
        #: Payload of the last heartbeat, and the instant at which it was new; None to make the next one new.
        self._last_heartbeat: dict[str, Any] | None = None
        self._reported_at: int | None = None
        self._processors_guard = Guard(
            "its processors", f"dask_efficiency no longer reports who uses the cores of {address}"
        )
        self._processor_time: ProcessorTime | None = None
        self._processors_due = 0
        #: Accounts of the last snapshot, of a heartbeat or an answer.
        self.reported: Balance | None = None
        self._final: dict[str, Any] | None = None
        #: What is known about users' labels that counted what is no number.
        self._left_out: dict[str, None] = {}
        #: CPU nanoseconds in tasks, as known last.
        self._tasks_cpu = 0
        #: Answers that wait to be sent; heartbeats report nothing newer before them.
        self._answers = 0
        at = monotonic_ns()
        self._ledger = Ledger(worker.state.nthreads, at=at, max_prefixes=plugin.max_prefixes)
        self._assemble(worker, plugin, at)
        for window in plugin.windows:
            self._open_window(window, at)

    def _assemble(self, worker: Worker, plugin: WorkerHalf, at: int) -> None:
        """Make everything that measures, and connect it with the ledger."""
        digests = worker.digests_total
        self._metrics, self._outside = FineMetrics(digests), OutsideMetrics(digests)
        self._spilling = SpillMetrics(digests)
        self._process_metrics = counted = ProcessMetrics(worker)
        self._sensors = WorkerSensors(worker)
        self.oom_counter = oom_counter()
        self.threads = TaskThreads(worker)
        self._looks = ThreadLooks(worker, self.threads)
        self._aside: AsideThread | None = None
        parts = self._parts
        self._process = ProcessThreads(self.threads, lambda: sum(part.in_threads for part in parts))
        self._gpu = WorkerGpu(worker, self.threads)
        self._causes = WorkerCauses(worker, self.threads)
        log: list[Entry] = []
        self._memory = memory = MemoryMeter(worker, self.threads)
        self.spills = SpillWatch(worker.data, spill_noter(log, worker, self.threads, self._guard.fail), memory.swapped)
        self._shuffles = ShuffleWatch(worker)
        self._receivers, self._of_messages = Replacements(), object()
        self._kept_back = KeptBack()
        self._slots = Slots(self._ledger, (ts.key for ts in worker.state.long_running))
        self._pending = PendingTasks(
            self._ledger,
            self._spilling,
            threads=self.threads,
            spills=self.spills,
            library=self._causes.library,
            use=self._gpu.use,
            rate=partial(self._rates_guard, counted.counter.add),
        )
        of_messages = self._of_messages
        self._metered = MeteredWindows(
            *(self._metrics.gained, self._shuffles.metered, self._pending.made, counted.transfers),
            self.spills.moved,
            beside=lambda: MESSAGES_HERE.metered(of_messages),
        )
        self.hooks = WorkerHooks(
            *(worker, self._slots, self._pending, self.spills, self.threads, log, memory.results),
            results_failed=memory.guard.fail,
            failed=self._guard.fail,
            at=at,
        )

    @property
    def off(self) -> str | None:
        """Reason why it measures nothing any more; None while it works."""
        return self._guard.off

    def attach(self, plugin: WorkerHalf) -> None:
        """Put the hooks in place, once all parts that it begins with are there."""
        self.asked_to_record = plugin.recording, plugin.profile
        if plugin.recording is not None:
            self._parts.load("recorder")
        if sys.modules.get("prometheus_client"):  # Dask serves metrics; else nobody should load it here
            self._parts.load("exports")
        self.worker.metrics[names.METRIC] = self.heartbeat
        self.worker.handlers[names.OP] = self.handle
        self.threads.attach()
        self.spills.start()
        self._shuffles.start()
        MESSAGES_HERE.start(self._of_messages)
        self._receivers.put(GET_DATA, self.worker, telling_receivers)
        self._gpu.start(plugin.gpu)
        self._causes.start(enabled=plugin.waiting)
        self._sensors.start(enabled=plugin.sensors)
        if self._aside is None:
            self._aside = AsideThread(self.worker, self._looks.look)
            self._aside.start()
        self._memory.start(self.spills)
        self.hooks.attach(plugin)
        self._parts.each("start")

    def detach(self) -> None:
        """Take the hooks away, and send the final snapshot of a worker that closes."""
        worker = self.worker
        if self._closes():
            self._guard(lambda: worker.log_event(names.FINAL_SNAPSHOT, self._final_snapshot()))
        if worker.metrics.get(names.METRIC) == self.heartbeat:
            del worker.metrics[names.METRIC]
        if worker.handlers.get(names.OP) == self.handle:
            del worker.handlers[names.OP]
        if self._aside is not None:
            self._aside.stop()
            self._aside = None
        self.stop_measuring()

    def stop_measuring(self) -> None:
        """Measure nothing more; after a failure, tasks that ended are not finalized."""
        self._parts.stop()
        self.hooks.detach()
        self._memory.stop()
        self._gpu.stop()
        self._guard(self._finalize_rest)  # while the watch of the GPUs can be asked
        self._causes.stop()
        self._sensors.stop()
        self.spills.stop()
        self._shuffles.stop()
        self._receivers.put_back()
        MESSAGES_HERE.stop(self._of_messages)
        self.threads.detach()

    def _closes(self) -> bool:
        return self.worker.status not in (Status.running, Status.paused, Status.closing_gracefully)

    def _final_snapshot(self) -> dict[str, Any]:
        """Final snapshot; made once."""
        if self._final is not None:
            return self._final
        self._parts.each("closing")
        self.hooks.catch_up()
        self._gpu.stop()
        at = monotonic_ns()
        self._catch_up(at)
        self._finalize_rest()
        self._ledger.finalize_all(Outcome.CANCELLED, at=at)
        windows = {}
        for window in self._ledger.windows:
            balance = self._close_window(window, at)
            if balance is not None:
                windows[window] = encode_answer(balance)
        self._final = {
            "worker": self.worker.address,
            "session": self.session,
            "snapshot": self._heartbeats.everything(self._snapshot(at, final=True)),
            "windows": windows,
            **self._process_facts(),
        }
        return self._final

    def heartbeat(self, worker: Worker) -> dict[str, Any]:
        """Payload of a heartbeat: totals, so that a lost one costs nothing, and one may repeat the last.

        Not a coroutine, though upstream would await it: two concurrent heartbeats would mix up upstream's digests, and
        that closes the worker.
        """
        payload: dict[str, Any] | None = self._guard(self._heartbeat)
        return encode_not_measured(str(self.off)) if payload is None else payload

    def _heartbeat(self) -> dict[str, Any]:
        began = thread_time_ns()
        at, then = monotonic_ns(), self._reported_at
        if self._last_heartbeat is not None and (
            self._answers or (then is not None and at - then < REPEAT_NS) or self._keep_back()
        ):
            return dict(self._last_heartbeat)
        self._shuffles.start()
        self._catch_up(at)
        payload = self._heartbeats.heartbeat(self._snapshot(at))
        rates = self._rates_guard(self._task_rates)
        if rates is not None:
            payload["pace"] = rates
        sensors = self._sensors.latest()
        if sensors:
            payload[names.SENSORS] = sensors
        payload[LEVELS] = self._memory.guard(self._memory.levels)
        if (used := self._used(at)) is not None:
            payload[USED] = used
        if self.oom_counter is not None:
            payload[names.OOM_KILLS] = fitting(self.oom_counter, names.MAX_PATH), oom_kills(self.oom_counter)
        self.hooks.sample()
        self._parts.each("heartbeat")
        self._heartbeats_ns += thread_time_ns() - began
        self._last_heartbeat, self._reported_at = payload, at
        return dict(payload)

    def _used(self, at: int) -> ProcessorTime | None:
        """Time of the processors that this worker may use, a little while ago: the kernel writes a line for each."""
        if at >= self._processors_due:
            self._processors_due = at + PROCESSORS_NS
            self._processor_time = self._processors_guard(own_time)
        return self._processor_time

    def _keep_back(self) -> bool:
        if not self.spills.watching:
            return False
        self.hooks.catch_up()
        return self._kept_back.is_due(self.spills.last, undecided=bool(self._ledger.undecided))

    def _task_rates(self) -> dict[str, Any]:
        core_wait = None if self._threads_guard.off is not None else self._process.core_wait
        cpu = self.threads.cpu()
        self._tasks_cpu = self._tasks_cpu if cpu is None else cpu
        return self._process_metrics.encode(self.threads.live_used(), cpu=self._tasks_cpu, core_wait=core_wait)

    async def handle(
        self, action: str, window: str = "", limit: int = 300, delay: float = 0.0, **asked: Any
    ) -> dict[str, Any]:
        """Answer the scheduler, with profiles of at most ``limit`` rows, ``delay`` seconds after the snapshot.

        Actions: ``snapshot``; ``open`` or ``close`` a window now; ``clock``; ``everything`` in the next heartbeats;
        ``last-words`` of a worker that closes. Parts answer other actions. A question that is malformed is an error of
        whoever asked: RefusedPayload.
        """
        asked, *_ = plain.taken((asked, window, limit, delay))
        text("action", action)
        text("window", window)
        whole("limit", limit)
        amount("delay", delay, names.MAX_DELAY_SECONDS)
        if action == names.CLOCK:
            return {"at": monotonic_ns(), "wall": time.time_ns() - monotonic_ns()}
        if action == names.STACKS:
            return await asyncio.to_thread(self._looks.look, asked)
        if action == names.EVERYTHING:
            self._reported_at = None
            self._heartbeats.begin_anew()
            self._rates_guard(self._process_metrics.writer.begin_anew)
            return {}
        if action not in (names.SNAPSHOT, names.OPEN, names.CLOSE, names.ASK_FINAL_SNAPSHOT):
            part = self._parts.answering(action) if self.off is None else None
            return {} if part is None else await part.answer(action, {**asked, "window": window})
        if self.off is None:
            try:
                if action == names.ASK_FINAL_SNAPSHOT:
                    return self._final_snapshot() if self._closes() else {}
                self.hooks.catch_up()
                await self._gpu.catch_up()
                at = monotonic_ns()
                self._catch_up(at)
                answer: dict[str, Any] = {
                    "snapshot": self._heartbeats.everything(self._snapshot(at)),
                    **self._process_facts(),
                }
                if action == names.OPEN:
                    self._open_window(window, at)
                elif action == names.CLOSE:
                    balance = self._close_window(window, at)
                    if balance is not None:
                        answer["window"] = encode_answer(balance, limit=limit)
                if delay > 0:
                    self._answers += 1
                    try:
                        await asyncio.sleep(delay)
                    finally:
                        self._answers -= 1
                return answer
            except Exception as error:
                self._guard.fail(error)
        return {"snapshot": encode_not_measured(str(self.off))}

    def _process_facts(self) -> dict[str, Any]:
        """Processors that this worker may use, if known, and losses where upstream differs."""
        known: dict[str, Any] = {}
        try:
            known["processors"] = encode_processors(own_processors())
        except Exception:  # then a bound of the ideal runtime is missing, and no figure is wrong
            logger.exception("dask_efficiency cannot find out which processors %s may use", self.worker.address)
        if off := stays_off():
            known[names.STAYS_OFF] = off
        if self._left_out:
            known[names.LEFT_OUT] = list(self._left_out)
        return known

    def _note_left_out(self) -> None:
        """Log labels that counted what is no number, each once."""
        for what in left_out(self._metrics, self._outside, self._spilling, self._process_metrics.disk):
            if what not in self._left_out and len(self._left_out) < MAX_NAMED:
                self._left_out[what] = None
                logger.warning("dask_efficiency: %s", what)

    def _open_window(self, window: str, at: int) -> None:
        self._ledger.open_window(window, at=at)
        self._causes.open_window(window, self._pending.overhead)
        self._pending.sizes.open_window(window)
        self._labels_guard(self._metered.open_window, window)
        self._memory.guard(self._memory.open_window, window, at)

    def _close_window(self, window: str, at: int) -> WindowAnswer | None:
        balance = self._ledger.close_window(window, at=at)
        skew = self._pending.sizes.close_window(window)
        metered = self._labels_guard(self._metered.close_window, window) or {}
        metered |= self._labels_guard(self._causes.files.close_window, window) or {}
        metered |= self._memory.guard(self._memory.close_window, window, at) or {}
        if balance is None:
            return None
        answer = self._causes.close_window(window, balance, self._pending.overhead, metered)
        return replace(answer, details=replace(answer.details, skew=skew))

    def _catch_up(self, at: int) -> None:
        """Bring the ledger up to now; called between stimuli, when all fine metrics have arrived."""
        self._causes.catch_up()
        self.hooks.look_back(at)
        self.hooks.observe(at)
        self.hooks.catch_up(report=True)

    def _finalize_rest(self) -> None:
        """Finalize every ended task, with the GPU use that is known."""
        self.hooks.catch_up()
        self._pending.finalize_waiting(monotonic_ns())

    def _snapshot(self, at: int, *, final: bool = False) -> Snapshot:
        self._seq += 1
        outside: dict[str, int] = self._labels_guard(self._outside.gained) or {}
        seceded = self._slots.seceded_ns(at)
        if self.spills.watching:
            outside[BY_MEMORY_MANAGER] = self._slots.unnoticed
        if seceded:
            outside["seceded tasks"] = seceded
        if in_methods := self.threads.in_methods:
            outside["actor methods"] = in_methods
        for part in self._parts:
            outside.update(part.outside())
        if self._heartbeats_ns:
            outside[OWN_WORK] = self._heartbeats_ns + self.hooks.cost.spent + self._causes.spent + self._sensors.spent
        details: dict[str, int] = (self._labels_guard(self._metrics.details) or {}) | self._pending.details
        self._threads_guard(self._process.read)
        if self._threads_guard.off is None:
            if self._causes.not_sampled:  # else it is a cause
                details.update(self._process.details)
            outside.update(self._process.outside)
        if self.threads.not_measured:
            details["thread-noncpu: CPU not measured"] = self.threads.not_measured
        held, spilled = self._ledger.held, self.spills.between
        used = self.threads.so_far(held, spilled, self._causes.library_so_far) | self._pending.used_so_far()
        used.update(
            (task.reservation, Used(*task.used)) for task in self._slots.seceded() if task.reservation and task.used
        )
        self.reported = balance = self._ledger.balance(at=at, used=used)
        gpu = self._gpu.totals(unknown_tasks=self._pending.unknown)
        causes = self._causes.of_snapshot(balance, self._pending.overhead)
        amounts = self._labels_guard(self._metered.amounts) or {}
        self._labels_guard(self._note_left_out)
        return Snapshot(self.incarnation, self._seq, balance, outside, details, final, gpu, causes, amounts)
