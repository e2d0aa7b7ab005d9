"""Programs that were written before there was any rule."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import threading
import time
from typing import Any

from distributed import Client, Lock, get_client

from benchmarks.hangs.programs import Hang
from benchmarks.public_reports.programs import Expected

# -- a resource that no worker has -------------------------------------------------------------------


def train(number: int) -> int:
    return number


def ask_for_gpus(client: Client) -> Any:
    return client.map(train, range(4), resources={"GPU": 1})


UNKNOWN_RESOURCE = Hang(
    "https://github.com/dask/distributed/issues/7170",
    ask_for_gpus,
    Expected(
        cause="tasks ask for a resource that no worker has",
        place="the tasks, and what they ask for",
        cure="start a worker that has it, or do not ask for it",
        says=r"no worker|resource",
        places=(r"\btrain\b.*GPU|GPU.*\btrain\b",),
        cures=r"resource|start .*worker|--resources",
    ),
)

# -- tasks that wait for tasks of their own ----------------------------------------------------------


def part(number: int) -> int:
    time.sleep(0.01)
    return number


def whole(number: int) -> int:
    client = get_client()
    parts = client.map(part, range(100 * number, 100 * number + 3))
    return sum(client.gather(parts))  # <- here


def nest(client: Client) -> Any:
    return client.map(whole, range(8))


NESTED_GATHER = Hang(
    "https://github.com/dask/distributed/issues/7047",
    nest,
    Expected(
        cause="all threads wait for tasks of their own, which find no thread",
        place="the line that gathers, or the outer tasks",
        cure="secede(), or worker_client()",
        says=r"wait(s|ing)? for (other )?tasks|find no thread|deadlock",
        places=(r"\bwhole\b|before\.py:\d+",),
        cures=r"secede|worker_client",
    ),
)

# -- a lock that its holder does not give back -------------------------------------------------------


def write(number: int) -> int:
    with Lock("files"):  # <- here
        time.sleep(0.01)
        return number


def forget_lock(client: Client) -> Any:
    done = client.map(write, range(20))
    client.gather(done)
    lock = Lock("files")
    lock.acquire()
    return lock, client.map(write, range(100, 120))


FORGOTTEN_LOCK = Hang(
    "https://github.com/dask/distributed/issues/8772",
    forget_lock,
    Expected(
        cause="all tasks wait for a lock of Dask's, which a client holds",
        place="the lock by its name, or the line that takes it",
        cure="have its holder release it; a timeout",
        says=r"\block\b",
        places=(r"\bfiles\b", r"\bwrite\b|before\.py:\d+"),
        cures=r"release|hold|timeout",
    ),
)

# -- a server that stops answering -------------------------------------------------------------------


class _Server:
    """A server that answers at once, but for one question, which it never answers."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._kept: list[socket.socket] = []
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self._socket.accept()
            self._kept.append(connection)
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        number = int.from_bytes(connection.recv(8), "little")
        if number != 57:
            time.sleep(0.05)
            connection.sendall(b"x" * 8)


def load(number: int, port: int) -> int:
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(number.to_bytes(8, "little"))
        return len(connection.recv(8))  # <- here


def read_from_server(client: Client) -> Any:
    server = _Server()
    return server, client.map(load, range(100), port=server.port)


SILENT_SERVER = Hang(
    "https://github.com/dask/dask/issues/7547",
    read_from_server,
    Expected(
        cause="one task waits for the network, far longer than others",
        place="the line that receives, or the task's prefix",
        cure="a timeout",
        says=r"network",
        places=(r"\bload\b|\brecv\b|before\.py:\d+",),
        cures=r"timeout",
    ),
)

# -- an event loop that is blocked -------------------------------------------------------------------

#: File whose presence ends the block.
GO_ON = os.path.join(tempfile.gettempdir(), f"dask-efficiency-hangs-{os.getpid()}")


def receive(path: str) -> int:
    """A library's function that does not await."""
    until = time.monotonic() + 300
    while not os.path.exists(path) and time.monotonic() < until:
        time.sleep(0.05)  # <- here
    return 1


async def download(path: str) -> int:
    await asyncio.sleep(0.01)
    return receive(path)


def step(number: int) -> int:
    time.sleep(0.02)
    return number


def block_loop(client: Client) -> Any:
    client.gather(client.map(step, range(50)))
    worker = next(iter(client.scheduler_info()["workers"]))
    return client.submit(download, GO_ON, workers=[worker]), client.map(step, range(1000, 1200))


def go_on(client: Client) -> None:
    with open(GO_ON, "w"):
        pass


BLOCKED_LOOP = Hang(
    "https://github.com/dask/distributed/issues/5633",
    block_loop,
    Expected(
        cause="a worker's event loop is blocked",
        place="the function or line that blocks it",
        cure="do that in a task or a thread, or await",
        says=r"event loop",
        places=(r"\bdownload\b|\breceive\b|before\.py:\d+",),
        cures=r"thread|task|await|coroutine",
    ),
    end=go_on,
)

PROGRAMS = {
    "unknown_resource": UNKNOWN_RESOURCE,
    "nested_gather": NESTED_GATHER,
    "forgotten_lock": FORGOTTEN_LOCK,
    "silent_server": SILENT_SERVER,
    "blocked_loop": BLOCKED_LOOP,
}
