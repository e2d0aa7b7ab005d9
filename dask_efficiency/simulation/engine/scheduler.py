"""VirtualScheduler: Dask's scheduler, with virtual streams instead of sockets."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from distributed import Scheduler
from distributed import scheduler as upstream
from distributed.scheduler import ClientState, TaskState, WorkerState

from dask_efficiency.simulation.engine.messages import Loop, Stream
from dask_efficiency.simulation.model.events import EventHeap

#: Nanoseconds between two batches of messages to a worker, and to a client: as in Dask's scheduler.
TO_WORKER, TO_CLIENT = 5_000_000, 2_000_000

_NBYTES = attrgetter("nbytes")


class VirtualScheduler(Scheduler):
    """Dask's scheduler; it opens no port, and nothing that it would do in the background is started.

    Parameters
    ----------
    clock
        Virtual time.
    loop
        Its event loop.
    validate
        Check all state after every step.
    """

    def __init__(self, clock: EventHeap, loop: Loop, *, validate: bool) -> None:
        upstream.BatchedSend = lambda *_args, **_kwargs: Stream(clock, TO_WORKER, loop)  # type: ignore[assignment, misc]
        super().__init__(validate=validate, dashboard=False)

    def start_http_server(self, *_args: Any, **_kwargs: Any) -> None:
        """No server."""

    async def handle_worker(self, *_args: Any, **_kwargs: Any) -> None:
        """What a worker sends comes through its stream."""

    def add_virtual_client(self, name: str, clock: EventHeap) -> None:
        """A client joins; what it is told is dropped."""
        self.clients[name] = ClientState(name)
        self.client_comms[name] = Stream(clock, TO_CLIENT)  # type: ignore[assignment]

    def take(self, worker: str, message: dict[str, Any]) -> None:
        """Handle a message of a worker, as its stream does."""
        given = message.copy()
        self.stream_handlers[given.pop("op")](worker=worker, **given)

    def get_comm_cost(self, ts: TaskState, ws: WorkerState) -> float:
        """As Dask's scheduler finds it: the seconds to move those inputs of a task that a worker does not have.

        Dask looks at all results of the worker, one by one: at thousands of them for each task of many inputs.
        """
        missing = ts.dependencies.difference(ws._has_what)
        nbytes = [*map(_NBYTES, missing)]
        if nbytes and min(nbytes) < 0:  # Dask has a guess for results that it does not know yet
            nbytes = [dependency.get_nbytes() for dependency in missing]
        return float(sum(nbytes) / self.bandwidth)


class NoComm:
    """What a worker registers through; the answer is dropped."""

    async def write(self, message: Any) -> None:
        """Nobody reads it."""
