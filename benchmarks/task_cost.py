"""Goal: metering adds at most 1 % to the instructions of a no-op task, and recording as well at most 3 %.

``python -m benchmarks.task_cost`` prints what one no-op task costs in all, and what the plugin adds to it:

- ``bytecodes`` (the default): the bytecodes of the package that the event loop and the client's side execute for each
  task, by function. They are counted, not timed, so another program on the machine changes nothing.
- ``instructions``: of the whole process, under valgrind's cachegrind, without the plugin, metering, and recording. With
  ``--by-function``, also by how much each C function of Python and its libraries executes more than without.
- ``cpu``: CPU time of the whole process, in interleaved runs, each beside one without.

``--modes`` are those of :mod:`benchmarks.one_process`, which says how they are made comparable. Two sizes are run and
subtracted, so that start-up drops out. Under valgrind, timers of the event loop follow a clock that is slowed down as
much as the program is. The thread that samples why threads wait limits itself to a share of a core by its own CPU
clock, and is counted as it is: at full speed it takes half as much. Where the machine has no core to spare, threads
wait for one and for the GIL, messages are smaller, and all counts are larger, by up to a twentieth.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

from benchmarks.figures import figure
from benchmarks.one_process import HEARTBEAT_SECONDS, MODES, WORK, run, session

#: Numbers of tasks that are subtracted from one another; whole heartbeats.
COUNTED = (400, 1_400)
TIMED = (400, 3_400)

#: Slowdown of a program under cachegrind: 0.24 G instructions a second, of 4.3 G without.
SLOWNESS = 18.0


class Bytecodes:
    """Counts the bytecodes of the package's functions, on the thread that starts it."""

    def __init__(self) -> None:
        self.executed: Counter[CodeType] = Counter()
        self.calls: Counter[CodeType] = Counter()

    def start(self) -> None:
        sys.settrace(self._called)

    def stop(self) -> None:
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


class Used(NamedTuple):
    """CPU and wall microseconds a task, and CPU milliseconds however many tasks there are."""

    cpu: float
    wall: float
    once: float


def bytecodes(mode: str, tasks: int) -> None:
    """Print the bytecodes of no-op tasks in a mode, in this process."""
    counted = Bytecodes()

    async def work() -> None:
        async with session(MODES[mode], WORK["no-op"], SLOWNESS) as here:
            await here.compute(2 * WORK["no-op"].batch)
            counted.start()
            await here.compute(tasks)
            counted.stop()

    run(work, SLOWNESS)
    counted.print(tasks)
    figure(f"bytecodes a task, {mode}", round(counted.executed.total() / tasks))


def _compute(mode: str, work: str, tasks: int) -> None:
    """Compute tasks under valgrind."""

    async def computed() -> None:
        async with session(MODES[mode], WORK[work], SLOWNESS) as here:
            await here.compute(tasks)
            _end()

    run(computed, SLOWNESS)


def _timed(mode: str, work: str, small: int, large: int) -> None:
    """Print what a task takes by the difference of two sizes, once warm."""

    async def computed() -> None:
        async with session(MODES[mode], WORK[work]) as here:
            await here.compute(WORK[work].batch)
            found = []
            for tasks in (small, large):
                gc.collect()
                before = _clocks()
                await here.compute(tasks)
                found.append([stop - start for stop, start in zip(_clocks(), before, strict=True)])
            each = [(b - a) / (large - small) for a, b in zip(*found, strict=True)]
            print("USED", *(one * 1e6 for one in each), (found[0][0] - small * each[0]) * 1e3)
            _end()

    run(computed)


def _clocks() -> tuple[float, float]:
    """CPU seconds of this process and of those that it waited for, and the wall clock."""
    own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime, time.perf_counter()


def _end() -> None:
    """End at once: taking a cluster down takes as long as it likes."""
    sys.stdout.flush()
    os._exit(0)


