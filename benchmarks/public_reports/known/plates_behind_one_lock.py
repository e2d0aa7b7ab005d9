"""Photographic plates of an observatory are fetched from its archive, and their stars are counted.

source: NCAS-CMS/cf-python pull request 518; the option it is about: dask/dask pull request 177
date:   2022-12-12 (177: 2015-04-30)
seen:   reading goes much slower than it should, as one chunk is read at a time; a property of the file object, which
        nobody had looked at, asked for a lock.
cause:  from_array(lock=True) makes the reads of all chunks in a process wait for each other, so all threads but one
        wait for the lock while that one waits for the archive, which would answer many requests at once.
cure:   lock=False, as the reader can be used by several threads at a time.
"""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    LONGER_TASKS,
    MORE_MEMORY,
    Expected,
    function,
    marked,
    scaled,
)

CLUSTER: dict[str, Any] = {"n_workers": 2, "threads_per_worker": 4}
PLATES, SIDE = scaled(96), 200
#: Seconds until the archive has found a plate.
FINDS = 0.2

EXPECTED = Expected(
    cause="from_array has lock=True: a process fetches one plate at a time, and its other threads wait for the lock",
    place="from_array in plates, or the reads in Archive.__getitem__",
    cure="lock=False in from_array",
    says=r"\block(s|ed|ing)?\b|one (chunk|read|request|plate|thread|task)?\W*(at a time|after the other)|serial(ly|ised"
    r"|ized)|wait(s|ing)? for each other|take turns",
    places=(*marked(__file__), function("plates"), function("__getitem__"), r"getter", r"from_array"),
    cures=r"lock\s*=\s*False|(without|no|drop|remove|leave out|avoid|shorter|not)\b.{0,40}\block"
    r"|lock\b.{0,40}(only|shorter"
    r"|less|finer|apart|outside|not)",
    never={
        LONGER_TASKS: "tasks are long enough; they wait",
        MORE_MEMORY: "there is enough",
        COMPUTED_AGAIN: "each plate is fetched once",
    },
)


class Desk(BaseHTTPRequestHandler):
    """Desk of the archive: several clerks find plates at the same time."""

    def do_GET(self) -> None:
        number = int(self.path.rsplit("/", 1)[1])
        time.sleep(FINDS)
        plate = np.random.default_rng([5, number]).integers(0, 256, (SIDE, SIDE), dtype=np.uint8).tobytes()
        self.send_response(200)
        self.send_header("Content-Length", str(len(plate)))
        self.end_headers()
        self.wfile.write(plate)

    def log_message(self, *args: object) -> None:
        pass


class House(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


@contextmanager
def archive() -> Iterator[str]:
    """Address of an archive that is open."""
    with House(("127.0.0.1", 0), Desk) as house:
        threading.Thread(target=house.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{house.server_address[1]}/plates"
        house.shutdown()


@dataclass(frozen=True)
class Archive:
    """Plates of an archive as an array, each of which comes by a request of its own."""

    address: str
    shape: tuple[int, int, int] = (PLATES, SIDE, SIDE)
    dtype: np.dtype = np.dtype(np.uint8)  # noqa: RUF009
    ndim: int = 3

    def __getitem__(self, key: tuple[slice, slice, slice]) -> np.ndarray:
        numbers, rows, columns = key
        found = []
        for number in range(*numbers.indices(PLATES)):
            with urllib.request.urlopen(f"{self.address}/{number}") as answer:  # <- here
                found.append(np.frombuffer(answer.read(), self.dtype).reshape(SIDE, SIDE))
        return np.stack(found)[:, rows, columns]


def plates(address: str, lock: bool) -> da.Array:
    return da.from_array(Archive(address), chunks=(1, SIDE, SIDE), lock=lock)  # <- here


def stars(address: str, lock: bool) -> float:
    bright = plates(address, lock) > 250
    return float(bright.sum(axis=(1, 2)).astype(float).mean().compute())  # <- here


def bad(client: Client) -> float:
    with archive() as address:
        return stars(address, lock=True)


def good(client: Client) -> float:
    with archive() as address:
        return stars(address, lock=False)
