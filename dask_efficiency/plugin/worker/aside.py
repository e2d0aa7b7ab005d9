"""AsideThread: a thread that tells the scheduler what a worker's threads do while its event loop does not answer.

A blocked event loop accepts no connection and reads no question. A port of its own for that would be one more to open
and to protect, and a nanny is not always there, nor may it look into another process. So the worker calls: once its
loop has not ticked for a while, this thread connects to the scheduler as the worker does, with the same TLS, and says
so; the scheduler's answer, which waits for some seconds, may be a question, and a look is the next message. It ends as
the loop ticks again. It listens to nobody, opens no port, and costs a wake-up twice a second while all is well.

It cannot help where it gets no turn itself: while a function of C keeps the GIL, or the process is stopped.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any

from distributed import Worker
from distributed.core import rpc

from dask_efficiency.accounts.thread_looks import encode_looks
from dask_efficiency.plugin import names, plain
from dask_efficiency.plugin.guard import Guard
from dask_efficiency.show.log import logger

#: Seconds between two looks at the ticks; without one in between, the loop is blocked. Dask's own are 20 ms apart.
PERIOD_SECONDS = 0.5
#: Ticks that such a period has at least, if they are configured to be further apart.
MIN_TICKS = 5
#: Schemes of addresses to which a thread of its own may connect; those of other comms belong to one event loop.
SCHEMES = ("tcp", "tls", "ws", "wss")
#: Seconds in which the scheduler must accept the connection, and answer beyond what it waits.
TIMEOUT_SECONDS = 10.0
#: Times in a row that the scheduler may not be reached before nothing is sent any more until the next block.
MAX_FAILURES = 3


class AsideThread:
    """Watches the ticks of a worker's event loop, and answers for it while there are none.

    ``look`` answers a question of the scheduler in the thread that calls it.
    """

    def __init__(self, worker: Worker, look: Callable[[Mapping[str, Any]], dict[str, Any]]) -> None:
        self._worker, self._look = worker, look
        self._closing = threading.Event()
        self._guard = Guard("the aside", f"dask_efficiency does not say what a blocked {worker.address} does")

    def start(self) -> None:
        """Begin; called once, on the event loop."""
        tick = self._worker.periodic_callbacks.get("tick")
        address = self._worker.scheduler.address
        if tick is None or address.partition("://")[0] not in SCHEMES:
            return
        period = max(PERIOD_SECONDS, MIN_TICKS * tick.callback_time / 1e3)
        thread = threading.Thread(target=self._run, args=(address, period), name="dask-efficiency-aside", daemon=True)
        thread.start()

    def stop(self) -> None:
        """End, without waiting for the thread; safe to call twice."""
        self._closing.set()

    def _run(self, address: str, period: float) -> None:
        # A worker may be left open when its event loop is closed.
        while self._guard.off is None and not self._loop.is_closed():
            before = self._ticks
            if self._closing.wait(period):
                return
            if self._is_still(before):
                self._guard(asyncio.run, self._tell(address, before))

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        loop: asyncio.AbstractEventLoop = self._worker.io_loop.asyncio_loop  # type: ignore[attr-defined]
        return loop

    @property
    def _ticks(self) -> int:
        ticks: int = getattr(self._worker, "_tick_counter", -1)
        return ticks

    def _is_still(self, before: int) -> bool:
        """True if the loop runs, and has not ticked since it had ticked so many times."""
        return -1 < before == self._ticks and not self._closing.is_set() and self._loop.is_running()

    async def _tell(self, address: str, ticks: int) -> None:
        """Answer questions until the loop ticks again."""
        asked: Mapping[str, Any] = {}
        failures = 0
        args = self._worker.connection_args
        async with rpc(address, timeout=TIMEOUT_SECONDS, connection_args=args) as scheduler:
            while self._is_still(ticks) and failures < MAX_FAILURES:
                try:
                    looks = self._look(asked) if asked else encode_looks((), {})
                    if not self._is_still(ticks):
                        return
                    told = {"worker": self._worker.address, "asked": asked, "looks": looks}
                    asking = plain.answer(getattr(scheduler, names.OP), address, action=names.ASIDE, **told)
                    answer = await asyncio.wait_for(asking, TIMEOUT_SECONDS)
                    asked, failures = dict(answer["ask"]), 0
                except (OSError, RuntimeError, LookupError, TypeError, ValueError) as error:
                    # The scheduler is gone or blocked itself, or has another version: nobody to tell.
                    logger.debug("dask_efficiency could not tell the scheduler of a blocked event loop", exc_info=error)
                    failures += 1
