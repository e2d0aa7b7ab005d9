"""Paths of comets are computed and stored in an archive on the web, which is often too busy to take them.

source: pangeo-data/rechunker issue 51 (its comment of 2020-09-22: other tools try the single request again); of the
        same kind: scikit-hep/coffea pull request 1441
date:   2020-09-21 (pull request 1441: 2025-11-04)
seen:   with stores in the cloud, tasks fail now and then for reasons that pass; retries of Dask get over it.
cause:  retries run the whole task again: what took long is computed again, where only the last request had failed.
cure:   try only the request again, or store in a task of its own that has the retries.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import requests
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    MORE_WORKERS,
    PROCESSES,
    SLEEP,
    TWO_BY_ONE,
    Expected,
    function,
    marked,
    scaled,
)

NEEDS = ("requests",)
CLUSTER = TWO_BY_ONE
COMETS, STEPS, PLANETS = scaled(10), 22_000, 8
#: How often the archive is busy before it takes the path of a comet.
BUSY, RETRIES = 3, 10

EXPECTED = Expected(
    cause="the archive refuses a path some times, and each time the whole task is run again, with the long computation",
    place="retries of client.map in bad; raise_for_status in stored, called by traced_and_stored",
    cure="try only the request again, or store in a task of its own",
    says=r"retr(y|ies|ied)|again|repeat|fail|\berr(or|ors|ed)?\b|exception|rais(e|ed|es|ing)\b|more than once"
    r"|(several|four"
    r"|many) times|recomput|\b503\b|refus\w+|attempt",
    places=(
        *marked(__file__),
        function("traced_and_stored"),
        function("stored"),
        function("bad"),
        function("raise_for_status"),
    ),
    cures=r"(retry|retries|try|repeat)\w*\W+(\w+\W+){0,6}(only|request|post|upload|in the task|inside|within|stor\w+"
    r"|where)"
    r"|only (the )?(\w+ )?(request|post|upload|step|failing|failed|part)|(task|step) of its own|separate|own task|split"
    r"|two tasks|apart|httpadapter|backoff|tenacity|urllib3|catch|except\b|cache|keep (the )?(result|path)|before",
    never={
        HOLDS_GIL: "one thread a worker",
        LOCK: "there is none",
        SLEEP: "nobody sleeps",
        PROCESSES: "they have one thread each",
        MORE_WORKERS: "both cores are busy",
        LONGER_TASKS: "tasks take tenths of a second",
        MORE_MEMORY: "there is enough",
    },
)


@contextmanager
def archive() -> Iterator[str]:
    """Archive that is too busy at first for each comet, by its address."""
    asked: Counter[str] = Counter()

    class Store(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            asked[self.path] += 1
            self.send_response(503 if asked[self.path] <= BUSY else 201)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Store) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def traced(comet: int) -> list[float]:
    """Distances of a comet from the sun, among planets on their ways."""
    rng = np.random.default_rng(comet)
    place, speed = rng.normal(size=2) * 3.0, rng.normal(size=2) * 0.5
    radii, phases = np.arange(1.0, PLANETS + 1.0), rng.random(PLANETS) * 6.0
    path = []
    for step in range(STEPS):
        angles = phases + step * 0.01 / radii**1.5
        planets = radii[:, None] * np.column_stack([np.cos(angles), np.sin(angles)])
        apart = planets - place
        pull = (1e-3 * apart / ((apart**2).sum(axis=1) + 0.01)[:, None] ** 1.5).sum(axis=0)
        speed = speed + 0.01 * (pull - place / ((place**2).sum() + 0.01) ** 1.5)
        place = place + 0.01 * speed
        path.append(float(np.hypot(*place)))
    return path


def stored(address: str, comet: int, path: list[float]) -> float:
    """Mean distance, once the path is in the archive."""
    requests.post(f"{address}/{comet}", data=json.dumps(path[::100]), timeout=20).raise_for_status()  # <- here
    return float(np.mean(path))


def traced_and_stored(comet: int, address: str) -> float:
    path = traced(comet)  # <- here
    return stored(address, comet, path)


def bad(client: Client) -> float:
    with archive() as address:
        tasks = client.map(traced_and_stored, range(COMETS), address=address, retries=RETRIES)  # <- here
        return float(sum(client.gather(tasks)))


def good(client: Client) -> float:
    with archive() as address:
        paths = client.map(traced, range(COMETS))
        tasks = client.map(stored, [address] * COMETS, range(COMETS), paths, retries=RETRIES)
        return float(sum(client.gather(tasks)))
