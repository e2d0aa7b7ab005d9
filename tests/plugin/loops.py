"""Tests that run on an event loop, within what they need there, such as a cluster in this process."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from distributed import Client, Scheduler, Worker

from dask_efficiency import EfficiencyPlugin


def within(context: Callable[..., AbstractAsyncContextManager[Any]], *args: Any) -> Callable[..., Callable[..., None]]:
    """Make a test of a coroutine, whose first arguments are what the context gives; the others are fixtures."""

    def decorate(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
        @functools.wraps(test)
        def run(**fixtures: Any) -> None:
            async def inside() -> None:
                async with context(*args) as given:
                    await test(*(given if isinstance(given, tuple) else (given,)), **fixtures)

            asyncio.run(inside())

        _, *rest = inspect.signature(test).parameters.values()
        named = [parameter for parameter in rest if parameter.kind is parameter.KEYWORD_ONLY]
        run.__signature__ = inspect.Signature(named)  # type: ignore[attr-defined]  # what pytest reads
        return run

    return decorate


@asynccontextmanager
async def metered_cluster(nthreads: int, kind: type = Worker) -> AsyncIterator[tuple[Scheduler, Any, Client]]:
    """A scheduler, a worker or nanny, and a client in this process, with the plugin registered."""
    address: dict[str, Any] = {"host": "127.0.0.1", "port": 0, "dashboard_address": "127.0.0.1:0"}
    async with (
        Scheduler(**address) as scheduler,
        kind(scheduler.address, nthreads=nthreads, name="only", **address) as worker,
        Client(scheduler.address, asynchronous=True) as client,
    ):
        await client.register_plugin(EfficiencyPlugin())
        yield scheduler, worker, client
