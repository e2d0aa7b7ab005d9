"""Prometheus metrics of the cluster's accounts, on the scheduler's own ``/metrics``."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import prometheus_client
from prometheus_client.core import Metric

from dask_efficiency.accounts.buckets import CAUSES, FINALIZED, Bucket, causes_of
from dask_efficiency.accounts.cluster.account import ACTIVITIES
from dask_efficiency.accounts.cluster.losses import recent_killers
from dask_efficiency.accounts.cluster.memory_timeline import numbers_of
from dask_efficiency.accounts.cluster.presence import GPU_ACTIVITIES
from dask_efficiency.accounts.gpu import GpuTotals
from dask_efficiency.accounts.metered import BYTES, COUNT, WAYS
from dask_efficiency.accounts.rows import OTHER, add
from dask_efficiency.accounts.sensors import READINGS
from dask_efficiency.accounts.slow_worker import Cause
from dask_efficiency.accounts.stalls import KINDS
from dask_efficiency.accounts.wire.snapshots import OWN_WORK
from dask_efficiency.accounts.worker.balance import TASK_BUCKETS, Outcome
from dask_efficiency.accounts.worker.log import MAX_PREFIX_LENGTH
from dask_efficiency.live.exported import ExportedPrefixes, ExportedWorkers
from dask_efficiency.live.exposition import counter, gauge, seconds
from dask_efficiency.live.last_seconds import last_findings
from dask_efficiency.show.figures import harmless, shorten
from dask_efficiency.show.log import logger

if TYPE_CHECKING:
    from dask_efficiency.plugin.scheduler.accounts import ClusterAccounts

#: GPUs exported one by one, 28 series each; with more, only their coverage is exported. A guess.
MAX_GPUS = 256
#: Stragglers exported one by one. A guess.
MAX_STRAGGLERS = 20

_BUCKETS, _TASK_BUCKETS = tuple(map(str, FINALIZED)), tuple(map(str, TASK_BUCKETS))


@dataclass(slots=True, eq=False)
class Export:
    """An export source with its choice of workers and prefixes."""

    source: ClusterAccounts
    workers: ExportedWorkers = field(default_factory=ExportedWorkers)
    prefixes: ExportedPrefixes = field(default_factory=ExportedPrefixes)
    #: A user's own exporter may ask in another thread.
    _choosing: threading.Lock = field(default_factory=threading.Lock)

    def worker_names(self) -> set[str]:
        """Names of the workers that are exported one by one."""
        source = self.source
        with self._choosing:
            return self.workers.names(source.cluster, at=source.now(), at_most=source.options.max_exported_workers)

    def prefix_rows(self) -> dict[str, dict[str, int]]:
        """Settled nanoseconds by bucket of the exported prefixes, and of all others."""
        with self._choosing:
            rows = self.prefixes.rows(self.source.cluster, at_most=self.source.options.max_exported_prefixes)
        return {name: dict(zip(_TASK_BUCKETS, row, strict=True)) for name, row in rows.items()}


class ClusterCollector:
    """Exports the accounts of the scheduler in this process.

    Counters are monotonic: they survive a worker's death, ``client.restart()`` and a registration that replaces
    another. Unregistering ends the accounts and all series; a later registration starts at 0, which Prometheus takes
    for a reset.

    Reading changes nothing, so any number of scrapers may read. ``collect`` never raises, as that would turn the
    scheduler's whole ``/metrics`` into an error: a group of metrics that fails is left out and counted.

    The registry belongs to the process. Of several schedulers in a process the last one is exported, as with Dask's own
    metrics.
    """

    def __init__(self) -> None:
        self._exports: list[Export] = []
        self._failures = 0
        #: Thread in which nothing is collected now; exporters in other threads must not miss anything.
        self._left_out: int | None = None

    def describe(self) -> Iterable[Metric]:
        """Nothing; otherwise registering would call :meth:`collect`."""
        return []

    def add(self, source: ClusterAccounts) -> None:
        """Export this source from now on."""
        if not self._exports:
            prometheus_client.REGISTRY.register(self)
        self._exports.append(Export(source))

    def remove(self, source: ClusterAccounts) -> None:
        """Stop exporting this source; does nothing if it is not exported."""
        others = [export for export in self._exports if export.source is not source]
        if self._exports and not others:
            with suppress(KeyError):  # somebody emptied the registry
                prometheus_client.REGISTRY.unregister(self)
        self._exports = others

    def collect(self) -> Iterable[Metric]:
        """Current metrics; groups that fail are left out."""
        if not self._exports or self._left_out == threading.get_ident():
            return []
        self._refresh()
        return [*self._made(_ALONE), *self._made(_GROUPS)]

    def _refresh(self) -> None:
        for export in self._exports[-1:]:
            with self._counting_failures():
                export.source.refresh()

    def _made(self, groups: Iterable[Callable[[Export], Iterator[Metric]]]) -> list[Metric]:
        metrics: list[Metric] = []
        with self._counting_cost():
            for export in self._exports[-1:]:
                for group in groups:
                    with self._counting_failures():
                        metrics += [*group(export)]
            if groups is _GROUPS and self._exports:
                meaning = "Failures to bring up to date or make metrics"
                metrics.append(counter("export_failures", meaning, self._failures))
        return metrics

    async def written(self, write: Callable[[Iterable[Metric]], bytes]) -> bytes | None:
        """Current metrics in a text format; None if they cannot be written."""
        self._refresh()
        await asyncio.sleep(0)  # of thousands of series, each step takes milliseconds
        metrics = self._made(_ALONE)
        await asyncio.sleep(0)
        metrics += self._made(_GROUPS)
        await asyncio.sleep(0)
        with self._counting_cost(), self._counting_failures():
            return write(metrics)
        return None

    @contextmanager
    def left_out(self) -> Iterator[None]:
        """Collect nothing in this thread during the block."""
        self._left_out = threading.get_ident()
        try:
            yield
        finally:
            self._left_out = None

    @contextmanager
    def _counting_cost(self) -> Iterator[None]:
        exports, began = self._exports, time.thread_time()
        yield
        for export in exports[-1:]:
            export.source.cost_seconds += time.thread_time() - began

    @contextmanager
    def _counting_failures(self) -> Iterator[None]:
        """End the block at a failure, and log the first."""
        try:
            yield
        except Exception:
            if not self._failures:
                logger.exception("dask_efficiency could not export all of its metrics")
            self._failures += 1


#: The collector of this process.
COLLECTOR = ClusterCollector()


def _threads(export: Export) -> Iterator[Metric]:
    cluster = export.source.cluster
    meaning = "Thread time by what each thread slot was doing, running tasks included; the rates add up to nthreads"
    yield seconds("thread_activity_seconds", meaning, "activity", ACTIVITIES, {"": cluster.part("activity")})
    meaning = "Settled thread time by bucket, booked when a task ends"
    yield seconds("thread_seconds", meaning, "bucket", _BUCKETS, {"": cluster.part("finalized")})
    yield gauge("running_thread_seconds", "Thread time held so far by tasks that have not ended", cluster.running / 1e9)
    without = cluster.work.without_workers(at=export.source.now()) / 1e9
    yield counter("no_workers_seconds", "Wall time in which work was outstanding and there was no worker", without)
    yield gauge("nthreads", "Threads of the present workers", cluster.nthreads)


#: Metric name and help of each bucket's causes.
_CAUSES = {
    Bucket.THREAD_NONCPU: (
        "thread_waiting_seconds",
        "Thread time of tasks off the CPU (thread-noncpu) by cause, for sampled workers",
    ),
    Bucket.OVERHEAD: ("overhead_seconds", "Thread time held around tasks (overhead) by cause, as far as known"),
    Bucket.IDLE: ("idle_seconds", "Thread time without a task while there was work (idle) by cause"),
}


def _causes(export: Export) -> Iterator[Metric]:
    row = export.source.cluster.part("cause_activity")
    for bucket, (name, meaning) in _CAUSES.items():
        yield seconds(name, meaning, "cause", CAUSES[bucket], {"": causes_of(row, bucket)})


def _tasks(export: Export) -> Iterator[Metric]:
    by_outcome = dict.fromkeys(map(str, Outcome), 0) | export.source.cluster.tasks
    yield counter("tasks", "Tasks that ended, by outcome", by_outcome, "outcome")


def _losses(export: Export) -> Iterator[Metric]:
    found = recent_killers(export.source.cluster.losses, at=export.source.now())
    meaning = "Most workers of the last 15 minutes that were lost with the same task in a thread; 0 unless several"
    yield gauge("killer_task_workers", meaning, max(found.values(), default=0))


def _data(export: Export) -> Iterator[Metric]:
    amounts = export.source.cluster.extra("amounts")
    for name, unit, meaning in (
        ("data_bytes", BYTES, "Bytes of results and of messages of P2P shuffles, by the way they went"),
        ("data_items", COUNT, "How many results and messages of P2P shuffles they were, by the way they went"),
    ):
        yield counter(name, meaning, {way: amounts.get(f"{way}/{unit}", 0) for way in WAYS}, "way")


def _types(process: int, managed: int, spilled: int) -> dict[str, int]:
    """Memory as Dask's own metrics divide it."""
    return {"managed": managed, "unmanaged": process - managed, "spilled": spilled}


