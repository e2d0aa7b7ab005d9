"""Claim: why threads wait, and why slots are idle, is named right, on the line where it happens.

``python -m benchmarks.waiting [NAME ...] [--scale 0.3] [--json FILE]`` runs each workload in a process of its own, on a
cluster of processes, and prints for each the causes built in, what the report says, the share of the seconds that has
the right name, the share that is ``unknown``, and whether the line is that which waits. It exits with 1 where a goal is
missed:

- at least 90 % of the seconds are under the names of the causes built in, and at most 10 % are ``unknown``;
- where causes are mixed, those whose seconds are built in have them within 10 points;
- the first culprit's line is one of those that wait.

Waiting for a core is left out of the shares where it was not built in: how much there is depends on who else uses the
machine. It is compared with the kernel's clock instead, which tasks read as they begin and end.

It needs Linux, two cores, a disk where temporary files are (TMPDIR says where), and for the CPU limit root and cgroups
of version 1.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distributed import Client

from benchmarks import waiting_work as work
from benchmarks.diagnoses_work import chain, flood, skew, thinking_client
from benchmarks.figures import figure
from benchmarks.workload_runs import in_a_process, kernel_clocks, lacking, parser_of, write
from dask_efficiency import EfficiencyPlugin, EfficiencyReport, efficiency_report
from tests.thread_marks import Mark
from tests.waiting_tasks import MAX_UNKNOWN, MIN_RIGHT, waiting_lines

#: Of a workload's process. The scheduler alone takes half a minute for the longest, the flood.
TIMEOUT_SECONDS = 400.0

#: Points by which a share of the waiting may differ from the one built in.
MAX_APART = 0.1

#: How far the report's waiting for a core may be from the kernel's, as a share of all the waiting.
MAX_CORE_APART = 0.05

NONCPU = "thread-noncpu"
LIBRARY = "library-threads"


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload, and what is true of it."""

    name: str
    #: Runs it on this scale and measures; a diagnosis measures itself, and returns its report.
    run: Callable[[float, work.Measure], EfficiencyReport | None]
    built_in: str
    #: Right names of the seconds of its bucket.
    causes: tuple[str, ...]
    #: Whose seconds are looked at.
    bucket: str = NONCPU
    #: Functions with the lines that wait, marked ``# waits``.
    functions: tuple[Callable[..., Any], ...] = ()
    #: Files of libraries (end of the path) in which the innermost frame may be as well, below such a line.
    libraries: tuple[str, ...] = ()
    #: Prefix that the first culprit must have.
    prefix: str = ""
    #: Seconds that each task waits for a cause, where several are mixed.
    known: Mapping[str, float] = field(default_factory=dict)
    #: Modules that Dask does not bring along.
    needs: tuple[str, ...] = ()
    #: Why it cannot be run here; empty if it can.
    lacking: Callable[[], str] = lambda: ""


