"""Mean discharge of rivers over a year, from the objects of a store behind a network.

source: https://discourse.pangeo.io/t/understanding-async/1098
date:   2020-01-01 (the day is not given)
seen:   means over a year, 13,000 tasks, of a data set of many small objects in a store took 90 seconds with twenty
        workers, and just as long after the library for the store could have many requests on their way at once.
cause:  each task reads a single small object, so it waits for the latency of one request and nothing is asked for
        meanwhile.
cure:   tasks that read many objects each, whose requests are then on their way together.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import dask
import numpy as np
import requests
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    MORE_MEMORY,
    PROCESSES,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("requests",)
CLUSTER = TWO_BY_TWO
OBJECTS = scaled(600)
REACHES = 4_000
LATENCY = 0.06
TOGETHER = 30

EXPECTED = Expected(
    cause="tasks wait for the network: each for the answer to one small request",
    place="the function that fetches an object, or the line that calls it",
    cure="more requests on their way at once: several objects in a task, asked for together (or more threads)",
    says=r"network|latency|\brequests?\b|respon[sd]|socket|\bhttps?\b|\bservers?\b|download|\bI/O\b"
    r"|(wait\w*|idle).{0,60}(outside|answers?\b|input)",
    places=(*marked(__file__), function("fetch"), function("discharge_of")),
    cures=r"concurren|async|together|at once|at (the )?same time|more threads|threads_per_worker|nthreads"
    r"|thread ?pool|batch"
    r"|larger|bigger|several|many (objects|requests)|prefetch|overlap|in parallel|fewer (requests|calls)",
    never={
        COMPUTED_AGAIN: "each object is read once",
        HOLDS_GIL: "tasks do nothing but wait",
        PROCESSES: "it is not for the GIL that threads wait",
        MORE_MEMORY: "memory is plenty",
    },
)


class Store(BaseHTTPRequestHandler):
    """Store with an object of float32 for each number in a path."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        time.sleep(LATENCY)
        number = int(self.path.rsplit("/", 1)[-1])
        body = np.full(REACHES, 10.0 + number % 7, dtype="float32").tobytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        pass


class StoreServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256


@contextmanager
def store() -> Iterator[str]:
    """Address of the store while it is open."""
    server = StoreServer(("127.0.0.1", 0), Store)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/discharge"
    finally:
        server.shutdown()
        server.server_close()


def fetch(address: str, number: int) -> np.ndarray:
    """Discharge of all reaches in some hours."""
    answer = requests.get(f"{address}/{number}", timeout=30)
    answer.raise_for_status()
    return np.frombuffer(answer.content, dtype="float32")


@dask.delayed
def discharge_of(address: str, number: int) -> float:
    return float(fetch(address, number).sum(dtype="float64"))  # <- here


@dask.delayed
def discharge_of_many(address: str, numbers: list[int]) -> float:
    with ThreadPoolExecutor(len(numbers)) as pool:
        parts = pool.map(lambda number: fetch(address, number), numbers)
        return float(sum(part.sum(dtype="float64") for part in parts))


def bad(client: Client) -> float:
    with store() as address:
        sums = [discharge_of(address, number) for number in range(OBJECTS)]  # <- here
        return sum(dask.compute(*sums)) / (OBJECTS * REACHES)  # <- here


def good(client: Client) -> float:
    with store() as address:
        sums = [
            discharge_of_many(address, list(range(first, min(first + TOGETHER, OBJECTS))))
            for first in range(0, OBJECTS, TOGETHER)
        ]
        return sum(dask.compute(*sums)) / (OBJECTS * REACHES)
