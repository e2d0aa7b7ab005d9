import logging
from dataclasses import replace
from itertools import groupby
from typing import Any

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

from dask_efficiency.accounts.buckets import CAUSES, FINALIZED, Bucket
from dask_efficiency.accounts.cluster.account import ACTIVITIES
from dask_efficiency.accounts.cluster.cluster import RECENT_NS, ClusterLedger
from dask_efficiency.accounts.cluster.losses import KILLERS_NS, TaskInThread
from dask_efficiency.accounts.cluster.memory_timeline import ClusterMemory
from dask_efficiency.accounts.gpu import DeviceTotals, GpuTotals
from dask_efficiency.accounts.memory import MemoryLevels
from dask_efficiency.accounts.metered import WAYS
from dask_efficiency.accounts.sensors import READINGS
from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.accounts.wire.heartbeats import encode
from dask_efficiency.accounts.wire.snapshots import OWN_WORK, Snapshot, SnapshotCauses
from dask_efficiency.accounts.worker.balance import TASK_BUCKETS, Outcome, Used
from dask_efficiency.accounts.worker.ledger import Ledger
from dask_efficiency.accounts.worker.log import MAX_PREFIX_LENGTH as MAX_LABEL_LENGTH
from dask_efficiency.live import prometheus
from dask_efficiency.live.prometheus import MAX_STRAGGLERS, ClusterCollector
from dask_efficiency.plugin.options import resolve
from dask_efficiency.plugin.scheduler.accounts import Moment
from tests.live.prometheus_process import lint, needs_promtool

SECOND = 1_000_000_000

SURROGATE = "lone\ud800surrogate"
#: Names that would break the text format, a terminal or a browser, or that no encoding can carry.
HOSTILE_NAMES = ['quo"te', "back\\slash", "new\nline", "nul\0", "{worker}", "\x1b[2Jescape", "\u202egnp", "é漢🦀"]
HOSTILE_NAMES += [" ", "", SURROGATE]

#: Metrics of causes, by name, and the bucket that has them.
CAUSE_METRICS = {
    "thread_waiting_seconds_total": Bucket.THREAD_NONCPU,
    "overhead_seconds_total": Bucket.OVERHEAD,
    "idle_seconds_total": Bucket.IDLE,
}


