"""Instructions of a no-op task in Dask's state machines alone, which hardly vary from run to run.

``python -m benchmarks.state_machines`` prints them without the plugin, metering, and recording; ``--modes`` are those
of :mod:`benchmarks.one_process`. A real scheduler and worker are started, and then nothing but their state machines is
driven, task by task: graphs, transitions, results, releases, the function that runs a task, and one heartbeat, one poll
and ten looks at idle slots for every 200 tasks, as for half a second; every other heartbeat is new, and every fifth
poll compares workers. What is missing is the event loop with its messages, whose timing makes
``python -m benchmarks.task_cost instructions`` vary by more than a change of one hook brings.

Two numbers of tasks are run in processes that are forked from one, and subtracted. ``--json FILE`` writes the
instructions by C function. :mod:`benchmarks.overhead` drives them at full speed, for CPU time.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import figure
from benchmarks.one_process import LOOKS_OF_A_BEAT, MODES, WORK, run, session, set_timers
from benchmarks.task_cost import SLOWNESS, _by_function, print_compared

#: Numbers of tasks that are subtracted from one another; whole heartbeats. Of the fifteen by which they differ, seven
#: are new, and at three workers are compared.
SIZES = (1_000, 4_000)

BATCH = WORK["no-op"].batch


class Stream:
    """In place of a connection: keeps what is sent over it."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.comm = self

    def send(self, *messages: Any) -> None:
        self.sent.extend(messages)

    def closed(self) -> bool:
        return False

    def take(self) -> list[Any]:
        sent, self.sent = self.sent, []
        return sent


