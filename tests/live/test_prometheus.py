from __future__ import annotations

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
from dask_efficiency.accounts.gpu import DeviceTotals, GpuTotals
from dask_efficiency.accounts.metered import WAYS
from dask_efficiency.accounts.sensors import READINGS
from dask_efficiency.accounts.slow_worker import Cause, SlowWorker
from dask_efficiency.accounts.wire.heartbeats import encode
from dask_efficiency.accounts.wire.snapshots import OWN_WORK, Snapshot, SnapshotCauses
from dask_efficiency.accounts.worker.balance import TASK_BUCKETS, Outcome, Used
from dask_efficiency.accounts.worker.ledger import Ledger
from dask_efficiency.live import prometheus
from dask_efficiency.live.prometheus import MAX_LABEL_LENGTH, MAX_STRAGGLERS, ClusterCollector
from dask_efficiency.plugin.options import resolve
from dask_efficiency.plugin.scheduler.accounts import Moment
from tests.live.prometheus_process import lint, needs_promtool

SECOND = 1_000_000_000

#: Names that would break the text format, a terminal or a browser, or that no encoding can carry.
HOSTILE_NAMES = [
    'quo"te',
    "back\\slash",
    "new\nline",
    "nul\0",
    "{worker}",
    "\x1b[2Jescape",
    "\u202egnp",
    "é漢🦀",
    " ",
    "",
]
SURROGATE = "lone\ud800surrogate"


#: Metrics of causes, by name, and the bucket that has them.
CAUSE_METRICS = {
    "dask_efficiency_thread_waiting_seconds_total": Bucket.THREAD_NONCPU,
    "dask_efficiency_overhead_seconds_total": Bucket.OVERHEAD,
    "dask_efficiency_idle_seconds_total": Bucket.IDLE,
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
        self.recent: list[Moment] = []
        self.at = 0
        self.refreshed = 0

    def refresh(self) -> None:
        self.refreshed += 1

    def now(self) -> int:
        return self.at

    def poll(self) -> None:
        """Remember what all threads have done by now."""
        cluster = self.cluster
        activity, causes = cluster.activity(), cluster.cause_activity()
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
        gpu: GpuTotals | None = None,
        incarnation: str | None = None,
        causes: SnapshotCauses | None = None,
        amounts: dict[str, int] | None = None,
    ) -> None:
        """A snapshot of a worker that was idle but for one task, which succeeded or runs."""
        ledger = Ledger(2, at=0)
        ledger.reserve("key", prefix, at=0)
        if not running:
            hold = ledger.release("key", at=cpu + waited + overhead)
            assert hold is not None
            ledger.finalize(hold, Outcome.SUCCEEDED, cpu=cpu, wall=cpu + waited)
        balance = ledger.balance(at=elapsed, used={"key": Used(elapsed, elapsed)})
        outside = {OWN_WORK: SECOND // 4}
        self.at = elapsed
        causes = causes or SnapshotCauses()
        snapshot = Snapshot(incarnation or name, seq, balance, outside, gpu=gpu, causes=causes, amounts=amounts or {})
        self.cluster.receive(f"tcp://{name}", encode(snapshot), at=elapsed)


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def registry(monkeypatch) -> Any:
    """A registry in place of the process's own."""
    registry = prometheus_client.CollectorRegistry()
    monkeypatch.setattr(prometheus_client, "REGISTRY", registry)
    return registry


@pytest.fixture
def collector(registry, source) -> ClusterCollector:
    collector = ClusterCollector()
    collector.add(source)
    return collector


def text(registry: Any) -> str:
    return prometheus_client.generate_latest(registry).decode()


def samples(registry: Any, name: str) -> dict[tuple[str, ...], float]:
    """Label values, in the order of their labels' names, to the value; as a scraper reads it."""
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text(registry))
        for sample in family.samples
        if sample.name == name
    }


