"""Prometheus metrics of the cluster's accounts, on the scheduler's own ``/metrics``."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from dask_efficiency.accounts.buckets import CAUSES, FINALIZED, Bucket, causes_of
from dask_efficiency.accounts.cluster.account import ACTIVITIES
from dask_efficiency.accounts.cluster.cluster import ClusterLedger
from dask_efficiency.accounts.cluster.presence import GPU_ACTIVITIES
from dask_efficiency.accounts.gpu import GpuTotals
from dask_efficiency.accounts.metered import BYTES, COUNT, WAYS
from dask_efficiency.accounts.sensors import READINGS
from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.accounts.wire.snapshots import OWN_WORK
from dask_efficiency.accounts.worker.balance import TASK_BUCKETS, Outcome
from dask_efficiency.live.exported import ExportedPrefixes, ExportedWorkers
from dask_efficiency.live.exposition import PREFIX, counter, gauge, seconds
from dask_efficiency.live.last_seconds import ThreadTotals, last_findings
from dask_efficiency.plugin.options import Options
from dask_efficiency.show.figures import harmless, shorten
from dask_efficiency.show.log import logger

#: GPUs exported one by one, 28 series each; with more, only their coverage is exported. A guess.
MAX_GPUS = 256
#: Stragglers exported one by one. A guess.
MAX_STRAGGLERS = 20
#: Characters of a worker's name in a label. A guess.
MAX_LABEL_LENGTH = 200

_BUCKETS, _TASK_BUCKETS = tuple(map(str, FINALIZED)), tuple(map(str, TASK_BUCKETS))


class ExportSource(Protocol):
    """Accounts of a scheduler, and the cost of keeping them."""

    cluster: ClusterLedger
    #: CPU seconds of the plugin on the scheduler.
    cost_seconds: float

    @property
    def options(self) -> Options:
        """Options in force."""

    @property
    def read_interval_seconds(self) -> float:
        """Seconds between two heartbeats of a worker that are read."""

    @property
    def off(self) -> str | None:
        """Reason why metering has stopped; None while it works."""

    @property
    def findings(self) -> tuple[SlowWorker, ...]:
        """Current stragglers, the most certain first."""

    @property
    def recent(self) -> Iterable[ThreadTotals]:
        """Totals of all threads at the last polls, in order."""

    def refresh(self) -> None:
        """Bring the accounts up to date."""

    def now(self) -> int:
        """Current time of the accounts' clock, in nanoseconds."""


