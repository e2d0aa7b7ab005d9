"""Scheduler, worker of one thread and client in one process, in the ways whose costs are compared with one another.

Everything is equal but the :class:`Mode`. There is one heartbeat, and one poll of the scheduler's meter, for every
half second's worth of tasks, and ten looks at idle slots meanwhile, whatever the machine's speed; of the heartbeats
every other one tells anything new, and every fifth poll compares workers and every fifth heartbeat has Python collect
all garbage. That is how often it does so by itself, in each mode, with tasks that do nothing; but one more or less in a
run makes one per cent. Other timers of the event loop follow a clock
that can be slowed down for a program under valgrind.
"""

from __future__ import annotations

import asyncio
import gc
import selectors
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

#: Dask's own monitors, slowed to minutes or off: they go by the clock, and are the same in every mode.
QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "60s",
    "distributed.admin.system-monitor.interval": "60s",
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.worker.memory.monitor-interval": "60s",
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.scheduler.work-stealing": False,
    "distributed.diagnostics.nvml": False,
    "distributed.client.scheduler-info-interval": "600s",
    "distributed.client.heartbeat": "600s",
}

#: Between two heartbeats of a worker, as Dask has it for a small cluster.
HEARTBEAT_SECONDS = 0.5

#: Looks at idle slots between two heartbeats: one every 50 ms.
LOOKS_OF_A_BEAT = 10

#: Heartbeats of which one is new, and polls of which one compares workers: once a second, and every 2.5 s.
BEATS_OF_A_REPORT = 2
BEATS_OF_A_COMPARISON = 5

#: Heartbeats of which one collects all garbage: it took eleven collections in 12,000 tasks with the plugin and without.
BEATS_OF_A_COLLECTION = 5

#: Seconds.
NEVER = 1_000_000

#: The page is brought up to date at each heartbeat of this number: every two seconds.
BEATS_OF_AN_UPDATE = 4


def _array(i: int) -> float:
    import numpy as np

    return float(np.sort(np.random.default_rng(i).random(105_000)).sum())


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a task, and the number of tasks between two heartbeats."""

    task: Callable[[int], Any]
    batch: int


WORK = {
    "no-op": Work(abs, 200),
    "array": Work(_array, 50),
}


@dataclass(frozen=True, slots=True)
class Mode:
    title: str
    #: Options of the plugin; None where it is not registered.
    options: dict[str, Any] | None = None
    stragglers: bool = True
    gpu: bool = False
    page: bool = False
    #: Makes, for a client, what surrounds the computation.
    around: Callable[[Any], AbstractAsyncContextManager[Any]] = lambda client: nullcontext()
    #: Beside :data:`QUIET`.
    config: dict[str, Any] = field(default_factory=dict)
    #: True if upstream's spans and fine performance metrics are there; it has no switch for them.
    fine_metrics: bool = True
    #: Why its instructions cannot be counted.
    not_counted: str = ""


def _performance_report(client: Any) -> AbstractAsyncContextManager[Any]:
    from distributed import performance_report

    return performance_report(tempfile.mkdtemp() + "/report.html")  # type: ignore[return-value]


def _task_stream(client: Any) -> AbstractAsyncContextManager[Any]:
    from distributed import get_task_stream

    return get_task_stream(client)  # type: ignore[return-value]


def _efficiency_report(client: Any) -> AbstractAsyncContextManager[Any]:
    from dask_efficiency import efficiency_report

    return efficiency_report(tempfile.mkdtemp() + "/report.html", client=client)


@asynccontextmanager
async def _pyspy(client: Any) -> AsyncIterator[None]:
    from dask_pyspy.pyspy import PySpyer

    # What its context manager runs on the scheduler, which is here; the manager itself is for synchronous clients.
    spy = PySpyer()
    await spy.start()
    yield
    await spy.get_profile()


#: By the names on the command line, in the order of the table.
MODES = {
    "off": Mode("Dask alone"),
    "no-waiting": Mode("metering, without sampling why threads wait", {"waiting": False}),
    "no-stragglers": Mode("metering, without the straggler watch", {}, stragglers=False),
    "on": Mode("metering (the default)", {}),
    "trace": Mode("metering + trace", {"trace": True}),
    "gpu": Mode("metering + a GPU (stand-in)", {}, gpu=True),
    "page": Mode("metering + an open dashboard page", {}, page=True),
    "report": Mode("`efficiency_report`", None, around=_efficiency_report),
    "all": Mode("everything on", {"trace": True}, gpu=True, page=True, around=_efficiency_report),
    "no-fine-metrics": Mode("Dask without its spans and fine performance metrics (patched)", fine_metrics=False),
    "task-stream": Mode("`get_task_stream`", around=_task_stream),
    "performance-report": Mode("`performance_report`", around=_performance_report),
    "profiler": Mode(
        "Dask's profiler of tasks (its default)",
        config={"distributed.worker.profile.enabled": True},
        not_counted="by the clock",
    ),
    "pyspy": Mode("dask-pyspy", around=_pyspy, not_counted="a process of its own"),
}


class _SlowSelector(selectors.DefaultSelector):
    def __init__(self, slowness: float) -> None:
        super().__init__()
        self._slowness = slowness

    def select(self, timeout: float | None = None) -> Any:
        return super().select(timeout * self._slowness if timeout is not None and timeout > 0 else timeout)


class SlowLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock goes slower by a factor: its timers keep step with a program that is slowed down.

    What is given as a delay goes by it, so periodic callbacks and batches of messages do, too.
    """

    def __init__(self, slowness: float) -> None:
        self._slowness = slowness
        super().__init__(_SlowSelector(slowness))

    def time(self) -> float:
        return super().time() / self._slowness