def test_every_bucket_and_outcome_is_there_from_zero_on(collector, registry):
    assert samples(registry, "dask_efficiency_thread_activity_seconds_total") == {(a,): 0.0 for a in ACTIVITIES}
    assert samples(registry, "dask_efficiency_thread_seconds_total") == {(str(b),): 0.0 for b in FINALIZED}
    assert samples(registry, "dask_efficiency_tasks_total") == {(str(o),): 0.0 for o in Outcome}
    for name, bucket in CAUSE_METRICS.items():
        assert samples(registry, name) == {(cause,): 0.0 for cause in CAUSES[bucket]}
    for name in ("running_thread_seconds", "nthreads", "meter_off", "worker_metrics_limited"):
        assert samples(registry, f"dask_efficiency_{name}") == {(): 0.0}
    for name in ("unmeasured_workers", "unsampled_workers"):
        assert samples(registry, f"dask_efficiency_{name}") == {(): 0.0}
    assert samples(registry, "dask_efficiency_heartbeat_read_interval_seconds") == {(): 0.5}
    for name in ("snapshots_refused_total", "snapshots_stale_total", "export_failures_total"):
        assert samples(registry, f"dask_efficiency_{name}") == {(): 0.0}


def test_causes_are_exported_in_seconds_and_never_fall_when_their_worker_dies(collector, registry, source):
    source.cluster.work.set(True, at=0)
    source.join("a", "b")
    half, quarter = SECOND // 2, SECOND // 4
    active = {"thread-noncpu/gil": SECOND, "thread-noncpu/unknown": half, "overhead/hand-over": quarter}
    known = SnapshotCauses(active, active)
    source.report("a", 1, elapsed=4 * SECOND, cpu=SECOND, waited=SECOND + half, overhead=quarter, causes=known)
    source.report("b", 1, elapsed=4 * SECOND, causes=SnapshotCauses(not_sampled="no /proc"))
    source.cluster.worker_left("tcp://a", at=4 * SECOND)
    source.cluster.close_departed(at=8 * SECOND)
    waiting, overhead, idle = (samples(registry, name) for name in CAUSE_METRICS)
    assert (waiting["gil",], waiting["unknown",], sum(waiting.values())) == (1, 0.5, 1.5)
    assert (overhead["hand-over",], sum(overhead.values())) == (0.25, 0.25)
    assert sum(idle.values()) == samples(registry, "dask_efficiency_thread_activity_seconds_total")["idle",] == 13.25
    by_worker = samples(registry, "dask_efficiency_worker_thread_waiting_seconds_total")
    assert (by_worker["gil", "a"], by_worker["gil", "b"]) == (1, 0)
    assert samples(registry, "dask_efficiency_unsampled_workers") == {(): 1.0}


def test_data_is_counted_by_the_way_it_went_and_never_falls_when_its_worker_dies(collector, registry, source):
    source.join("a", "b")
    source.report("a", 1, elapsed=SECOND, amounts={"spilled/bytes": 700, "spilled/count": 3})
    source.report("b", 1, elapsed=SECOND, amounts={"spilled/bytes": 30, "sent/bytes": 5})
    source.cluster.worker_left("tcp://a", at=SECOND)
    source.cluster.close_departed(at=9 * SECOND)
    nbytes = samples(registry, "dask_efficiency_data_bytes_total")
    assert nbytes == {**{(way,): 0.0 for way in WAYS}, ("spilled",): 730.0, ("sent",): 5.0}
    assert samples(registry, "dask_efficiency_data_items_total")["spilled",] == 3


def test_what_was_booked_is_exported_in_seconds(collector, registry, source):
    source.join("a", "b")
    source.report("a", 1, elapsed=4 * SECOND, cpu=3 * SECOND)
    source.report("b", 1, elapsed=4 * SECOND, running=True)
    activity = samples(registry, "dask_efficiency_thread_activity_seconds_total")
    finalized = samples(registry, "dask_efficiency_thread_seconds_total")
    assert activity[("thread-cpu",)] == 3 + 4
    assert finalized[("thread-cpu",)] == 3
    assert samples(registry, "dask_efficiency_running_thread_seconds") == {(): 4.0}
    assert sum(activity.values()) == sum(finalized.values()) + 4 == 2 * 2 * 4
    assert samples(registry, "dask_efficiency_nthreads") == {(): 4.0}
    assert samples(registry, "dask_efficiency_tasks_total")[("succeeded",)] == 1
    by_worker = samples(registry, "dask_efficiency_worker_thread_activity_seconds_total")
    assert (by_worker["thread-cpu", "a"], by_worker["thread-cpu", "b"]) == (3, 4)
    assert samples(registry, "dask_efficiency_worker_running_thread_seconds") == {("a",): 0.0, ("b",): 4.0}
    assert samples(registry, "dask_efficiency_worker_nthreads") == {("a",): 2.0, ("b",): 2.0}
    assert samples(registry, "dask_efficiency_plugin_cpu_seconds_total")[("workers",)] == 0.5


