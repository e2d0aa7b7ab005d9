"""Preflights: tests of this scheduler's workers, for clients that ask for one, and of each worker that joins."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Self

from dask_efficiency.accounts.checks import short, text
from dask_efficiency.accounts.intake import fitting
from dask_efficiency.plugin import names
from dask_efficiency.plugin.parts import SchedulerPart
from dask_efficiency.preflights.judge.result import encode
from dask_efficiency.preflights.scheduler.gate import Gate
from dask_efficiency.preflights.scheduler.plan import Candidate, plan_of
from dask_efficiency.preflights.scheduler.preflight import Preflight
from dask_efficiency.show.figures import format_count
from dask_efficiency.show.log import logger

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import WorkerState

    from dask_efficiency.plugin.scheduler.workers import WorkerHalves

#: Seconds that a client waits at a time; and that it may be silent before its test is stopped.
WAIT_SECONDS = 1.0
SILENT_SECONDS = 15.0
#: Seconds to wait for workers that are to stop a test.
STOP_SECONDS = 5.0


class Preflights(SchedulerPart):
    """Tests of one scheduler's workers, one at a time."""

    def __init__(self, meter: Any) -> None:
        self._scheduler: Scheduler = meter.scheduler
        self._workers: WorkerHalves = meter.workers
        self._meter = meter
        self._gate = Gate(self._scheduler, self._ask, self._free, meter.accounts.stragglers.flag)
        self._test: str = ""
        self._client: str = ""
        self._task: asyncio.Task[dict[str, Any]] | None = None
        self._running: Preflight
        self._found: Callable[[], dict[str, Any]]
        self._silence: asyncio.TimerHandle | None = None

    @classmethod
    def of(cls, meter: Any) -> Self:  # noqa: D102
        return cls(meter)

    async def answer(self, action: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Take a step of a client's test.

        ``begin`` returns ``test``, or ``refused`` with the reason; ``wait`` returns ``running`` with its progress, or
        ``done`` with the results; ``stop`` ends it, and returns ``done`` with the results so far.
        """
        asked = asked["preflight"]
        step = text("step", asked.get("step"))
        if step == names.BEGIN_TEST:
            return self._begin(asked)
        if text("test", asked.get("test")) != self._test or self._task is None:
            raise ValueError(f"there is no test {short(asked['test'])}; it was stopped")
        self._heard()
        if step == names.WAIT_FOR_TEST:
            done, _ = await asyncio.wait([self._task], timeout=WAIT_SECONDS)
            if self._task.cancelled():
                raise RuntimeError("the preflight was stopped")
            if done:
                return {"done": self._task.result()}
            return {"running": {"doing": self._running.doing, "done": self._running.done, "of": self._running.of}}
        if step == names.STOP_TEST:
            if not self._task.done():
                self._stop()
                self._running.stopped()
            return {"done": self._found()}
        raise ValueError(f"unknown step {short(step)}")

    async def configured(self) -> None:
        """Test workers that were not tested yet, if the option is set."""
        for address, ws in self._scheduler.workers.items():
            if address in self._meter.accounts.cluster.present:
                self.worker_joined(address, ws)

    def worker_joined(self, address: str, ws: WorkerState) -> None:
        """Test a worker that joined, if the option is set."""
        if self._meter.options.preflight:
            self._gate.worker_joined(address)

    async def _free(self) -> None:
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task])

    def client_left(self, client: str) -> None:
        """Stop the test of a client that left."""
        if client == self._client:
            self._stop()

    def stop(self) -> None:
        """Stop all tests."""
        self._gate.stop()
        self._stop()

    def _stop(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
        if self._task is not None and not self._task.done():
            self._task.cancel()

    def _begin(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        plan, client = plan_of(asked.get("plan")), text("client", asked.get("client", ""))
        if self._task is not None and not self._task.done():
            return {"refused": "another preflight goes on"}
        before = dict(self._scheduler.workers)
        if not before:
            return {"refused": "there is no worker"}
        busy = [len(ws.processing) for ws in before.values() if ws.processing]
        if busy and not plan.force:
            where = f"{format_count(sum(busy), 'task')} on {format_count(len(busy), 'worker')}"
            return {"refused": f"the cluster is busy: {where}; force tests it nevertheless"}
        self._test, self._client = plan.test, client
        self._heard()
        candidates = list(map(Candidate.of, before.values()))
        self._running = Preflight(plan, candidates, self._ask, self._scheduler.workers, Random(plan.test))
        self._found = partial(self._encoded, self._running, before, time.monotonic(), time.time())
        self._task = asyncio.ensure_future(self._run(self._running, [*before]))
        # Retrieve the exception, as the client may never come for it.
        self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return {"test": plan.test}

    async def _run(self, test: Preflight, addresses: list[str]) -> dict[str, Any]:
        try:
            await test.run()
        except BaseException:
            self._scheduler._ongoing_background_tasks.call_soon(self._stop_on, addresses, test.plan.test)
            raise
        return self._found()

    def _encoded(self, test: Preflight, before: Mapping[str, WorkerState], began: float, at: float) -> dict[str, Any]:
        notes = list(test.notes)
        joined = [fitting(ws.name) for address, ws in self._scheduler.workers.items() if address not in before]
        if joined:
            notes.append(f"not tested, as they joined during the test: {', '.join(sorted(joined)[:20])}")
        subjects = sorted((candidate.subject for candidate in test.workers), key=lambda subject: subject.name)
        links = [link for of_group in test.links.values() for link in of_group]
        return encode(subjects, links, started=at, seconds=time.monotonic() - began, notes=notes)

    def _heard(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
        self._silence = asyncio.get_running_loop().call_later(SILENT_SECONDS, self._silent)

    def _silent(self) -> None:
        if self._task is not None and not self._task.done():
            logger.warning("dask_efficiency stops a preflight: its client has been silent for %g s", SILENT_SECONDS)
            self._stop()

    async def _ask(self, address: str, step: dict[str, Any], seconds: float) -> Any:
        return await self._workers.ask_one(address, {"action": names.PREFLIGHT, "preflight": step}, seconds)

    async def _stop_on(self, addresses: list[str], test: str) -> None:
        async def stop(address: str) -> None:
            try:
                await self._ask(address, {"step": names.STOP_TEST, "test": test}, STOP_SECONDS)
            except OSError:  # its child has a deadline
                logger.debug("dask_efficiency could not stop the test of %s", address, exc_info=True)

        await asyncio.gather(*(stop(address) for address in addresses if address in self._scheduler.workers))
