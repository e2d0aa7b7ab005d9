"""Tasks ask a service for each row of their partition, one request after the other.

source: dask/distributed issue 3205
date:   2019-11-07
seen:   millions of small objects are fetched from a store over the network by workers with as many threads as cores:
        the cores have little to do, and more of them are paid for to have more threads.
cause:  the threads wait for answers: a request is under way for each thread, and no more.
cure:   more requests at a time: more threads than cores, a pool of threads or asyncio in each task, or batches.

The service is a process of its own that answers after 25 ms.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pandas as pd
import requests
from distributed import Client

from benchmarks.public_reports.programs import (
    LOCK,
    LONGER_TASKS,
    PROCESSES,
    TWO_BY_TWO,
    Expected,
    folder,
    function,
    marked,
    scaled,
)

NEEDS = ("requests", "pandas")
CLUSTER = TWO_BY_TWO
PARTITIONS, ROWS = 16, scaled(55)
AT_A_TIME = 12

EXPECTED = Expected(
    cause="the threads wait for answers of a service, with one request under way for each",
    place="the request, or its function",
    cure="more requests at a time: threads, asyncio or batches",
    says=r"network|requests?\b|server|service|socket|http",
    places=(*marked(__file__), function("price_of")),
    cures=r"more (threads|requests)|overlap|at (once|a time)|batch|session|thread pool|pool of threads|prefetch|async",
    never={
        LOCK: "there is none",
        PROCESSES: "a thread is enough for a request",
        LONGER_TASKS: "the tasks take a second",
    },
)


class Service(BaseHTTPRequestHandler):
    """Answers with the price of an article, after 25 ms."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        time.sleep(0.025)
        answer = json.dumps({"price": int(self.path.rpartition("/")[2]) % 89}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def serve(ready: multiprocessing.SimpleQueue) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    ready.put(server.server_port)
    server.serve_forever()


def prepare() -> None:
    ready = multiprocessing.SimpleQueue()
    multiprocessing.get_context("fork").Process(target=serve, args=(ready,), daemon=True).start()
    (folder("service") / "port").write_text(str(ready.get()))


def address() -> str:
    return f"http://127.0.0.1:{(folder('service') / 'port').read_text()}/articles"


def price_of(article: int) -> int:
    return requests.get(f"{address()}/{article}", timeout=60).json()["price"]  # <- here


def articles_of(partition: int) -> pd.Series:
    return pd.Series(range(partition * ROWS, (partition + 1) * ROWS))


def priced(partition: int) -> int:
    return int(articles_of(partition).map(price_of).sum())


def priced_at_once(partition: int) -> int:
    with requests.Session() as session, ThreadPoolExecutor(AT_A_TIME) as pool:
        session.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=AT_A_TIME))
        place = address()
        answers = pool.map(lambda article: session.get(f"{place}/{article}", timeout=60), articles_of(partition))
        return sum(answer.json()["price"] for answer in answers)


def bad(client: Client) -> float:
    return sum(client.gather(client.map(priced, range(PARTITIONS))))


def good(client: Client) -> float:
    return sum(client.gather(client.map(priced_at_once, range(PARTITIONS))))