def watched(*uuids: str, kernels: int = 2 * SECOND, idle: int = SECOND, **fields: Any) -> GpuTotals:
    """What a worker had of some GPUs: half a second of copies each."""
    half = SECOND // 2
    devices = [
        DeviceTotals(uuid, "H100", kernels + half + idle, kernels, half, idle, {"train": kernels + half})
        for uuid in uuids
    ]
    given = {"meter": "cupti", "kernel_ns": 4 * kernels, "attributed_ns": 3 * kernels}
    return GpuTotals(devices=tuple(devices), **(given | fields))


def test_without_a_gpu_nothing_of_gpus_is_exported(collector, registry, source):
    source.join("a")
    source.report("a", 1, elapsed=4 * SECOND)
    assert "gpu_" not in text(registry)


def test_what_gpus_did_is_exported_by_device_and_by_worker(collector, registry, source):
    source.join("a", "b")
    readings = {"GPU-0": {"power_watts": 300.0, "ecc_uncorrected_errors_total": 2.0, "not_a_reading": 1.0}}
    source.report("a", 1, elapsed=4 * SECOND, gpu=watched("GPU-0", readings=readings, dropped=3))
    source.report("b", 1, elapsed=4 * SECOND, gpu=watched("GPU-0", "GPU-1", kernels=SECOND))
    by_device = samples(registry, "dask_efficiency_gpu_seconds_total")
    assert by_device["kernels", "GPU-0"] == 2 + 1
    assert (by_device["kernels", "GPU-1"], by_device["copies", "GPU-1"], by_device["idle", "GPU-1"]) == (1, 0.5, 1)
    by_worker = samples(registry, "dask_efficiency_worker_gpu_seconds_total")
    assert (by_worker["kernels", "GPU-0", "a"], by_worker["kernels", "GPU-0", "b"]) == (2, 1)
    assert samples(registry, "dask_efficiency_gpu_workers") == {("GPU-0",): 2.0, ("GPU-1",): 1.0}
    assert samples(registry, "dask_efficiency_gpu_coverage_ratio") == {(): 0.75}
    assert samples(registry, "dask_efficiency_gpu_records_dropped_total") == {(): 3.0}
    assert samples(registry, "dask_efficiency_gpu_unmeasured_workers") == {(): 0.0}
    assert samples(registry, "dask_efficiency_gpu_power_watts") == {("GPU-0",): 300.0}
    assert samples(registry, "dask_efficiency_gpu_ecc_uncorrected_errors_total") == {("GPU-0",): 2.0}
    assert "not_a_reading" not in text(registry)


def test_what_a_gpu_did_never_falls_when_its_worker_dies_or_its_meter_begins_again(collector, registry, source):
    source.join("a")
    source.report("a", 1, elapsed=4 * SECOND, gpu=watched("GPU-0"))
    source.cluster.worker_left("tcp://a", at=5 * SECOND)
    source.cluster.close_departed(at=5 * SECOND, grace=0)
    assert samples(registry, "dask_efficiency_gpu_seconds_total")["kernels", "GPU-0"] == 2
    assert samples(registry, "dask_efficiency_gpu_workers") == {}
    source.at = 5 * SECOND
    source.join("a")
    source.report("a", 1, elapsed=9 * SECOND, gpu=watched("GPU-0", kernels=SECOND), incarnation="second life")
    assert samples(registry, "dask_efficiency_gpu_seconds_total")["kernels", "GPU-0"] == 2 + 1
    assert samples(registry, "dask_efficiency_worker_gpu_seconds_total")["kernels", "GPU-0", "a"] == 2 + 1


def test_a_refused_gpu_meter_is_counted_and_makes_no_series_of_devices(collector, registry, source):
    source.join("a")
    source.report("a", 1, elapsed=SECOND, gpu=GpuTotals("none", "another profiler is attached"))
    assert samples(registry, "dask_efficiency_gpu_unmeasured_workers") == {(): 1.0}
    assert samples(registry, "dask_efficiency_gpu_seconds_total") == {}
    assert samples(registry, "dask_efficiency_gpu_coverage_ratio") == {}


def test_too_many_gpus_are_not_exported_one_by_one(collector, registry, source, monkeypatch):
    monkeypatch.setattr(prometheus, "MAX_GPUS", 2)
    source.join("a")
    source.report("a", 1, elapsed=4 * SECOND, gpu=watched("GPU-0", "GPU-1", "GPU-2"))
    assert samples(registry, "dask_efficiency_gpu_metrics_off") == {(): 1.0}
    assert samples(registry, "dask_efficiency_gpu_seconds_total") == {}


