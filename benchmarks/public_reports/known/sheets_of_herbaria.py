"""Sheets of a herbarium are read from a store, which looks for credentials each time it arrives in a task.

source: pangeo-data/pangeo issue 112; of the same kind: datachain-ai/datachain issue 740 (its cure: pull request 1709)
date:   2018-02-12 (740: 2024-12-24)
seen:   a handle of a bucket is pickled at once, and takes exactly three seconds to be unpickled; data that are public
        are slow to come by, and fast once it is said that no credentials are needed.
cause:  the handle connects when it is unpickled: it asks a service for credentials, which does not answer here, until
        the time is up.
cure:   say which credentials to use (none), or connect at first use and once in a process.
"""

from __future__ import annotations

import http.client
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from distributed import Client

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
SHEETS = scaled(36)
#: Time after which the service for credentials is given up, in seconds.
TIMEOUT = 0.5

EXPECTED = Expected(
    cause="each task unpickles the store, which asks a service for credentials and waits until the time is up",
    place="connect and __setstate__ of the store, or what they call of http",
    cure="give the credentials (or say that none are needed); connect once in a process",
    says=r"unpickl|deseriali[sz]|connect|credential|time(s|d)? ?out|__setstate__|event loop|http|socket"
    r"|waits? (for|on) .{0,40}(network|server|service|answer|request|reply)",
    places=(*marked(__file__), function("connect"), function("__setstate__"), r"http[/.]|socket"),
    cures=r"token|credential|anonym|once (per|in)|cache|lazy|lazily|re-?use|time-?out|not .{0,30}(connect|ask)"
    r"|outside|plugin"
    r"|(connect|open).{0,30}(later|first use|once|in the task)|without|smaller|cheap|keep|share|avoid|move",
    never={
        MORE_MEMORY: "a store is small",
        LONGER_TASKS: "tasks wait for half a second",
        HOLDS_GIL: "it waits for an answer",
    },
)


class Store:
    """Reads sheets, with credentials that it looks for unless it is told."""

    def __init__(self, service: tuple[str, int], token: str | None = None) -> None:
        self.service, self.token = service, token
        self.connect()

    def connect(self) -> None:
        """Find out with which credentials to read."""
        self.credentials = self.token
        if self.token is None:
            asked = http.client.HTTPConnection(*self.service, timeout=TIMEOUT)
            try:
                asked.request("GET", "/credentials")
                self.credentials = asked.getresponse().read().decode()  # <- here
            except TimeoutError:
                self.credentials = "anonymous"
            finally:
                asked.close()

    def __getstate__(self) -> dict[str, Any]:
        return {"service": self.service, "token": self.token}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.connect()  # <- here

    def sheet(self, number: int) -> np.ndarray:
        return np.random.default_rng(number).random((200, 300))


def area_of_leaves(number: int, store: Store) -> float:
    sheet = store.sheet(number)  # <- here
    compute_for(0.01)
    return float((sheet > 0.7).mean())


@contextmanager
def silent_service() -> Iterator[tuple[str, int]]:
    """Address at which nobody answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=1_000) as server:
        yield server.getsockname()


def bad(client: Client) -> float:
    with silent_service() as service:
        store = Store(service)
        return float(sum(client.gather(client.map(area_of_leaves, range(SHEETS), store=store))))  # <- here


def good(client: Client) -> float:
    with silent_service() as service:
        store = Store(service, token="anonymous")
        return float(sum(client.gather(client.map(area_of_leaves, range(SHEETS), store=store))))
