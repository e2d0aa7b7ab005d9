"""VirtualScheduler: Dask's scheduler, with virtual streams instead of sockets."""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from distributed import Scheduler
from distributed import scheduler as upstream
from distributed.scheduler import ClientState, TaskState, WorkerState

from dask_efficiency.simulation.engine.messages import Loop, Stream
from dask_efficiency.simulation.model.events import EventHeap

#: Nanoseconds between two batches of messages to a worker, and to a client: as in Dask.
TO_WORKER, TO_CLIENT = 5_000_000, 2_000_000

_NBYTES = attrgetter("nbytes")


class VirtualScheduler(Scheduler):
    """Dask's scheduler, without ports and background work."""

    def __init__(self, clock: EventHeap, loop: Loop, *, validate: bool) -> None:
        upstream.BatchedSend = lambda *_args, **_kwargs: Stream(clock, TO_WORKER, loop)  # type: ignore[assignment, misc]
        super().__init__(validate=validate, dashboard=False)

    def start_http_server(self, *_args: Any, **_kwargs: Any) -> None:
        """Start no server."""

    async def handle_worker(self, *_args: Any, **_kwargs: Any) -> None:
        """Do nothing: a worker's messages come through its stream."""

    def add_virtual_client(self, name: str, clock: EventHeap) -> None:
        """Add a client; messages to it are dropped."""
        self.clients[name] = ClientState(name)
        self.client_comms[name] = Stream(clock, TO_CLIENT)  # type: ignore[assignment]

    def take(self, worker: str, message: dict[str, Any]) -> None:
        """Handle a worker's message, as Dask's stream handlers do."""
        given = message.copy()
        self.stream_handlers[given.pop("op")](worker=worker, **given)

    def get_comm_cost(self, ts: TaskState, ws: WorkerState) -> float:
        """Compute Dask's estimate, which loops over all results of the worker: thousands for each task."""
        missing = ts.dependencies.difference(ws._has_what)
        nbytes = [*map(_NBYTES, missing)]
        if nbytes and min(nbytes) < 0:  # unknown yet, for which Dask has a guess
            nbytes = [dependency.get_nbytes() for dependency in missing]
        return float(sum(nbytes) / self.bandwidth)


class NoComm:
    """Comm through which a worker registers; the answer is dropped."""

    async def write(self, message: Any) -> None:
        """Drop the message."""
