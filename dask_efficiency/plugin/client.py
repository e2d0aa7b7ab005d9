"""Client's side: asks the scheduler's half of the plugin."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import cloudpickle
from distributed import Client, get_client
from distributed.core import rpc

from dask_efficiency.plugin import names, plain
from dask_efficiency.plugin.scheduler.plugin import EfficiencyPlugin

if TYPE_CHECKING:
    from distributed import Security

#: Reads of the scheduler's clock, of which the quickest counts. Three are enough on an idle event loop.
_CLOCK_READS = 3


#: What upstream puts before an error of a connection.
_CONNECTOR = re.compile(r"^in <[^<>]*>: ")


class NotRegisteredError(RuntimeError):
    """The plugin is not on that scheduler; the text says how to register it."""


class NoAnswerError(OSError):
    """No scheduler answered in time."""


class Caller(Protocol):
    """Client, or another caller of a scheduler's handlers."""

    @property
    def scheduler(self) -> Any:
        """Object whose attributes call the handlers of their names."""


@dataclass(frozen=True, slots=True)
class Server:
    """Caller with a bare connection, without being a client of the scheduler."""

    scheduler: Any


@contextlib.asynccontextmanager
async def connected(address: str, security: Security, *, seconds: float) -> AsyncIterator[Server]:
    """Connection to a scheduler; NoAnswerError if none answers in time, NotRegisteredError if it has no plugin."""
    async with rpc(address, timeout=seconds, connection_args=security.get_connection_args("client")) as scheduler:
        server = Server(scheduler)
        await check_answers(server, address, seconds=seconds)
        yield server


async def check_answers(caller: Caller, address: str, *, seconds: float) -> None:
    """Raise NoAnswerError if no scheduler answers at an address, NotRegisteredError if it has no plugin."""
    try:
        clock = await asyncio.wait_for(ask(caller, names.CLOCK), seconds)
    except OSError as error:
        cause = " ".join(str(error if isinstance(error, plain.BrokenOffError) else error.__cause__ or "").split())
        cause = _CONNECTOR.sub("", cause)
        raise NoAnswerError(
            f"no scheduler answered at {address} in {seconds:g} s{f' ({cause})' if cause else ''}; "
            "is it running, and is this its address?"
        ) from error
    if "wall" in clock:  # workers have that action too
        raise NoAnswerError(f"{address} is a worker; expected the scheduler's address")


async def ask(caller: Caller, action: str, /, **kwargs: Any) -> dict[str, Any]:
    """Ask the scheduler's half for one of its actions; raises NotRegisteredError if the plugin is not there."""
    reply = await call(caller, names.OP, action=action, **kwargs)
    if reply is None:  # upstream's answer to an unknown op
        raise NotRegisteredError(
            "dask_efficiency is not on this scheduler; call client.register_plugin(EfficiencyPlugin()) first"
        )
    if not isinstance(reply, dict):
        raise plain.NotPlainError(f"{caller.scheduler.address} answered with a {type(reply).__name__}; expected a dict")
    return reply


async def call(caller: Caller, op: str, /, **kwargs: Any) -> Any:
    """Call a handler of the scheduler, ours or one of Dask's; the answer is read as plain data."""
    scheduler = caller.scheduler
    return await plain.answer(getattr(scheduler, op), scheduler.address, **kwargs)


async def register(client: Client, plugin: EfficiencyPlugin) -> None:
    """Put the plugin on the client's scheduler; raises NotRegisteredError if that cannot load it."""
    try:
        await call(
            client,
            "register_scheduler_plugin",
            plugin=cloudpickle.dumps(plugin),
            name=EfficiencyPlugin.name,
            idempotent=False,
        )
    except ImportError as error:
        raise NotRegisteredError(
            f"the scheduler cannot load dask_efficiency ({error}): install it where the scheduler runs"
        ) from error


async def clock_offset(caller: Caller) -> int:
    """Nanoseconds by which the scheduler's monotonic clock is ahead of ours."""
    readings = []
    for _ in range(_CLOCK_READS):
        sent = time.monotonic_ns()
        at: int = (await ask(caller, names.CLOCK))["at"]
        took = time.monotonic_ns() - sent
        readings.append((took, at - sent - took // 2))
    return min(readings)[1]


def unregister(client: Client | None = None) -> Any:
    """Take the plugin off the scheduler and all workers; a no-op where it is not registered."""
    return sync(client, _unregister)


async def _unregister(client: Client) -> None:
    with contextlib.suppress(NotRegisteredError):
        await ask(client, names.UNREGISTER)


def sync(client: Client | None, function: Any, *args: Any) -> Any:
    """Call a coroutine function with a client, the current one by default; an awaitable if that is asynchronous."""
    client = client if client is not None else get_client()
    return client.sync(function, client, *args)
