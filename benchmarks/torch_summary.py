"""Claim: `torch summary` has HTA's tables with HTA's figures, in a tenth of its time and a third of its memory.

HTA (package ``traceinsight``) and this package read the same trace, each in a process of its own, in turns. Printed are
the largest differences between their tables, figure by figure in microseconds, and the ratios of time (medians of the
pairs, with the smallest and the largest) and of peak memory. Imports are not counted. With ``--grow N`` a trace is
repeated first until its file has N megabytes: calls, kernels and steps again, later.

HTA's definitions, and where figures differ on purpose (``--cut`` takes the first reason away):

- HTA cuts instants and durations to whole microseconds: of an H100's kernels, a sixth of their time is lost.
- *temporal breakdown*: from the first to the last work on a GPU; its idle time is ours without that before and after
  all work, its non-compute time is communication and copies beside which nothing computes. It takes synchronisations
  (``cuda_sync``), which have a stream, for work.
- *communication-computation overlap*: hidden by all communication, in percent to two digits.
- *kernel breakdown*: sums, extremes and deviations of each kernel by name.
- *launch statistics*: HTA takes ``cudaLaunchKernel``, ``cudaMemcpyAsync`` and ``cudaMemsetAsync`` only, so that those
  of HIP, of the driver, of Triton and of graphs are missing.
- *queue length*: the largest by stream; a trace with graphs fails an assertion in HTA.
- *memory bandwidth*: its mean counts a zero for the end of each copy, and so is half of the copies' mean.
- *idle time breakdown*: by stream, of which the sum is compared: its parts depend on a threshold.

``python -m benchmarks.torch_summary --hta-python PYTHON [--cut] [--grow MEGABYTES] [--pairs N] TRACE...``
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.figures import figure

#: Microseconds between a trace and its next repetition.
_GAP_MICROSECONDS = 1000.0
#: Added to correlations and to numbers of steps in each repetition.
_MORE = 1_000_000

_MEASURED = """
import json, sys, time, warnings, logging
warnings.simplefilter("ignore"); logging.disable(logging.CRITICAL)
{imports}
begin = time.perf_counter()
found = {{}}
{body}
took = time.perf_counter() - begin
# the peak that getrusage gives is that of the parent before it started this process, if that is larger
peak = int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024
print("ANSWER" + json.dumps({{"seconds": took, "megabytes": peak, "tables": found}}, default=float))
"""

_HTA = _MEASURED.format(
    imports="import io, contextlib\nfrom hta.trace_analysis import TraceAnalysis",
    body="""
def asked(name, make):
    try:
        found[name] = make()
    except Exception as error:
        found[name] = {"error": f"{type(error).__name__}: {error}"[:100]}
def temporal():
    row = hta.get_temporal_breakdown(visualize=False).iloc[0]
    return {n: row[f"{n}_time(us)"] for n in ("idle", "compute", "non_compute", "kernel")}
def kernels():
    rows = hta.get_gpu_kernel_breakdown(visualize=False, duration_ratio=1.0, num_kernels=10**6,
                                        include_memory_kernels=False)[1]
    return {f"{row['name']} {n}": row[c] for _, row in rows.iterrows() if row["name"] != "others" for n, c in
            (("sum", "sum (us)"), ("max", "max (us)"), ("min", "min (us)"), ("std", "stddev"))}
def launches():
    table = hta.get_cuda_kernel_launch_stats(visualize=False)[0]
    return {"launches": len(table), "shorter": int((table.gpu_duration < table.cpu_duration).sum())}
def queues():
    table = hta.get_queue_length_summary()
    return {f"stream {stream}": row[("queue_length", "max")] for (_, stream), row in table.iterrows()}
def bandwidth():
    return {name: row[("memory_bw_gbps", "mean")] for (_, name), row in hta.get_memory_bw_summary().iterrows()}
def idle():
    table = hta.get_idle_time_breakdown(visualize=False)[0]
    return table.groupby("stream")["idle_time"].sum().rename(lambda s: f"stream {s}").to_dict()
with contextlib.redirect_stdout(io.StringIO()):
    hta = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="", include_last_profiler_step=True)
    for name, make in (("temporal", temporal), ("kernels", kernels), ("launches", launches), ("queues", queues),
                       ("bandwidth", bandwidth), ("idle", idle)):
        asked(name, make)
    asked("overlap", lambda: {"overlap": hta.get_comm_comp_overlap(visualize=False).iloc[0]["comp_comm_overlap_pctg"]})
""",
)

_OURS = _MEASURED.format(
    imports="from collections import Counter\nfrom dask_efficiency.torch_traces import summary",
    body="""
tables = summary([sys.argv[1]]).to_dict()["tables"]
us = lambda seconds: (seconds or 0) * 1e6
rank, idle = tables["ranks"][0], tables["idle"][0]
found["temporal"] = {"idle": us(rank["idle"] - idle["edge"]), "compute": us(rank["compute"] + rank["hidden"]),
                     "non_compute": us(rank["exposed"] + rank["copies"]), "kernel": us(rank["first_to_last_work"])}
found["overlap"] = {"overlap": round(100 * (rank["overlap"] or 0), 2)}
found["kernels"] = {f"{row['name']} {n}": us(row[c]) for row in tables["kernels"] for n, c in
                    (("sum", "total"), ("max", "longest"), ("min", "shortest"), ("std", "deviation"))}
found["launches"] = {"launches": sum(row["works"] for row in tables["launches"]),
                     "shorter": sum(row["shorter"] for row in tables["launches"])}
