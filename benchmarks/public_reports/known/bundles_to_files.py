"""Bundles of deployed content are downloaded to files, and checked.

source: posit-dev/posit-sdk-py issue 474; of the same kind: psf/requests issue 2854, caseymrm/drivesink issue 22
date:   2026-05-07 (issue 2854: 2015-10-29; drivesink: 2017-05-21)
seen:   a large bundle takes more than ten minutes, with a core at 100 %, where the network is much faster than that.
cause:  iter_content without a size gives out the reply byte by byte, and each byte goes through several layers of
        Python.
cure:   say how many bytes to read at a time: some dozen kilobytes, or a megabyte.
"""

from __future__ import annotations

import functools
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import requests
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    TWO_BY_ONE,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("requests",)
CLUSTER = TWO_BY_ONE
BUNDLES, SIZE = scaled(20), 150_000

EXPECTED = Expected(
    cause="iter_content reads the reply byte by byte, which is the default",
    place="reply.iter_content() in pieces_of, and the loop of downloaded",
    cure="iter_content(chunk_size=65536) or so",
    says=r"byte by byte|(one|1|single|each|every|per)[- ]bytes?\b|chunk[_ ]?size\W+(\w+\W+){0,6}(1\b|one|small|default"
    r"|tiny|missing)|(small|tiny|one[- ]byte) (chunks|reads|pieces|steps)|pieces? of (one|1|a single) byte|millions?"
    r" of( tiny| small)? (reads|calls|pieces|chunks|steps)|(without|no|default|missing) chunk[_ ]?size",
    places=(*marked(__file__), function("downloaded"), function("pieces_of"), r"iter_content"),
    cures=r"chunk_?size|(larger|bigger|more)\W+(\w+\W+){0,3}(chunks?|pieces|reads|bytes|blocks?|buffer)"
    r"|(kilo|mega)bytes?|\b(ki?b|mi?b)\b|\.content\b|copyfileobj|at a time|at once",
    never={
        r"(?i)keep\W+(\w+\W+){0,3}(session|connection)|more requests (at|under)|(slow|faster) network": "the service"
        " answers at once, and the session is kept",
        r"(?i)(faster|slow|busy) (disk|storage)": "files are small",
        PROCESSES: "they have one thread each",
        HOLDS_GIL: "one thread a worker",
        MORE_WORKERS: "both cores are busy",
        LONGER_TASKS: "tasks take seconds",
        MORE_MEMORY: "there is enough",
        COMPUTED_AGAIN: "each task runs once",
        LOCK: "there is none",
    },
)


@functools.cache
def bundle(number: int) -> bytes:
    return np.random.default_rng(number).bytes(SIZE)


class Store(BaseHTTPRequestHandler):
    """Gives out bundles."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        answer = bundle(int(self.path.strip("/")))
        self.send_response(200)
        self.send_header("Content-Type", "application/gzip")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *words: object) -> None:
        pass


@contextmanager
def store() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Store) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@functools.cache
def session() -> requests.Session:
    return requests.Session()


def pieces_of(reply: requests.Response) -> Iterator[bytes]:
    return reply.iter_content()  # <- here


def large_pieces_of(reply: requests.Response) -> Iterator[bytes]:
    return reply.iter_content(chunk_size=65_536)


def downloaded(number: int, url: str, pieces: Callable[[requests.Response], Iterator[bytes]]) -> int:
    """Checksum of a bundle that was written to a file."""
    place = folder("bundles_to_files") / f"bundle-{number}.tar.gz"
    with session().get(f"{url}/{number}", stream=True, timeout=60) as reply, place.open("wb") as file:
        for part in pieces(reply):  # <- here
            file.write(part)  # <- here
    return zlib.crc32(place.read_bytes())


def checksums(client: Client, pieces: Callable[[requests.Response], Iterator[bytes]]) -> float:
    with store() as url:
        return float(sum(client.gather(client.map(downloaded, range(BUNDLES), url=url, pieces=pieces))))


def bad(client: Client) -> float:
    return checksums(client, pieces_of)


def good(client: Client) -> float:
    return checksums(client, large_pieces_of)