class Session:
    """A cluster in this process, in one mode."""

    def __init__(self, mode: Mode, work: Work, scheduler: Any, worker: Any, client: Any) -> None:
        self.scheduler = scheduler
        self._mode = mode
        self._work = work
        self._worker = worker
        self._client = client
        self._beats = self._finished = 0
        finished = scheduler.stream_handlers["task-finished"]
        scheduler.stream_handlers["task-finished"] = partial(self._count_finished, finished)
        #: What brings an open page up to date.
        self.update_page: Callable[[], None] | None = None

    @property
    def _meter(self) -> Any:
        from dask_efficiency import EfficiencyPlugin

        plugin = self.scheduler.plugins.get(EfficiencyPlugin.name)
        return plugin._meter if plugin is not None else None

    async def compute(self, tasks: int) -> None:
        """Compute tasks, surrounded by what the mode has around them."""
        async with self._mode.around(self._client):
            for first in range(0, tasks, self._work.batch):
                numbers = range(first, min(tasks, first + self._work.batch))
                futures = self._client.map(self._work.task, numbers, pure=False)
                await self._client.gather(futures)
                del futures
                await self._beat()

    def _count_finished(self, handler: Callable[..., None], **message: Any) -> None:
        """Handle what a worker says of a finished task; the scheduler's state is looked at in between."""
        handler(**message)
        self._finished += 1
        if not self._finished % (self._work.batch // LOOKS_OF_A_BEAT):
            meter = self._meter
            if meter is not None:
                meter.accounts.idle.sample()

    async def _beat(self) -> None:
        """Do what there is to do once in :data:`HEARTBEAT_SECONDS`."""
        set_timers(self._beats)
        await self._worker.heartbeat()
        meter = self._meter
        if meter is not None:
            meter._poll()
        self._beats += 1
        if not self._beats % BEATS_OF_A_COLLECTION:
            gc.collect()
        if self.update_page is not None and not self._beats % BEATS_OF_AN_UPDATE:
            self.update_page()


def set_timers(beat: int) -> None:
    """Have the plugin's timers that go by the clock find what is due at the heartbeat of this number."""
    from dask_efficiency.plugin.scheduler import straggler_watch
    from dask_efficiency.plugin.worker import meter

    meter.REPEAT_NS = NEVER * 10**9 if beat % BEATS_OF_A_REPORT else 0
    straggler_watch.INTERVAL_SECONDS = NEVER if beat % BEATS_OF_A_COMPARISON else 0


@asynccontextmanager
async def session(mode: Mode, work: Work, slowness: float = 1.0) -> AsyncIterator[Session]:
    """Start a cluster in this process, once: some of what a mode asks for stays until the process ends."""
    import dask
    import distributed.scheduler
    from distributed import Client, Scheduler, Worker

    from dask_efficiency import EfficiencyPlugin
    from dask_efficiency.plugin import messages
    from dask_efficiency.plugin.bootstrap import EfficiencyWorkerPlugin
    from dask_efficiency.plugin.scheduler import idle_watch, loop_meter, straggler_watch
    from dask_efficiency.plugin.scheduler import meter as scheduler_meter
    from dask_efficiency.plugin.worker import aside, hooks, pending, threads
    from dask_efficiency.plugin.worker.sensors import readings

    dask.config.set(QUIET | mode.config)
    gc.set_threshold(*gc.get_threshold()[:2], NEVER)
    distributed.scheduler.heartbeat_interval = lambda workers: 600  # beats come by hand
    scheduler_meter.POLL_MS = 3_600_000  # and so do polls,
    idle_watch.INTERVAL_MS = 3_600_000.0  # and looks
    # A task that does nothing is too short to tell how fast a worker is, however slow the program.
    pending.MIN_RATED_NS = hooks.MIN_RATED_NS = round(pending.MIN_RATED_NS * slowness)
    threads.MIN_TASK_NS = round(threads.MIN_TASK_NS * slowness)  # nor is its memory measured
    # Messages count as short ones, and threads look at them, as at full speed.
    messages.MIN_NS, messages.LONG_NS = round(messages.MIN_NS * slowness), round(messages.LONG_NS * slowness)
    loop_meter.LOOK_NS, loop_meter.HOOK_NS = round(loop_meter.LOOK_NS * slowness), round(loop_meter.HOOK_NS * slowness)
    loop_meter.INTERVAL_SECONDS *= slowness
    aside.PERIOD_SECONDS *= slowness
    straggler_watch.heartbeat_interval = lambda workers: 0  # and comparisons,
    readings.READING_SECONDS = 0  # and readings of sensors: at each new heartbeat
    # What a poll may take before it is cut off.
    scheduler_meter.MAX_POLL_SECONDS *= slowness
    straggler_watch.MAX_POLL_SECONDS *= slowness
    readings.MAX_SHARE *= slowness
    if not mode.fine_metrics:
        _without_fine_metrics()
    if mode.gpu:
        _gpu(slowness)
    async with AsyncExitStack() as stack:
        scheduler = await stack.enter_async_context(
            Scheduler(dashboard_address="127.0.0.1:0", port=0, host="127.0.0.1")
        )
        worker = await stack.enter_async_context(
            Worker(scheduler.address, nthreads=1, dashboard_address="127.0.0.1:0", host="127.0.0.1")
        )
        client = await stack.enter_async_context(Client(scheduler.address, asynchronous=True))
        here = Session(mode, work, scheduler, worker, client)
        if mode.options is not None:
            # Points of the history are as far apart as at full speed.
            await client.register_plugin(EfficiencyPlugin(history_interval=5 * slowness, **mode.options))
            meter = worker.plugins[EfficiencyWorkerPlugin.name].meter
            if not mode.stragglers:
                _without_stragglers(meter)
            if mode.gpu:
                await _armed()
        if mode.page:
            here.update_page = _page(scheduler)
        yield here


def run(work: Callable[[], Any], slowness: float = 1.0) -> None:
    """Run a coroutine on an event loop whose clock goes slower by a factor."""
    from tornado.ioloop import PeriodicCallback

    if slowness != 1:
        # Deadlines are by the system's clock, and what is left until them by the loop's: a periodic callback, which
        # keeps to multiples of its interval by the former, would come up to twice too often.
        PeriodicCallback._update_next = _one_interval_later  # type: ignore[method-assign]
    with asyncio.Runner(loop_factory=partial(SlowLoop, slowness)) as runner:
        runner.run(work())


def _one_interval_later(callback: Any, now: float) -> None:
    """When a periodic callback is due next."""
    callback._next_timeout = now + callback.callback_time / 1000


def _without_fine_metrics() -> None:
    """Take upstream's spans and fine performance metrics out, by hand: it has no switch for them."""
    import distributed.metrics
    import distributed.scheduler
    import distributed.worker
    from distributed.metrics import ContextMeter, DelayedMetricsLedger

    del distributed.scheduler.DEFAULT_EXTENSIONS["spans"], distributed.worker.DEFAULT_EXTENSIONS["spans"]
    plain = distributed.metrics.meter
    ContextMeter.digest_metric = lambda self, label, value, unit: None
    ContextMeter.add_callback = lambda self, callback, **kwargs: nullcontext()  # type: ignore[assignment]
    ContextMeter.meter = (  # type: ignore[assignment]
        lambda self, label, unit="seconds", func=time.perf_counter, floor=0.0: plain(func, floor=floor)
    )
    DelayedMetricsLedger.finalize = lambda self, *args, **kwargs: iter(())  # type: ignore[assignment]


def _without_stragglers(meter: Any) -> None:
    """Take the watch for stragglers out, by hand: it has no switch."""
    from dask_efficiency.plugin.scheduler.straggler_watch import StragglerReporter

    meter._rates_guard.close()
    for hook in ("take_heartbeat", "poll"):
        assert hasattr(StragglerReporter, hook)
        setattr(StragglerReporter, hook, lambda self, *args: None)


def _gpu(slowness: float) -> None:
    """Let this process look as if torch had just initialised CUDA on its one GPU."""
    from dask_efficiency.gpu.cupti.build import SOURCE, compile_callbacks
    from dask_efficiency.gpu.cupti.callbacks import LIBRARY
    from dask_efficiency.plugin.worker import gpu_watch
    from tests.gpu import stub_gpu

    if not LIBRARY.exists() or LIBRARY.stat().st_mtime < SOURCE.stat().st_mtime:
        compile_callbacks(LIBRARY)
    # Its thread flushes by the system's clock.
    gpu_watch.INTERVAL_SECONDS *= slowness
    sys.modules.setdefault("torch", ModuleType("torch"))
    stub_gpu.load(stub_gpu.build(Path(tempfile.mkdtemp())), schedule=stub_gpu.BLOCK)


async def _armed() -> None:
    from dask_efficiency.plugin.worker.gpu_watch import GpuWatch

    while GpuWatch._owner is None or not GpuWatch._owner.armed:  # noqa: ASYNC110  # its thread knows no event loop
        await asyncio.sleep(0.05)


def _page(scheduler: Any) -> Callable[[], None]:
    """Open the page with all figures, as a browser would have it; gives what brings it up to date."""
    from benchmarks.live import Viewer
    from dask_efficiency.live.bokeh.pages import _TABS, PAGES

    viewer = Viewer(PAGES["individual-efficiency"](_TABS[scheduler]))
    return viewer.page.update