WORKLOADS = (
    Workload("python_loop", work.python_loop, "a pure Python loop in four threads", ("gil",), functions=(work.add_up,)),
    Workload(
        "object_strings",
        work.object_strings,
        "string methods on objects in four threads",
        ("gil",),
        functions=(work.count_letters,),
        libraries=(r"pandas/.*\.py",),
        needs=("pandas",),
    ),
    Workload("sleep", work.sleeping, "time.sleep in four threads", ("sleep",), functions=(work.nap,)),
    Workload(
        "slow_server",
        work.slow_server,
        "answers of an HTTP server take 250 ms; urllib waits in poll",
        ("network",),
        functions=(work.ask,),
        libraries=(r"socket\.py", r"http/client\.py"),
    ),
    Workload(
        "slow_socket",
        work.slow_socket,
        "a server says nothing for 250 ms; a blocking recv",
        ("network",),
        functions=(work.receive,),
    ),
    Workload(
        "cold_pages",
        work.cold_pages,
        "single pages of a file on a disk that are not in memory",
        ("file",),
        functions=(work.read_pages,),
        prefix="read_cold",
        lacking=work.no_disk,
    ),
    Workload(
        "lock",
        work.locked,
        "a lock that another thread holds, which sleeps",
        ("lock",),
        functions=(work.want_lock,),
    ),
    Workload(
        "database_lock",
        work.in_transactions,
        "the lock of a SQLite file that another connection has",
        ("lock",),
        functions=(work.begin_transaction,),
    ),
    Workload(
        "dask_event",
        work.events,
        "a distributed.Event that nobody sets",
        ("cluster",),
        functions=(work.await_event,),
    ),
    Workload(
        "subprocess",
        work.programs,
        "subprocess.run of a program that sleeps",
        ("child-process",),
        functions=(work.run_program,),
        libraries=(r"subprocess\.py",),
    ),
    Workload(
        "subprocess_output",
        work.programs_for_output,
        "the same with captured output: poll on pipes, not on sockets",
        ("child-process",),
        functions=(work.run_program_for_output,),
        libraries=(r"subprocess\.py", r"selectors\.py"),
    ),
    Workload(
        "one_core",
        work.one_core,
        "four threads compute without the GIL, on one core",
        ("core",),
        functions=(work.checksum,),
    ),
    Workload(
        "cpu_limit",
        work.limited,
        "one thread computes in a control group that may use 0.2 of a core",
        ("throttled",),
        functions=(work.checksum,),
        lacking=work.no_limits,
    ),
    Workload(
        "matmul",
        work.matmul,
        "two threads multiply matrices; BLAS takes one product at a time, and shares it with a thread of its own",
        (LIBRARY, "core"),
        functions=(work.product,),
        prefix="multiply",
        needs=("threadpoolctl",),
    ),
    Workload(
        "parquet",
        work.parquet,
        "Arrow decodes in threads of its own while the task waits for them",
        (LIBRARY, "core"),
        functions=(work.read_columns,),
        libraries=(r"pyarrow/.*\.py", r"pandas/.*\.py"),
        needs=("pandas", "pyarrow"),
    ),
    Workload(
        "gil_and_sleep",
        work.gil_and_sleep,
        "each task computes in Python, then sleeps for 0.1 s; four threads",
        ("gil", "sleep"),
        functions=(work.loop_and_nap,),
        known={"sleep": 0.1},
    ),
    Workload(
        "file_network_compute",
        work.file_network_compute,
        "each task reads cold pages, asks a slow server, and computes; three threads",
        ("file", "network"),
        functions=(work.read_pages, work.read_ask_compute),
        libraries=(r"socket\.py", r"http/client\.py"),
        prefix="read_ask_compute",
        known={"network": 0.25},
        lacking=work.no_disk,
    ),
    Workload(
        "blas_and_lock",
        work.blas_and_lock,
        "each task multiplies matrices in BLAS's threads, then waits for a lock for 0.2 s; two threads",
        (LIBRARY, "lock", "core"),
        functions=(work.product, work.multiply_and_lock),
        prefix="multiply_and_lock",
        known={"lock": work.NAP},
        needs=("threadpoolctl",),
    ),
    Workload("flood", work.of_diagnosis(flood), "50,000 tasks of 1 ms", ("scheduler",), bucket="idle"),
    Workload("slow_client", work.of_diagnosis(thinking_client), "a client that thinks", ("no-work",), bucket="no-work"),
    Workload(
        "chain",
        work.of_diagnosis(chain),
        "each task needs the one before",
        ("parallelism",),
        bucket="idle",
        prefix="burn",
    ),
    Workload(
        "big_partition",
        work.of_diagnosis(skew),
        "one of 41 partitions is 20 times as large as the others",
        ("parallelism",),
        bucket="idle",
        prefix="convert",
    ),
    Workload(
        "restrictions",
        work.restrictions,
        "workers= keeps all tasks on one worker of two",
        ("restricted",),
        bucket="idle",
        prefix="burn",
    ),
)


@dataclass(slots=True)
class Result:
    """Figures of the report for a workload, and the goals missed; None where not measured."""

    name: str
    #: Thread-seconds by bucket, and of the workload's bucket by cause.
    buckets: dict[str, float] = field(default_factory=dict)
    causes: dict[str, float] = field(default_factory=dict)
    #: Of the first culprits: bucket, cause, prefix, line, seconds, held by.
    culprits: list[dict[str, Any]] = field(default_factory=list)
    not_sampled: dict[str, str] = field(default_factory=dict)
    efficiency: float = float("nan")
    #: Seconds for which tasks waited for a core, by the kernel; None where there are no marks.
    core_wait: float | None = None
    right: float | None = None
    unknown: float | None = None
    #: Largest difference from a share that is built in; only where causes are mixed.
    apart: float | None = None
    line: str | None = None
    misses: list[str] = field(default_factory=list)


# -- what the report says --------------------------------------------------------------------------


def causes_of(report: EfficiencyReport, bucket: str) -> dict[str, float]:
    """Thread-seconds of one bucket by cause; with the waiting comes what libraries' threads did meanwhile."""
    if bucket != NONCPU:
        return dict(report.idle_causes)
    library = seconds_of(report).get(LIBRARY, 0.0)
    return {**dict(report.waiting), **({LIBRARY: library} if library else {})}


