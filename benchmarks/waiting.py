"""Claim: why threads wait, and why slots are idle, is named right, on the line where it happens.

``python -m benchmarks.waiting [NAME ...] [--scale 0.3] [--judge-only] [--json FILE]`` runs each workload in a process
of its own, on a cluster of processes, and prints for each what was built in, what the report says, how much of the
seconds has the right name, how much is ``unknown``, whether the line is that which waits, and what an unbiased judge
says (:mod:`benchmarks.waiting_judge`: another process that looks on). It exits with 1 where a goal is missed:

- one cause built in: at least 90 % of the seconds under its name, and at most 10 % ``unknown``;
- causes mixed: each within 10 points of what the judge says;
- the first culprit's line is one of those that wait.

Waiting for a core is left out of the shares where it was not built in: how much there is depends on who else uses the
machine, and the kernel's clock is compared instead. ``--judge-only`` runs without the plugin, and proves the judge on
the workloads with one cause: 95 % right.

It needs Linux, two cores, a disk where temporary files are (TMPDIR says where), and for the CPU limit root and cgroups
of version 1.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distributed import Client

from benchmarks import waiting_work as work
from benchmarks.diagnoses_work import kernel_clocks
from benchmarks.in_a_process import in_a_process, lacking, parser_of, write
from benchmarks.waiting_judge import Judged, Mark, Watched, gil_addresses, judge, let_in, split, throttled_ns, watched
from dask_efficiency import EfficiencyPlugin, efficiency_report

#: Of a workload's process. The scheduler alone takes half a minute for the longest, the flood.
TIMEOUT_SECONDS = 400.0

MIN_RIGHT = 0.9
MAX_UNKNOWN = 0.1
MIN_RIGHT_OF_JUDGE = 0.95

#: Points by which the report may differ from the judge where causes are mixed.
MAX_APART = 0.1

#: How far the report's waiting for a core may be from the kernel's, as a share of all the waiting.
MAX_CORE_APART = 0.05

NONCPU = "thread-noncpu"
LIBRARY = "library-threads"


def nothing_lacks() -> str:
    """Whatever machine this is."""
    return ""


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload, and what is true of it."""

    name: str
    run: Callable[[float, work.Measure], None]
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
    #: Causes whose shares only the judge knows.
    mixed: bool = False
    #: Modules that Dask does not bring along.
    needs: tuple[str, ...] = ()
    #: Why it cannot be run here; empty if it can.
    lacking: Callable[[], str] = nothing_lacks


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
        mixed=True,
    ),
    Workload(
        "file_network_compute",
        work.file_network_compute,
        "each task reads cold pages, asks a slow server, and computes; three threads",
        ("file", "network"),
        functions=(work.read_pages, work.read_ask_compute),
        libraries=(r"socket\.py", r"http/client\.py"),
        prefix="read_ask_compute",
        mixed=True,
        lacking=work.no_disk,
    ),
    Workload(
        "blas_and_lock",
        work.blas_and_lock,
        "each task multiplies matrices in BLAS's threads, then waits for a lock for 0.2 s; two threads",
        (LIBRARY, "lock", "core"),
        functions=(work.product, work.multiply_and_lock),
        prefix="multiply_and_lock",
        mixed=True,
        needs=("threadpoolctl",),
    ),
    Workload("flood", work.flood, "50,000 tasks of 1 ms: slots wait for the scheduler", ("scheduler",), bucket="idle"),
    Workload("slow_client", work.slow_client, "the client thinks for 80 % of the time", ("no-work",), bucket="no-work"),
    Workload("chain", work.chain, "each task needs the one before", ("parallelism",), bucket="idle", prefix="link"),
    Workload(
        "big_partition",
        work.big_partition,
        "one of 41 tasks takes 80 times as long as the others",
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
        prefix="convert",
    ),
)


@dataclass(slots=True)
class Told:
    """What the report and the judge say of a workload. None is what was not measured."""

    name: str
    #: Thread-seconds by bucket, and of the workload's bucket by cause.
    buckets: dict[str, float] = field(default_factory=dict)
    causes: dict[str, float] | None = None
    idle_causes: dict[str, float] | None = None
    #: Of the first culprits: bucket, cause, prefix, line, seconds, held by.
    culprits: list[dict[str, Any]] | None = None
    skew: str | None = None
    not_sampled: dict[str, str] = field(default_factory=dict)
    efficiency: float = float("nan")
    #: Of the tasks' waiting by cause, in seconds; None where there are no marks.
    judged: dict[str, float] | None = None
    judged_samples: int = 0
    judged_cpu: float = 0.0
    right: float | None = None
    unknown: float | None = None
    #: Largest difference from the judge, in points; only where causes are mixed.
    apart: float | None = None
    line: str | None = None
    judge_right: float | None = None
    misses: list[str] = field(default_factory=list)


