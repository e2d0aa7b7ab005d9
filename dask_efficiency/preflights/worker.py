"""WorkerPreflight: a worker's side of a test: alone in a child process and a thread, in pairs by Dask's comms."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import psutil
from distributed.core import Status
from numpy.typing import NDArray

from dask_efficiency.accounts.checks import amount, mapping, short, text
from dask_efficiency.accounts.intake import fitting, plain_data
from dask_efficiency.accounts.rows import MAX_APART
from dask_efficiency.files.processes import command
from dask_efficiency.plugin import names, plain
from dask_efficiency.plugin.guard import MAX_REASON, described
from dask_efficiency.plugin.parts import WorkerPart
from dask_efficiency.preflights.hardware.host import python_loops

if TYPE_CHECKING:
    from distributed import Worker


_MODULE = "dask_efficiency.preflights.hardware.child"
#: Switches off the threads of libraries: the request says how many threads compute.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"), "1")
_NO_DATA = np.empty(0, np.uint8)
#: Seconds between two checks whether the child is to end early.
LOOK_SECONDS = 0.05


class Child:
    """Process that measures for a worker, and ends with the worker, at its deadline, or on request."""

    def __init__(self) -> None:
        #: Measurements so far, by component.
        self.found: dict[str, dict[str, Any]] = {}
        #: Its CPU time; until it has ended, as far as known.
        self.cpu_seconds = 0.0
        self._process: asyncio.subprocess.Process | None = None

    async def run(
        self, request: Mapping[str, Any], payload: bytes, *, seconds: float, ended: Callable[[], bool]
    ) -> str:
        """Measure until all is done, the time is over or ``ended``; returns why it ended early, or an empty string."""
        # It finds a workload's modules where this process does, which may be in the working directory.
        paths = os.pathsep.join(path or os.getcwd() for path in sys.path)
        self._process = process = await asyncio.create_subprocess_exec(
            *command(_MODULE),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, **_ONE_THREAD, "PYTHONPATH": paths},
            # A session of its own: Ctrl-C reaches the worker first, and everything that a workload starts can be ended.
            start_new_session=True,
        )
        try:
            # Its input stays open: when the worker ends in any way, the input ends, and the child with it.
            assert process.stdin is not None
            process.stdin.write(json.dumps({**request, "nbytes": len(payload)}).encode() + b"\n" + payload)
            reading = asyncio.ensure_future(self._read(process))
            until = time.monotonic() + seconds
            try:
                while not reading.done():
                    if (left := until - time.monotonic()) <= 0:
                        return f"it took more than {seconds:.3g} s"
                    await asyncio.wait([reading], timeout=min(LOOK_SECONDS, left))
                    if not reading.done() and ended():
                        return "it was stopped"
            finally:
                reading.cancel()
            reading.result()
            code = await process.wait()
            return f"its process ended with {code}" if code else ""
        finally:
            self.kill()
            await process.wait()

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            content = plain_data(json.loads(line))
            component = content.pop("component", None)
            if component is None:
                self.cpu_seconds = content["cpu_seconds"]
            else:
                self.found[component] = content

    def kill(self) -> None:
        """End it, and everything that it started."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        with suppress(psutil.Error):
            times = psutil.Process(process.pid).cpu_times()
            self.cpu_seconds = max(self.cpu_seconds, times.user + times.system)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


#: Name of its CPU time outside the buckets.
OWN_TEST = "preflight"
#: Components measured in the worker's own process; and equal to that of one thread on a worker with one thread.
_PYTHON, _CPU_ALL = "python", "cpu_all"
#: Bytes of the first message; and of the largest, of which a link of 10 Gbit/s takes 150 a second.
FIRST_NBYTES = 64 * 2**10
MAX_NBYTES = 8 * 2**20
#: Share of a repetition that a message takes at most; a guess.
MESSAGE_SHARE = 0.3

#: Python's repetitions are this many times as long: a process that is stopped for a tenth of a second at a time would
#: seem well.
REPETITIONS_OF_PYTHON = 3

#: Seconds to wait for a partner at the end.
PART_SECONDS = 1.0
#: Round trips of a repetition.
ROUND_TRIPS = 10
#: Equal for everything on one machine, in any container.
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
#: Device file of NVIDIA's driver.
_GPU_DRIVER = Path("/dev/nvidiactl")


