"""WorkerHalves: sends the workers their half of the plugin, and asks what it knows."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from time import monotonic_ns
from typing import TYPE_CHECKING, Any

import cloudpickle
from distributed.core import rpc

from dask_efficiency.accounts.cluster.cluster import GRACE_NS
from dask_efficiency.plugin import bootstrap, names
from dask_efficiency.plugin.options import Options
from dask_efficiency.plugin.scheduler.departures import LOG_LINES
from dask_efficiency.plugin.version import __version__
from dask_efficiency.show.log import logger

if TYPE_CHECKING:
    from distributed import Scheduler

#: Rows of a profile that a worker sends at least; all workers together send about the second number.
MIN_ROWS = 20
MAX_ROWS = 20_000

#: Seconds in which a worker that did not answer the last time is told that it is over: its answer is not needed.
FAREWELL_SECONDS = 1.0

#: Workers that are asked in one turn of the event loop, to each of which it may have to connect.
ASKED_AT_ONCE = 20

#: Seconds between the answers of two workers, by what they are asked: about what it takes to read one.
APART_SECONDS = {names.SNAPSHOT: 0.0005, names.OPEN: 0.0005, names.CLOSE: 0.0025}

#: Turns of the event loop in which what has come is read: after it stood still, answers may be waiting.
TURNS_TO_READ = 30

#: What a worker answered, or the exception that came instead; and when, monotonic nanoseconds.
TimedAnswer = tuple[Any, int]


class WorkerHalves:
    """The workers' halves of one registration, as the scheduler reaches them.

    Parameters
    ----------
    scheduler
        The scheduler.
    session
        Which registration this is.
    options
        Gives the options in force.
    windows
        Ids of the windows that are open, at any time: a worker that joins opens them.
    """

    def __init__(
        self, scheduler: Scheduler, session: str, options: Callable[[], Options], windows: Collection[str]
    ) -> None:
        self._scheduler = scheduler
        self._session = session
        self._options = options
        self._windows = windows
        #: The recording in which a worker that joins takes part.
        self.recording: str | None = None
        #: Which tasks are profiled in it: by who asked, how many of each prefix.
        self.profile: dict[str, dict[str, int]] = {}
        #: Whether it is over: no worker takes part any more.
        self.removed = False
        #: Addresses of those that did not answer the last time.
        self._silent: set[str] = set()
        #: Questions that wait for an answer, by address.
        self._waiting: defaultdict[str, set[asyncio.Future[Any]]] = defaultdict(set)

    def update(self) -> bytes:
        """Have the workers that join sent their half as it must be now."""
        options = self._options()
        plugin = bootstrap.EfficiencyWorkerPlugin(  # type: ignore[no-untyped-call]
            __version__,
            self._session,
            options.max_prefixes,
            list(self._windows),
            self.recording,
            options.gpu,
            options.waiting,
            self.profile,
            options.sensors,
        )
        cloudpickle.register_pickle_by_value(bootstrap)
        try:
            payload: bytes = cloudpickle.dumps(plugin)
        finally:
            cloudpickle.unregister_pickle_by_value(bootstrap)
        self._scheduler.worker_plugins[names.WORKER_PLUGIN] = payload
        return payload

    async def send(self) -> None:
        """Meter the workers that are there; those that join are sent their half by the scheduler."""
        await self._broadcast({"op": "plugin-add", "plugin": self.update(), "name": names.WORKER_PLUGIN})

    def forget(self) -> None:
        """Have the workers that join sent nothing; it is over."""
        self.removed = True
        self._scheduler.worker_plugins.pop(names.WORKER_PLUGIN, None)

    async def remove(self) -> None:
        """Take their half from the workers that are there."""
        await self._broadcast({"op": "plugin-remove", "name": names.WORKER_PLUGIN}, silent_seconds=FAREWELL_SECONDS)

    def vanished(self, address: str) -> None:
        """Wait for no answer of a worker that is not there any more: Dask would try to connect until it times out."""
        for asked in self._waiting.get(address, ()):
            asked.cancel()

    async def ask(
        self, action: str, window: str = "", *, addresses: Iterable[str] | None = None
    ) -> dict[str, TimedAnswer]:
        """The answers of all workers, or of some, by address; one that does not answer costs the timeout."""
        return await self._broadcast(self._question(action, window), addresses)

    async def take(self, action: str, window: str, take: Callable[[str, Any, int], object]) -> None:
        """Call ``take`` with each worker's address and :data:`Answer`, one in a turn of the event loop.

        All workers are asked at once, and answer one after the other: what a thousand say takes seconds to read.
        """
        one_at_a_time = asyncio.Lock()

        async def taken(address: str, answer: Awaitable[TimedAnswer]) -> None:
            reply, at = await answer
            async with one_at_a_time:
                take(address, reply, at)
                await asyncio.sleep(0)

        asked = self._asked(self._question(action, window), apart=APART_SECONDS[action])
        try:
            async with asyncio.TaskGroup() as group:
                for number, (address, answer) in enumerate(asked, 1):
                    group.create_task(taken(address, answer))
                    if not number % ASKED_AT_ONCE:
                        await asyncio.sleep(0)
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    def _question(self, action: str, window: str) -> dict[str, Any]:
        message: dict[str, Any] = {"op": names.OP, "action": action}
        if window:
            message["window"] = window
        if action == names.RECORD:
            message["profile"] = self.profile
        if action == names.CLOSE:
            message["limit"] = max(MIN_ROWS, MAX_ROWS // max(1, len(self._scheduler.workers)))
        return message

    async def ask_everything(self, addresses: list[str]) -> None:
        """Have some workers tell everything in their next heartbeats; one that does not hear may be asked again."""
        await self.ask(names.EVERYTHING, addresses=addresses)

    async def ask_one(self, address: str, question: dict[str, Any], seconds: float) -> Any:
        """The answer of one worker, or None where it has no half.

        Raises
        ------
        TimeoutError
            If it does not answer in time.
        OSError
            If it cannot be reached.
        """
        message = {"op": names.OP, **question}
        asked = self._scheduler.broadcast(msg=message, workers=[address], on_error="return")
        answer = (await asyncio.wait_for(asked, seconds))[address]
        if isinstance(answer, BaseException):
            raise answer if isinstance(answer, OSError) else OSError(f"{type(answer).__name__}: {answer}")
        return answer

    async def ask_final_snapshot(self, address: str) -> Any:
        """The final snapshot of a worker that left in order; None if it does not answer.

        Upstream's ``Worker.close`` ends before it takes plugins away where the worker's nanny closes first, as it
        does when a cluster scales down; the worker then answers until it is killed.
        """
        timeout = min(self._options().report_timeout, GRACE_NS / 1e9)
        try:
            async with rpc(address, timeout=timeout, connection_args=self._scheduler.connection_args) as worker:
                return await asyncio.wait_for(getattr(worker, names.OP)(action=names.ASK_FINAL_SNAPSHOT), timeout)
        except Exception:  # whatever it is, the worker is gone, and its accounts end without
            logger.debug("dask_efficiency could not ask %s for its final snapshot", address, exc_info=True)
            return None

    async def ask_log(self, nanny: str) -> list[Any] | None:
        """The newest lines of a nanny's log; None if it does not answer."""
        timeout = min(self._options().report_timeout, GRACE_NS / 1e9)
        try:
            async with rpc(nanny, timeout=timeout, connection_args=self._scheduler.connection_args) as asked:
                return list(await asyncio.wait_for(asked.get_logs(n=LOG_LINES), timeout))
        except Exception:  # whatever it is, nobody knows why the worker went
            logger.debug("dask_efficiency could not ask the nanny %s why its worker went", nanny, exc_info=True)
            return None

    async def _broadcast(
        self, message: dict[str, Any], addresses: Iterable[str] | None = None, *, silent_seconds: float = math.inf
    ) -> dict[str, TimedAnswer]:
        """The answers; who did not answer the last time has ``silent_seconds`` at most."""
        asked = dict(self._asked(message, addresses, silent_seconds))
        return dict(zip(asked, await asyncio.gather(*asked.values()), strict=True))

    def _asked(
        self,
        message: dict[str, Any],
        addresses: Iterable[str] | None = None,
        silent_seconds: float = math.inf,
        apart: float = 0.0,
    ) -> Iterator[tuple[str, Awaitable[TimedAnswer]]]:
        """The answers to wait for, with their addresses, which are to be sent so many seconds apart.

        A worker is given up on when nothing was heard of any for as long as the timeout: the last of ten thousand
        answers is read long after it came.
        """
        usual = self._options().report_timeout
        self._silent &= self._scheduler.workers.keys()
        loop = asyncio.get_running_loop()
        began = heard = loop.time()

        async def ask(address: str, delay: float) -> TimedAnswer:
            nonlocal heard
            timeout = min(usual, silent_seconds) if address in self._silent else usual
            question = {**message, "delay": delay} if delay else dict(message)
            asked = asyncio.ensure_future(self._scheduler.broadcast(msg=question, workers=[address], on_error="return"))
            self._waiting[address].add(asked)
            answer: Any
            try:
                while (left := max(heard, began + delay) + timeout - loop.time()) > 0 and not asked.done():
                    await asyncio.wait([asked], timeout=left)
                for _ in range(TURNS_TO_READ):
                    if asked.done():
                        break
                    await asyncio.sleep(0)
                if asked.cancelled():
                    answer = OSError("it vanished")
                elif asked.done():
                    answer = asked.result()[address]
                    self._silent.discard(address)
                else:
                    answer = TimeoutError(f"no answer in {timeout:g} s")
                    self._silent.add(address)
            except Exception as error:
                answer = error
            finally:
                asked.cancel()
                self._waiting[address].discard(asked)
                if not self._waiting[address]:
                    del self._waiting[address]
            if not isinstance(answer, TimeoutError):
                heard = loop.time()
            return answer, monotonic_ns()

        for i, address in enumerate(list(self._scheduler.workers if addresses is None else addresses)):
            yield address, ask(address, i * apart)
