"""Tiles are fetched from a service that turns requests down when there are more than a few at a time.

source: planetlabs/planet-client-python pull request 640; a like case: mapme-initiative/mapme.biodiversity issue 441
date:   2022-07-18 (issue 441: 2025-07-26)
seen:   with many downloads at a time, a service answers most of them with 429 Too Many Requests; they are repeated
        after longer and longer pauses.
cause:  all threads ask at the same time, are turned down, and wait for doubling times, in which the service has nothing
        to do.
cure:   as many requests at a time as the service admits, by a limit that all workers share.
"""

from __future__ import annotations

import http.server
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from distributed import Client, Semaphore

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

CLUSTER = {"n_workers": 2, "threads_per_worker": 5}
TILES = scaled(70)
#: Requests at a time that the service admits, and the time that it takes for one.
ADMITTED, ANSWER = 2, 0.1
#: Pause after the first answer of 429, in seconds.
PAUSE = 0.25

EXPECTED = Expected(
    cause="more tasks than the service admits ask it at the same time; they are turned down, sleep and retry",
    place="fetch, where it sleeps or asks",
    cure="a shared limit, as a Semaphore, on the requests at a time",
    says=r"sleep|retr(y|ies)|\b429\b|too many requests|back-?off|turned down|rejected|refus|rate.?limit|throttl"
    r"|overload"
    r"|waits? (for|on) .{0,30}(network|service|server|answer|socket|request)|\bpauses?\b",
    places=(*marked(__file__), function("fetch"), function("brightness"), r"urllib|socket"),
    cures=r"semaphore|fewer .{0,30}(at a time|at once|requests|threads|tasks|concurrent)|limit|resources|one at a time"
    r"|(less|lower) concurren|throttl|retry-after|shorter (sleep|pause|wait)|sleep (less|shorter)|avoid the sleep"
    r"|without (the )?sleep|secede|instead of (the )?sleep\w*|no more than",
    never={
        MORE_WORKERS: "there are more than the service admits",
        LONGER_TASKS: "tasks wait for seconds",
        MORE_MEMORY: "a tile is a number",
        HOLDS_GIL: "tasks wait for the service",
    },
)


class Service(http.server.ThreadingHTTPServer):
    """Has a tile for each number, and answers some requests at a time."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.free = threading.Semaphore(ADMITTED)


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        service = self.server
        if not service.free.acquire(blocking=False):  # type: ignore[attr-defined]  # it is a Service
            self.send_response(429)
            self.end_headers()
            return
        time.sleep(ANSWER)
        service.free.release()  # type: ignore[attr-defined]  # it is a Service
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(int(self.path[1:]) % 17).encode())

    def log_message(self, *args: Any) -> None:
        """No lines on the terminal."""


def fetch(address: str, tile: int) -> int:
    """Tile of the service; asks again, after a pause, while it is busy."""
    pause = PAUSE
    while True:
        try:
            with urllib.request.urlopen(f"http://{address}/{tile}") as answer:  # <- here
                return int(answer.read())
        except urllib.error.HTTPError as refusal:
            if refusal.code != 429:
                raise
        time.sleep(pause)  # <- here
        pause *= 2


def brightness(tile: int, address: str) -> int:
    value = fetch(address, tile)  # <- here
    compute_for(0.01)
    return value


def brightness_in_turn(tile: int, address: str, turns: Semaphore) -> int:
    with turns:
        value = fetch(address, tile)
    compute_for(0.01)
    return value


@contextmanager
def service() -> Iterator[str]:
    with Service() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def bad(client: Client) -> float:
    with service() as address:
        return float(sum(client.gather(client.map(brightness, range(TILES), address=address))))  # <- here


def good(client: Client) -> float:
    turns = Semaphore(max_leases=ADMITTED, name="turns")
    with service() as address:
        futures = client.map(brightness_in_turn, range(TILES), address=address, turns=turns)
        return float(sum(client.gather(futures)))
