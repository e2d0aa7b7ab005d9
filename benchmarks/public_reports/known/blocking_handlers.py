"""The coroutines of a small server call a blocking compute, so that requests are served one at a time.

source: xpublish-community/xpublish issue 7 and pull request 12; a like case: dmlc/xgboost issue 6407
date:   2020-02-25 (cure 2020-03-03; the like case 2020-11-19)
seen:   a web server gives out chunks of an array computed by a Dask cluster. Its handlers are coroutines, clients ask
        for many chunks at once, and yet only one worker at a time was busy.
cause:  the coroutine calls compute(), which blocks; the server's event loop stands still until that chunk is there, so
        the next request is not even begun.
cure:   the pull request: make the handler a plain function, which the framework runs in its thread pool; or await the
        asynchronous methods of the client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_ONE
CHUNKS = scaled(24)

EXPECTED = Expected(
    cause="the client asks for one chunk at a time: a blocking compute() inside a coroutine holds up the program's own"
    " event loop, so at the most one task is known to the cluster and all other threads idle",
    place="Server.get_blocking (its call of chunk, i.e. .compute()), called from visit",
    cure="do not block in the coroutine: run compute in a thread (asyncio.to_thread, a plain handler), or use an"
    " asynchronous client and await; or compute all chunks in one call",
    says=r"one (\w+ )?(at a time|after|by one|in turn)|at a time|in turn|sequential|serial|event loop|coroutine|\basync"
    r"|\b(blocked|blocking)\b|\bblocks (the|its|until|on|while)\b|parallel|nothing (else )?to (do|run)"
    r"|client.{0,40}\b(waits?|waited|waiting|asks?|submits?)\b"
    r"|wait\w* (for|on) (each|every|one|a|the) (\w+ )?(result|chunk|comput)"
    r"|(few|no|one|single) (other )?(tasks?|computations?)\b|for each (chunk|result|compute|computation)"
    r"|separate comput",
    places=(*marked(__file__), function("get_blocking"), function("chunk"), function("visit")),
    cures=r"thread|async|await|together|at once|in one\b|one (call|compute|graph|computation)|gather|as_completed"
    r"|submit"
    r"|plain|not block|parallel|concurrent|several|persist|client\.compute|more (tasks|requests)",
    never={
        HOLDS_GIL: "one thread a worker",
        PROCESSES: "the other worker has nothing to do",
        MORE_WORKERS: "the other worker has nothing to do",
        LONGER_TASKS: "the tasks are long enough",
        r"(?i)(worker|scheduler)(s|'s|s')? event loops?[^.\n]{0,30}(block|busy|held|unrespons)"
        r"|event loops? of (a |the )?(worker|scheduler)": "it is the program's own",
    },
)


def render(block: np.ndarray) -> np.ndarray:
    compute_for(0.35)
    return np.sqrt(block)


class Server:
    """Gives out chunks of an array."""

    def __init__(self) -> None:
        self.array = da.ones((CHUNKS, 100, 100), chunks=(1, 100, 100)).map_blocks(render, dtype=float)

    def chunk(self, number: int) -> bytes:
        return self.array.blocks[number].compute().tobytes()  # <- here

    async def get_blocking(self, number: int) -> bytes:
        return self.chunk(number)  # <- here

    async def get_in_thread(self, number: int) -> bytes:
        return await asyncio.to_thread(self.chunk, number)


async def visit(get: Callable[[int], Awaitable[bytes]]) -> int:
    """One page asks for all chunks at once."""
    bodies = await asyncio.gather(*(get(number) for number in range(CHUNKS)))
    return sum(map(len, bodies))


def bad(client: Client) -> float:
    return asyncio.run(visit(Server().get_blocking))


def good(client: Client) -> float:
    return asyncio.run(visit(Server().get_in_thread))
