"""Work with known totals, and the checks of a report against them, the client's clock and Dask's log of events."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from distributed import Client, Future, wait

from dask_efficiency import EfficiencyReport, efficiency_report, snapshot
from dask_efficiency.accounts.buckets import Breakdown
from dask_efficiency.accounts.cluster.cluster import GRACE_NS
from dask_efficiency.report.files import from_dict
from tests.deployments.programs import HOST, eventually, python_path

#: Seconds that a task is given, by its kind.
BURN, REST = 0.1, 0.2

#: Seconds of CPU of the task's thread and of wall time, by its own clocks.
Seconds = tuple[float, float]


class Stopwatch:
    """CPU time of this thread and wall time, since it was made."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._cpu = time.thread_time()

    def read(self) -> Seconds:
        return time.thread_time() - self._cpu, time.monotonic() - self._start


def burn(seconds: float) -> Seconds:
    watch = Stopwatch()
    while watch.read()[0] < seconds:
        pass
    return watch.read()


def rest(seconds: float) -> Seconds:
    watch = Stopwatch()
    time.sleep(seconds)
    return watch.read()


def burn_and_fail(seconds: float) -> None:
    """Compute and fail; the error carries what was used."""
    raise ArithmeticError(*burn(seconds))


@dataclass(frozen=True, slots=True)
class Known:
    """The cluster's work by the tasks' own clocks; seconds are sums over the tasks."""

    succeeded: int
    failed: int
    #: Of the tasks that succeeded.
    cpu_seconds: float
    wall_seconds: float
    #: Of those that failed.
    failed_seconds: float

    def __add__(self, other: Known) -> Known:
        return Known(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))


@dataclass(frozen=True, slots=True)
class Submitted:
    good: list[Future]
    bad: list[Future]

    def known(self, *, timeout: float = 120) -> Known:
        """Wait until all have ended; nothing of them stays in the cluster's memory."""
        wait([*self.good, *self.bad], timeout=timeout)
        measured = [future.result() for future in self.good]
        failures = [future.exception() for future in self.bad]
        for future in (*self.good, *self.bad):
            future.release()
        if not all(isinstance(error, ArithmeticError) for error in failures):
            raise RuntimeError(f"a task failed otherwise than planned: {failures}")
        return Known(
            succeeded=len(measured),
            failed=len(failures),
            cpu_seconds=sum(cpu for cpu, _ in measured),
            wall_seconds=sum(wall for _, wall in measured),
            failed_seconds=sum(error.args[1] for error in failures),
        )


def submit(client: Client, *, burning: int = 12, resting: int = 6, failing: int = 3) -> Submitted:
    """Submit tasks of each kind."""
    good = client.map(burn, [BURN] * burning, pure=False) + client.map(rest, [REST] * resting, pure=False)
    return Submitted(good, client.map(burn_and_fail, [BURN] * failing, pure=False))


#: Between an entry in Dask's log and the hook by which we hear of the same, on a busy machine; seconds.
HOOK = 0.5

#: Seconds after its removal that a closing worker may still report.
GRACE = GRACE_NS / 1e9


@dataclass(frozen=True, slots=True)
class Stay:
    """A worker's time with the scheduler, in seconds since the epoch."""

    joined: float
    left: float = math.inf


@dataclass(slots=True)
class Observed:
    """A report and what it must agree with."""

    block: efficiency_report
    #: Instants between which it opened, and between which it closed; seconds since the epoch.
    opened: tuple[float, float]
    closed: tuple[float, float] = (math.inf, math.inf)
    stays: list[Stay] = field(default_factory=list)

    @property
    def report(self) -> EfficiencyReport:
        """The report; there when its block has ended."""
        return self.block.report

    def thread_seconds(self, threads: int) -> tuple[float, float]:
        """Least and most thread-seconds of workers that have this many threads."""
        least = most = 0.0
        for stay in self.stays:
            least += max(0.0, min(stay.left, self.closed[0]) - max(stay.joined + HOOK, self.opened[1]))
            most += max(0.0, min(stay.left + GRACE, self.closed[1]) - max(stay.joined - HOOK, self.opened[0]))
        return threads * least, threads * most


@contextmanager
def observed(client: Client) -> Iterator[Observed]:
    """Report on a block; what was seen is complete when it has ended."""
    block = efficiency_report(client)
    opening = time.time()
    with block:
        seen = Observed(block, (opening, time.time()))
        yield seen
        closing = time.time()
    seen.closed = closing, time.time()
    seen.stays = [stay for stay in stays(client) if stay.left > seen.opened[0] and stay.joined < seen.closed[1]]


def stays(client: Client) -> list[Stay]:
    """Every worker that was ever there, by Dask's log; those of one address one after the other."""
    found = []
    joined: dict[str, float] = {}
    for at, message in client.get_events("all"):
        if message["action"] == "add-worker":
            joined[message["worker"]] = at
        elif message["action"] == "remove-worker" and message["worker"] in joined:
            found.append(Stay(joined.pop(message["worker"]), at))
    return found + [Stay(at) for at in joined.values()]


#: CPU that a task's thread may use beside what the task itself measured: of a task, and as a share. Both clocks are
#: the thread's own, so that a busy machine adds nothing.
BESIDE_SECONDS, BESIDE_SHARE = 0.003, 0.02

#: Buckets that stand still when nothing runs.
FINALIZED = ("thread-cpu", "thread-noncpu", "overhead", "failed")


@dataclass(frozen=True, slots=True)
class Check:
    what: str
    expected: str
    reported: str
    ok: bool


def equal(what: str, expected: object, reported: object) -> Check:
    return Check(what, str(expected), str(reported), expected == reported)


def between(what: str, least: float, most: float, reported: float) -> Check:
    return Check(what, f"{least:.3f} to {most:.3f} s", f"{reported:.3f} s", least <= reported <= most)


def at_least(what: str, least: float, reported: float) -> Check:
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
    """Seconds by which `thread-noncpu` may fall short, as `thread-cpu` may have them."""
    return known.cpu_seconds * BESIDE_SHARE + BESIDE_SECONDS * known.succeeded


def of_report(seen: Observed, known: Known, *, workers: int, threads: int, lost_seconds: float = 0) -> list[Check]:
    """Checks of a report's totals, workers and sums.

    Each worker has ``threads``; at most ``lost_seconds`` may be lost with workers that were killed.
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
    """Checks of the output of `dask-efficiency report ADDRESS --json` for the same cluster."""
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
    """Checks of the scheduler's export to Prometheus, if the known work is all that it ever had."""
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
    rows = [("", "expected", "reported", "ok")]
    rows += [(check.what, check.expected, check.reported, "yes" if check.ok else "NO") for check in checks]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
