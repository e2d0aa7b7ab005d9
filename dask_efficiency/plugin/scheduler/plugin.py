"""EfficiencyPlugin: one registration that meters every worker and keeps the cluster's accounts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import unwrap
from typing import TYPE_CHECKING, Any

from distributed import Scheduler, __version__
from distributed.diagnostics.plugin import SchedulerPlugin

from dask_efficiency.plugin import options
from dask_efficiency.plugin.names import OP, PLUGIN
from dask_efficiency.plugin.version import check_distributed
from dask_efficiency.show.log import logger

if TYPE_CHECKING:
    from dask_efficiency.accounts.slow_worker import SlowWorker
    from dask_efficiency.accounts.stalls import StalledWork
    from dask_efficiency.plugin.scheduler.meter import ClusterMeter


check_distributed(__version__)


class EfficiencyPlugin(SchedulerPlugin):
    """Meters the thread time of every worker, now and later.

    ``client.register_plugin(EfficiencyPlugin())`` is all there is to do: the scheduler sends the
    workers their half. Registering it again with the same options changes nothing; with others,
    they take effect and the accounts go on. ``dask_efficiency.unregister(client)`` takes all of it
    away again.

    Every option is also read from Dask's configuration under ``efficiency.*``: on the client that
    makes the plugin, then on the scheduler.

    Parameters
    ----------
    price_per_worker_hour
        Price of one worker hour, in any currency: lost time is then shown as money too.
    save_to
        Path or fsspec URL of a report of the cluster's whole life, written when the scheduler
        closes.
    report_timeout
        Seconds, or a duration such as ``"5s"``, that a report waits for a silent worker.
    history_interval
        Seconds or a duration between the points of the scheduler's history.
    max_prefixes
        Task prefixes that a worker's heartbeat distinguishes, at least 1.
    trace
        Record all runs all the time, for :func:`~dask_efficiency.get_trace`.
    trace_max_tasks
        Tasks that a recording keeps at most, at least 1; when there are more, the oldest are dropped.
    gpu
        How GPU time is measured once a task uses a GPU: ``"cupti"`` exactly, ``"torch-events"`` as an upper bound, for
        workers of one thread, ``"auto"`` the best way available, ``"off"`` not at all.
    waiting
        Sample on which line and why tasks wait.
    on_straggler
        ``"warn"``: a straggler is logged and shown. Or a function, which is called on the scheduler as well, with the
        scheduler and the :class:`~dask_efficiency.accounts.slow_worker.SlowWorker`, when one is found, or the
        :class:`~dask_efficiency.accounts.stalls.StalledWork` that stands still; it may be a coroutine function.
    outliers
        Also look, once a minute, for workers whose metrics and sensors differ from their peers' for minutes, and treat
        them as stragglers.
    worker_series
        Seconds, or a duration such as ``"20 minutes"``, for which the scheduler keeps the workers' metrics, for
        :func:`~dask_efficiency.fleet.worker_series`.
    sensors
        Read the sensors of each worker's host: cores, memory, disks, network, RDMA.
    max_exported_workers, max_exported_prefixes
        Workers, and task prefixes, that are exported to Prometheus one by one, at least 1. Of more workers, only the
        ten most and the ten least efficient; of more prefixes, those with most thread time.
    preflight
        Measure each worker that joins for some seconds, alone and in pairs with idle workers, and compare it with those
        that joined before: a slow one is logged, and sent as an event of the topic ``dask-efficiency``, before its
        tasks show it. A worker that has tasks by then is left alone, and reported as not tested.
    source
        Put source code in reports: of the ``with`` block, or as Dask recorded it with graphs, and of lines that sent
        tasks.
    profile
        Tasks that run under ``torch.profiler`` while a trace is recorded: at most this many on each worker, by task
        prefix, such as ``{"train_step": 3}``. :func:`~dask_efficiency.critical_path` leads into these tasks' kernels.

    Raises
    ------
    ValueError
        If an option cannot be read; the text names it and its value.
    """

    name = PLUGIN
    #: False, so that a second registration reaches ``start`` and can change the options.
    idempotent = False

    def __init__(
        self,
        *,
        price_per_worker_hour: float | None = None,
        save_to: str | None = None,
        report_timeout: float | str | None = None,
        history_interval: float | str | None = None,
        max_prefixes: int | None = None,
        trace: bool | None = None,
        trace_max_tasks: int | None = None,
        gpu: str | None = None,
        waiting: bool | None = None,
        on_straggler: str | Callable[[Scheduler, SlowWorker | StalledWork], Any] | None = None,
        outliers: bool | None = None,
        worker_series: float | str | None = None,
        sensors: bool | None = None,
        max_exported_workers: int | None = None,
        max_exported_prefixes: int | None = None,
        preflight: bool | None = None,
        source: bool | None = None,
        profile: Mapping[str, int] | None = None,
    ) -> None:
        arguments = locals()
        self._given = options.given({name: arguments[name] for name in options.OPTIONS})
        #: Id of the client whose report registered it; None for good.
        self._lease: str | None = None
        self._meter: ClusterMeter | None = None

    @classmethod
    def leased_to(cls, client_id: str) -> EfficiencyPlugin:
        """Make a registration that lasts as long as this client's reports, and never changes options."""
        plugin = cls()
        plugin._lease = client_id
        return plugin

    async def start(self, scheduler: Scheduler) -> None:
        """Take the accounts over from a former registration, or begin them, and meter the workers."""
        from dask_efficiency.plugin.scheduler.meter import turn

        async with turn(scheduler):
            await self._start(scheduler)

    async def _start(self, scheduler: Scheduler) -> None:
        from dask_efficiency.plugin.scheduler.meter import ClusterMeter

        former = {n: p for n, p in scheduler.plugins.items() if p is not self and isinstance(p, EfficiencyPlugin)}
        meters = [plugin._meter for plugin in former.values() if plugin._meter and not plugin._meter.closed]
        meter = meters[-1] if meters else None
        if meter is None:  # upstream may have taken its plugin off a moment ago
            left = getattr(unwrap(scheduler.handlers.get(OP, self.start)), "__self__", None)
            if isinstance(left, ClusterMeter) and not left.closed:
                await left.take_away()
        # First of all, so that an option that cannot be read changes nothing.
        opts = meter.options if meter is not None and self._lease is not None else options.resolve(self._given)
        failed = meter if meter is not None and meter.guard.off is not None else None
        if failed is not None:  # begin anew
            await failed.take_away()
            meter = None
        # Preloaded, it is among the plugins before it starts; registered, upstream adds it after.
        added = any(plugin is self for plugin in scheduler.plugins.values())
        for name in former:
            # Upstream would warn that it overwrites; and under another name both would stay.
            scheduler.plugins.pop(name, None)
        if not added:  # until upstream adds it, hooks would be missed
            scheduler.plugins[self.name] = self
        try:
            self._meter = meter or ClusterMeter(scheduler, opts, former=failed)
            self._meter.bind(self)
            await (self._meter.start() if meter is None else meter.reconfigure(opts))
        except BaseException:
            if self._meter is not None:
                await self._meter.take_away()
            if scheduler.plugins.get(self.name) is self and not added:
                del scheduler.plugins[self.name]
            raise
        self._meter.lease(self._lease)
        if self._lease is not None and self._lease not in scheduler.clients:  # it left meanwhile
            self._meter.client_left(self._lease)
        if not added:
            del scheduler.plugins[self.name]

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """A worker joined."""
        if self._meter is not None:
            self._meter.guard(self._meter.accounts.worker_joined, worker)

    def remove_worker(self, scheduler: Scheduler, worker: str, *, stimulus_id: str, **kwargs: Any) -> None:
        """A worker was removed."""
        if self._meter is not None:
            self._meter.guard(self._meter.worker_left, worker, stimulus_id)

    def add_client(self, scheduler: Scheduler, client: str) -> None:
        """A client arrives."""
        if self._meter is not None:
            self._meter.guard(self._meter.client_arrives)

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """A client is gone; so are its leases and windows."""
        if self._meter is not None:
            self._meter.guard(self._meter.client_left, client)

    def update_graph(
        self, scheduler: Scheduler, *, client: str, tasks: list[Any], keys: Any, stimulus_id: str, **kwargs: Any
    ) -> None:
        """A graph was taken in."""
        if self._meter is not None:
            self._meter.guard(self._meter.graph_taken_in, client, tasks, keys, stimulus_id)

    def log_event(self, topic: str, msg: Any) -> None:
        """A closing worker may send its last snapshot this way."""
        if self._meter is not None:
            self._meter.guard(self._meter.event, topic, msg)

    def restart(self, scheduler: Scheduler) -> None:
        """The scheduler forgot all its tasks."""
        if self._meter is not None:
            self._meter.guard(self._meter.accounts.work.reset)

    async def before_close(self) -> None:
        """Write the report of the cluster's life while the workers still answer."""
        if self._meter is not None:
            await self._meter.closing()

    async def close(self) -> None:
        """The scheduler closes."""
        if self._meter is not None:
            await self._meter.take_away(workers=False)


def dask_setup(server: Any) -> None:
    """Add the plugin to a scheduler that is starting; Dask calls its ``start`` afterwards."""
    if not isinstance(server, Scheduler):
        logger.warning(
            "dask_efficiency is preloaded on a %s; it belongs on the scheduler, which sends the workers their part",
            type(server).__name__,
        )
        return
    if EfficiencyPlugin.name not in server.plugins:
        server.add_plugin(EfficiencyPlugin(), name=EfficiencyPlugin.name)