def _memory(export: Export) -> Iterator[Metric]:
    reading = export.source.memory
    meaning = (
        "Memory of the workers' processes: results (managed) and the rest (unmanaged); and results on disk (spilled)"
    )
    yield gauge("memory_bytes", meaning, _types(*reading.numbers), "type")
    yield gauge("memory_limit_bytes", "Memory limits of the present workers together", reading.limit)


def _stragglers(export: Export) -> Iterator[Metric]:
    findings = export.source.findings
    meaning = "Workers, or whole hosts, that take longer than their peers for the same work"
    count = {str(cause): sum(finding.cause == cause for finding in findings) for cause in Cause}
    yield gauge("stragglers", meaning, count, "cause")
    effects = {
        (_label(finding.worker), _label(finding.host), str(finding.cause)): finding.effect
        for finding in findings[:MAX_STRAGGLERS]
        if finding.effect is not None
    }
    meaning = f"How many times as long as its peers a straggler takes; of the {MAX_STRAGGLERS} most certain ones"
    yield gauge("straggler_effect", meaning, effects, "worker", "host", "cause")


def _findings(export: Export) -> Iterator[Metric]:
    meaning = (
        "Wall time of the last 5 minutes that fixing a finding would save at most, for ten findings at most; "
        "where is the prefix of the tasks with most of the loss, if known"
    )
    found = last_findings(export.source.cluster, export.source.recent)
    saved = {(one.kind, _label(prefix)): one.saves_seconds for one, prefix in found if one.saves_seconds is not None}
    yield gauge("finding_seconds", meaning, saved, "kind", "where")
    stalled = dict.fromkeys(KINDS, 0)
    for stall in export.source.stalled:
        add(stalled, {stall.kind: stall.tasks})
    yield gauge("stalled_tasks", "Tasks that stand still now, by the reason", stalled, "reason")