def seconds_of(report: EfficiencyReport) -> dict[str, float]:
    return {str(bucket): seconds for bucket, seconds in report.breakdown.items()}


def culprits_of(report: EfficiencyReport, number: int = 5) -> list[dict[str, Any]]:
    """The first of them as plain values."""
    names = ("bucket", "cause", "prefix", "line", "function", "seconds", "held_by")
    return [
        {name: value if isinstance(value := getattr(c, name), float) else str(value or "") for name in names}
        for c in report.culprits[:number]
    ]


def line_verdict(line: str, workload: Workload) -> str:
    """Verdict on a line ("etl.py:88") that is to be one that waits: "exact", "in a library" or "wrong"."""
    found = re.search(r"([^\s:]+\.py)\D+(\d+)", line)
    if found and f"{Path(found[1]).name}:{found[2]}" in waiting_lines(*workload.functions):
        return "exact"
    if found and any(re.search(f"{file}$", found[1]) for file in workload.libraries):
        return f"in a library: {line}"
    return f"wrong: {line or 'none'}"


def library_line(report: EfficiencyReport, workload: Workload) -> str | None:
    """Verdict on the stack where libraries' threads computed most; that is no loss, so there is no culprit."""
    rows = [row for row in report.profile if str(row.bucket) == LIBRARY]
    if not rows:
        return None
    stack = max(rows, key=lambda row: row.ns).stack
    lines = [line_verdict(f"{frame.file}:{frame.line}", workload) for frame in stack]
    return "exact" if "exact" in lines else lines[-1]


def fill_in(workload: Workload, report: EfficiencyReport, result: Result) -> None:
    """Fill in the figures of a report, and the goals that they miss."""
    result.buckets, result.efficiency = seconds_of(report), report.efficiency
    result.causes = causes_of(report, workload.bucket)
    result.not_sampled = {str(name): str(why) for name, why in report.not_sampled.items()}
    result.culprits = culprits_of(report)
    if workload.bucket == "no-work":
        idle, none = result.buckets.get("idle", 0.0), result.buckets.get("no-work", 0.0)
        result.right = none / (idle + none) if idle + none else 0.0
        # The slots are idle for an instant around each computation too.
        if result.right < MIN_RIGHT:
            result.misses.append(f"{result.right:.0%} of what nobody used is no-work")
        return
    _check_causes(workload, result, result.causes, report.tasks.get("succeeded", 0))
    _check_line(workload, result, report)


def _check_causes(workload: Workload, result: Result, causes: Mapping[str, float], tasks: int) -> None:
    beside = [] if "core" in workload.causes else ["core"]
    whole = sum(seconds for cause, seconds in causes.items() if cause not in beside)
    if not whole:
        result.misses.append(f"there is no {workload.bucket}")
        return
    result.right = sum(causes.get(cause, 0.0) for cause in workload.causes) / whole
    result.unknown = causes.get("unknown", 0.0) / whole
    if result.unknown > MAX_UNKNOWN:
        result.misses.append(f"{result.unknown:.0%} unknown")
    # A task that waits for a library's threads has their waiting for a core, which is not on its own clock.
    if result.core_wait is not None and LIBRARY not in workload.causes and (all_waiting := sum(causes.values())):
        for_a_core = causes.get("core", 0.0) + causes.get("throttled", 0.0)
        core = abs(for_a_core - result.core_wait) / all_waiting
        if core > MAX_CORE_APART:
            result.misses.append(f"waiting for a core is {core:.0%} of the waiting from the kernel's")
    if result.right < MIN_RIGHT:
        result.misses.append(f"{result.right:.0%} under the right name")
    if workload.known:
        result.apart = max(abs(causes.get(c, 0.0) - tasks * each) / whole for c, each in workload.known.items())
        if result.apart > MAX_APART:
            result.misses.append(f"{100 * result.apart:.0f} points from what is built in")


def _check_line(workload: Workload, result: Result, report: EfficiencyReport) -> None:
    culprit = next((c for c in result.culprits if c["bucket"] == workload.bucket), None)
    if workload.functions:
        result.line = library_line(report, workload) if workload.causes[0] == LIBRARY else None
        if result.line is None and culprit is not None:
            result.line = line_verdict(culprit["line"], workload)
        if result.line is None:
            result.misses.append("there is no line")
        elif result.line.startswith("wrong"):
            result.misses.append(f"line {result.line}")
    elif culprit is None:
        result.misses.append("there is no culprit")
    if workload.prefix and culprit is not None and culprit["prefix"] != workload.prefix:
        result.misses.append(f"prefix {culprit['prefix']!r}")


