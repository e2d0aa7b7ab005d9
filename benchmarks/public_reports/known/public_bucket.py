"""Files of a public bucket are read by a client of the store that first looks for credentials, in vain.

source: dask/dask issue 1178; of the same kind: apache/arrow issue 37136
date:   2016-05-25 (issue 37136: 2023-08-12)
seen:   outside of the cloud, each connection to the store takes seconds before anything is read, or times out.
cause:  without credentials in the environment, the library asks a metadata service that only machines of the cloud
        have; it waits until that times out, twice, and goes on without. Each task makes a connection of its own.
cure:   say that access is anonymous, so that nobody looks for credentials.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    TWO_BY_TWO,
    Expected,
    compute_for,
    folder,
    function,
    marked,
    scaled,
)

CLUSTER = TWO_BY_TWO
PARTS = scaled(24)
ATTEMPTS, PATIENCE = 2, 0.6

EXPECTED = Expected(
    cause="each task makes a connection that looks for credentials: it waits for a service which does not answer",
    place="Bucket, where it asks the metadata service, or the task that makes a Bucket",
    cure="anonymous access, or credentials that are looked for once",
    says=r"credential|time[sd]? ?out|metadata|no answer|not answer|\bconnect\w*|\bsockets?\b|\bnetwork\b|\brecv"
    r"|(an?|the|external|other) (service|server)|waits? (for|on) (an? )?(answer|reply|remote)",
    places=(*marked(__file__), function("read"), function("_role"), function("Bucket"), r"\b(recv|connect)\b|socket"),
    cures=r"anon|credential|\bonce\b|per worker|re-?use|cache|keep .{0,30}(open|connection|client)|shorter time"
    r"|time-?out"
    r"|fewer (requests|connections|calls)|skip|avoid|without (the|a) (request|connection|look)|\bpool\b|session",
    never={
        LONGER_TASKS: "a task takes more than a second",
        HOLDS_GIL: "tasks wait for an answer",
        MORE_MEMORY: "a part is small",
    },
)


def prepare() -> None:
    for part in range(PARTS):
        np.save(folder("bucket") / f"part-{part}.npy", np.random.default_rng(part).normal(size=20_000))


class Bucket:
    """Files of a store."""

    def __init__(self, place: Path, metadata: str, anonymous: bool = False) -> None:
        self.place = place
        self.credentials = None if anonymous else os.environ.get("BUCKET_KEY") or self._role(metadata)  # <- here

    def _role(self, metadata: str) -> str | None:
        """Credentials of the machine, if it is one of the cloud."""
        host, port = metadata.split(":")
        for _ in range(ATTEMPTS):
            try:
                with socket.create_connection((host, int(port)), timeout=PATIENCE) as service:  # <- here
                    service.sendall(b"GET /role HTTP/1.0\r\n\r\n")
                    return service.recv(1024).decode()  # <- here
            except OSError:
                continue
        return None

    def load(self, name: str) -> np.ndarray:
        return np.load(self.place / name)


def spread(values: np.ndarray) -> float:
    compute_for(0.05)
    return float(np.percentile(values, 90) - np.percentile(values, 10))


def read(part: int, place: Path, metadata: str, anonymous: bool = False) -> float:
    bucket = Bucket(place, metadata, anonymous)  # <- here
    return spread(bucket.load(f"part-{part}.npy"))


@contextmanager
def elsewhere() -> Iterator[str]:
    """Address of a service that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as deaf:
        kept: list[socket.socket] = []
        threading.Thread(target=_take_all, args=(deaf, kept), daemon=True).start()
        yield f"127.0.0.1:{deaf.getsockname()[1]}"


def _take_all(deaf: socket.socket, kept: list[socket.socket]) -> None:
    while deaf.fileno() >= 0:
        try:
            kept.append(deaf.accept()[0])
        except OSError:
            return


def bad(client: Client) -> float:
    with elsewhere() as metadata:
        futures = client.map(read, range(PARTS), place=folder("bucket"), metadata=metadata)  # <- here
        return sum(client.gather(futures))  # <- here


def good(client: Client) -> float:
    with elsewhere() as metadata:
        futures = client.map(read, range(PARTS), place=folder("bucket"), metadata=metadata, anonymous=True)
        return sum(client.gather(futures))