def _in_a_process(arguments: Iterable[object], *before: str) -> str:
    command = [*before, sys.executable, "-m", "benchmarks.task_cost", *map(str, arguments)]
    # Threads of OpenBLAS, one for each core, spin while they start.
    environment = os.environ | {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(done.stderr[-2_000:])
    return done.stdout + done.stderr


def instructions(mode: str, tasks: int, work: str = "no-op") -> Counter[str]:
    """Instructions of a whole process under cachegrind, by C function."""
    with tempfile.NamedTemporaryFile() as out:
        _in_a_process(
            ["compute", mode, work, tasks],
            "valgrind",
            "--tool=cachegrind",
            "--cache-sim=no",
            f"--cachegrind-out-file={out.name}",
        )
        return _by_function(Path(out.name).read_text(errors="replace"))


def _by_function(text: str) -> Counter[str]:
    """Read what cachegrind wrote: lines of instructions, below the name of their function."""
    counted: Counter[str] = Counter()
    function = ""
    for line in text.splitlines():
        if line.startswith("fn="):
            function = line[3:]
        elif line[:1].isdigit():
            counted[function] += int(line.split()[1])
    total = re.search(r"^summary: (\d+)", text, re.MULTILINE)
    assert total is not None, "cachegrind wrote no summary"
    assert counted.total() == int(total.group(1))
    return counted


def instructions_a_task(mode: str, work: str, sizes: tuple[int, int]) -> Counter[str]:
    """Instructions of one task, by C function; of less than one they are dropped."""
    small, large = (instructions(mode, tasks, work) for tasks in sizes)
    each = {name: (large[name] - small[name]) // (sizes[1] - sizes[0]) for name in {*small, *large}}
    return Counter({name: count for name, count in each.items() if count})


def used(mode: str, work: str, sizes: tuple[int, int]) -> Used:
    printed = _in_a_process(["timed", mode, work, *sizes])
    return Used(*map(float, re.findall(r"^USED (\S+) (\S+) (\S+)$", printed, re.MULTILINE)[-1]))


def print_compared(modes: Sequence[str], found: dict[str, list[float]], unit: str) -> None:
    """Print each mode's median and range, and the median and range of what it has more than the first."""
    base = found[modes[0]]
    for mode in modes:
        here = sorted(found[mode])
        added = sorted(mine - without for mine, without in zip(found[mode], base, strict=True))
        middle = statistics.median(here)
        line = f"{mode:14} {middle:9.1f} {unit} a task, {(here[-1] - here[0]) / middle:.2%} between runs"
        if mode != modes[0]:
            share = statistics.median(added) / statistics.median(base)
            line += f"; {statistics.median(added):+9.1f} = {share:+.2%}  [{added[0]:+.1f}, {added[-1]:+.1f}]"
        print(line, flush=True)


def print_functions(base: Counter[str], other: Counter[str], rows: int = 30) -> None:
    """Print the C functions that execute more instructions a task than in the first mode."""
    more = Counter(other)
    more.subtract(base)
    print(f"{sum(more.values()) / 1e3:+9.1f} k instructions a task in all")
    for name, count in sorted(more.items(), key=lambda item: -abs(item[1]))[:rows]:
        print(f"{count / 1e3:+9.2f} k  of {base[name] / 1e3:9.2f} k  {name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="bytecodes")
    parser.add_argument("rest", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--modes", nargs="+", choices=MODES, metavar="MODE", help=f"of {', '.join(MODES)}")
    parser.add_argument("--work", choices=WORK, default="no-op", help="what the tasks do (default no-op)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each mode, of which the median is taken")
    parser.add_argument("--jobs", type=int, default=1, help="modes whose instructions are counted at the same time")
    parser.add_argument("--by-function", action="store_true", help="instructions by C function, too")
    parser.add_argument("--tasks", type=int, default=1_000, help="of which bytecodes are counted; whole heartbeats")
    args = parser.parse_args()
    if args.what == "compute":
        _compute(args.rest[0], args.rest[1], int(args.rest[2]))
    elif args.what == "timed":
        _timed(args.rest[0], args.rest[1], *map(int, args.rest[2:]))
    elif args.what == "bytecodes":
        batch = WORK["no-op"].batch
        for mode in args.modes or ("on", "trace"):
            print(f"-- {MODES[mode].title}", flush=True)
            print(_in_a_process(["count-bytecodes", mode, -(-args.tasks // batch) * batch]).partition("distributed")[0])
    elif args.what == "count-bytecodes":
        bytecodes(args.rest[0], int(args.rest[1]))
        _end()
    elif args.what == "instructions":
        _print_instructions(args.modes or ("off", "on", "trace"), args)
    elif args.what == "cpu":
        modes = args.modes or ("off", "on", "trace")
        rounds = [{mode: used(mode, args.work, TIMED) for mode in modes} for _ in range(args.repeats)]
        for clock in ("cpu", "wall"):
            figures = {mode: [getattr(one[mode], clock) for one in rounds] for mode in modes}
            print_compared(modes, figures, f"us of {clock.replace('cpu', 'CPU')}")
    else:
        parser.error(f"what is {args.what!r}; expected bytecodes, instructions or cpu")


#: Per cent of the instructions of a no-op task that metering and recording may add.
GOALS = {"on": 1.0, "trace": 3.0}


def _print_instructions(modes: Sequence[str], args: argparse.Namespace) -> None:
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is not installed: it counts the instructions")
    batch = WORK[args.work].batch
    with ThreadPoolExecutor(args.jobs) as pool:
        jobs = [
            {mode: pool.submit(instructions_a_task, mode, args.work, _sizes(args.work)) for mode in modes}
            for _ in range(args.repeats)
        ]
        rounds = [{mode: job.result() for mode, job in one.items()} for one in jobs]
    print(f"one heartbeat, of {HEARTBEAT_SECONDS} s, for every {batch} tasks")
    print_compared(modes, {mode: [one[mode].total() / 1e3 for one in rounds] for mode in modes}, "k instructions")
    base = [one[modes[0]].total() for one in rounds]
    for mode in modes[1:] if args.work == "no-op" else ():
        share = [100 * (one[mode].total() / without - 1) for one, without in zip(rounds, base, strict=True)]
        figure(f"instructions added by {mode}", share, "%", at_most=GOALS.get(mode))
    if args.by_function:
        for mode in modes[1:]:
            print(f"-- {MODES[mode].title}")
            print_functions(rounds[0][modes[0]], rounds[0][mode])


def _sizes(work: str) -> tuple[int, int]:
    """Tasks that are counted: fewer of those that work."""
    return COUNTED if WORK[work].batch > 100 else (50, 150)


if __name__ == "__main__":
    main()
