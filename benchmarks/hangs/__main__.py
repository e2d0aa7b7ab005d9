"""Runner of programs that stand still; the package's docstring says what is claimed and judged."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

from distributed import Client
from distributed.core import Status

from benchmarks.diagnoses import DIAGNOSES
from benchmarks.figures import figure
from benchmarks.hangs.programs import Hang
from benchmarks.public_reports.judging import Judged, judged
from benchmarks.workload_runs import cluster, in_a_process, lacking, parser_of, write
from dask_efficiency import EfficiencyPlugin
from dask_efficiency.accounts.stalls import StalledWork, decode_stalls
from dask_efficiency.plugin import names
from dask_efficiency.plugin.scheduler.stall_watch import MIN_SECONDS, SECONDS_PER_WORKER, StallWatch
from dask_efficiency.report.stalls import findings_of
from dask_efficiency.show.finding import MAX_SHOWN

#: Seconds until something must be found, and of a program's process.
WAIT_SECONDS, TIMEOUT_SECONDS = 120.0, 240.0
#: Programs whose first finding must be right, of ten.
RIGHT = 8

SETS = [f"benchmarks.hangs.{name}" for name in ("before", "after") if find_spec(f"benchmarks.hangs.{name}")]
PROGRAMS: dict[str, tuple[str, Hang]] = {
    name: (module, hang) for module in SETS for name, hang in import_module(module).PROGRAMS.items()
}
#: Workloads in which nothing stands still.
HEALTHY = {one.name: one for one in DIAGNOSES}


def stalls_of(client: Client) -> tuple[StalledWork, ...]:
    """What stands still on a cluster, as live views have it."""
    return decode_stalls(client.sync(client.scheduler.efficiency, action=names.LIVE)["stalls"])


def alone(name: str) -> Judged | str:
    """Start a program in this process, and judge the first that is found."""
    module, hang = PROGRAMS[name]
    with cluster(**hang.cluster) as client:
        client.register_plugin(EfficiencyPlugin())
        client.run(import_module, module)
        kept = hang.start(client)
        began = time.monotonic()
        try:
            while not (found := stalls_of(client)) and time.monotonic() < began + WAIT_SECONDS:
                time.sleep(0.5)
            seconds = time.monotonic() - began
        finally:
            hang.end(client)
            del kept
        shown = findings_of(found)[:MAX_SHOWN]
        client.cancel(list(client.futures), force=True)
    return judged(name, hang.expected, shown[0].title if shown else "nothing", shown, seconds, 0.0)


class _Named(logging.Handler):
    """Keeps what schedulers of this process say that stands still."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if "stands still" in record.getMessage():
            self.said.append(record.getMessage())


def healthy(name: str, scale: float) -> dict[str, Any]:
    """Run a workload that does not stand still in this process; with all that was named."""
    handler = _Named()
    logging.getLogger("dask_efficiency").addHandler(handler)
    return {"seconds": HEALTHY[name].run(scale).stopwatch_seconds, "named": handler.said}


def count_false_alarms(options: argparse.Namespace) -> int:
    """Run workloads, each in a process of its own, and count those in which something was named."""
    chosen = [name for name in options.names or HEALTHY if name in HEALTHY and not lacking(HEALTHY[name].needs)]
    wrong = 0
    for name in chosen:
        words = ("--healthy", "--scale", str(options.scale))
        found = in_a_process("benchmarks.hangs", name, *words, timeout=options.timeout)
        said = found if isinstance(found, str) else "; ".join(found["named"])
        seconds = "" if isinstance(found, str) else f"{found['seconds']:.1f} s, "
        print(f"{name}: {seconds}{said or 'nothing named'}", flush=True)
        wrong += bool(said)
    return int(not figure("workloads in which something was named", wrong, of=len(chosen), at_most=0))


class _Task:
    """A task of a made-up scheduler."""

    def __init__(self, prefix: Any) -> None:
        self.key, self.prefix = "step-1", prefix


def cost(workers: int = 1000, threads: int = 4, looks: int = 200) -> None:
    """Print the CPU time of the watch on a scheduler whose workers are all at work."""
    prefix = SimpleNamespace(name="step")
    there = {}
    for number in range(workers):
        running = {_Task(prefix): 0.5 for _ in range(threads)}
        state = {"executing": running, "processing": dict(running), "long_running": set(), "status": Status.running}
        there[str(number)] = SimpleNamespace(name=number, address=str(number), last_seen=time.time(), **state)
    scheduler: Any = SimpleNamespace(
        workers=there, running=set("1"), unrunnable={}, queued=[], resources={}, transition_counter=0, extensions={}
    )
    ledger: Any = SimpleNamespace(work=SimpleNamespace(outstanding=True))
    stacks: Any = SimpleNamespace(usual=lambda name: 0.5)
    watch = StallWatch(scheduler, ledger, stacks)
    began = time.thread_time()
    for number in range(looks):
        scheduler.transition_counter += 1
        watch._look(float(number))
    took = (time.thread_time() - began) / looks
    share = took / max(MIN_SECONDS, SECONDS_PER_WORKER * workers)
    print(f"{workers} workers x {threads} threads: {1e3 * took:.2f} ms a look, {100 * share:.4f} % of a core")


def main() -> int:
    names = {**PROGRAMS, **HEALTHY}
    parser = parser_of(import_module("benchmarks.hangs").__doc__, names, timeout_seconds=TIMEOUT_SECONDS)
    parser.add_argument("--healthy", action="store_true", help="run workloads that do not stand still")
    parser.add_argument("--cost", action="store_true", help="print what the watch costs a scheduler")
    options: argparse.Namespace = parser.parse_args()
    if options.cost:
        cost()
        return 0
    if options.alone:
        name = options.names[0]
        write(options.json, healthy(name, options.scale) if options.healthy else alone(name))
        return 0
    if options.healthy:
        return count_false_alarms(options)
    chosen = [name for name in options.names or PROGRAMS if name in PROGRAMS]
    results: dict[str, Any] = {}
    for name in chosen:
        results[name] = found = in_a_process("benchmarks.hangs", name, timeout=options.timeout)
        if isinstance(found, str):
            print(f"{name}: {found}", flush=True)
            continue
        print(f"{name}: {'right' if found['first_right'] else 'WRONG'}, after {found['bad_seconds']:.1f} s", flush=True)
        for told in found["told"]:
            print(f"    {told['title']}. {told['where']}\n        {told['advice']}", flush=True)
    write(options.json, results)
    right = sum(not isinstance(found, str) and found["first_right"] for found in results.values())
    times = [found["bad_seconds"] for found in results.values() if not isinstance(found, str)]
    figure("seconds until then", sorted(times))
    return int(not figure("first findings that are right", right, of=len(chosen), at_least=RIGHT * len(chosen) / 10))


if __name__ == "__main__":
    sys.exit(main())
