"""Moulds of a foundry: drawings come from an archive, a solver with one licence fills them, the result is rated.

source: dask/dask-jobqueue pull request 554; of the same kind: dask/distributed issue 4491
date:   2022-06-11 (issue 4491: 2021-02-08)
seen:   an example of resources for single steps does not run; what runs gives one resource to the whole computation,
        and then no more tasks run at a time than the resource allows, whatever they do.
cause:  resources= of compute holds for all tasks of the graph, also for those that need nothing of it: threads are
        free, but tasks wait for the resource.
cure:   annotate only the step that needs it (with dask.annotate(resources=...)).
"""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dask
import numpy as np
from distributed import Client

from benchmarks.public_reports.programs import (
    COMPUTED_AGAIN,
    HOLDS_GIL,
    LOCK,
    LONGER_TASKS,
    MORE_MEMORY,
    PROCESSES,
    Expected,
    function,
    marked,
    scaled,
)

LICENCE = {"solver": 1}
CLUSTER = {"n_workers": 1, "threads_per_worker": 8, "resources": LICENCE}
MOULDS, CELLS, ROUNDS = scaled(130), 96, 60
#: Seconds that the archive needs to find a drawing.
SEARCH = 0.06

EXPECTED = Expected(
    cause="all tasks ask for the solver, of which a worker has one: they run one at a time, also those that only wait"
    " for"
    " the archive",
    place="client.compute(..., resources=LICENCE) in bad",
    cure="ask for the resource only in the step that needs it (dask.annotate around fill)",
    says=r"resources?\b(?! of the (machine|computer))|restrict|annotat|licen[cs]e|solver=|one (task )?at a time"
    r"|serial\w*"
    r"|one after (the other|another)|threads?\W+(\w+\W+){0,8}(idle|free|unused|not used)|only (one|1"
    r"|a single)\W+(\w+\W+)"
    r"{0,4}(task|thread|of)|(1|one) (of|out of) (its )?(8|eight)|not in parallel",
    places=(*marked(__file__), function("bad"), function("drawing"), function("compute")),
    cures=r"annotat|only (the )?(step|tasks?|those|where|for|what|fill)|resources? (only|just)|(fewer|drop|remove"
    r"|without"
    r"|lower|raise|larger|more|higher) (the )?(\w+ )?resources?|resources\W+(\w+\W+){0,8}(only|more|higher|drop|remove"
    r"|fewer|those)|(raise|increase|lift|loosen)\W+(\w+\W+){0,5}(resource|limit|restriction)",
    never={
        LOCK: "it is the resource",
        COMPUTED_AGAIN: "each task runs once",
        HOLDS_GIL: "the archive is waited for, one task at a time",
        PROCESSES: "the resource would hold there as well",
        LONGER_TASKS: "tasks take some hundredths of a second",
        MORE_MEMORY: "there is enough",
    },
)


class Search(socketserver.StreamRequestHandler):
    """Finds a drawing after a while, and sends its number of cells with wall."""

    def handle(self) -> None:
        mould = int(self.rfile.readline())
        time.sleep(SEARCH)
        self.wfile.write(np.random.default_rng(mould).random((CELLS, CELLS)).tobytes())


class Archive(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64


@contextmanager
def archive() -> Iterator[int]:
    """Archive of drawings on another machine, by its port."""
    with Archive(("127.0.0.1", 0), Search) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def drawing(port: int, mould: int) -> np.ndarray:
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.sendall(f"{mould}\n".encode())
        with line.makefile("rb") as answer:
            return np.frombuffer(answer.read()).reshape(CELLS, CELLS)


def fill(plan: np.ndarray) -> np.ndarray:
    """Heat in the mould, by the solver with the licence."""
    heat = plan.copy()
    for _ in range(ROUNDS):
        heat[1:-1, 1:-1] = (heat[:-2, 1:-1] + heat[2:, 1:-1] + heat[1:-1, :-2] + heat[1:-1, 2:]) / 4.0
    return heat


def rating(heat: np.ndarray) -> float:
    return float(heat.std())


def ratings(port: int, for_solver: dict[str, Any]) -> list[Any]:
    plans = [dask.delayed(drawing)(port, mould) for mould in range(MOULDS)]
    with dask.annotate(**for_solver):
        filled = [dask.delayed(fill)(plan) for plan in plans]
    return [dask.delayed(rating)(heat) for heat in filled]


def bad(client: Client) -> float:
    with archive() as port:
        return float(sum(client.gather(client.compute(ratings(port, {}), resources=LICENCE))))  # <- here


def good(client: Client) -> float:
    with archive() as port:
        return float(sum(client.gather(client.compute(ratings(port, {"resources": LICENCE})))))
