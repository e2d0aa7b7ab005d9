"""WorkerHalves: sends the workers their half of the plugin, and asks them for answers."""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator
from time import monotonic_ns
from typing import Any

import cloudpickle
from distributed.core import rpc

from dask_efficiency.accounts.cluster.cluster import GRACE_NS
from dask_efficiency.plugin import bootstrap, names, plain
from dask_efficiency.plugin.guard import MAX_REASON
from dask_efficiency.plugin.scheduler.registration import Registration
from dask_efficiency.plugin.version import __version__
from dask_efficiency.show.log import logger

#: Rows of a profile from each worker, at least: the top of a small profile.
MIN_ROWS = 20
#: Rows of a profile from all workers together, about: megabytes of a reply.
MAX_ROWS = 20_000
#: Seconds to remove the half of a worker that did not answer the last time; its answer is not needed.
FAREWELL_SECONDS = 1.0
#: Workers asked in one turn of the event loop, which may have to connect to each.
ASKED_AT_ONCE = 20
#: Seconds between the answers of two workers, by action: about the time to read one.
APART_SECONDS = {names.SNAPSHOT: 0.0005, names.OPEN: 0.0005, names.CLOSE: 0.0025}
#: Turns of the event loop before a timeout counts: after a block, answers may be waiting in sockets.
TURNS_TO_READ = 30
#: Answer of a worker, or the exception instead; and its arrival, monotonic nanoseconds.
TimedAnswer = tuple[Any, int]