@dataclass(slots=True, eq=False)
class Export:
    """An export source with its choice of workers and prefixes."""

    source: ExportSource
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

    def add(self, source: ExportSource) -> None:
        """Export this source from now on."""
        if not self._exports:
            prometheus_client.REGISTRY.register(self)
        self._exports.append(Export(source))

    def remove(self, source: ExportSource) -> None:
        """Stop exporting this source; does nothing if it is not exported."""
        found = next((export for export in self._exports if export.source is source), None)
        if found is not None:
            self._exports.remove(found)
            if not self._exports:
                with suppress(KeyError):  # somebody emptied the registry
                    prometheus_client.REGISTRY.unregister(self)

    def collect(self) -> Iterable[Metric]:
        """Current metrics; groups that fail are left out."""
        if not self._exports or self._left_out == threading.get_ident():
            return []
        export = self._exports[-1]
        source = export.source
        metrics: list[Metric] = []
        self._try(source.refresh)
        began = time.thread_time()
        for group in _GROUPS:
            self._try(partial(_extend, metrics, partial(group, source)))
        for chosen in _CHOSEN:
            self._try(partial(_extend, metrics, partial(chosen, export)))
        metrics.append(counter("export_failures", "Failures to bring up to date or make metrics", self._failures))
        source.cost_seconds += time.thread_time() - began
        return metrics

    def written(self, write: Callable[[Iterable[Metric]], bytes]) -> bytes | None:
        """Current metrics in a text format; None if they cannot be written."""
        written: list[bytes] = []
        metrics = self.collect()
        began = time.thread_time()
        self._try(lambda: written.append(write(metrics)))
        if self._exports:
            self._exports[-1].source.cost_seconds += time.thread_time() - began
        return written[0] if written else None

    @contextmanager
    def left_out(self) -> Iterator[None]:
        """Collect nothing in this thread during the block."""
        self._left_out = threading.get_ident()
        try:
            yield
        finally:
            self._left_out = None

    def _try(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception:
            if not self._failures:
                logger.exception("dask_efficiency could not export all of its metrics")
            self._failures += 1


#: The collector of this process.
COLLECTOR = ClusterCollector()


def _threads(source: ExportSource) -> Iterator[Metric]:
    cluster = source.cluster
    yield seconds(
        "thread_activity_seconds",
        "Thread time by what each thread slot was doing, running tasks included; the rates add up to nthreads",
        "activity",
        ACTIVITIES,
        {"": cluster.activity()},
    )
    yield seconds(
        "thread_seconds",
        "Settled thread time by bucket, booked when a task ends",
        "bucket",
        _BUCKETS,
        {"": cluster.finalized()},
    )
    yield gauge("running_thread_seconds", "Thread time held so far by tasks that have not ended", cluster.running / 1e9)
    yield counter(
        "no_workers_seconds",
        "Wall time in which work was outstanding and there was no worker",
        cluster.work.without_workers(at=source.now()) / 1e9,
    )
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


def _causes(source: ExportSource) -> Iterator[Metric]:
    row = source.cluster.cause_activity()
    for bucket, (name, meaning) in _CAUSES.items():
        yield seconds(name, meaning, "cause", CAUSES[bucket], {"": causes_of(row, bucket)})


def _tasks(source: ExportSource) -> Iterator[Metric]:
    tasks = CounterMetricFamily(f"{PREFIX}_tasks", "Tasks that ended, by outcome", labels=["outcome"])
    for outcome in map(str, Outcome):
        tasks.add_metric([outcome], source.cluster.tasks.get(outcome, 0))
    yield tasks


def _data(source: ExportSource) -> Iterator[Metric]:
    amounts = source.cluster.extra("amounts")
    for name, unit, meaning in (
        ("data_bytes", BYTES, "Bytes of results and of messages of P2P shuffles, by the way they went"),
        ("data_items", COUNT, "How many results and messages of P2P shuffles they were, by the way they went"),
    ):
        family = CounterMetricFamily(f"{PREFIX}_{name}", meaning, labels=["way"])
        for way in WAYS:
            family.add_metric([way], amounts.get(f"{way}/{unit}", 0))
        yield family


def _stragglers(source: ExportSource) -> Iterator[Metric]:
    findings = source.findings
    count = GaugeMetricFamily(
        f"{PREFIX}_stragglers",
        "Workers, or whole hosts, that take longer than their peers for the same work",
        labels=["cause"],
    )
    for cause in Cause:
        count.add_metric([str(cause)], sum(finding.cause == cause for finding in findings))
    yield count
    effect = GaugeMetricFamily(
        f"{PREFIX}_straggler_effect",
        f"How many times as long as its peers a straggler takes; of the {MAX_STRAGGLERS} most certain ones",
        labels=["worker", "host", "cause"],
    )
    known = ((_labels(finding), finding.effect) for finding in findings[:MAX_STRAGGLERS])
    labelled = {labels: times for labels, times in known if times is not None}
    for labels, times in labelled.items():
        effect.add_metric(labels, times)
    yield effect


def _labels(finding: SlowWorker) -> tuple[str, str, str]:
    worker, host = (_label(name) for name in (finding.worker, finding.host))
    return worker, host, str(finding.cause)


def _findings(source: ExportSource) -> Iterator[Metric]:
    found = GaugeMetricFamily(
        f"{PREFIX}_finding_seconds",
        "Wall time of the last 5 minutes that fixing a finding would save at most, for ten findings at most; "
        "where is the prefix of the tasks with most of the loss, if known",
        labels=["kind", "where"],
    )
    for one, prefix in last_findings(source.cluster, source.recent):
        found.add_metric([one.kind, _label(prefix)], one.saves_seconds)
    yield found


def _plugin(source: ExportSource) -> Iterator[Metric]:
    cluster = source.cluster
    yield counter("snapshots_refused", "Snapshots of workers that were refused as invalid", cluster.refused)
    yield counter("snapshots_stale", "Snapshots of workers that came twice or late", cluster.stale)
    unmeasured = sum(presence.off for presence in cluster.present.values())
    yield gauge("unmeasured_workers", "Present workers that are not measured", unmeasured)
    unsampled = "Present and measured workers whose threads are not sampled"
    yield gauge("unsampled_workers", unsampled, len(cluster.not_sampled))
    yield gauge("meter_off", "1 if the plugin failed on the scheduler and switched itself off", source.off is not None)
    interval = (
        "Time between two heartbeats of a worker that are read: it is longer where reading all takes too much CPU"
    )
    yield gauge("heartbeat_read_interval_seconds", interval, source.read_interval_seconds)
    cost = CounterMetricFamily(
        f"{PREFIX}_plugin_cpu_seconds",
        "CPU time of the plugin itself: polls and scrapes on the scheduler, hooks (sampled) and heartbeats on workers",
        labels=["process"],
    )
    cost.add_metric(["scheduler"], source.cost_seconds)
    cost.add_metric(["workers"], cluster.extra("outside").get(OWN_WORK, 0) / 1e9)
    yield cost


def _prefixes(export: Export) -> Iterator[Metric]:
    rows = export.prefix_rows()
    yield seconds(
        "prefix_thread_seconds",
        "Settled thread time by bucket and prefix of the tasks; over all prefixes it adds up to thread_seconds",
        "bucket",
        _TASK_BUCKETS,
        _by_label(rows, set(rows)),
        of="prefix",
    )


def _workers(export: Export) -> Iterator[Metric]:
    cluster = export.source.cluster
    names = export.worker_names()
    yield gauge(
        "worker_metrics_limited",
        "1 if there are too many workers to export all one by one: "
        "then only those that make most and least of their threads are",
        export.workers.limited,
    )
    yield seconds(
        "worker_thread_activity_seconds",
        "Thread time of a worker by what each slot was doing; a worker's rates add up to its nthreads",
        "activity",
        ACTIVITIES,
        _by_label(cluster.part_by_worker("activity", names), names),
        of="worker",
    )
    yield seconds(
        "worker_thread_seconds",
        "Settled thread time of a worker by bucket",
        "bucket",
        _BUCKETS,
        _by_label(cluster.part_by_worker("finalized", names), names),
        of="worker",
    )
    causes = _by_label(cluster.part_by_worker("cause_activity", names), names)
    waiting = Bucket.THREAD_NONCPU
    yield seconds(
        f"worker_{_CAUSES[waiting][0]}",
        "Thread time of a worker's tasks off the CPU by cause",
        "cause",
        CAUSES[waiting],
        {label: causes_of(row, waiting) for label, row in causes.items()},
        of="worker",
    )
    here: dict[str, dict[str, int]] = {}
    for presence in cluster.present.values():  # names 1 and "1" are the same here
        if presence.name in names:
            row = here.setdefault(presence.name, {"running": 0, "nthreads": 0})
            row["running"] += presence.running
            row["nthreads"] += presence.nthreads
    running = GaugeMetricFamily(
        f"{PREFIX}_worker_running_thread_seconds",
        "Thread time held so far by tasks of a worker that have not ended",
        labels=["worker"],
    )
    threads = GaugeMetricFamily(f"{PREFIX}_worker_nthreads", "Threads of a worker", labels=["worker"])
    for label, sums in _by_label(here, names).items():
        running.add_metric([label], sums["running"] / 1e9)
        threads.add_metric([label], sums["nthreads"])
    yield running
    yield threads


def _gpus(export: Export) -> Iterator[Metric]:
    """Metrics of GPUs; none if no task asked for a GPU."""
    cluster = export.source.cluster
    workers = cluster.gpu_by_worker()
    if not workers:
        return
    yield from _gpu_coverage(workers.values())
    here = [gpu for p in cluster.present.values() if (gpu := p.gpu) is not None]
    unmeasured = sum(totals.meter == "none" for totals in here)
    yield gauge("gpu_unmeasured_workers", "Present workers whose use of a GPU is not measured", unmeasured)
    devices: dict[str, dict[str, int]] = {}
    for totals in workers.values():
        _add_devices(devices, totals)
    crowded = len(devices) > MAX_GPUS
    yield gauge(
        "gpu_metrics_off", f"1 if there are too many GPUs (more than {MAX_GPUS}) to export them one by one", crowded
    )
    if crowded:
        return
    rows = [([uuid], row) for uuid, row in _by_label(devices, set(devices)).items()]
    yield _gpu_seconds("gpu_seconds", "Time of a GPU by what it was doing, as the workers saw it", ["uuid"], rows)
    yield from _gpus_here(here, cluster.gpu_workers())
    names = export.worker_names()
    yield _gpu_seconds(
        "worker_gpu_seconds",
        "Time of a GPU by what it was doing, as seen by one worker, which does not see kernels of others",
        ["worker", "uuid"],
        _gpus_by_worker({name: totals for name, totals in workers.items() if name in names}),
    )


def _gpu_coverage(workers: Collection[GpuTotals]) -> Iterator[Metric]:
    kernels = sum(totals.kernel_ns for totals in workers)
    if kernels:
        attributed = sum(totals.attributed_ns for totals in workers)
        yield gauge("gpu_coverage_ratio", "Share of all kernel time that was attributed to tasks", attributed / kernels)
    dropped = sum(totals.dropped for totals in workers)
    yield counter("gpu_records_dropped", "Records of GPU work that were lost", dropped)


def _gpus_here(here: Iterable[GpuTotals], workers: Mapping[str, int]) -> Iterator[Metric]:
    """Number of workers of each GPU, and its sensors."""
    shared = GaugeMetricFamily(f"{PREFIX}_gpu_workers", "Present workers that use a GPU", labels=["uuid"])
    for label, row in _by_label({uuid: {"": number} for uuid, number in workers.items()}, set(workers)).items():
        shared.add_metric([label], row[""])
    yield shared
    readings = {uuid: row for totals in here for uuid, row in totals.readings.items()}
    for name, meaning in READINGS.items():
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        family = kind(f"{PREFIX}_gpu_{name.removesuffix('_total')}", meaning, labels=["uuid"])
        values = {_label(uuid): row[name] for uuid, row in readings.items() if name in row}
        for label, value in values.items():
            family.add_metric([label], value)
        if values:
            yield family


def _add_devices(devices: dict[str, dict[str, int]], totals: GpuTotals) -> None:
    for device in totals.devices:
        row = devices.setdefault(device.uuid, dict.fromkeys(GPU_ACTIVITIES, 0))
        for activity in GPU_ACTIVITIES:
            row[activity] += getattr(device, activity)


def _gpus_by_worker(workers: Mapping[str, GpuTotals]) -> list[tuple[list[str], Mapping[str, int]]]:
    labelled: dict[str, dict[str, dict[str, int]]] = {}
    for name, totals in workers.items():
        _add_devices(labelled.setdefault(_label(name), {}), totals)
    return [
        ([worker, uuid], row)
        for worker, devices in labelled.items()
        for uuid, row in _by_label(devices, set(devices)).items()
    ]


def _gpu_seconds(
    name: str, help_text: str, labels: list[str], rows: Iterable[tuple[list[str], Mapping[str, int]]]
) -> CounterMetricFamily:
    family = CounterMetricFamily(f"{PREFIX}_{name}", help_text, labels=[*labels, "activity"])
    for values, row in rows:
        for activity in GPU_ACTIVITIES:
            family.add_metric([*values, activity], row[activity] / 1e9)
    return family


#: Made one by one, so that a failing group costs no other.
_GROUPS: tuple[Callable[[ExportSource], Iterable[Metric]], ...] = (
    _threads,
    _causes,
    _tasks,
    _data,
    _stragglers,
    _findings,
    _plugin,
)

#: Groups in which only chosen workers and prefixes have series of their own.
_CHOSEN: tuple[Callable[[Export], Iterable[Metric]], ...] = (_prefixes, _workers, _gpus)


def _extend(metrics: list[Metric], group: Callable[[], Iterable[Metric]]) -> None:
    metrics.extend(list(group()))


def _label(name: str) -> str:
    return shorten(harmless(name), MAX_LABEL_LENGTH)


def _by_label(rows: Mapping[str, Mapping[str, int]], names: set[str]) -> dict[str, Mapping[str, int]]:
    """Rows by a label that any text format can carry; names with equal labels are added up."""
    labelled: dict[str, Mapping[str, int]] = {}
    for name in names & rows.keys():
        label = _label(name)
        row = rows[name]
        if label in labelled:
            other = labelled[label]
            row = {key: row.get(key, 0) + other.get(key, 0) for key in row.keys() | other.keys()}
        labelled[label] = row
    return labelled
