"""Forecasts of many stations are fetched by tasks that are coroutines, with a client library that blocks.

source: dask/distributed pull request 5151 (its discussion, of coroutines in the worker's own event loop)
date:   2021-08-02
seen:   coroutines can be submitted like functions and are run by the event loop of the worker; a maintainer asks why,
        as what users do there may upset the worker.
cause:  a coroutine that calls something that blocks keeps the event loop of its worker: no other task of that worker
        goes on, and the worker does not answer either.
cure:   a plain function, which runs in a thread of the worker (or await the blocking call in a thread).
"""

from __future__ import annotations

import json
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LONGER_TASKS,
    MORE_MEMORY,
    Expected,
    compute_for,
    function,
    marked,
    scaled,
)

CLUSTER = {"n_workers": 2, "threads_per_worker": 4}
STATIONS, SECONDS = scaled(60), 0.25

EXPECTED = Expected(
    cause="the tasks are coroutines that block: they run in the event loop of the worker, one at a time, and wait for"
    " the service there, while the threads of the workers are idle",
    place="Forecasts.latest / station_forecast, in the line that waits for the socket, within the coroutine"
    " station_forecast",
    cure="a plain function instead of async def, or asyncio.to_thread / an asynchronous library: do not block in the"
    " coroutine",
    says=r"event loop|coroutine|\basync|one (\w+ )?(at a time|after|by one|in turn)|in turn|serial(?!iz)"
    r"|threads?\b.{0,40}"
    r"\b(idle|unused|nothing)|\bidle|wait\w* (for|on)\b.{0,40}\b(network|socket|service|server|answer|response|request|"
    r"recv|read)|\bblock(s|ed|ing)\b",
    places=(*marked(__file__), function("station_forecast"), function("latest"), function("asked")),
    cures=r"plain function|\bdef\b|to_thread|in(to)? (a )?threads?|asynchronous|\bawait|non-?blocking|not block"
    r"|executor"
    r"|without async|at (once|the same time)|concurren|more (requests|threads)|in parallel|overlap",
    never={
        HOLDS_GIL: "tasks wait for the service",
        LONGER_TASKS: "a task takes a quarter of a second",
        COMPUTED_AGAIN: "each is computed once",
        MORE_MEMORY: "a task holds next to nothing",
        r"(?i)(raise|increase|longer)[^.\n]{0,30}timeout": "what blocks the loop would still do so",
    },
)


class Answer(socketserver.StreamRequestHandler):
    """Forecast of one station, after a while."""

    def handle(self) -> None:
        station = int(self.rfile.readline())
        time.sleep(SECONDS)
        hours = [(station * 37 + hour * 11) % 300 / 10 for hour in range(240)]
        self.wfile.write(json.dumps({"station": station, "wind": hours}).encode())


class Service(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64


class Forecasts:
    """Client of the service, as its provider gives it away."""

    def __init__(self, host: str, port: int) -> None:
        self.address = (host, port)

    def latest(self, station: int) -> dict:
        with socket.create_connection(self.address) as connection, connection.makefile("rb") as answer:
            connection.sendall(f"{station}\n".encode())
            return json.loads(answer.read())  # <- here


def hours_above(wind: list[float], limit: float) -> int:
    compute_for(0.005)
    return sum(speed > limit for speed in wind)


async def station_forecast(station: int, host: str, port: int) -> int:
    forecast = Forecasts(host, port).latest(station)  # <- here
    return hours_above(forecast["wind"], 14.0)


def station_forecast_in_thread(station: int, host: str, port: int) -> int:
    forecast = Forecasts(host, port).latest(station)
    return hours_above(forecast["wind"], 14.0)


@contextmanager
def service() -> Iterator[dict]:
    with Service(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        host, port = server.server_address[:2]
        yield {"host": host, "port": port}
        server.shutdown()


def asked(client: Client, task: object) -> float:
    with service() as address:
        return float(sum(client.gather(client.map(task, range(STATIONS), **address))))  # <- here


def bad(client: Client) -> float:
    return asked(client, station_forecast)  # <- here


def good(client: Client) -> float:
    return asked(client, station_forecast_in_thread)
