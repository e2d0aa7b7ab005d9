"""`dask-efficiency top`: asks a scheduler every few seconds and shows what happened in between."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, contextmanager
from typing import IO, Protocol

from distributed import Security
from distributed.core import rpc

from dask_efficiency.live.terminal import coloured, plain
from dask_efficiency.live.top_view import HEARTBEATS, Observation, TopView, baseline, read, top_view
from dask_efficiency.plugin.client import Caller, NotRegisteredError, Server, ask, check_answers
from dask_efficiency.show.drawn_buckets import DISTINCT_COLOURS

#: Observations kept to compare with; slow heartbeats need more than two. A guess.
MAX_OBSERVATIONS = 100
#: Lines of a view where there is no terminal. A guess.
BLOCK_HEIGHT = 40


class MeterFailedError(RuntimeError):
    """The plugin is on the scheduler and cannot answer; the message says why."""


class Screen(Protocol):
    """Display of views."""

    def show(self, view: TopView) -> None:
        """Show a view, in place of or after the one before."""


async def views(
    address: str, *, security: Security, interval_seconds: float, timeout_seconds: float, once: bool = False
) -> AsyncIterator[TopView]:
    """Views of a cluster, one per interval.

    The first view covers the whole life of the accounts, unless ``once`` is given.

    Parameters
    ----------
    address
        Address of the scheduler.
    security
        Security of the connection.
    interval_seconds
        Seconds between two observations; a view covers several heartbeats at least.
    timeout_seconds
        Seconds for the scheduler to accept the connection and answer the first time.
    once
        End after one view, made of two observations.

    Raises
    ------
    OSError
        If no scheduler answers, or it has gone.
    NotRegisteredError, MeterFailedError
        If the plugin is not registered, or cannot answer.
    ValueError
        If the address is not that of a scheduler with this version of the plugin.
    """
    connection = security.get_connection_args("client")
    observations: deque[Observation] = deque(maxlen=MAX_OBSERVATIONS)
    async with rpc(address, timeout=timeout_seconds, connection_args=connection) as server:
        scheduler = Server(server)
        await check_answers(scheduler, address, seconds=timeout_seconds)
        while True:
            now = await _observe(scheduler)
            then = baseline(observations, now, seconds=interval_seconds)
            if then is not None or not once:
                yield top_view(then, now, source=address)
                if once:
                    return
            observations.append(now)
            wait = HEARTBEATS * now.heartbeat_seconds if once else 0.0
            await asyncio.sleep(max(interval_seconds, wait))


async def _observe(scheduler: Caller) -> Observation:
    try:
        return read(await ask(scheduler, "live"))
    except NotRegisteredError:
        raise
    except RuntimeError as error:  # raised on the scheduler
        raise MeterFailedError(f"the plugin cannot answer: {error}") from error


async def show_views(
    screen: Screen,
    address: str,
    *,
    security: Security,
    interval_seconds: float,
    timeout_seconds: float,
    once: bool = False,
) -> None:
    """Show a cluster until interrupted, or once; raises as :func:`views` does."""
    stream = views(
        address, security=security, interval_seconds=interval_seconds, timeout_seconds=timeout_seconds, once=once
    )
    async with aclosing(stream) as shown:  # type: ignore[type-var]  # an async generator, typed as iterator
        async for view in shown:
            screen.show(view)


class Blocks:
    """Plain text, one view after the other."""

    def __init__(self, file: IO[str], *, height: int | None = BLOCK_HEIGHT) -> None:
        self._file = file
        self._height = height
        self._shown = False

    def show(self, view: TopView) -> None:
        """Print a view, after a blank line if it is not the first."""
        width = shutil.get_terminal_size().columns
        gap = "\n" if self._shown else ""
        print(gap + plain(view, width=width, height=self._height), file=self._file, flush=True)
        self._shown = True


class JsonLines:
    """One JSON object a line."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def show(self, view: TopView) -> None:
        """Print one object."""
        print(json.dumps(view.to_dict()), file=self._file, flush=True)


@contextmanager
def terminal(file: IO[str]) -> Iterator[Screen]:
    """Whole screen of a terminal, restored at the end; raises ImportError without rich."""
    try:
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text
    except ImportError as error:
        raise ImportError(
            "a live view needs rich: pip install 'dask-efficiency[report]'; without it, --once prints one view"
        ) from error

    console = Console(file=file)
    distinct = console.color_system in DISTINCT_COLOURS and not console.no_color and not console.options.ascii_only

    class Whole:
        def show(self, view: TopView) -> None:
            width, height = console.size
            if distinct:
                text = coloured(view, width=width, height=height)
            else:
                text = Text(plain(view, width=width, height=height))
            live.update(text, refresh=True)

    with Live(Text("waiting for the scheduler"), console=console, screen=True, auto_refresh=False) as live:
        live.refresh()
        yield Whole()
