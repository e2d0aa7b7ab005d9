"""`dask-efficiency top`: asks a scheduler every few seconds and shows what happened in between."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain, repeat
from typing import IO

from distributed import Security

from dask_efficiency.live.terminal import coloured, plain
from dask_efficiency.live.top_view import HEARTBEATS, Observation, TopView, baseline, read, top_view
from dask_efficiency.plugin.client import NoAnswerError, NotRegisteredError, ask, connected
from dask_efficiency.show.drawn_buckets import DISTINCT_COLOURS

#: Observations kept to compare with; slow heartbeats need more than two. A guess.
MAX_OBSERVATIONS = 100
#: Lines of a view where there is no terminal. A guess.
BLOCK_HEIGHT = 40


class MeterFailedError(RuntimeError):
    """The plugin is on the scheduler and cannot answer; the message says why."""


#: Shows a view, in place of or after the one before.
Screen = Callable[[TopView], None]


async def show_views(
    show: Screen, address: str, *, security: Security, interval_seconds: float, timeout_seconds: float, once: bool
) -> None:
    """Show a cluster until interrupted, or ``once``; a view covers an interval, and several heartbeats at least.

    The first view covers the whole life of the accounts, unless ``once`` is given. Within ``timeout_seconds`` the
    scheduler has to accept the connection, and to answer the first time; one that stops later is a NoAnswerError.
    """
    observations: deque[Observation] = deque(maxlen=MAX_OBSERVATIONS)
    async with connected(address, security, seconds=timeout_seconds) as scheduler:
        while True:
            try:
                now = read(await ask(scheduler, "live"))
            except NotRegisteredError:
                raise
            except RuntimeError as error:  # raised on the scheduler
                raise MeterFailedError(f"the plugin cannot answer: {error}") from error
            except OSError as error:
                raise NoAnswerError(
                    f"{address} answers no more: the scheduler stopped, or cannot be reached"
                ) from error
            then = baseline(observations, now, seconds=interval_seconds)
            if then is not None or not once:
                show(top_view(then, now, source=address))
                if once:
                    return
            observations.append(now)
            wait = HEARTBEATS * now.heartbeat_seconds if once else 0.0
            await asyncio.sleep(max(interval_seconds, wait))


def blocks(file: IO[str], *, height: int | None = BLOCK_HEIGHT) -> Screen:
    """Plain text, one view after the other, with blank lines in between."""
    gaps = chain([""], repeat("\n"))

    def show(view: TopView) -> None:
        width = shutil.get_terminal_size().columns
        print(next(gaps) + plain(view, width=width, height=height), file=file, flush=True)

    return show


def json_lines(file: IO[str]) -> Screen:
    """One JSON object a line."""
    return lambda view: print(json.dumps(view.to_dict()), file=file, flush=True)


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

    def show(view: TopView) -> None:
        size = {"width": console.width, "height": console.height}
        live.update(coloured(view, **size) if distinct else Text(plain(view, **size)), refresh=True)

    with Live(Text("waiting for the scheduler"), console=console, screen=True, auto_refresh=False) as live:
        live.refresh()
        yield show