# -- what the report says --------------------------------------------------------------------------


def causes_of(report: Any, bucket: str) -> dict[str, float] | None:
    """Thread-seconds of one bucket by cause; the waiting has what was done in libraries' threads beside it."""
    if bucket == NONCPU:
        waiting = getattr(report, "waiting", None)
        if waiting is None:
            return None
        library = seconds_of(report).get(LIBRARY, 0.0)
        return {**dict(waiting), **({LIBRARY: library} if library else {})}
    idle = getattr(report, "idle_causes", None)
    return dict(idle) if idle is not None else None


def seconds_of(report: Any) -> dict[str, float]:
    """Thread-seconds by bucket."""
    return {str(bucket): seconds for bucket, seconds in report.breakdown.items()}


def culprits_of(report: Any, number: int = 5) -> list[dict[str, Any]] | None:
    """The first of them as plain values."""
    found = getattr(report, "culprits", None)
    if found is None:
        return None
    names = ("bucket", "cause", "prefix", "line", "function", "seconds", "held_by")
    return [
        {name: value if isinstance(value := getattr(c, name, None), float) else str(value or "") for name in names}
        for c in found[:number]
    ]


def line_told(line: str, workload: Workload) -> str:
    """Whether a line ("etl.py:88") is one that waits: "exact", "in a library", or what it is instead."""
    found = re.search(r"([^\s:]+\.py)\D+(\d+)", line)
    if found and found[1].endswith("waiting_work.py") and int(found[2]) in work.waiting_lines(*workload.functions):
        return "exact"
    if found and any(re.search(f"{file}$", found[1]) for file in workload.libraries):
        return f"in a library: {line}"
    return f"wrong: {line or 'none'}"


def library_line(report: Any, workload: Workload) -> str | None:
    """Whether a line that waits is on the stack where libraries' threads computed most: no loss, so no culprit."""
    rows = [row for row in getattr(report, "profile", ()) if str(row.bucket) == LIBRARY]
    if not rows:
        return None
    stack = max(rows, key=lambda row: row.ns).stack
    lines = [line_told(f"{frame.file}:{frame.line}", workload) for frame in stack]
    return "exact" if "exact" in lines else lines[-1]


def tell(workload: Workload, report: Any, told: Told) -> None:
    """Fill in what the report says, and where that misses a goal."""
    told.buckets, told.efficiency = seconds_of(report), report.efficiency
    told.causes = causes_of(report, workload.bucket)
    told.not_sampled = {str(name): str(why) for name, why in getattr(report, "not_sampled", {}).items()}
    told.culprits = culprits_of(report)
    skew = getattr(report, "skew", None)
    told.skew = str(skew.get(workload.prefix)) if skew and workload.prefix in skew else None
    if workload.bucket == "no-work":
        idle, none = told.buckets.get("idle", 0.0), told.buckets.get("no-work", 0.0)
        told.right = none / (idle + none) if idle + none else 0.0
        # The slots are idle for an instant around each computation too.
        if told.right < MIN_RIGHT:
            told.misses.append(f"{told.right:.0%} of what nobody used is no-work")
        return
    if told.causes is None:
        told.misses.append("the causes are not measured")
    else:
        _judge_causes(workload, told, told.causes)
    _judge_line(workload, told, report)


def _judge_causes(workload: Workload, told: Told, causes: dict[str, float]) -> None:
    beside = [] if "core" in workload.causes else ["core"]
    whole = sum(seconds for cause, seconds in causes.items() if cause not in beside)
    if not whole:
        told.misses.append(f"there is no {workload.bucket}")
        return
    told.right = sum(causes.get(cause, 0.0) for cause in workload.causes) / whole
    told.unknown = causes.get("unknown", 0.0) / whole
    if told.unknown > MAX_UNKNOWN:
        told.misses.append(f"{told.unknown:.0%} unknown")
    if told.judged is not None and (all_waiting := sum(causes.values())):
        core = abs(causes.get("core", 0.0) - told.judged.get("core", 0.0)) / all_waiting
        if core > MAX_CORE_APART:
            told.misses.append(f"waiting for a core is {core:.0%} of the waiting from the kernel's")
    if workload.mixed and told.judged is not None:
        told.apart = apart(causes, told.judged)
        if told.apart > MAX_APART:
            told.misses.append(f"{100 * told.apart:.0f} points from the judge")
    elif told.right < MIN_RIGHT:
        told.misses.append(f"{told.right:.0%} under the right name")


