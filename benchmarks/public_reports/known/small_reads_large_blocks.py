"""Small pieces of a remote file are read through a buffer that fetches five megabytes for each.

source: fsspec/s3fs issue 677; a like case: fsspec/s3fs issue 185
date:   2023-01-13 (the like case 2019-05-15)
seen:   tasks read chunks of one to two hundred kilobytes, here and there in large files in a remote store. Ten times as
        much is transferred as the files hold, and smaller blocks make it a third faster.
cause:  the file object reads ahead: with the default block size each small read fetches 5 MiB more, and the next one is
        elsewhere in the file, so that nearly all of it is thrown away.
cure:   a block size near that of the pieces, or no read-ahead (cache_type="none").

The store is a small server in the program, whose connections have the pace of a network.
"""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distributed import Client
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    TWO_BY_TWO,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
TASKS = scaled(40)
READS = 12
PIECE = 128 * 1024
SIZE = 400 * 1024 * 1024
#: Bytes a second of one connection.
PACE = 100e6

EXPECTED = Expected(
    cause="tasks wait for data from a remote file: each small read fetches 5 MiB ahead, which are thrown away",
    place="pieces, where it reads or opens the file, or what fetches from the network below that",
    cure="smaller blocks, or no read-ahead",
    says=r"read.?ahead|block.?size|\b(large|big|whole|5 MiB|MB) blocks?\b|\bcach(e|es|ing)\b|\bfetch|more (bytes "
    r"|data )?than|\bnetwork\b|\bsockets?\b|\brecv|\bremote\b|\bI/O\b|input/output|\bread(s|ing)?\b|wait\w* for (data"
    r"|bytes|input|a server|an? (answer|reply))",
    places=(
        *marked(__file__),
        function("pieces"),
        r"\b(_fetch_range|_fetch|recv|recv_into|read|_read_range)\b",
        r"caching\.py",
    ),
    cures=r"block.?size|\bcach(e|es|ing)\b|read.?ahead|smaller (blocks|reads|requests)|\bless data|fewer bytes|(only"
    r"|just) .{0,40}(need|bytes|range|piece|want)|cat_ranges|\bbuffer|larger reads|fewer (reads|requests)"
    r"|in one (read|request)",
    never={
        LONGER_TASKS: "a task takes half a second already",
        HOLDS_GIL: "tasks wait for the network",
        MORE_MEMORY: "a task holds a few megabytes",
    },
)


class Sender(socketserver.StreamRequestHandler):
    """Sends a range of a file of zeros, at the pace of a network."""

    def handle(self) -> None:
        start, end = map(int, self.rfile.readline().split())
        part = bytes(256 * 1024)
        while start < end:
            sent = min(len(part), end - start)
            time.sleep(sent / PACE)
            self.wfile.write(part[:sent])
            start += sent


class Store(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64


class RemoteFile(AbstractBufferedFile):  # type: ignore[misc]
    """File of the store."""

    def _fetch_range(self, start: int, end: int) -> bytes:
        host, port = self.path.split(":")
        with socket.create_connection((host, int(port))) as connection, connection.makefile("rb") as answer:
            connection.sendall(f"{start} {end}\n".encode())
            return answer.read(end - start)


class RemoteFiles(AbstractFileSystem):  # type: ignore[misc]
    """Has one file, whose name is the address of the store."""

    cachable = False

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        return {"name": path, "size": SIZE, "type": "file"}

    def _open(self, path: str, mode: str = "rb", block_size: int | None = None, **kwargs: Any) -> RemoteFile:
        kwargs.pop("autocommit", None)
        return RemoteFile(self, path, mode, block_size=block_size or "default", **kwargs)


def pieces(number: int, address: str, **options: Any) -> int:
    length = 0
    with RemoteFiles().open(address, "rb", **options) as file:  # <- here
        for read in range(READS):
            file.seek((number * 7 + read * 11) % 37 * (SIZE // 40))
            length += len(file.read(PIECE))  # <- here
            compute_for(0.002)
    return length


@contextmanager
def store() -> Iterator[str]:
    with Store(("127.0.0.1", 0), Sender) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def bad(client: Client) -> float:
    with store() as address:
        return float(sum(client.gather(client.map(pieces, range(TASKS), address=address))))  # <- here


def good(client: Client) -> float:
    with store() as address:
        futures = client.map(pieces, range(TASKS), address=address, block_size=PIECE)
        return float(sum(client.gather(futures)))