def test_a_hostile_uuid_breaks_no_line_of_the_export(collector, registry, source):
    source.join("a")
    uuid = 'GPU"\n\\{}' + "x" * 500
    source.report("a", 1, elapsed=4 * SECOND, gpu=watched(uuid, SURROGATE, readings={uuid: {"power_watts": 1.0}}))
    assert len(samples(registry, "dask_efficiency_gpu_seconds_total")) == 2 * 3
    assert len(samples(registry, "dask_efficiency_gpu_power_watts")) == 1
    assert samples(registry, "dask_efficiency_export_failures_total") == {(): 0.0}


def straggler(worker: str, host: str = "h", cause: Cause = Cause.DISK, effect: float = 1.5) -> SlowWorker:
    return SlowWorker(worker, host, cause, 2.0, 0.9, 0.0, effect)


def test_stragglers_are_counted_by_cause_and_exported_with_their_effect(collector, registry, source):
    assert samples(registry, "dask_efficiency_stragglers") == {(str(cause),): 0.0 for cause in Cause}
    assert samples(registry, "dask_efficiency_straggler_effect") == {}
    source.findings = (straggler("a"), straggler("b"), straggler("", "rack", Cause.NETWORK, 3.0))
    count = samples(registry, "dask_efficiency_stragglers")
    assert (count["disk",], count["network",], count["gil",]) == (2, 1, 0)
    assert samples(registry, "dask_efficiency_straggler_effect") == {
        ("disk", "h", "a"): 1.5,
        ("disk", "h", "b"): 1.5,
        ("network", "rack", ""): 3.0,
    }


def test_stragglers_are_exported_one_by_one_up_to_a_number_and_by_harmless_names(collector, registry, source):
    source.findings = tuple(straggler(f"w{i}") for i in range(3 * MAX_STRAGGLERS))
    assert len(samples(registry, "dask_efficiency_straggler_effect")) == MAX_STRAGGLERS
    assert samples(registry, "dask_efficiency_stragglers")["disk",] == 3 * MAX_STRAGGLERS
    source.findings = tuple(straggler(name, name) for name in [*HOSTILE_NAMES, SURROGATE, "x" * 1000, "x" * 1001])
    labels = samples(registry, "dask_efficiency_straggler_effect")
    assert max(len(worker) for _, _, worker in labels) <= MAX_LABEL_LENGTH
    assert len(labels) >= len(HOSTILE_NAMES)


def lose_to_overhead(source: Source, name: str = "task") -> None:
    """Ten seconds with work in which a task of that prefix computes for four, and is held for four more."""
    source.join("w")
    source.cluster.work.set(True, at=0)
    source.poll()
    source.report("w", 1, elapsed=10 * SECOND, cpu=4 * SECOND, overhead=4 * SECOND, prefix=name)
    source.poll()


def test_what_costs_most_is_exported_with_what_fixing_it_saves_and_goes_when_it_is_over(collector, registry, source):
    assert samples(registry, "dask_efficiency_finding_seconds") == {}
    lose_to_overhead(source)
    assert samples(registry, "dask_efficiency_finding_seconds") == {("idle", ""): 6.0, ("overhead", "task"): 2.0}
    source.at += 400 * SECOND
    source.cluster.work.set(False, at=source.at)
    source.poll()
    source.at += SECOND
    source.poll()
    assert samples(registry, "dask_efficiency_finding_seconds") == {}


@pytest.mark.parametrize("name", [*HOSTILE_NAMES, SURROGATE, "x" * 1000])
def test_prefixes_are_harmless_labels(collector, registry, source, name):
    lose_to_overhead(source, name)
    (label,) = (where for kind, where in samples(registry, "dask_efficiency_finding_seconds") if kind == "overhead")
    by_prefix = samples(registry, "dask_efficiency_prefix_thread_seconds_total")
    assert sum(by_prefix.values()) == 8
    for prefix in (label, *(prefix for _, prefix in by_prefix)):
        assert prefix.isprintable()
        assert len(prefix) <= MAX_LABEL_LENGTH


def test_the_cost_of_scrapes_is_counted(collector, registry, source):
    text(registry)
    assert samples(registry, "dask_efficiency_plugin_cpu_seconds_total")[("scheduler",)] > 0