class Driver:
    """Drives the state machines of a session that is not used for anything else any more.

    Parameters
    ----------
    here
        The session.
    prefixes
        Prefixes that tasks have in turn; 0 gives all of them that of what they compute.
    """

    def __init__(self, here: Any, prefixes: int = 0) -> None:
        self._prefixes = prefixes
        self.scheduler, self.worker, self.client = here.scheduler, here._worker, here._client.id
        self.meter = here._meter
        self.to_worker, self.to_scheduler, self.to_client = Stream(), Stream(), Stream()
        self.scheduler.stream_comms[self.worker.address] = self.to_worker
        self.scheduler.client_comms[self.client] = self.to_client
        self.worker.batched_stream = self.to_scheduler
        self.lock = threading.Lock()

    def compute(self, tasks: int, start: int = 0) -> None:
        """Compute tasks, from their graphs to their release; ``start`` is the number of the first."""
        for first in range(start, start + tasks, BATCH):
            self._compute_batch(first)
            if self.meter is not None:
                set_timers(first // BATCH)
                self._beat()
        assert self.meter is None or self.meter.accounts.off is None

    def _compute_batch(self, first: int) -> None:
        from dask._task_spec import Task

        numbers = range(first, first + BATCH)
        keys = [f"{f'abs{n % self._prefixes}' if self._prefixes else 'abs'}-{n:032x}" for n in numbers]
        graph = {key: Task(key, abs, 1) for key in keys}
        self.scheduler._create_taskstate_from_graph(
            start=time.time(),
            dsk=dict(graph),
            keys=set(keys),
            ordered={key: i for i, key in enumerate(keys)},
            client=self.client,
            annotations_by_type={},
            global_annotations=None,
            stimulus_id=f"update-graph-{time.time()}",
            submitting_task=None,
            span_metadata={"collections": []},
        )
        finished: list[str] = []
        while len(finished) < BATCH:
            for instruction in self._received():
                self._executed(instruction.key, graph, finished)
        self.scheduler.client_releases_keys(finished, self.client, stimulus_id=f"release-{time.time()}")
        self._received()
        self.to_client.take()

    def _received(self) -> list[Any]:
        """The worker's state takes what the scheduler sent; gives which tasks it is to execute."""
        from distributed.worker_state_machine import ComputeTaskEvent, Execute, FreeKeysEvent

        events = {"compute-task": ComputeTaskEvent, "free-keys": FreeKeysEvent}
        found: list[Any] = []
        for message in self.to_worker.take():
            if message["op"] in events:
                stimulus = {name: value for name, value in message.items() if name != "op"}
                found += self.worker.state.handle_stimulus(events[message["op"]](**stimulus))
        return [instruction for instruction in found if isinstance(instruction, Execute)]

    def _executed(self, key: str, graph: dict[str, Any], finished: list[str]) -> None:
        """Run a task, and those for which its slot is free then; the scheduler hears of each."""
        import distributed.worker
        from distributed.worker_state_machine import Execute, ExecuteSuccessEvent, TaskFinishedMsg

        todo = [key]
        while todo:
            key = todo.pop()
            began = time.time()
            distributed.worker._run_task(
                graph[key], {}, {"worker": self.worker}, key, self.worker.active_threads, self.lock, 0.0
            )
            done = ExecuteSuccessEvent(
                key=key,
                run_id=self.worker.state.tasks[key].run_id,
                value=1,
                start=began,
                stop=time.time(),
                nbytes=28,
                type=int,
                stimulus_id=f"task-finished-{time.time()}",
            )
            for instruction in self.worker.state.handle_stimulus(done):
                if isinstance(instruction, Execute):
                    todo.append(instruction.key)
                elif isinstance(instruction, TaskFinishedMsg):
                    message = {name: value for name, value in instruction.to_dict().items() if name != "op"}
                    self.scheduler.handle_task_finished(worker=self.worker.address, **message)
                    finished.append(instruction.key)
                    if self.meter is not None and not len(finished) % (BATCH // LOOKS_OF_A_BEAT):
                        self.meter.accounts.idle.sample()

    def _beat(self) -> None:
        from dask_efficiency.plugin.names import METRIC

        payload = self.worker.metrics[METRIC](self.worker)
        for message in self.to_scheduler.take():
            if message["op"] == "log-event":
                self.scheduler.log_event(message["topic"], message["msg"])
        ws = self.scheduler.workers[self.worker.address]
        ws.metrics = ws.metrics | {METRIC: payload}
        ws.last_seen = time.time()
        self.meter._poll()
        self.meter.accounts.remember()  # its turn of the event loop never comes


def fork_both(mode: str) -> None:
    """Under cachegrind: drive each size in a process of its own, which have what was started in common."""

    async def driven() -> None:
        async with session(MODES[mode], WORK["no-op"], SLOWNESS) as here:
            await here.compute(20)
            loop = asyncio.get_running_loop()
            gc.collect()
            gc.freeze()
            for tasks in SIZES:
                child = os.fork()
                if not child:
                    code = 1
                    try:
                        asyncio._set_running_loop(loop)  # a child runs none
                        Driver(here).compute(tasks)
                        code = 0
                    finally:
                        os._exit(code)
                _, status = os.waitpid(child, 0)  # noqa: ASYNC222  # nothing else is to go on
                print("FORKED" if not status else "FAILED", child, flush=True)
            os._exit(0)

    run(driven, SLOWNESS)


def microseconds_a_task(mode: str, runs: int = 15) -> float:
    """CPU time of one task on scheduler and worker together, in a process of its own: the quickest of some runs."""
    command = [sys.executable, "-m", "benchmarks.state_machines", "--drive", mode, str(runs)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1])


def _drive(mode: str, runs: int) -> None:
    async def driven() -> None:
        async with session(MODES[mode], WORK["no-op"]) as here:
            await here.compute(20)
            driver = Driver(here)
            quickest = min(_seconds_of(driver) for _ in range(runs))
            print(quickest / SIZES[0] * 1e6, flush=True)
            os._exit(0)  # its connections are gone

    run(driven)


def _seconds_of(driver: Driver) -> float:
    gc.collect()
    began = time.thread_time()
    driver.compute(SIZES[0])
    return time.thread_time() - began


def instructions_a_task(mode: str) -> Counter[str]:
    """Instructions of one task, by C function."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={folder}/%p"]
        command += [sys.executable, "-u", "-m", "benchmarks.state_machines", "--fork", mode]
        environment = os.environ | {"PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        children = re.findall(r"^FORKED (\d+)$", done.stdout, re.MULTILINE)
        if len(children) < len(SIZES):
            sys.exit(done.stderr[-2_000:])
        small, large = (_by_function(Path(folder, child).read_text(errors="replace")) for child in children)
    return Counter({name: (large[name] - small[name]) // (SIZES[1] - SIZES[0]) for name in {*small, *large}})


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", nargs="+", choices=MODES, default=["off", "on", "trace"], metavar="MODE")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each mode, of which the median is taken")
    parser.add_argument("--json", type=Path, help="file for the instructions of each mode by C function")
    parser.add_argument("--fork", help=argparse.SUPPRESS)
    parser.add_argument("--drive", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args(arguments)
    if args.drive:
        _drive(args.drive[0], int(args.drive[1]))
    if args.fork:
        fork_both(args.fork)
        return
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is not installed: it counts the instructions")
    rounds = [{mode: instructions_a_task(mode) for mode in args.modes} for _ in range(args.repeats)]
    figures = {mode: [one[mode].total() / 1e3 for one in rounds] for mode in args.modes}
    print_compared(args.modes, figures, "k instructions")
    base = args.modes[0]
    for mode in args.modes[1:]:
        added = [round(here - without) for here, without in zip(figures[mode], figures[base], strict=True)]
        figure(f"added by {mode}", added, "k instructions a task")
    if args.json:
        args.json.write_text(json.dumps(rounds[-1]), encoding="utf-8")


if __name__ == "__main__":
    main()