#: Most seconds of a measurement and of a repetition, most repetitions, and bytes of a message, that may be asked for.
MOST = {"seconds": 86_400.0, "repetition": 60.0, "repeats": 1_000, "nbytes": MAX_NBYTES}
#: Names in a question.
_NAMES = {"test", "from", "partner"}


def _keep(table: dict[str, Any], name: str, value: Any) -> None:
    """Remember something in place of the oldest, if there is no room."""
    if len(table) >= MAX_APART:
        del table[next(iter(table))]
    table[name] = value


class WorkerPreflight(WorkerPart):
    """A worker's side of tests."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._children: set[Child] = set()
        self._stopped: dict[str, None] = {}
        self._closed = False
        self._data = _NO_DATA
        #: CPU nanoseconds of children and of the event loop; and of threads of this process.
        self._elsewhere = 0
        self.in_threads = 0
        #: By partner, the event loop's CPU seconds when its test began.
        self._met: dict[str, float] = {}
        self._steps: dict[str, Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]] = {
            names.READY: self._ready,
            names.MEASURE: self._measure,
            names.PAIR: self._pair,
            names.MEET: self._meet,
            names.TAKE: self._take,
            names.GIVE: self._give,
            names.PART: self._part,
            names.STOP_TEST: self._stop_test,
        }

    @classmethod
    def of(cls, meter: Any) -> Self:  # noqa: D102
        return cls(meter.worker)

    def outside(self) -> dict[str, int]:
        """CPU nanoseconds of all tests so far."""
        spent = self._elsewhere + self.in_threads
        return {OWN_TEST: spent} if spent else {}

    async def answer(self, action: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Take a step of a test; a failure is an answer with its reason under ``failed``."""
        try:
            asked = mapping("preflight", asked.get("preflight"))
            step = self._steps.get(text("step", asked.get("step")))
            if step is None:
                return {"failed": f"unknown step {short(asked['step'])}"}
            for name in _NAMES & asked.keys():
                text(name, asked[name])
            for name in MOST.keys() & asked.keys():
                amount(name, asked[name], MOST[name])
            return await step(asked)
        except Exception as error:
            return {"failed": fitting(described(error), MAX_REASON)}

    def stop(self) -> None:
        """End the measurements, also in a child that is just starting; nothing is measured any more."""
        self._closed = True
        self._stop()

    def _stop(self) -> None:
        for child in self._children:
            child.kill()
        self._data = _NO_DATA

    # -- alone -------------------------------------------------------------------------------

    async def _ready(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        state = self._worker.status
        closing = state not in (Status.running, Status.paused)
        return {**_machine(), "paused": state == Status.paused, "closing": closing}

    async def _measure(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Measure some components of the worker alone; ``busy`` if a task began meanwhile and ``force`` was not set."""
        test, seconds, force = asked["test"], float(asked["seconds"]), bool(asked["force"])
        began = time.monotonic()

        def is_busy() -> bool:
            return not force and bool(self._worker.state.executing)

        def ended() -> bool:
            return self._closed or test in self._stopped or is_busy()

        alone = {_PYTHON} if self._worker.state.nthreads > 1 else {_PYTHON, _CPU_ALL}
        components = [name for name in asked["components"] if name not in alone]
        measured: dict[str, dict[str, Any]] = {}
        if components and not ended():
            measured = await self._in_child(components, asked, seconds, ended)
        if _PYTHON in asked["components"] and not ended():
            measured[_PYTHON] = await asyncio.wait_for(
                asyncio.to_thread(self._loops, float(asked["repetition"]), int(asked["repeats"])),
                max(1.0, seconds - (time.monotonic() - began)),
            )
        if self._closed or test in self._stopped:
            return {"failed": "the test was stopped"}
        return {"busy": True} if is_busy() else {"measured": measured}

    async def _in_child(
        self, components: list[str], asked: Mapping[str, Any], seconds: float, ended: Callable[[], bool]
    ) -> dict[str, dict[str, Any]]:
        request = {
            "components": components,
            "threads": self._worker.state.nthreads,
            "memory": self._worker.memory_manager.memory_limit or 0,
            "directory": self._worker.local_directory,
            "repetition": asked["repetition"],
            "repeats": asked.get("repeats", 1),
            "workload": asked.get("workload", ""),
            "group": asked.get("group"),
        }
        payload = asked.get("payload")
        child = Child()
        self._children.add(child)
        try:
            given = b"" if payload is None else payload.tobytes()
            why = await child.run(request, given, seconds=seconds, ended=ended)
        except OSError as error:
            return {name: {"missing": f"no process could be started: {error}"} for name in components}
        finally:
            self._children.discard(child)
            self._elsewhere += round(child.cpu_seconds * 1e9)
        return {name: child.found.get(name, {"failed": why or "it measured nothing"}) for name in components}

    def _loops(self, repetition: float, repeats: int) -> dict[str, Any]:
        before = self.in_threads

        def spent(seconds: float) -> None:
            self.in_threads = before + round(seconds * 1e9)

        return python_loops(REPETITIONS_OF_PYTHON * repetition, repeats, spent)

    async def _stop_test(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        # A test may be stopped before it begins here, so its name stays.
        _keep(self._stopped, asked["test"], None)
        self._stop()
        return {}

    # -- with a partner ----------------------------------------------------------------------

    async def _pair(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        partner = self._worker.rpc(asked["partner"])

        async def ask(step: str, **more: Any) -> Any:
            message = {"step": step, "test": asked["test"], "from": self._worker.address, **more}
            asking = getattr(partner, names.OP)
            answer = await plain.answer(asking, asked["partner"], action=names.PREFLIGHT, preflight=message)
            if not isinstance(answer, Mapping) or "failed" in answer:
                raise RuntimeError(f"the partner answered {answer!r:.200}")
            return answer

        async def send(nbytes: int) -> None:
            await ask(names.TAKE, data=plain.carried(data[:nbytes]))

        async def receive(nbytes: int) -> None:
            await ask(names.GIVE, nbytes=nbytes)

        began, repetition, repeats = time.thread_time(), float(asked["repetition"]), int(asked["repeats"])
        async with asyncio.timeout(float(asked["seconds"])):
            data = await self._random_data()
            await ask(names.MEET)
            try:
                sent, received = [await _seconds_per_byte(way, repetition, repeats) for way in (send, receive)]
                latency = await _round_trip(lambda: ask(names.TAKE, data=b""), repeats)
                return {"send": min(sent), "receive": min(received), "latency": latency}
            finally:
                with suppress(TimeoutError, OSError, RuntimeError):
                    await asyncio.wait_for(ask(names.PART), PART_SECONDS)
                self._elsewhere += round((time.thread_time() - began) * 1e9)
                self._data = _NO_DATA

    async def _meet(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        _keep(self._met, asked["from"], time.thread_time())
        await self._random_data()
        return {}

    async def _take(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        return {}

    async def _give(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        return {"data": plain.carried((await self._random_data())[: asked["nbytes"]])}

    async def _part(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        began = self._met.pop(asked["from"], None)
        if began is not None:
            self._elsewhere += round((time.thread_time() - began) * 1e9)
        self._data = _NO_DATA
        return {}

    async def _random_data(self) -> NDArray[np.uint8]:
        """Bytes that cannot be compressed, whatever Dask's configuration of compression."""
        if not len(self._data):
            self._data = np.frombuffer(await asyncio.to_thread(os.urandom, MAX_NBYTES), np.uint8)
        return self._data


async def _seconds_per_byte(move: Callable[[int], Awaitable[None]], repetition: float, repeats: int) -> list[float]:
    """Seconds a byte of each repetition, in messages as large as the link carries in a short time."""
    await move(FIRST_NBYTES)  # the first one opens the connection
    began = time.perf_counter()
    await move(FIRST_NBYTES)
    nbytes = round(FIRST_NBYTES * MESSAGE_SHARE * repetition / max(1e-9, time.perf_counter() - began))
    nbytes = min(MAX_NBYTES, max(FIRST_NBYTES, nbytes))
    seconds = []
    for _ in range(repeats):
        moved, began = 0, time.perf_counter()
        while time.perf_counter() < began + repetition:
            await move(nbytes)
            moved += nbytes
        seconds.append((time.perf_counter() - began) / moved)
    return seconds


async def _round_trip(go: Callable[[], Awaitable[Any]], repeats: int) -> float:
    async def seconds() -> float:
        began = time.perf_counter()
        await go()
        return time.perf_counter() - began

    return min([median([await seconds() for _ in range(ROUND_TRIPS)]) for _ in range(repeats)])


def _machine() -> dict[str, Any]:
    """Name of the machine, which is equal in any container, whether it has GPUs, and a port that is free now."""
    try:
        name = _BOOT_ID.read_text().strip()
    except OSError:
        name = socket.gethostname()
    with socket.socket() as listening:
        listening.bind(("", 0))
        return {"machine": name, "gpu": _GPU_DRIVER.exists(), "port": listening.getsockname()[1]}
