"""A canary: an object that leaves a mark where it is unpickled, in each of the ways in which Dask would unpickle it."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed.comm.tcp import _add_frames_header
from distributed.core import error_message
from distributed.protocol import Serialize, ToPickle, dumps
from distributed.protocol.pickle import HIGHEST_PROTOCOL

#: The first message of a connection.
HANDSHAKE = {"compression": None, "python": (3, 11, 0), "pickle-protocol": HIGHEST_PROTOCOL}


@dataclass
class Canary:
    """Makes a folder where it is unpickled."""

    mark: str

    def __reduce__(self) -> Any:
        return os.makedirs, (self.mark, 0o777, True)


def _error(canary: Canary, exception: Any) -> dict[str, Any]:
    return {**error_message(RuntimeError("no"), status="uncaught-error"), "exception": exception}


#: By name, first message and answer that hold it.
FORMS: dict[str, Any] = {
    "pickled": lambda it: (HANDSHAKE, ToPickle(it)),
    "serialized": lambda it: (HANDSHAKE, Serialize(it)),
    "pickled within": lambda it: (HANDSHAKE, {"at": [1, {"x": ToPickle(it)}]}),
    "serialized within": lambda it: (HANDSHAKE, {"at": 1, "stragglers": (Serialize(it),)}),
    "within what is packed": lambda it: (HANDSHAKE, {"packed": dumps({"x": ToPickle(it)})}),
    "an error that upstream raised": lambda it: (HANDSHAKE, _error(it, Serialize(pickle.dumps(it)))),
    "an error with bytes": lambda it: (HANDSHAKE, _error(it, pickle.dumps(it))),
    "an error with a pickled traceback": lambda it: (HANDSHAKE, _error(it, "x") | {"traceback": pickle.dumps(it)}),
    "a pickled handshake": lambda it: (ToPickle(it), {}),
    "a serialized handshake": lambda it: ({**HANDSHAKE, "python": Serialize(it)}, {}),
}


@dataclass
class Hostile:
    """Server that sends a canary to whoever connects."""

    address: str
    mark: Path
    connections: int = 0

    def sang(self) -> bool:
        """Check if the canary was unpickled, in any process."""
        return self.mark.exists()


def _bytes(message: Any) -> bytes:
    return b"".join(_add_frames_header(dumps(message))[0])


@contextmanager
def hostile(form: str, folder: Path) -> Iterator[Hostile]:
    """Server of a form of :data:`FORMS`, on a thread."""
    found = Hostile("", folder / "sang")
    first, answer = map(_bytes, FORMS[form](Canary(str(found.mark))))
    loop = asyncio.new_event_loop()
    ended = asyncio.Event()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.connections += 1
        with suppress(OSError):
            writer.write(first)
            while await reader.read(65_536):  # a handshake, then questions
                writer.write(answer)
            writer.close()

    async def serve(listening: threading.Event) -> None:
        server = await asyncio.start_server(connection, "127.0.0.1", 0)
        found.address = f"tcp://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        listening.set()
        await ended.wait()
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    listening = threading.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve(listening)), daemon=True)
    thread.start()
    listening.wait()
    try:
        yield found
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()
