"""What a report must say of work with known totals, beside what it says."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass

from distributed import Client

from benchmarks.deployments.observed import Observed, observed
from benchmarks.deployments.programs import HOST, eventually, python_path
from benchmarks.deployments.work import Known, submit
from dask_efficiency import EfficiencyReport, snapshot
from dask_efficiency.accounts.buckets import Breakdown
from dask_efficiency.report.files import from_dict

#: CPU that a task's thread may use beside what the task itself measured: of a task, and as a share. Both clocks are
#: the thread's own, so that a busy machine adds nothing.
BESIDE_SECONDS, BESIDE_SHARE = 0.003, 0.02

#: Buckets that stand still when nothing runs.
FINALIZED = ("thread-cpu", "thread-noncpu", "overhead", "failed")


@dataclass(frozen=True, slots=True)
class Check:
    """One line of a deployment's table."""

    what: str
    expected: str
    reported: str
    ok: bool


def equal(what: str, expected: object, reported: object) -> Check:
    """Exactly."""
    return Check(what, str(expected), str(reported), expected == reported)


def between(what: str, least: float, most: float, reported: float) -> Check:
    """Seconds, the ends included."""
    return Check(what, f"{least:.3f} to {most:.3f} s", f"{reported:.3f} s", least <= reported <= most)


def at_least(what: str, least: float, reported: float) -> Check:
    """Seconds."""
    return Check(what, f"{least:.3f} s or more", f"{reported:.3f} s", reported >= least)


def of_totals(report: EfficiencyReport, known: Known, lost_seconds: float) -> list[Check]:
    """Tasks and their time, and that of workers that were killed."""
    tasks = known.succeeded + known.failed
    others = sum(number for outcome, number in report.tasks.items() if outcome not in ("succeeded", "failed"))
    spent = report.breakdown
    return [
        equal("tasks succeeded", known.succeeded, report.tasks.get("succeeded", 0)),
        equal("tasks failed", known.failed, report.tasks.get("failed", 0)),
        equal("tasks of other outcomes", 0, others),
        between(
            "thread-cpu",
            known.cpu_seconds - 0.001,
            known.cpu_seconds * (1 + BESIDE_SHARE) + BESIDE_SECONDS * tasks,
            spent["thread-cpu"],
        ),
        at_least("thread-noncpu", known.wall_seconds - known.cpu_seconds - _off(known), spent["thread-noncpu"]),
        at_least("failed", known.failed_seconds, spent["failed"]),
        equal("still running (ns)", 0, spent.ns("running")),
        between("lost-worker", 0, lost_seconds, spent["lost-worker"]),
    ]


def _off(known: Known) -> float:
    """What `thread-cpu` may have more of, `thread-noncpu` may have less of."""
    return known.cpu_seconds * BESIDE_SHARE + BESIDE_SECONDS * known.succeeded


def of_report(seen: Observed, known: Known, *, workers: int, threads: int, lost_seconds: float = 0) -> list[Check]:
    """A report's totals, workers and sums, where each of the workers has so many threads.

    At most so many thread-seconds may be lost with workers that were killed.
    """
    report = seen.report
    return [
        *of_totals(report, known, lost_seconds),
        equal("workers", workers, len(report.by_worker)),
        equal("threads", workers * threads, sum(report.nthreads.values())),
        of_sum(report.by_worker.values(), threads),
        between("thread-seconds of all buckets", *seen.thread_seconds(threads), report.breakdown.total),
    ]


def of_sum(rows: Iterable[Breakdown], threads: int) -> Check:
    """A worker's buckets are its threads times a whole number of nanoseconds."""
    return equal(f"ns left over of buckets / {threads}", 0, sum(row.total_ns % threads for row in rows))


def of_fixed_cluster(client: Client, *, workers: int, threads: int, options: Iterable[str] = ()) -> list[Check]:
    """All that a metered cluster must say of some work, if its workers are there all the time and did nothing before.

    The options are those that `dask-efficiency report` takes to talk to its scheduler.
    """
    with observed(client) as seen:
        known = submit(client).known()
    life = snapshot(client)
    return [
        *of_report(seen, known, workers=workers, threads=threads),
        equal("unmeasured (ns)", 0, seen.report.breakdown.ns("unmeasured")),
        *of_command_line(client.scheduler.address, options, life),
        *of_metrics(client.scheduler_info()["services"]["dashboard"], known, life),
    ]


def wait_for_accounts(client: Client, known: Known) -> None:
    """Wait until the scheduler's accounts have all tasks of a cluster, and fail if that takes too long."""
    tasks = known.succeeded + known.failed
    eventually(lambda: sum(snapshot(client).tasks.values()) == tasks, what="the accounts to have all tasks")


def of_command_line(address: str, options: Iterable[str], life: EfficiencyReport) -> list[Check]:
    """What `dask-efficiency report ADDRESS --json` prints of the same cluster."""
    command = [sys.executable, "-c", "from dask_efficiency.cli import main; main()", "report", address, "--json"]
    environment = {**os.environ, "PYTHONPATH": python_path()}
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=60, env=environment)
    if done.returncode:
        return [Check("dask-efficiency report", "exit code 0", f"{done.returncode}: {done.stderr.strip()}", False)]
    printed = from_dict(json.loads(done.stdout)).breakdown
    return [
        equal(f"dask-efficiency report: {bucket} (ns)", life.breakdown.ns(bucket), printed.ns(bucket))
        for bucket in FINALIZED
    ]


def of_metrics(port: int, known: Known, life: EfficiencyReport) -> list[Check]:
    """What the scheduler exports to Prometheus, if the known work is all that it ever had."""
    if importlib.util.find_spec("prometheus_client") is None:
        return []
    with urllib.request.urlopen(f"http://{HOST}:{port}/metrics", timeout=10) as answer:
        found = dict(re.findall(r"^dask_efficiency_([^ ]+) (\S+)$", answer.read().decode(), re.MULTILINE))
    exported = {
        "tasks succeeded": (known.succeeded, 'tasks_total{outcome="succeeded"}'),
        "tasks failed": (known.failed, 'tasks_total{outcome="failed"}'),
        "snapshots refused": (0, "snapshots_refused_total"),
        **{
            f"{bucket} (s)": (life.breakdown[bucket], f'thread_seconds_total{{bucket="{bucket}"}}')
            for bucket in FINALIZED
        },
    }
    return [
        equal(f"/metrics: {what}", float(expected), float(found.get(series, "nan")))
        for what, (expected, series) in exported.items()
    ]


def table(checks: Iterable[Check]) -> str:
    """Aligned columns."""
    rows = [("", "expected", "reported", "ok")]
    rows += [(check.what, check.expected, check.reported, "yes" if check.ok else "NO") for check in checks]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
