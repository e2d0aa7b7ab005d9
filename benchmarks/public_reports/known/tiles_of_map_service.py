"""Tiles of a map service are fetched by tasks, each tile by a request of its own.

source: fsspec/gcsfs issue 50
date:   2017-12-22
seen:   a request takes 116 ms with requests.get, and 48 ms with a session that is kept.
cause:  each call opens a connection of its own, and the handshake takes longer than the request itself.
cure:   keep a session for all requests of a worker, so that its connection is used again.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import requests
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("requests",)
CLUSTER = TWO_BY_ONE
AREAS, TILES, SIDE = scaled(24), 6, 128
HANDSHAKE_SECONDS, ANSWER_SECONDS = 0.12, 0.01

EXPECTED = Expected(
    cause="tasks wait for the network: a new connection, with its handshake, is opened for each tile",
    place="the line of fetch_tile with requests.get, called by mosaic",
    cure="one requests.Session for each worker, whose connection is kept; or more requests at the same time",
    says=r"connect|handshake|network|\bhttp|requests?\b|socket|server|service|wait\w* (for|on)\b.{0,40}\b(answer"
    r"|response"
    r"|reply|data|recv|read)",
    places=(*marked(__file__), function("fetch_tile"), function("mosaic"), r"requests"),
    cures=r"session|reus|keep-?alive|keep (it|the|a|one)\b|pool|(same|one|open) connection|connection|fewer requests"
    r"|batch|more threads|at (once|the same time)|concurren|overlap|async|in parallel",
    never={
        HOLDS_GIL: "tasks wait for the service",
        LONGER_TASKS: "a task takes most of a second",
        COMPUTED_AGAIN: "each is computed once",
        MORE_MEMORY: "a task holds next to nothing",
    },
)


class Tile(BaseHTTPRequestHandler):
    """Gives tiles, at the pace of a service that is far away."""

    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        time.sleep(HANDSHAKE_SECONDS)
        super().setup()

    def do_GET(self) -> None:
        time.sleep(ANSWER_SECONDS)
        area, number = map(int, self.path.strip("/").split("/"))
        body = np.full((SIDE, SIDE), (area * 7 + number) % 251, "u1").tobytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Say nothing."""


@contextmanager
def service() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Tile) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def fetch_tile(address: str, area: int, number: int) -> np.ndarray:
    answer = requests.get(f"{address}/{area}/{number}", timeout=60)  # <- here
    return np.frombuffer(answer.content, "u1").reshape(SIDE, SIDE)


@functools.cache
def session() -> requests.Session:
    return requests.Session()


def fetch_tile_in_session(address: str, area: int, number: int) -> np.ndarray:
    answer = session().get(f"{address}/{area}/{number}", timeout=60)
    return np.frombuffer(answer.content, "u1").reshape(SIDE, SIDE)


def mosaic(area: int, address: str, fetch: Callable) -> float:
    """Mean of the slope over the tiles of an area."""
    tiles = np.hstack([fetch(address, area, number) for number in range(TILES)]).astype("f8")  # <- here
    return float(np.hypot(*np.gradient(tiles)).mean())


def surveyed(client: Client, fetch: Callable) -> float:
    with service() as address:
        slopes = client.map(mosaic, range(AREAS), address=address, fetch=fetch)
        return float(sum(client.gather(slopes)))  # <- here


def bad(client: Client) -> float:
    return surveyed(client, fetch_tile)  # <- here


def good(client: Client) -> float:
    return surveyed(client, fetch_tile_in_session)
