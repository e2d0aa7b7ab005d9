"""LightClient: a command's client of a scheduler, which reads plain data only."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any, Self

from distributed import Security
from distributed.comm import connect
from distributed.core import rpc
from distributed.utils import LoopRunner
from distributed.versions import get_versions

from dask_efficiency.plugin import plain


class LightClient:
    """Client for questions of ours, known to its scheduler until it is left, however its process ends.

    Dask's own unpickles what the scheduler sends, and a command may be given any address. Raises OSError if no
    scheduler answers in time.
    """

    asynchronous = False

    def __init__(self, address: str, security: Security, *, seconds: float) -> None:
        self.id = f"dask-efficiency-{uuid.uuid4().hex}"
        self._address, self._seconds = address, seconds
        self._connection: dict[str, Any] = security.get_connection_args("client")
        self._runner = LoopRunner(asynchronous=False)
        self._registration: asyncio.Task[None] | None = None

    @property
    def loop(self) -> Any:
        """Event loop, which runs in a thread."""
        return self._runner.loop

    def __enter__(self) -> Self:
        self._runner.start()
        try:
            self._runner.run_sync(self._open)
        except BaseException:
            self._runner.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.run_sync(self._close)
        self._runner.stop()

    async def _open(self) -> None:
        self.scheduler = rpc(self._address, timeout=self._seconds, connection_args=self._connection)
        known = asyncio.Event()
        registration = asyncio.create_task(plain.answer(self._register, self._address, known=known))
        waiting = asyncio.create_task(known.wait())
        await asyncio.wait([registration, waiting], timeout=self._seconds, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if not known.is_set():
            registration.cancel()
            await asyncio.wait([registration])
            failure = None if registration.cancelled() else registration.exception()
            if failure is not None and not isinstance(failure, OSError):
                raise failure
            cause = "" if failure is None else f" ({failure})"
            raise OSError(f"no scheduler answered at {self._address} in {self._seconds:g} s{cause}")
        self._registration = registration

    async def _register(self, known: asyncio.Event) -> None:
        """Register, and read on: a scheduler forgets a client whose connection ends."""
        comm = await connect(self._address, self._seconds, **self._connection)
        try:
            asked = {"op": "register-client", "client": self.id, "reply": False, "versions": get_versions()}
            await comm.write(asked)
            while True:
                await comm.read()
                known.set()
        finally:
            await comm.close()

    async def _close(self) -> None:
        if self._registration is not None:
            self._registration.cancel()
            await asyncio.gather(self._registration, return_exceptions=True)
        await self.scheduler.close_rpc()
