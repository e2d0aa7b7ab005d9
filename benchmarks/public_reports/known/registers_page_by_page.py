"""Parish registers: one task fetches pages from an archive and hands them to three tasks that read them.

source: dask/distributed issue 5843; of the same kind: dask/distributed issue 5671 (its comment of 2022-02-23)
date:   2022-02-21
seen:   documents are opened by some tasks, and their pages read by others, of which there are far more; with queues
        between long tasks, or tasks in tasks, workers have no work for much of the time.
cause:  tasks that wait for the queue hold their threads, while one task fetches one page after the other.
cure:   a task for each page that fetches it and reads it, so that all threads fetch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import urlopen

import numpy as np
from distributed import Client, Queue

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    PROCESSES,
    TWO_BY_TWO,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
PAGES, READERS, SIDE = scaled(110), 3, 160
#: Seconds that the archive needs to find a page.
SEARCH = 0.07
END = b"end"

EXPECTED = Expected(
    cause="one task fetches all pages in turn, while three others hold their threads and wait for the queue",
    place="the get in pages_read, and the urlopen in page, called by pages_fetched",
    cure="fetch and read in one task for each page (client.map), or several tasks that fetch",
    says=r"queue|\bget\b\W+(\w+\W+){0,6}wait|producer|consumer|wait\w*\W+(\w+\W+){0,8}(pages?|other tasks?|fetch\w*|"
    r"pages_fetched|items?|input|another task|one task)|(one|1|a single) task\W+(\w+\W+){0,8}(fetch|in turn|download"
    r"|request|reads?|waits?|all)|in turn|one (page |request )?(after the other|after another|at a time)|hold\w*"
    r"\W+(\w+\W+){0,4}threads?|threads?\W+(\w+\W+){0,6}(wait|blocked|held|occupied|idle)|urlopen|request|server|http"
    r"|network",
    places=(
        *marked(__file__),
        function("pages_read"),
        function("pages_fetched"),
        function("page"),
        r"\burlopen\b|\bqueues?\b",
    ),
    cures=r"(task|tasks) (for each|per|of its own for)|client\.map|\bmap\(|submit\W+(\w+\W+){0,6}(each|page|item)"
    r"|several"
    r" (tasks|requests|pages|producers|fetch\w*)|(more|several|many|further) (\w+ )?(tasks?|requests?|producers?"
    r"|threads?)"
    r"|(at once|in parallel|concurrent\w*|at the same time|side by side|together)|asyncio|async|split\w*|secede"
    r"|instead of (a )?(the )?queue|without (a )?(the )?queue|return (the )?pages?|depend\w*",
    never={
        COMPUTED_AGAIN: "each task runs once",
        HOLDS_GIL: "threads wait for the archive",
        LONGER_TASKS: "tasks are long",
        PROCESSES: "more processes would wait as well",
        MORE_MEMORY: "there is enough",
    },
)


class Page(BaseHTTPRequestHandler):
    """Finds a page after a while: its points, dark ones are small."""

    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        time.sleep(SEARCH)
        scan = np.random.default_rng(int(self.path.strip("/"))).integers(0, 256, SIDE * SIDE, dtype=np.uint8).tobytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(scan)))
        self.end_headers()
        self.wfile.write(scan)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def archive() -> Iterator[str]:
    """Archive of scanned pages on another machine, by its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def page(address: str, number: int) -> bytes:
    with urlopen(f"{address}/{number}") as answer:  # <- here
        return bytes(answer.read())


def ink(scan: bytes) -> float:
    """Share of the lines of a page that have ink."""
    points = np.frombuffer(scan, np.uint8).reshape(SIDE, SIDE).astype(float)
    smooth = np.abs(np.fft.ifft2(np.fft.fft2(points) * np.exp(-np.arange(SIDE) / 40.0)))
    return float((smooth.mean(axis=1) < smooth.mean()).mean())


def pages_fetched(address: str, queue: Queue) -> int:
    for number in range(PAGES):
        queue.put(page(address, number))
    for _ in range(READERS):
        queue.put(END)
    return PAGES


def pages_read(queue: Queue) -> float:
    total = 0.0
    while (scan := queue.get()) != END:  # <- here
        total += ink(scan)
    return total


def page_read(address: str, number: int) -> float:
    return ink(page(address, number))


def bad(client: Client) -> float:
    queue = Queue("pages", client=client, maxsize=20)
    with archive() as address:
        fetching = client.submit(pages_fetched, address, queue, pure=False)
        readers = [client.submit(pages_read, queue, pure=False) for _ in range(READERS)]
        fetching.result()
        return float(sum(client.gather(readers)))


def good(client: Client) -> float:
    with archive() as address:
        numbers = range(PAGES)
        return float(sum(client.gather(client.map(page_read, [address] * PAGES, numbers, pure=False))))
