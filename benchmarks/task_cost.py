"""Claim: metering adds at most 1 % to the instructions of a no-op task, and recording as well at most 3 %.

``python -m benchmarks.task_cost`` prints what one no-op task costs in all, and what the plugin adds to it:

- ``bytecodes`` (the default): the bytecodes of the package that the event loop and the client's side execute for each
  task, by function. They are counted, not timed, so another program on the machine changes nothing.
- ``instructions``: of the whole process, under valgrind's callgrind, without the plugin, metering, and recording.
- ``cpu``: CPU time of the whole process, in paired, interleaved runs.

Scheduler, worker (one thread) and client share one process, so that nothing escapes the count. Dask's own monitors are
slowed to minutes. There is one heartbeat, and one poll of the scheduler's meter, for every 200 tasks, as there would be
at full speed: a program under callgrind is some fifty times slower, and polls by the clock would be counted fifty times
too often. Two sizes are run and subtracted, so that start-up drops out.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from types import CodeType, FrameType
from typing import Any

MODES = ("off", "on", "trace")

#: Tasks of one heartbeat.
BATCH = 200

#: Sizes that are subtracted from one another, by what is counted.
SIZES = {"instructions": (400, 1_400), "cpu": (1_000, 7_000)}

_QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "60s",
    "distributed.admin.system-monitor.interval": "60s",
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.worker.memory.monitor-interval": "60s",
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.scheduler.work-stealing": False,
    "distributed.diagnostics.nvml": False,
}


class Bytecodes:
    """Counts the bytecodes of the package's functions, on the thread that starts it."""

    def __init__(self) -> None:
        self.executed: Counter[CodeType] = Counter()
        self.calls: Counter[CodeType] = Counter()

    def start(self) -> None:
        """Count from now on."""
        sys.settrace(self._called)

    def stop(self) -> None:
        """Count no more."""
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, arg: Any) -> Any:
        if "dask_efficiency" not in frame.f_code.co_filename:
            return None
        self.calls[frame.f_code] += 1
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        return self._executed

    def _executed(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "opcode":
            self.executed[frame.f_code] += 1
        return self._executed

    def print(self, tasks: int, rows: int = 40) -> None:
        """Print the sums, then the functions that execute most."""
        print(f"{self.executed.total() / tasks:8.1f} bytecodes and {self.calls.total() / tasks:.1f} calls a task")
        for code, executed in self.executed.most_common(rows):
            where = code.co_filename.rpartition("dask_efficiency" + os.sep)[2]
            print(f"{executed / tasks:8.1f} {self.calls[code] / tasks:6.2f}  {where}: {code.co_qualname}")


def run(mode: str, tasks: int, bytecodes: Bytecodes | None = None) -> None:
    """Compute so many no-op tasks."""
    import dask
    import distributed.scheduler
    from distributed import Client, Scheduler, Worker

    from dask_efficiency import EfficiencyPlugin
    from dask_efficiency.plugins.scheduler import meter as scheduler_meter

    dask.config.set(_QUIET)
    distributed.scheduler.heartbeat_interval = lambda workers: 600
    scheduler_meter.POLL_MS = 3_600_000  # polled below

    async def work() -> None:
        async with (
            Scheduler(dashboard_address=None, port=0, host="127.0.0.1") as scheduler,
            Worker(scheduler.address, nthreads=1) as worker,
            Client(scheduler.address, asynchronous=True) as client,
        ):
            if mode != "off":
                await client.register_plugin(EfficiencyPlugin(trace=mode == "trace"))

            async def compute(tasks: int) -> None:
                for first in range(0, tasks, BATCH):
                    futures = client.map(abs, range(first, first + BATCH), pure=False)
                    await client.gather(futures)
                    del futures
                    await worker.heartbeat()
                    if mode != "off":
                        scheduler.plugins[EfficiencyPlugin.name]._meter._poll()

            if bytecodes is None:
                await compute(tasks)
                return
            await compute(2 * BATCH)
            bytecodes.start()
            await compute(tasks)
            bytecodes.stop()

    asyncio.run(work())


def in_a_process(mode: str, tasks: int, *before: str) -> str:
    """What a process prints that computes so many tasks."""
    command = [*before, sys.executable, "-m", "benchmarks.task_cost", "one", mode, str(tasks)]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONHASHSEED": "0"})
    if done.returncode:
        sys.exit(done.stderr[-2_000:])
    return done.stdout + done.stderr


def instructions(mode: str, tasks: int) -> int:
    """Instructions of a whole process, under callgrind."""
    with tempfile.NamedTemporaryFile() as out:
        said = in_a_process(mode, tasks, "valgrind", "--tool=callgrind", f"--callgrind-out-file={out.name}")
    found = re.search(r"Collected : (\d+)", said)
    assert found is not None, said[-2_000:]
    return int(found.group(1))


def cpu(mode: str, tasks: int) -> float:
    """CPU seconds of a whole process."""
    return float(in_a_process(mode, tasks).rpartition("CPU ")[2].split()[0])


def compared(what: str, repeats: int) -> None:
    """Print what a task costs in each mode, and what the plugin adds: medians of interleaved runs, and the spread."""
    measure, unit, scale = (instructions, "k instructions", 1e3) if what == "instructions" else (cpu, "us of CPU", 1e-6)
    small, large = SIZES[what]
    found: dict[str, list[float]] = {mode: [] for mode in MODES}
    for _ in range(repeats):
        for mode in MODES:
            found[mode].append((measure(mode, large) - measure(mode, small)) / (large - small) / scale)
    for mode in MODES:
        added = sorted(here / off - 1 for here, off in zip(found[mode], found["off"], strict=True))
        print(
            f"{mode:6} {statistics.median(found[mode]):9.1f} {unit} a task  {statistics.median(added):+.2%}"
            f"  [{added[0]:+.2%}, {added[-1]:+.2%}] in {repeats} runs",
            flush=True,
        )


def main() -> None:
    """Print the costs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="bytecodes", choices=["bytecodes", "instructions", "cpu", "one"])
    parser.add_argument("rest", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=1_000, help=f"counted, of bytecodes; a multiple of {BATCH}")
    args = parser.parse_args()
    if args.what == "one":
        run(args.rest[0], int(args.rest[1]))
        used = resource.getrusage(resource.RUSAGE_SELF)
        print(f"CPU {used.ru_utime + used.ru_stime:.4f}", flush=True)
        os._exit(0)
    if args.what == "bytecodes":
        for mode in MODES[1:]:
            print(f"-- {'recording' if mode == 'trace' else 'metering'}")
            counted = Bytecodes()
            tasks = -(-args.tasks // BATCH) * BATCH
            run(mode, tasks, counted)
            counted.print(tasks)
        return
    if args.what == "instructions" and shutil.which("valgrind") is None:
        sys.exit("valgrind is not installed: it counts the instructions")
    compared(args.what, args.repeats)


if __name__ == "__main__":
    main()
