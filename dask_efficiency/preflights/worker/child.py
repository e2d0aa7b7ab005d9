"""Child: a process that measures for a worker, and ends with the worker, with its deadline, or when it is told to."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import psutil

_MODULE = "dask_efficiency.preflights.hardware"

#: Threads of libraries are switched off: what is asked for says how many threads compute.
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS"), "1")

#: How often it is looked whether it is to end early.
LOOK_SECONDS = 0.05


class Child:
    """One child.

    Attributes
    ----------
    found
        By component, what it has measured so far.
    cpu_seconds
        CPU time that it took; until it has ended, what is known of it.
    """

    def __init__(self) -> None:
        self.found: dict[str, dict[str, Any]] = {}
        self.cpu_seconds = 0.0
        self._process: asyncio.subprocess.Process | None = None

    async def run(
        self, request: Mapping[str, Any], payload: bytes, *, seconds: float, ended: Callable[[], bool]
    ) -> str:
        """Measure what is asked for; why it ended early, or nothing if it did not.

        Parameters
        ----------
        request, payload
            For the child; see :mod:`~dask_efficiency.preflights.hardware.__main__`.
        seconds
            Until it is killed.
        ended
            Looked at all the time: whether it is to end at once.
        """
        paths = os.pathsep.join(path for path in sys.path if path)
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            _MODULE,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, **_ONE_THREAD, "PYTHONPATH": paths},
            # Of its own, so that Ctrl-C reaches the worker first, and all that a workload starts can be ended.
            start_new_session=True,
        )
        try:
            # Its input stays open: when that ends, however the worker ends, it ends itself.
            assert process.stdin is not None
            process.stdin.write(json.dumps({**request, "nbytes": len(payload)}).encode() + b"\n" + payload)
            reading = asyncio.ensure_future(self._read(process))
            try:
                return await self._watch(reading, seconds, ended)
            finally:
                reading.cancel()
        finally:
            self.kill()
            await process.wait()

    async def _watch(self, reading: asyncio.Future[None], seconds: float, ended: Callable[[], bool]) -> str:
        until = asyncio.get_running_loop().time() + seconds
        while True:
            left = until - asyncio.get_running_loop().time()
            if left <= 0:
                return f"it took more than {seconds:.3g} s"
            await asyncio.wait([reading], timeout=min(LOOK_SECONDS, left))
            if reading.done():
                break
            if ended():
                return "it was stopped"
        reading.result()
        assert self._process is not None
        code = await self._process.wait()
        return f"its process ended with {code}" if code else ""

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            content = json.loads(line)
            component = content.pop("component", None)
            if component is None:
                self.cpu_seconds = content["cpu_seconds"]
            else:
                self.found[component] = content

    def kill(self) -> None:
        """End it, and all that it started."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        with suppress(psutil.Error):
            times = psutil.Process(process.pid).cpu_times()
            self.cpu_seconds = max(self.cpu_seconds, times.user + times.system)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