found["queues"] = {f"stream {row['stream']}": row["queue_max"] for row in tables["launches"]}
found["bandwidth"] = {row["direction"].split(" (")[0]: (row["bytes_per_second"] or 0) / 1e9 for row in tables["copies"]}
of_streams = Counter()
for row in tables["streams"]:
    of_streams[f"stream {row['stream']}"] += us(row["host"] + row["other_stream"] + row["gap"] + row["unknown"])
found["idle"] = dict(of_streams)
""",
)


def answer(python: str, program: str, trace: str) -> dict[str, Any]:
    """Run a program in a process of its own."""
    done = subprocess.run([python, "-c", program, trace], capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("ANSWER")]
    if not lines:
        return {"error": done.stderr.strip().rpartition("\n")[2]}
    found: dict[str, Any] = json.loads(lines[0].removeprefix("ANSWER"))
    return found


def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Lines on each table: the largest difference, and where it is."""
    lines = []
    for table, figures in theirs.items():
        if "error" in figures:
            lines.append(f"  {table}: HTA fails ({figures['error']})")
            continue
        known = {name: value for name, value in figures.items() if value is not None and math.isfinite(value)}
        apart = {name: abs(ours[table].get(name, 0.0) - value) for name, value in known.items()}
        if not apart:
            lines.append(f"  {table}: HTA has no row, {len(ours[table])} here")
            continue
        name = max(apart, key=apart.__getitem__)
        here, there = ours[table].get(name, 0.0), figures[name]
        same = sum(each <= 0.01 + 1e-6 * abs(figures[key] or 0.0) for key, each in apart.items())
        lines.append(f"  {table}: {same} of {len(apart)} equal; most apart: {name[:60]} {here:.3f}, HTA {there:.3f}")
    return lines


def _read(trace: Path) -> dict[str, Any]:
    content = gzip.decompress(trace.read_bytes()) if trace.suffix == ".gz" else trace.read_bytes()
    data: dict[str, Any] = json.loads(content, strict=False)
    return data


def cut_to_microseconds(trace: Path, folder: Path) -> Path:
    """The trace as HTA sees it: instants and durations in whole microseconds."""
    data = _read(trace)
    for event in data["traceEvents"]:
        event |= {name: int(float(event[name])) for name in ("ts", "dur") if name in event}
    target = folder / "cut.json"
    target.write_text(json.dumps(data))
    return target


def grown(trace: Path, megabytes: float, folder: Path) -> Path:
    """The trace, repeated until its file has so many megabytes."""
    data = _read(trace)
    events = [event for event in data["traceEvents"] if event.get("ph") == "X" and "ts" in event]
    begins = [float(event["ts"]) for event in events]
    period = max(at + float(event["dur"]) for at, event in zip(begins, events, strict=True)) - min(begins)
    target, number = folder / "grown.json", 0
    with target.open("w") as file:
        others = {key: value for key, value in data.items() if key != "traceEvents"}
        file.write(json.dumps(others)[:-1] + (", " if others else "") + '"traceEvents": [')
        while not number or file.tell() < megabytes * 1e6:
            rows = (_later(event, number, period + _GAP_MICROSECONDS) for event in events)
            file.write((",\n" if number else "") + ",\n".join(map(json.dumps, rows)))
            number += 1
        file.write("]}")
    return target


def _later(event: dict[str, Any], number: int, period: float) -> dict[str, Any]:
    arguments, name = dict(event.get("args", {})), str(event["name"])
    for key in ("correlation", "External id", "external id"):
        if isinstance(arguments.get(key), int) and arguments[key] > 0:
            arguments[key] += number * _MORE
    if name.startswith("ProfilerStep#"):
        name = f"ProfilerStep#{int(name.partition('#')[2]) + 1000 * number}"
    return event | {"ts": round(float(event["ts"]) + number * period, 3), "name": name, "args": arguments}


def main() -> None:
    """Compare on each trace, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--hta-python", required=True, help="a Python with traceinsight 0.6.1")
    parser.add_argument("--grow", type=float, default=0.0, metavar="MEGABYTES")
    parser.add_argument("--cut", action="store_true", help="whole microseconds, as HTA has them")
    parser.add_argument("--pairs", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for trace in given.traces:
            file = grown(trace, given.grow, Path(folder)) if given.grow else trace
            file = cut_to_microseconds(file, Path(folder)) if given.cut else file
            print(f"{trace.name}, {file.stat().st_size / 1e6:.1f} MB", flush=True)
            pairs = []
            for _ in range(given.pairs):
                ours = answer(sys.executable, _OURS, str(file))
                theirs = answer(given.hta_python, _HTA, str(file))
                pairs.append((ours, theirs))
            named = zip(("here", "HTA"), pairs[0], strict=True)
            if errors := [f"{who}: {side['error']}" for who, side in named if "error" in side]:
                print(f"  no answer: {'; '.join(errors)[:200]}")
                continue
            print("\n".join(differences(pairs[0][0]["tables"], pairs[0][1]["tables"])))
            for what, unit in (("seconds", "s"), ("megabytes", "MB peak")):
                ratios = [theirs[what] / ours[what] for ours, theirs in pairs]
                here, there = (statistics.median(pair[side][what] for pair in pairs) for side in (0, 1))
                spread = f"{min(ratios):.1f} to {max(ratios):.1f}"
                goals = {"seconds": 10, "megabytes": 3}
                figure(f"HTA's {what} by ours, {trace.name}", ratios, at_least=goals[what])
                print(
                    f"  {here:.2f} {unit}, HTA {there:.2f}: {statistics.median(ratios):.1f} times ({spread})",
                    flush=True,
                )


if __name__ == "__main__":
    main()