def apart(causes: Mapping[str, float], judged: Mapping[str, float]) -> float:
    """Largest difference of two splits in any cause's share, in [0, 1]."""
    whole, by_judge = sum(causes.values()), sum(judged.values())
    if not whole or not by_judge:
        return 1.0
    # The package knows a library's threads by their CPU: while these wait for a core, the task waits for a lock.
    folded = {**judged, "lock": judged.get("lock", 0.0) + judged.get("library-core", 0.0)}
    folded.pop("library-core", None)
    return max(abs(causes.get(c, 0.0) / whole - folded.get(c, 0.0) / by_judge) for c in {*causes, *folded})


def _judge_line(workload: Workload, told: Told, report: Any) -> None:
    if told.culprits is None:
        told.misses.append("culprits are not measured")
        return
    culprit = next((c for c in told.culprits if c["bucket"] == workload.bucket), None)
    if workload.functions:
        told.line = library_line(report, workload) if workload.causes[0] == LIBRARY else None
        if told.line is None and culprit is not None:
            told.line = line_told(culprit["line"], workload)
        if told.line is None:
            told.misses.append("there is no line")
        elif told.line.startswith("wrong"):
            told.misses.append(f"line {told.line}")
    elif culprit is None:
        told.misses.append("there is no culprit")
    if workload.prefix and culprit is not None and culprit["prefix"] != workload.prefix:
        told.misses.append(f"prefix {culprit['prefix']!r}")


# -- measuring -------------------------------------------------------------------------------------


def measure(workload: Workload, scale: float, *, judge_only: bool) -> Told:
    """Run one workload in this process."""
    told = Told(workload.name)

    def measured(client: Client, tasks: Callable[[], list[Mark]]) -> None:
        before = _workers(client)
        throttled = -sum(throttled_ns(worker.process) for worker in before)
        report = None
        with judge(before if workload.functions else []) as seen:
            if judge_only:
                marks = tasks()
            else:
                client.register_plugin(EfficiencyPlugin())
                with efficiency_report(client) as report:
                    marks = tasks()
            throttled += sum(throttled_ns(worker.process) for worker in before)
            pythons = {worker.process: set(worker.pythons) for worker in before}
            for worker in _workers(client):
                pythons[worker.process] |= set(worker.pythons)
        if marks:
            judged = split(seen, marks, pythons, throttled=throttled)
            told.judged = {cause: ns / 1e9 for cause, ns in judged.causes.items()}
            told.judged_samples, told.judged_cpu = judged.samples, judged.cpu / 1e9
            _judge_judge(workload, judged, told)
        if report is not None:
            tell(workload, report, told)

    workload.run(scale, measured)
    return told


def _judge_judge(workload: Workload, judged: Judged, told: Told) -> None:
    if not workload.mixed:
        beside = [] if "core" in workload.causes else ["core"]
        causes = [*workload.causes, *(["library-core"] if "core" in workload.causes else [])]
        told.judge_right = judged.share(*causes, beside=beside)


def _workers(client: Client) -> list[Watched]:
    """The workers' processes, for the judge."""
    return list(client.run(_worker).values())


def _worker(dask_worker: Any) -> Watched:
    let_in()
    known = getattr(dask_worker, "benchmark_gil", None)
    if known is None:
        known = dask_worker.benchmark_gil = gil_addresses()
    return watched(known)


def elsewhere(workload: Workload, options: argparse.Namespace) -> Told | str:
    """Run one workload in a process of its own; why there is nothing to tell, where there is not."""
    if lacks := lacking(workload.needs):
        return lacks
    if not kernel_clocks():
        return "skipped, as this kernel keeps no /proc/PID/task/TID/schedstat"
    if lacks := workload.lacking():
        return f"skipped: {lacks}"
    words = ["--scale", str(options.scale), *(["--judge-only"] if options.judge_only else [])]
    told = in_a_process("benchmarks.waiting", workload.name, *words, timeout=options.timeout)
    return told if isinstance(told, str) else Told(**told)


# -- printing --------------------------------------------------------------------------------------