class Source:
    """A cluster's accounts by a clock that stands still unless it is set."""

    def __init__(self) -> None:
        self.cluster = ClusterLedger(at=0)
        self.off: str | None = None
        self.options = resolve({})
        self.cost_seconds = 0.0
        self.read_interval_seconds = 0.5
        self.findings: tuple[SlowWorker, ...] = ()
        self.stalled: tuple[Any, ...] = ()
        self.recent: list[Moment] = []
        self.at = 0
        self.registry = prometheus_client.CollectorRegistry()
        self.collector = ClusterCollector()

    def text(self) -> str:
        return prometheus_client.generate_latest(self.registry).decode()

    def metric(self, name: str) -> dict[tuple[str, ...], float]:
        """Values by those of the labels, in the order of their names, as a scraper reads them."""
        return {
            tuple(value for _, value in sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(self.text())
            for sample in family.samples
            if sample.name == f"dask_efficiency_{name}"
        }

    def refresh(self) -> None: ...

    @property
    def memory(self) -> ClusterMemory:
        return ClusterMemory.of(self.cluster.present.values())

    def now(self) -> int:
        return self.at

    def poll(self) -> None:
        """Remember what all threads have done by now."""
        cluster = self.cluster
        activity, causes = cluster.part("activity"), cluster.part("cause_activity")
        self.recent.append(Moment(self.at, activity, cluster.nthreads, causes, cluster.finalized_by_prefix()))

    def join(self, *names: str) -> None:
        for name in names:
            self.cluster.worker_joined(f"tcp://{name}", name, 2, at=self.at)

    def report(
        self,
        name: str,
        seq: int,
        *,
        elapsed: int,
        cpu: int = 0,
        waited: int = 0,
        overhead: int = 0,
        running: bool = False,
        prefix: str = "task",
        **snapshot: Any,
    ) -> None:
        """A snapshot of a worker that was idle but for one task, which succeeded or runs."""
        ledger = Ledger(2, at=0)
        ledger.reserve("key", prefix, at=0)
        if not running:
            hold = ledger.release("key", at=cpu + waited + overhead)
            assert hold is not None
            ledger.finalize(hold, Outcome.SUCCEEDED, cpu=cpu, wall=cpu + waited)
        balance = ledger.balance(at=elapsed, used={"key": Used(elapsed, elapsed)})
        self.at = elapsed
        made = Snapshot(name, seq, balance, {OWN_WORK: SECOND // 4}, **snapshot)
        self.cluster.receive(f"tcp://{name}", encode(made), at=elapsed)


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> Source:
    """A source that a collector exports, in a registry in place of the process's own."""
    source = Source()
    monkeypatch.setattr(prometheus_client, "REGISTRY", source.registry)
    source.collector.add(source)
    return source


def test_every_bucket_and_outcome_is_there_from_zero_on(source):
    assert source.metric("thread_activity_seconds_total") == {(a,): 0.0 for a in ACTIVITIES}
    assert source.metric("thread_seconds_total") == {(str(b),): 0.0 for b in FINALIZED}
    assert source.metric("tasks_total") == {(str(o),): 0.0 for o in Outcome}
    for name, bucket in CAUSE_METRICS.items():
        assert source.metric(name) == {(cause,): 0.0 for cause in CAUSES[bucket]}
    assert source.metric("heartbeat_read_interval_seconds") == {(): 0.5}
    gauges = "running_thread_seconds nthreads meter_off worker_metrics_limited unmeasured_workers unsampled_workers"
    for name in (*gauges.split(), "snapshots_refused_total", "snapshots_stale_total", "export_failures_total"):
        assert source.metric(name) == {(): 0.0}
    source.off = "it failed"
    assert source.metric("meter_off") == {(): 1.0}


def test_workers_that_were_lost_with_one_task_are_counted_for_a_while(source):
    source.join("a", "b", "c", "d")
    hog, other = TaskInThread("hog-1", "hog", 1.0), TaskInThread("other-1", "other")
    for name, tasks in (("a", (hog, other)), ("b", (hog,)), ("c", (hog,))):
        source.cluster.present[f"tcp://{name}"].loss.in_threads = tasks
    source.cluster.worker_closing("tcp://c")  # in order
    assert source.metric("killer_task_workers") == {(): 0.0}
    for name in "abcd":
        source.cluster.worker_left(f"tcp://{name}", at=SECOND)
    assert source.metric("killer_task_workers") == {(): 2.0}
    source.at = SECOND + KILLERS_NS
    assert source.metric("killer_task_workers") == {(): 0.0}


def test_memory_is_exported_as_dask_divides_it_and_by_prefix_as_far_as_these_are_exported(source):
    source.options = resolve({"max_exported_prefixes": 1})
    source.join("a", "b")
    source.report("a", 1, elapsed=4 * SECOND, cpu=SECOND, prefix="load")
    for name, limit, levels in (
        ("a", 100, MemoryLevels(60, 90, 30, 5, 5, {"load": (20, 5), "other": (10, 0)})),
        ("b", 200, MemoryLevels(40, 40, 50, 0, 0, {"other": (50, 0)})),
    ):
        presence = source.cluster.present[f"tcp://{name}"]
        presence.memory, presence.loss.memory_limit = levels, limit
    assert source.metric("memory_bytes") == {("managed",): 80.0, ("unmanaged",): 20.0, ("spilled",): 5.0}
    assert source.metric("memory_limit_bytes") == {(): 300.0}
    assert source.metric("prefix_memory_bytes") == {("load",): 20.0, ("(other)",): 60.0}
    by_worker = source.metric("worker_memory_bytes")
    assert (by_worker["managed", "a"], by_worker["unmanaged", "b"]) == (30.0, -10.0)
    assert len(by_worker) == 6


def test_causes_are_exported_in_seconds_and_never_fall_when_their_worker_dies(source):
    source.cluster.work.set(True, at=0)
    source.join("a", "b")
    half, quarter = SECOND // 2, SECOND // 4
    active = {"thread-noncpu/gil": SECOND, "thread-noncpu/unknown": half, "overhead/hand-over": quarter}
    known = SnapshotCauses(active, active)
    source.report("a", 1, elapsed=4 * SECOND, cpu=SECOND, waited=SECOND + half, overhead=quarter, causes=known)
    source.report("b", 1, elapsed=4 * SECOND, causes=SnapshotCauses(not_sampled="no /proc"))
    source.cluster.worker_left("tcp://a", at=4 * SECOND)
    source.cluster.close_departed(at=8 * SECOND)
    waiting, overhead, idle = (source.metric(name) for name in CAUSE_METRICS)
    assert (waiting["gil",], waiting["unknown",], sum(waiting.values())) == (1, 0.5, 1.5)
    assert (overhead["hand-over",], sum(overhead.values())) == (0.25, 0.25)
    assert sum(idle.values()) == source.metric("thread_activity_seconds_total")["idle",] == 13.25
    by_worker = source.metric("worker_thread_waiting_seconds_total")
    assert (by_worker["gil", "a"], by_worker["gil", "b"]) == (1, 0)
    assert source.metric("unsampled_workers") == {(): 1.0}


def test_data_is_counted_by_the_way_it_went_and_never_falls_when_its_worker_dies(source):
    source.join("a", "b")
    source.report("a", 1, elapsed=SECOND, amounts={"spilled/bytes": 700, "spilled/count": 3})
    source.report("b", 1, elapsed=SECOND, amounts={"spilled/bytes": 30, "sent/bytes": 5})
    source.cluster.worker_left("tcp://a", at=SECOND)
    source.cluster.close_departed(at=9 * SECOND)
    nbytes = source.metric("data_bytes_total")
    assert nbytes == {**{(way,): 0.0 for way in WAYS}, ("spilled",): 730.0, ("sent",): 5.0}
    assert source.metric("data_items_total")["spilled",] == 3


def test_seconds_are_exported_of_the_cluster_and_of_each_worker(source):
    source.join("a", "b")
    source.report("a", 1, elapsed=4 * SECOND, cpu=3 * SECOND)
    source.report("b", 1, elapsed=4 * SECOND, running=True)
    activity = source.metric("thread_activity_seconds_total")
    finalized = source.metric("thread_seconds_total")
    assert activity[("thread-cpu",)] == 3 + 4
    assert finalized[("thread-cpu",)] == 3
    assert source.metric("running_thread_seconds") == {(): 4.0}
    assert sum(activity.values()) == sum(finalized.values()) + 4 == 2 * 2 * 4
    assert source.metric("nthreads") == {(): 4.0}
    assert source.metric("tasks_total")[("succeeded",)] == 1
    by_worker = source.metric("worker_thread_activity_seconds_total")
    assert (by_worker["thread-cpu", "a"], by_worker["thread-cpu", "b"]) == (3, 4)
    assert source.metric("worker_running_thread_seconds") == {("a",): 0.0, ("b",): 4.0}
    assert source.metric("worker_nthreads") == {("a",): 2.0, ("b",): 2.0}
    assert source.metric("plugin_cpu_seconds_total")[("workers",)] == 0.5


def watched(*uuids: str, kernels: int = 2 * SECOND, idle: int = SECOND, **fields: Any) -> GpuTotals:
    """What a worker had of some GPUs: half a second of copies each."""
    half = SECOND // 2
    devices = [
        DeviceTotals(uuid, "H100", kernels + half + idle, kernels, half, idle, {"train": kernels + half})
        for uuid in uuids
    ]
    given = {"meter": "cupti", "kernel_ns": 4 * kernels, "attributed_ns": 3 * kernels}
    return GpuTotals(devices=tuple(devices), **(given | fields))


def test_no_series_of_devices_without_a_gpu_with_a_refused_meter_or_with_too_many(source, monkeypatch):
    source.join("a")
    source.report("a", 1, elapsed=4 * SECOND)
    assert "gpu_" not in source.text()
    source.report("a", 2, elapsed=5 * SECOND, gpu=GpuTotals("none", "another profiler is attached"))
    assert source.metric("gpu_unmeasured_workers") == {(): 1.0}
    assert source.metric("gpu_seconds_total") == source.metric("gpu_coverage_ratio") == {}
    monkeypatch.setattr(prometheus, "MAX_GPUS", 2)
    source.report("a", 3, elapsed=9 * SECOND, gpu=watched("GPU-0", "GPU-1", "GPU-2"))
    assert source.metric("gpu_metrics_off") == {(): 1.0}
    assert source.metric("gpu_seconds_total") == {}


def test_gpu_seconds_are_exported_by_device_and_by_worker_and_stay_when_it_dies(source):
    source.join("a", "b")
    readings = {"GPU-0": {"power_watts": 300.0, "ecc_uncorrected_errors_total": 2.0, "not_a_reading": 1.0}}
    source.report("a", 1, elapsed=4 * SECOND, gpu=watched("GPU-0", readings=readings, dropped=3))
    source.report("b", 1, elapsed=4 * SECOND, gpu=watched("GPU-0", "GPU-1", kernels=SECOND))
    by_device = source.metric("gpu_seconds_total")
    assert by_device["kernels", "GPU-0"] == 2 + 1
    assert (by_device["kernels", "GPU-1"], by_device["copies", "GPU-1"], by_device["idle", "GPU-1"]) == (1, 0.5, 1)
    by_worker = source.metric("worker_gpu_seconds_total")
    assert (by_worker["kernels", "GPU-0", "a"], by_worker["kernels", "GPU-0", "b"]) == (2, 1)
    for name, values in {
        "workers": {("GPU-0",): 2.0, ("GPU-1",): 1.0},
        "coverage_ratio": {(): 0.75},
        "records_dropped_total": {(): 3.0},
        "unmeasured_workers": {(): 0.0},
        "power_watts": {("GPU-0",): 300.0},
        "ecc_uncorrected_errors_total": {("GPU-0",): 2.0},
    }.items():
        assert source.metric(f"gpu_{name}") == values
    assert "not_a_reading" not in source.text()
    source.cluster.worker_left("tcp://a", at=5 * SECOND)
    source.cluster.close_departed(at=5 * SECOND, grace=0)
    assert source.metric("gpu_seconds_total")["kernels", "GPU-0"] == 2 + 1
    assert source.metric("worker_gpu_seconds_total")["kernels", "GPU-0", "a"] == 2
    assert source.metric("gpu_workers") == {("GPU-0",): 1.0, ("GPU-1",): 1.0}


def test_a_hostile_uuid_breaks_no_line_of_the_export(source):
    source.join("a")
    uuid = 'GPU"\n\\{}' + "x" * 500
    source.report("a", 1, elapsed=4 * SECOND, gpu=watched(uuid, "\x1b[2J", readings={uuid: {"power_watts": 1.0}}))
    assert len(source.metric("gpu_seconds_total")) == 2 * 3
    assert len(source.metric("gpu_power_watts")) == 1
    assert source.metric("export_failures_total") == {(): 0.0}


def straggler(worker: str, host: str = "h", cause: Cause = Cause.DISK, effect: float = 1.5) -> SlowWorker:
    return SlowWorker(worker, host, cause, 2.0, 0.9, 0.0, effect)


def test_stragglers_are_counted_by_cause_and_exported_with_their_effect(source):
    assert source.metric("stragglers") == {(str(cause),): 0.0 for cause in Cause}
    assert source.metric("straggler_effect") == {}
    source.findings = (straggler("a"), straggler("b"), straggler("", "rack", Cause.NETWORK, 3.0))
    count = source.metric("stragglers")
    assert (count["disk",], count["network",], count["gil",]) == (2, 1, 0)
    effects = {("disk", "h", "a"): 1.5, ("disk", "h", "b"): 1.5, ("network", "rack", ""): 3.0}
    assert source.metric("straggler_effect") == effects


def test_stragglers_are_exported_one_by_one_up_to_a_number_and_by_harmless_names(source):
    source.findings = tuple(straggler(f"w{i}") for i in range(3 * MAX_STRAGGLERS))
    assert len(source.metric("straggler_effect")) == MAX_STRAGGLERS
    assert source.metric("stragglers")["disk",] == 3 * MAX_STRAGGLERS
    source.findings = tuple(straggler(name, name) for name in [*HOSTILE_NAMES, "x" * 1000, "x" * 1001])
    labels = source.metric("straggler_effect")
    assert max(len(worker) for _, _, worker in labels) <= MAX_LABEL_LENGTH
    assert len(labels) >= len(HOSTILE_NAMES)


def lose_to_overhead(source: Source, name: str = "task") -> None:
    """Ten seconds with work in which a task of that prefix computes for four, and is held for four more."""
    source.join("w")
    source.cluster.work.set(True, at=0)
    source.poll()
    source.report("w", 1, elapsed=10 * SECOND, cpu=4 * SECOND, overhead=4 * SECOND, prefix=name)
    source.poll()


def test_each_finding_is_exported_with_its_saving_until_it_is_over(source):
    assert source.metric("finding_seconds") == {}
    lose_to_overhead(source)
    assert source.metric("finding_seconds") == {("idle", ""): 6.0, ("overhead", "task"): 2.0}
    source.at += 400 * SECOND
    source.cluster.work.set(False, at=source.at)
    source.poll()
    source.at += SECOND
    source.poll()
    assert source.metric("finding_seconds") == {}


# No account takes a prefix that is no UTF-8.
@pytest.mark.parametrize("name", [*sorted({*HOSTILE_NAMES} - {SURROGATE}), "x" * 1000])
def test_prefixes_are_harmless_labels(source, name):
    lose_to_overhead(source, name)
    (label,) = (where for kind, where in source.metric("finding_seconds") if kind == "overhead")
    by_prefix = source.metric("prefix_thread_seconds_total")
    assert sum(by_prefix.values()) == 8
    for prefix in (label, *(prefix for _, prefix in by_prefix)):
        assert prefix.isprintable()
        assert len(prefix) <= MAX_LABEL_LENGTH


@needs_promtool
def test_promtool_finds_nothing_wrong_with_hostile_names(source):
    source.join("a", *HOSTILE_NAMES)
    gpu = watched("GPU-0", readings={"GPU-0": dict.fromkeys(READINGS, 1.0)})
    source.report("a", 1, elapsed=4 * SECOND, cpu=3 * SECOND, gpu=gpu)
    assert lint(source.text()) == ""


@pytest.mark.parametrize(
    ("name", "label"),
    [
        *((name, name) for name in ('quo"te', "back\\slash", "{worker}", "é漢🦀", "10.0.0.1:1")),
        *(("new\nline", "new\\nline"), ("nul\0", "nul\\x00"), ("\x1b[2J", "\\x1b[2J")),
        (SURROGATE, "lone\\ud800surrogate"),
    ],
)
def test_only_the_unprintable_characters_of_a_name_are_escaped(source, name, label):
    source.join(name)
    assert source.metric("worker_nthreads") == {(label,): 2.0}


def test_long_names_are_cut_and_names_that_read_alike_are_one_series(source):
    source.join("a" * 5_000 + "1" + "a" * 5_000, "a" * 5_000 + "2" + "a" * 5_000)
    ((label,),) = source.metric("worker_nthreads")
    assert len(label) == MAX_LABEL_LENGTH
    assert source.metric("worker_nthreads") == {(label,): 4.0}


def test_above_the_limit_only_some_workers_are_exported(source):
    source.options = replace(source.options, max_exported_workers=30)
    source.cluster.work.set(True, at=0)
    source.join(*(f"{i:02}" for i in range(30)))
    for i in range(30):
        source.report(f"{i:02}", 1, elapsed=40 * SECOND, cpu=i * SECOND)
    assert source.metric("worker_metrics_limited") == {(): 0.0}
    assert len(source.metric("worker_nthreads")) == 30
    source.join("one more")
    assert source.metric("worker_metrics_limited") == {(): 1.0}
    expected = {f"{i:02}" for i in [*range(10), *range(20, 30)]}
    by_cause = ("thread_activity_seconds_total", "thread_seconds_total", "thread_waiting_seconds_total")
    for metric in ("nthreads", "running_thread_seconds", *by_cause):
        assert {labels[-1] for labels in source.metric(f"worker_{metric}")} == expected
    assert source.metric("nthreads") == {(): 2.0 * 31}


def test_a_worker_that_is_exported_again_has_its_true_counter(source):
    source.options = replace(source.options, max_exported_workers=2)
    source.cluster.work.set(True, at=0)
    source.join("a", "b", "c")
    booked, exported = dict.fromkeys("abc", 0), []
    for minute in range(1, 31):
        for name, seconds in {"a": 25, "b": 25, "c": 1, "b" if 10 < minute <= 20 else "a": 50}.items():
            booked[name] += seconds
            source.report(name, minute, elapsed=minute * 60 * SECOND, cpu=booked[name] * SECOND)
        rows = source.metric("worker_thread_seconds_total")
        cpu = {name: seconds for (bucket, name), seconds in rows.items() if bucket == "thread-cpu"}
        assert cpu == {name: booked[name] for name in cpu}
        exported.append("".join(sorted(cpu)))
    assert [names for names, _ in groupby(exported)] == ["ac", "bc", "ac"]


def test_prefixes_add_up_to_the_totals_bucket_by_bucket(source):
    source.options = replace(source.options, max_exported_prefixes=2)
    source.join("a", "b", "c")
    for i, name in enumerate("abc", start=1):
        source.report(name, 1, elapsed=9 * SECOND, cpu=i * SECOND, waited=SECOND, prefix=f"prefix-{name}")
    by_prefix = source.metric("prefix_thread_seconds_total")
    assert {prefix for _, prefix in by_prefix} == {"prefix-b", "prefix-c", "(other)"}
    assert by_prefix["thread-cpu", "prefix-c"] == 3
    totals = source.metric("thread_seconds_total")
    for bucket in map(str, TASK_BUCKETS):
        assert sum(n for (of, _), n in by_prefix.items() if of == bucket) == totals[bucket,]


def test_a_departed_workers_series_stay_a_minute_and_go_on_if_it_comes_again(source):
    source.join("a", "b")
    source.report("a", 1, elapsed=4 * SECOND, cpu=3 * SECOND)
    source.cluster.worker_left("tcp://a", at=4 * SECOND)
    source.cluster.close_departed(at=8 * SECOND)
    source.at = 4 * SECOND + RECENT_NS - 1
    assert source.metric("worker_thread_seconds_total")["thread-cpu", "a"] == 3
    assert ("a",) not in source.metric("worker_nthreads")
    source.at += 1
    assert ("thread-cpu", "a") not in source.metric("worker_thread_seconds_total")
    assert source.metric("thread_seconds_total")[("thread-cpu",)] == 3
    source.at += RECENT_NS
    source.join("a")
    assert source.metric("worker_thread_seconds_total")["thread-cpu", "a"] == 3


def test_a_scrape_changes_no_figure_but_its_cost(source):
    source.join("a")
    source.report("a", 1, elapsed=4 * SECOND, cpu=3 * SECOND)
    first, second, _ = ([one for one in source.text().splitlines() if "plugin_cpu" not in one] for _ in range(3))
    assert first == second
    assert source.metric("plugin_cpu_seconds_total")[("scheduler",)] > 0


@pytest.mark.parametrize("part", ["part", "finalized_by_prefix", "part_by_worker", "recent_names"])
def test_a_group_that_fails_is_left_out_counted_and_logged_once(source, monkeypatch, caplog, part):
    source.join("a")
    method = getattr(source.cluster, part)

    def fails(*args, **kwargs):
        return method(*args) if part == "part" and args != ("activity",) else 1 / 0

    monkeypatch.setattr(source.cluster, part, fails)
    with caplog.at_level(logging.ERROR):
        for scrape in (1, 2):
            assert source.metric("export_failures_total") == {(): float(scrape)}
    assert len([record for record in caplog.records if record.name == "dask_efficiency"]) == 1
    assert source.metric("snapshots_refused_total") == {(): 0.0}
    assert bool(source.metric("nthreads")) is (part != "part")


def test_broken_accounts_break_no_scrape(source, monkeypatch):
    source.join("a")
    monkeypatch.setattr(source, "refresh", lambda: 1 / 0)
    assert source.metric("nthreads") == {(): 2.0}
    assert source.metric("export_failures_total") == {(): 2.0}
    source.cluster = None  # type: ignore[assignment]
    # The refresh and every one of the ten groups fail.
    assert source.metric("export_failures_total") == {(): 2.0 + 1 + 10}


def test_of_several_sources_the_last_is_exported(source):
    other = Source()
    other.join("other")
    source.collector.add(other)
    assert source.metric("worker_nthreads") == {("other",): 2.0}
    source.collector.remove(other)
    assert source.metric("nthreads") == {(): 0.0}
    source.collector.remove(source)
    source.collector.remove(source)
    assert "dask_efficiency" not in source.text()
    source.collector.add(source)
    assert source.metric("nthreads") == {(): 0.0}
    source.registry.unregister(source.collector)
    source.collector.remove(source)
    assert "dask_efficiency" not in source.text()