class WorkerHalves:
    """Workers' halves of one registration, seen from the scheduler."""

    def __init__(self, meter: Registration) -> None:
        self._meter = meter
        self._scheduler = meter.scheduler
        self.recording: str | None = None
        #: Tasks to profile in it: number of each prefix, by who asked for them.
        self.profile: dict[str, dict[str, int]] = {}
        self.removed = False
        self._silent: set[str] = set()
        self._waiting: defaultdict[str, set[asyncio.Future[Any]]] = defaultdict(set)

    def update(self) -> bytes:
        """Update the half that joining workers are sent: they open the windows that are open now."""
        options = self._meter.options
        plugin = bootstrap.EfficiencyWorkerPlugin(
            __version__,
            session=self._meter.session,
            windows=list(self._meter.windows),
            recording=self.recording,
            profile=self.profile,
            **options.of_workers(),
        )
        cloudpickle.register_pickle_by_value(bootstrap)
        try:
            payload: bytes = cloudpickle.dumps(plugin)
        finally:
            cloudpickle.unregister_pickle_by_value(bootstrap)
        self._scheduler.worker_plugins[names.WORKER_PLUGIN] = payload
        return payload

    async def send(self, addresses: Iterable[str] | None = None) -> None:
        """Meter the present workers, or some, and late ones later; the scheduler sends joining ones their half."""
        message = {"op": "plugin-add", "plugin": self.update(), "name": names.WORKER_PLUGIN}
        answers = await self._broadcast(message, addresses)
        late = [address for address, (answer, _) in answers.items() if isinstance(answer, TimeoutError)]
        if late:  # where it has to connect first, Dask sends nothing to a worker that is busy for so long
            background = self._scheduler._ongoing_background_tasks
            background.call_later(self._meter.options.report_timeout, self._send_again, late)

    async def _send_again(self, addresses: Iterable[str]) -> None:
        """Meter those of these workers that are not metered."""
        workers = self._scheduler.workers
        late = [one for one in addresses if one in workers and names.METRIC not in workers[one].metrics]
        if late and not self.removed:
            await self.send(late)

    def forget(self) -> None:
        """Send joining workers nothing any more."""
        self.removed = True
        self._scheduler.worker_plugins.pop(names.WORKER_PLUGIN, None)

    async def remove(self) -> None:
        """Remove the half from the present workers."""
        await self._broadcast({"op": "plugin-remove", "name": names.WORKER_PLUGIN}, silent_seconds=FAREWELL_SECONDS)

    def vanished(self, address: str) -> None:
        """Cancel the questions to a worker that is gone: Dask would try to connect until the timeout."""
        for asked in self._waiting.get(address, ()):
            asked.cancel()

    async def ask(
        self, action: str, window: str = "", *, addresses: Iterable[str] | None = None
    ) -> dict[str, TimedAnswer]:
        """Answers of all workers, or of some, by address; one that does not answer costs the timeout."""
        return await self._broadcast(self._question(action, window), addresses)

    async def take(self, action: str, window: str, take: Callable[[str, Any, int], object]) -> None:
        """Call ``take`` with each worker's address and :data:`TimedAnswer`, one in a turn of the event loop.

        All workers are asked at once, and answer one after the other: a thousand answers take seconds to read.
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

    async def ask_one(self, address: str, question: dict[str, Any], seconds: float) -> Any:
        """Answer of one worker, None if it has no half; raises OSError, such as TimeoutError, if it does not answer."""
        answer = await asyncio.wait_for(self._answer(address, {"op": names.OP, **question}), seconds)
        if isinstance(answer, BaseException):
            raise answer if isinstance(answer, OSError) else OSError(f"{type(answer).__name__}: {answer}")
        return answer

    async def ask_directly(self, address: str, op: str, **kwargs: Any) -> Any:
        """Answer of a nanny, or of a worker that the scheduler removed; None if it does not answer.

        Upstream's ``Worker.close`` ends before it removes plugins if the worker's nanny closes first, as when a cluster
        scales down; the worker then answers until it is killed.
        """
        timeout = min(self._meter.options.report_timeout, GRACE_NS / 1e9)
        try:
            async with rpc(address, timeout=timeout, connection_args=self._scheduler.connection_args) as asked:
                return await asyncio.wait_for(plain.answer(getattr(asked, op), address, **kwargs), timeout)
        except Exception:  # in any case, the worker is gone: its accounts end without, or the reason stays unknown
            logger.debug("dask_efficiency could not ask %s for its %s", address, op, exc_info=True)
            return None

    async def _answer(self, address: str, message: dict[str, Any]) -> Any:
        """Answer of a worker, or the exception instead."""
        asked = {"msg": message, "workers": [address], "on_error": "raise"}
        try:
            return _unless_off((await plain.answer(self._scheduler.broadcast, address, **asked))[address])
        except Exception as error:
            return error

    async def _broadcast(
        self, message: dict[str, Any], addresses: Iterable[str] | None = None, *, silent_seconds: float = math.inf
    ) -> dict[str, TimedAnswer]:
        """Answers by address; workers that did not answer the last time have at most ``silent_seconds``."""
        asked = dict(self._asked(message, addresses, silent_seconds))
        return dict(zip(asked, await asyncio.gather(*asked.values()), strict=True))

    def _asked(
        self,
        message: dict[str, Any],
        addresses: Iterable[str] | None = None,
        silent_seconds: float = math.inf,
        apart: float = 0.0,
    ) -> Iterator[tuple[str, Awaitable[TimedAnswer]]]:
        """Addresses and awaitable answers, which workers send ``apart`` seconds apart.

        A worker times out when no worker has answered for as long as the timeout: the last of ten thousand answers is
        read long after its arrival.
        """
        usual = self._meter.options.report_timeout
        self._silent &= self._scheduler.workers.keys()
        loop = asyncio.get_running_loop()
        began = heard = loop.time()

        async def ask(address: str, delay: float) -> TimedAnswer:
            nonlocal heard
            if address not in self._scheduler.workers:  # it left since: nobody would cancel the question
                return OSError("it vanished"), monotonic_ns()
            timeout = min(usual, silent_seconds) if address in self._silent else usual
            question = {**message, "delay": delay} if delay else dict(message)
            asked = asyncio.ensure_future(self._answer(address, question))
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
                    answer = asked.result()
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
            yield address, ask(address, min(i * apart, names.MAX_DELAY_SECONDS))


def _unless_off(answer: Any) -> Any:
    """An answer, or as an exception the reason why a worker has no meter that answers."""
    off = answer.get("off") if isinstance(answer, dict) else None
    return answer if off is None else RuntimeError(str(off)[:MAX_REASON])