def show(workload: Workload, told: Told | str, *, judge_only: bool) -> None:
    """All of one workload."""
    print(f"\n{workload.name}\n  {'built in':<14}{workload.built_in}: {' + '.join(workload.causes)}")
    if isinstance(told, str):
        print(f"  {told}")
        return
    rows = {}
    if not judge_only:
        waiting, library = told.buckets.get("thread-noncpu", 0.0), told.buckets.get(LIBRARY, 0.0)
        rows["report"] = f"thread-cpu {told.buckets.get('thread-cpu', 0.0):.2f} s, thread-noncpu {waiting:.2f} s"
        rows["report"] += f", library-threads {library:.2f} s, idle {told.buckets.get('idle', 0.0):.2f} s"
        rows["report"] += f"; efficiency {told.efficiency:.0%}"
        rows[f"{workload.bucket}"] = _shares(told.causes)
    if told.judged is not None:
        rows["judge"] = f"{_shares(told.judged)}; beside cpu {told.judged_cpu:.2f} s; {told.judged_samples} looks"
    if told.judge_right is not None:
        rows["judge right"] = f"{told.judge_right:.1%}"
    if not judge_only:
        rows["right"] = f"{_percent(told.right)}; unknown {_percent(told.unknown)}"
        if workload.mixed:
            rows["right"] = f"{_percent(told.apart)} apart from the judge; unknown {_percent(told.unknown)}"
        rows["line"] = told.line or "not measured"
        for i, culprit in enumerate(told.culprits or [], 1):
            rows[f"culprit {i}"] = "  ".join(f"{v:.2f} s" if isinstance(v, float) else v for v in culprit.values())
        if told.skew:
            rows["skew"] = told.skew
        for worker, why in told.not_sampled.items():
            rows[f"not sampled {worker}"] = why
        rows["headline"] = "; ".join(told.misses) or "right"
    for name, text in rows.items():
        print(f"  {name:<14}{text}", flush=True)


def _shares(causes: Mapping[str, float] | None) -> str:
    if causes is None:
        return "not measured"
    whole = sum(causes.values())
    ordered = sorted(causes.items(), key=lambda item: -item[1])
    return ", ".join(f"{cause} {seconds:.2f} s ({seconds / whole:.0%})" for cause, seconds in ordered if seconds > 0)


def _percent(share: float | None) -> str:
    return "not measured" if share is None else f"{share:.1%}"


def summary(results: Mapping[str, Told | str], *, judge_only: bool) -> str:
    """A row for each workload."""
    lines = [f"{'workload':<22}{'judge':>8}{'right':>8}{'unknown':>9}{'apart':>8}  line / what is missed"]
    for name, told in results.items():
        if isinstance(told, str):
            lines.append(f"{name:<22}{told}")
            continue
        figures = (told.judge_right, told.right, told.unknown, told.apart)
        cells = "".join(
            f"{'-' if figure is None else f'{figure:.1%}':>{width}}"
            for figure, width in zip(figures, (8, 8, 9, 8), strict=True)
        )
        last = "" if judge_only else f"  {told.line or '-'}; {'; '.join(told.misses) or 'right'}"
        lines.append(f"{name:<22}{cells}{last}")
    return "\n".join(lines)


def fine(told: Told | str, *, judge_only: bool) -> bool:
    """Whether a workload reached its goals, or could not be run here."""
    if isinstance(told, str):
        return told.startswith("skipped")
    if judge_only:
        return told.judge_right is None or told.judge_right >= MIN_RIGHT_OF_JUDGE
    return not told.misses


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and say whether all goals were reached."""
    named = {workload.name: workload for workload in WORKLOADS}
    parser = parser_of(__doc__, named, timeout_seconds=TIMEOUT_SECONDS)
    parser.add_argument("--judge-only", action="store_true", help="without the plugin: prove the judge")
    options = parser.parse_args(arguments)
    if options.alone:
        write(options.json, measure(named[options.names[0]], options.scale, judge_only=options.judge_only))
        return 0
    results: dict[str, Told | str] = {}
    for name in options.names or named:
        if options.judge_only and not named[name].functions:
            continue  # of idle slots the judge knows nothing
        results[name] = elsewhere(named[name], options)
        show(named[name], results[name], judge_only=options.judge_only)
    print(f"\n{summary(results, judge_only=options.judge_only)}")
    write(options.json, results)
    return 0 if all(fine(told, judge_only=options.judge_only) for told in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