def _plugin(export: Export) -> Iterator[Metric]:
    source, cluster = export.source, export.source.cluster
    yield counter("snapshots_refused", "Snapshots of workers that were refused as invalid", cluster.refused)
    yield counter("snapshots_stale", "Snapshots of workers that came twice or late", cluster.stale)
    unmeasured = sum(presence.off for presence in cluster.present.values())
    yield gauge("unmeasured_workers", "Present workers that are not measured", unmeasured)
    unsampled = "Present and measured workers whose threads are not sampled"
    yield gauge("unsampled_workers", unsampled, len(cluster.not_sampled))
    yield gauge("meter_off", "1 if the plugin failed on the scheduler and switched itself off", source.off is not None)
    meaning = "Time between two heartbeats of a worker that are read: it is longer where reading all takes too much CPU"
    yield gauge("heartbeat_read_interval_seconds", meaning, source.read_interval_seconds)
    meaning = (
        "CPU time of the plugin itself: polls and scrapes on the scheduler, hooks (sampled) and heartbeats on workers"
    )
    costs = {"scheduler": source.cost_seconds, "workers": cluster.extra("outside").get(OWN_WORK, 0) / 1e9}
    yield counter("plugin_cpu_seconds", meaning, costs, "process")


def _prefixes(export: Export) -> Iterator[Metric]:
    rows = export.prefix_rows()
    meaning = "Settled thread time by bucket and prefix of the tasks; over all prefixes it adds up to thread_seconds"
    yield seconds("prefix_thread_seconds", meaning, "bucket", _TASK_BUCKETS, _by_label(rows), of="prefix")
    held = export.source.memory.prefixes
    found = {name: {"": held.get(name, 0)} for name in rows if name != OTHER}
    found[OTHER] = {"": sum(held.values()) - sum(row[""] for row in found.values())}
    meaning = (
        "Results in memory by prefix of their tasks, of each worker those of the eight with most; the rest is (other)"
    )
    yield gauge("prefix_memory_bytes", meaning, {name: row[""] for name, row in _by_label(found).items()}, "prefix")