# -- measuring -------------------------------------------------------------------------------------


def measure(workload: Workload, scale: float) -> Result:
    """Run one workload in this process."""
    result = Result(workload.name)

    def measured(client: Client, tasks: Callable[[], list[Mark]]) -> None:
        client.register_plugin(EfficiencyPlugin())
        with efficiency_report(client) as block:
            marks = tasks()
        if marks:
            result.core_wait = sum(mark.core_wait for mark in marks) / 1e9
        fill_in(workload, block.report, result)

    report = workload.run(scale, measured)
    if report is not None:
        fill_in(workload, report, result)
    return result


def elsewhere(workload: Workload, options: argparse.Namespace) -> Result | str:
    """Run one workload in a process of its own; or why it was not."""
    if lacks := lacking(workload.needs):
        return lacks
    if not kernel_clocks():
        return "skipped, as this kernel keeps no /proc/PID/task/TID/schedstat"
    if lacks := workload.lacking():
        return f"skipped: {lacks}"
    words = ("--scale", str(options.scale))
    result = in_a_process("benchmarks.waiting", workload.name, *words, timeout=options.timeout)
    return result if isinstance(result, str) else Result(**result)


# -- printing --------------------------------------------------------------------------------------


def show(workload: Workload, result: Result | str) -> None:
    print(f"\n{workload.name}\n  {'built in':<14}{workload.built_in}: {' + '.join(workload.causes)}")
    if isinstance(result, str):
        print(f"  {result}")
        return
    shown = ("thread-cpu", NONCPU, LIBRARY, "idle")
    parts = [f"{bucket} {result.buckets.get(bucket, 0.0):.2f} s" for bucket in shown]
    rows = {
        "report": f"{', '.join(parts)}; efficiency {result.efficiency:.0%}",
        workload.bucket: _shares(result.causes),
        "kernel": "not measured" if result.core_wait is None else f"waited for a core: {result.core_wait:.2f} s",
        "right": f"{_percent(result.right)}; unknown {_percent(result.unknown)}",
        "line": result.line or "not measured",
    }
    for i, culprit in enumerate(result.culprits, 1):
        rows[f"culprit {i}"] = "  ".join(f"{v:.2f} s" if isinstance(v, float) else v for v in culprit.values())
    rows |= {f"not sampled {worker}": why for worker, why in result.not_sampled.items()}
    rows["verdict"] = "; ".join(result.misses) or "right"
    for name, text in rows.items():
        print(f"  {name:<14}{text}", flush=True)


def _shares(causes: Mapping[str, float]) -> str:
    whole = sum(causes.values())
    ordered = sorted(causes.items(), key=lambda item: -item[1])
    return ", ".join(f"{cause} {seconds:.2f} s ({seconds / whole:.0%})" for cause, seconds in ordered if seconds > 0)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def summary(results: Mapping[str, Result | str]) -> str:
    lines = [f"{'workload':<22}{'right':>8}{'unknown':>9}{'apart':>8}  line / what is missed"]
    for name, result in results.items():
        if isinstance(result, str):
            lines.append(f"{name:<22}{result}")
            continue
        cells = f"{_percent(result.right):>8}{_percent(result.unknown):>9}{_percent(result.apart):>8}"
        lines.append(f"{name:<22}{cells}  {result.line or '-'}; {'; '.join(result.misses) or 'right'}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and say whether all goals were reached."""
    named = {workload.name: workload for workload in WORKLOADS}
    options = parser_of(__doc__, named, timeout_seconds=TIMEOUT_SECONDS).parse_args(arguments)
    if options.alone:
        write(options.json, measure(named[options.names[0]], options.scale))
        return 0
    results: dict[str, Result | str] = {}
    for name in options.names or named:
        results[name] = elsewhere(named[name], options)
        show(named[name], results[name])
    print(f"\n{summary(results)}")
    write(options.json, results)
    missed = [
        one for one in results.values() if (not one.startswith("skipped") if isinstance(one, str) else one.misses)
    ]
    ran = [one for one in results.values() if not (isinstance(one, str) and one.startswith("skipped"))]
    return int(not figure("workloads named right", len(ran) - len(missed), of=len(ran), at_least=len(ran)))


if __name__ == "__main__":
    sys.exit(main())
