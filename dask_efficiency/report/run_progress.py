"""Time that tasks will yet take, in words, and told now and then while a script runs."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import IO, TYPE_CHECKING

from dask_efficiency.accounts.cluster.time_left import TimeLeft, decode_left
from dask_efficiency.show.progress import LOG_TIMING

if TYPE_CHECKING:
    from distributed import Client

#: Seconds that a scheduler has to answer, which may be busy.
ANSWER_SECONDS = 10.0
#: Units and their seconds; one is used from one and a half of it on.
_UNITS = (("h", 3600.0), ("min", 60.0), ("s", 1.0))


def left_text(left: TimeLeft) -> str:
    """Time left in words: ``"about 4 min left, 3 to 6"``."""
    unit, size = next((one for one in _UNITS if left.seconds >= 1.5 * one[1]), _UNITS[-1])
    step = size / 10 if unit == "h" and left.seconds < 10 * size else size
    digits = int(step < size)
    least, most = math.floor(left.least / step) * step / size, math.ceil(left.most / step) * step / size
    return f"about {left.seconds / size:.{digits}f} {unit} left, {least:.{digits}f} to {most:.{digits}f}"


def line_writer(stream: IO[str]) -> Callable[[str], None]:
    """Function that writes lines to this stream, and no more where it was a terminal and has become something else.

    A script may capture what is written to `sys.stderr`, so the stream is the one of the start.
    """
    begin = "\r\x1b[K" if stream is not None and stream.isatty() else ""  # it is None where a shell closed it

    def write(text: str) -> None:
        if not begin or stream.isatty():
            stream.write(f"{begin}dask-efficiency: {text}\n")
            stream.flush()

    return write


def tell_now_and_then(
    clients: Callable[[], Iterable[Client]], finished: Callable[[], bool], write: Callable[[str], object]
) -> None:
    """Ask the schedulers of the clients that are there from a thread, until the end, and write what they can say."""

    def tell() -> None:
        seconds, interval = LOG_TIMING
        while not finished():
            time.sleep(seconds)
            seconds = interval
            for client in clients():
                with suppress(Exception):  # such as of a client that has just closed: the script goes on as without
                    left = None if finished() else _left_of(client)
                    if left is not None and not finished():
                        write(left_text(left))

    threading.Thread(target=tell, name="dask-efficiency-progress", daemon=True).start()


def _left_of(client: Client) -> TimeLeft | None:
    # Only a script that has a client has imported Dask: it may set Dask's configuration before.
    from dask_efficiency.plugin import names
    from dask_efficiency.plugin.client import ask

    loop: asyncio.AbstractEventLoop = client.loop.asyncio_loop  # type: ignore[union-attr]  # it has started
    if not loop.is_running():
        return None
    asking = asyncio.run_coroutine_threadsafe(ask(client, names.LEFT), loop)
    try:
        return decode_left(asking.result(ANSWER_SECONDS)["left"])
    finally:
        asking.cancel()