def _workers(export: Export) -> Iterator[Metric]:
    cluster = export.source.cluster
    names = export.worker_names()
    limited = "1 if there are too many workers to export all one by one: then only those that make most and least of "
    yield gauge("worker_metrics_limited", f"{limited}their threads are", export.workers.limited)
    meaning = "Thread time of a worker by what each slot was doing; a worker's rates add up to its nthreads"
    rows = _by_label(cluster.part_by_worker("activity", names))
    yield seconds("worker_thread_activity_seconds", meaning, "activity", ACTIVITIES, rows, of="worker")
    rows = _by_label(cluster.part_by_worker("finalized", names))
    meaning = "Settled thread time of a worker by bucket"
    yield seconds("worker_thread_seconds", meaning, "bucket", _BUCKETS, rows, of="worker")
    waiting, rows = Bucket.THREAD_NONCPU, _by_label(cluster.part_by_worker("cause_activity", names))
    causes = {label: causes_of(row, waiting) for label, row in rows.items()}
    meaning = "Thread time of a worker's tasks off the CPU by cause"
    yield seconds(f"worker_{_CAUSES[waiting][0]}", meaning, "cause", CAUSES[waiting], causes, of="worker")
    here: dict[str, dict[str, int]] = {}
    for presence in cluster.present.values():  # names 1 and "1" are the same here
        if presence.name in names:
            add(here.setdefault(presence.name, {}), {"running": presence.running, "nthreads": presence.nthreads})
    rows = _by_label(here)
    meaning = "Thread time held so far by tasks of a worker that have not ended"
    running = {label: row["running"] / 1e9 for label, row in rows.items()}
    yield gauge("worker_running_thread_seconds", meaning, running, "worker")
    nthreads = {label: row["nthreads"] for label, row in rows.items()}
    yield gauge("worker_nthreads", "Threads of a worker", nthreads, "worker")
    memory: dict[str, dict[str, int]] = {}
    for presence, levels in export.source.memory.levels.items():
        if presence.name in names:
            add(memory.setdefault(presence.name, {}), _types(*numbers_of(levels)))
    meaning = "Memory of a worker's process, as in memory_bytes"
    by_type = {(label, each): n for label, row in _by_label(memory).items() for each, n in row.items()}
    yield gauge("worker_memory_bytes", meaning, by_type, "worker", "type")