@needs_promtool
def test_promtool_finds_nothing_wrong_whatever_workers_are_called(collector, registry, source):
    source.join("a", *HOSTILE_NAMES, SURROGATE)
    gpu = watched("GPU-0", readings={"GPU-0": dict.fromkeys(READINGS, 1.0)})
    source.report("a", 1, elapsed=4 * SECOND, cpu=3 * SECOND, gpu=gpu)
    assert lint(text(registry)) == ""


@pytest.mark.parametrize("name", ['quo"te', "back\\slash", "{worker}", "é漢🦀", "10.0.0.1:1"])
def test_a_printable_name_arrives_as_it_is(collector, registry, source, name):
    source.join(name)
    assert samples(registry, "dask_efficiency_worker_nthreads") == {(name,): 2.0}


@pytest.mark.parametrize(
    ("name", "label"),
    [("new\nline", "new\\nline"), ("nul\0", "nul\\x00"), ("\x1b[2J", "\\x1b[2J"), (SURROGATE, "lone\\ud800surrogate")],
)
def test_what_is_not_printable_in_a_name_is_escaped(collector, registry, source, name, label):
    source.join(name)
    assert samples(registry, "dask_efficiency_worker_nthreads") == {(label,): 2.0}


def test_long_names_are_cut_and_names_that_read_alike_are_one_series(collector, registry, source):
    source.join("a" * 5_000 + "1" + "a" * 5_000, "a" * 5_000 + "2" + "a" * 5_000)
    ((label,),) = samples(registry, "dask_efficiency_worker_nthreads")
    assert len(label) == MAX_LABEL_LENGTH
    assert samples(registry, "dask_efficiency_worker_nthreads") == {(label,): 4.0}


def test_above_the_limit_only_some_workers_are_exported_and_a_metric_says_so(collector, registry, source):
    source.options = replace(source.options, max_exported_workers=30)
    source.cluster.work.set(True, at=0)
    source.join(*(f"{i:02}" for i in range(30)))
    for i in range(30):
        source.report(f"{i:02}", 1, elapsed=40 * SECOND, cpu=i * SECOND)
    assert samples(registry, "dask_efficiency_worker_metrics_limited") == {(): 0.0}
    assert len(samples(registry, "dask_efficiency_worker_nthreads")) == 30
    source.join("one more")
    assert samples(registry, "dask_efficiency_worker_metrics_limited") == {(): 1.0}
    expected = {f"{i:02}" for i in [*range(10), *range(20, 30)]}
    for metric in ("nthreads", "running_thread_seconds"):
        assert {name for (name,) in samples(registry, f"dask_efficiency_worker_{metric}")} == expected
    for metric in ("thread_activity_seconds", "thread_seconds", "thread_waiting_seconds"):
        assert {name for _, name in samples(registry, f"dask_efficiency_worker_{metric}_total")} == expected
    assert samples(registry, "dask_efficiency_nthreads") == {(): 2.0 * 31}


def test_a_worker_that_is_exported_again_has_its_true_counter(collector, registry, source):
    source.options = replace(source.options, max_exported_workers=2)
    source.cluster.work.set(True, at=0)
    source.join("a", "b", "c")
    booked = dict.fromkeys("abc", 0)
    exported = []
    for minute in range(1, 31):
        most = "b" if 10 < minute <= 20 else "a"
        for name in "abc":
            booked[name] += 50 if name == most else 1 if name == "c" else 25
            source.report(name, minute, elapsed=minute * 60 * SECOND, cpu=booked[name] * SECOND)
        cpu = {
            name: seconds
            for (bucket, name), seconds in samples(registry, "dask_efficiency_worker_thread_seconds_total").items()
            if bucket == "thread-cpu"
        }
        assert cpu == {name: booked[name] for name in cpu}
        exported.append("".join(sorted(cpu)))
    assert [names for names, _ in groupby(exported)] == ["ac", "bc", "ac"]


