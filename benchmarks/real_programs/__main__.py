"""Real programs: what is said of them, beside what py-spy, the kernel's clocks and the judge say.

``python -m benchmarks.real_programs [NAME ...] [--scale 0.3] [--without-report] [--without-py-spy] [--json FILE]``.
It needs xarray, zarr, scikit-learn, scikit-image, xgboost and py-spy, each only where a program or the option asks for
it. Shares by line are of the looks at tasks: py-spy's of all looks, and of those in which a thread had the GIL; ours by
bucket and cause.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.diagnoses_work import cluster, kernel_clocks
from benchmarks.in_a_process import lacking, parser_of, write
from benchmarks.real_programs import pyspy
from benchmarks.real_programs.programs import PROGRAMS
from benchmarks.waiting import causes_of, culprits_of, seconds_of
from dask_efficiency import EfficiencyPlugin, efficiency_report


def clocks_of(client: Any) -> dict[tuple[str, int], tuple[str, tuple[float, float]]]:
    """The kernel's clocks of all threads of all workers."""
    return {
        (worker, thread): clocks
        for worker, threads in client.run(kernel_clocks).items()
        for thread, clocks in threads.items()
    }


def lines_of(report: Any, number: int = 8) -> dict[str, float] | None:
    """Where tasks were by the report: bucket, cause and innermost line, as shares of all that was seen."""
    rows = getattr(report, "profile", None)
    if rows is None:
        return None
    found: Counter[str] = Counter()
    for row in rows:
        what = f"{row.bucket}/{row.cause}" if row.cause else str(row.bucket)
        inner = row.stack[-1] if row.stack else None
        where = pyspy.shortened(f"{inner.function} ({inner.file}:{inner.line})") if inner else "(not kept)"
        found[f"{what}  {where}"] += row.ns
    return {line: ns / found.total() for line, ns in found.most_common(number)}


def run(name: str, scale: float, *, with_report: bool, with_spy: bool) -> dict[str, Any]:
    """Run one program, and gather what everybody says of it."""
    program = PROGRAMS[name]
    said: dict[str, Any] = {"name": name}
    with (
        tempfile.TemporaryDirectory() as place,
        cluster(workers=program.workers, threads=program.threads) as client,
        ExitStack() as stack,
    ):
        work = program.prepare(client, Path(place), scale)
        report = None
        if with_report:
            client.register_plugin(EfficiencyPlugin())
        before = clocks_of(client)
        spied = stack.enter_context(pyspy.spied(client.run(os.getpid).values())) if with_spy else {}
        if with_report:
            report = stack.enter_context(efficiency_report(client))
        began = time.monotonic()
        work()
        said["seconds"] = time.monotonic() - began
        after = clocks_of(client)
        stack.close()
        kernel: Counter[str] = Counter()
        for thread, (what, seconds) in after.items():
            since = before.get(thread, ("", (0.0, 0.0)))[1]
            kernel[f"{what} threads on a core"] += seconds[0] - since[0]
            kernel[f"{what} threads wait for a core"] += seconds[1] - since[1]
        said["kernel"] = dict(kernel)
        said["py-spy"] = {kind: {"looks": lines.looks, "lines": lines.shares()} for kind, lines in spied.items()}
        if report is not None:
            said["buckets"], said["efficiency"] = seconds_of(report), report.efficiency
            said["waiting"], said["idle"] = causes_of(report, "thread-noncpu"), causes_of(report, "idle")
            said["culprits"], said["lines"] = culprits_of(report), lines_of(report)
            skew = getattr(report, "skew", None) or {}
            said["skew"] = {prefix: asdict(row) for prefix, row in skew.items()}
    return said


def show(said: dict[str, Any]) -> None:
    """All that is said of one program."""
    print(f"\n{said['name']}: {PROGRAMS[said['name']].about}; {said['seconds']:.1f} s")
    for key in ("kernel", "buckets", "waiting", "idle"):
        if said.get(key):
            ordered = sorted(said[key].items(), key=lambda item: -item[1])
            print(f"  {key:<9}" + ", ".join(f"{what} {seconds:.2f} s" for what, seconds in ordered if seconds > 0.005))
        elif key in said:
            print(f"  {key:<9}not measured")
    if "efficiency" in said:
        print(f"  efficiency {said['efficiency']:.0%}")
    for culprit in said.get("culprits") or []:
        print("  culprit  " + "  ".join(f"{v:.2f} s" if isinstance(v, float) else v for v in culprit.values() if v))
    for line, share in (said.get("lines") or {}).items():
        print(f"  ours     {share:6.1%}  {line}")
    for kind, lines in said["py-spy"].items():
        for line, share in lines["lines"].items():
            print(f"  py-spy, {kind} ({lines['looks']})  {share:6.1%}  {line}")


def main() -> int:
    """Run, print and keep."""
    parser = parser_of(__doc__, PROGRAMS)
    parser.add_argument("--without-report", action="store_true", help="nor with the plugin")
    parser.add_argument("--without-py-spy", action="store_true", help="what is said of time is not disturbed by it")
    options = parser.parse_args()
    with_spy = not options.without_py_spy
    if with_spy and pyspy.program() is None:
        parser.error("py-spy is not installed; --without-py-spy does without")
    results = []
    for name in options.names or PROGRAMS:
        if lacks := lacking(PROGRAMS[name].needs):
            print(f"\n{name}: {lacks}")
            continue
        results.append(run(name, options.scale, with_report=not options.without_report, with_spy=with_spy))
        show(results[-1])
    write(options.json, results)
    return 0


if __name__ == "__main__":
    sys.exit(main())