def _gpus(export: Export) -> Iterator[Metric]:
    """Metrics of GPUs; none if no task asked for a GPU."""
    cluster = export.source.cluster
    workers = cluster.gpu_by_worker()
    if not workers:
        return
    if kernels := sum(totals.kernel_ns for totals in workers.values()):
        share = sum(totals.attributed_ns for totals in workers.values()) / kernels
        yield gauge("gpu_coverage_ratio", "Share of all kernel time that was attributed to tasks", share)
    dropped = sum(totals.dropped for totals in workers.values())
    yield counter("gpu_records_dropped", "Records of GPU work that were lost", dropped)
    here = [gpu for p in cluster.present.values() if (gpu := p.gpu) is not None]
    unmeasured = sum(totals.meter == "none" for totals in here)
    yield gauge("gpu_unmeasured_workers", "Present workers whose use of a GPU is not measured", unmeasured)
    devices: dict[str, dict[str, int]] = {}
    for totals in workers.values():
        _add_devices(devices, totals)
    crowded = len(devices) > MAX_GPUS
    meaning = f"1 if there are too many GPUs (more than {MAX_GPUS}) to export them one by one"
    yield gauge("gpu_metrics_off", meaning, crowded)
    if crowded:
        return
    meaning = "Time of a GPU by what it was doing, as the workers saw it"
    yield seconds("gpu_seconds", meaning, "activity", GPU_ACTIVITIES, _by_label(devices), of="uuid")
    users = _by_label({uuid: {"": number} for uuid, number in cluster.gpu_workers().items()})
    yield gauge("gpu_workers", "Present workers that use a GPU", {u: row[""] for u, row in users.items()}, "uuid")
    yield from _sensors(here)
    by_worker: dict[str, dict[str, dict[str, int]]] = {}
    for name in export.worker_names() & workers.keys():
        _add_devices(by_worker.setdefault(_label(name), {}), workers[name])
    meaning = "Time of a GPU by what it was doing, as seen by one worker, which does not see kernels of others"
    seen = {
        (worker, uuid, activity): row[activity] / 1e9
        for worker, of_worker in by_worker.items()
        for uuid, row in _by_label(of_worker).items()
        for activity in GPU_ACTIVITIES
    }
    yield counter("worker_gpu_seconds", meaning, seen, "worker", "uuid", "activity")


def _sensors(here: Iterable[GpuTotals]) -> Iterator[Metric]:
    readings = {uuid: row for totals in here for uuid, row in totals.readings.items()}
    for name, meaning in READINGS.items():
        kind = counter if name.endswith("_total") else gauge
        values = {_label(uuid): row[name] for uuid, row in readings.items() if name in row}
        if values:
            yield kind(f"gpu_{name.removesuffix('_total')}", meaning, values, "uuid")


def _add_devices(devices: dict[str, dict[str, int]], totals: GpuTotals) -> None:
    for device in totals.devices:
        add(devices.setdefault(device.uuid, {}), {activity: getattr(device, activity) for activity in GPU_ACTIVITIES})


#: Made one by one, so that a failing group costs no other.
_GROUPS = (
    *(_threads, _causes, _tasks, _losses, _data, _memory, _stragglers, _plugin),
    *(_prefixes, _workers, _gpus),
)
#: Group that adds up with no other, and may be of another instant.
_ALONE = (_findings,)


def _label(name: str) -> str:
    return shorten(harmless(name), MAX_PREFIX_LENGTH)


def _by_label(rows: Mapping[str, Mapping[str, int]]) -> dict[str, Mapping[str, int]]:
    """Rows by a label that any text format can carry; names with equal labels are added up."""
    labelled: dict[str, Mapping[str, int]] = {}
    for name, row in rows.items():
        label = _label(name)
        if label in labelled:
            row = dict(row)
            add(row, labelled[label])
        labelled[label] = row
    return labelled