def test_prefixes_add_up_to_the_totals_bucket_by_bucket(collector, registry, source):
    source.options = replace(source.options, max_exported_prefixes=2)
    source.join("a", "b", "c")
    for i, name in enumerate("abc", start=1):
        source.report(name, 1, elapsed=9 * SECOND, cpu=i * SECOND, waited=SECOND, prefix=f"prefix-{name}")
    by_prefix = samples(registry, "dask_efficiency_prefix_thread_seconds_total")
    assert {prefix for _, prefix in by_prefix} == {"prefix-b", "prefix-c", "(other)"}
    assert by_prefix["thread-cpu", "prefix-c"] == 3
    totals = samples(registry, "dask_efficiency_thread_seconds_total")
    for bucket in map(str, TASK_BUCKETS):
        assert sum(n for (of, _), n in by_prefix.items() if of == bucket) == totals[bucket,]


def test_a_departed_workers_series_stay_a_minute_and_go(collector, registry, source):
    source.join("a", "b")
    source.report("a", 1, elapsed=4 * SECOND, cpu=3 * SECOND)
    source.cluster.worker_left("tcp://a", at=4 * SECOND)
    source.cluster.close_departed(at=8 * SECOND)
    source.at = 4 * SECOND + RECENT_NS - 1
    assert samples(registry, "dask_efficiency_worker_thread_seconds_total")["thread-cpu", "a"] == 3
    assert ("a",) not in samples(registry, "dask_efficiency_worker_nthreads")
    source.at += 1
    assert ("thread-cpu", "a") not in samples(registry, "dask_efficiency_worker_thread_seconds_total")
    assert samples(registry, "dask_efficiency_thread_seconds_total")[("thread-cpu",)] == 3


def test_a_worker_that_comes_again_goes_on_where_it_was(collector, registry, source):
    source.join("a")
    source.report("a", 1, elapsed=4 * SECOND, cpu=3 * SECOND)
    source.cluster.worker_left("tcp://a", at=4 * SECOND)
    source.at = 4 * SECOND + 2 * RECENT_NS
    source.join("a")
    assert samples(registry, "dask_efficiency_worker_thread_seconds_total")["thread-cpu", "a"] == 3


def test_reading_changes_no_figure(collector, registry, source):
    source.join("a")
    source.report("a", 1, elapsed=4 * SECOND, cpu=3 * SECOND)
    first, second = (
        [line for line in text(registry).splitlines() if "plugin_cpu_seconds" not in line] for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize("part", ["activity", "finalized_by_prefix", "part_by_worker", "recent_names"])
def test_a_group_that_fails_is_left_out_counted_and_logged_once(collector, registry, source, monkeypatch, caplog, part):
    source.join("a")

    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("injected")

    monkeypatch.setattr(source.cluster, part, fail)
    with caplog.at_level(logging.ERROR):
        for scrape in (1, 2):
            assert samples(registry, "dask_efficiency_export_failures_total") == {(): float(scrape)}
    assert len(caplog.records) == 1
    assert samples(registry, "dask_efficiency_snapshots_refused_total") == {(): 0.0}
    assert bool(samples(registry, "dask_efficiency_nthreads")) is (part != "activity")


def test_a_failure_to_refresh_exports_what_was_known(collector, registry, source, monkeypatch):
    source.join("a")
    monkeypatch.setattr(source, "refresh", lambda: 1 / 0)
    assert samples(registry, "dask_efficiency_nthreads") == {(): 2.0}
    assert samples(registry, "dask_efficiency_export_failures_total") == {(): 2.0}


def test_accounts_that_are_broken_altogether_break_no_scrape(collector, registry, source):
    source.cluster = None  # type: ignore[assignment]
    assert samples(registry, "dask_efficiency_export_failures_total") == {(): 8.0}


def test_a_meter_that_switched_itself_off_says_so(collector, registry, source):
    source.off = "it failed"
    assert samples(registry, "dask_efficiency_meter_off") == {(): 1.0}


def test_registering_collects_nothing(registry, source):
    ClusterCollector().add(source)
    assert source.refreshed == 0


def test_of_several_sources_the_last_is_exported(collector, registry, source):
    other = Source()
    other.join("other")
    collector.add(other)
    assert samples(registry, "dask_efficiency_worker_nthreads") == {("other",): 2.0}
    collector.remove(other)
    assert samples(registry, "dask_efficiency_nthreads") == {(): 0.0}
    collector.remove(source)
    collector.remove(source)
    assert "dask_efficiency" not in text(registry)
    collector.add(source)
    assert samples(registry, "dask_efficiency_nthreads") == {(): 0.0}


def test_a_registry_that_was_emptied_behind_our_back_is_no_error(collector, registry, source):
    registry.unregister(collector)
    collector.remove(source)
    assert "dask_efficiency" not in text(registry)
