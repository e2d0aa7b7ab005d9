"""Metered: what Dask's ``context_meter`` counts beside the buckets, in tasks and in the background of shuffles."""

from __future__ import annotations

from typing import NamedTuple

#: Units of what ``context_meter`` counts, if users give no others.
SECONDS, BYTES, COUNT = "seconds", "bytes", "count"

#: Where it is counted: in tasks, by the background of P2P shuffles, of results that go from worker to worker, and that
#: tasks made; and of a worker's memory, the most there was at a time.
EXECUTE, P2P, TRANSFERS, MEMORY, RESULTS = "execute", "p2p", "transfers", "memory", "results"

#: Labels of memory: of the worker's process, and of results in it as Dask estimates them.
PROCESS, MANAGED = "process", "managed"

#: Labels of ours. Of results: those of tasks.
MADE = "made"
#: Of transfers: results that came, and results that others or clients fetched.
RECEIVED, SENT = "received", "sent"
#: In the background of shuffles: taking in what others send, and sending what is left at the barrier.
RECEIVE, FLUSH = "receive", "flush"

#: Disk, and the (de)serialising and (de)compressing that goes with it.
SPILL_LABELS = frozenset({"disk-read", "disk-write", "serialize", "deserialize", "compress", "decompress"})

#: Of these, what reading inputs back takes before a task starts; the others write, after it stops.
UNSPILL_LABELS = frozenset({"disk-read", "deserialize", "decompress"})

#: What Dask itself names inside a task; every other label is the user's own, or begins with :data:`OF_SHUFFLES`.
DASK_LABELS = SPILL_LABELS | {
    "thread-cpu",
    "thread-noncpu",
    "executor",
    "other",
    "failed",
    "cancelled",
    "memory-read",
}

#: How the labels of P2P shuffles begin in tasks.
OF_SHUFFLES = "p2p-"

#: How the keys of P2P shuffles' barriers begin: of tables, and of arrays that are chunked anew.
BARRIERS = ("shuffle-barrier", "rechunk-barrier", "p2p-barrier")

#: Ways that data goes: results are made, go to disk and come back, are found where they were, and go to and from other
#: workers and clients; and parts of the inputs of P2P shuffles are sent.
WAYS = ("made", "spilled", "read-back", "found-in-memory", "received", "sent", "shuffled")

#: In the place of labels beyond those that are kept apart.
OTHER = "(other)"

#: Kept apart by a worker.
MAX_METERED = 1_000


class Metered(NamedTuple):
    """What is counted under one label; seconds are kept as nanoseconds."""

    #: :data:`EXECUTE`, :data:`P2P`, :data:`TRANSFERS`, :data:`MEMORY`, or where else a worker spills: ``gather-dep``,
    #: ``get-data``, ``memory-monitor``.
    context: str
    #: Id of the span.
    span: str
    #: Of the tasks; in the background of a shuffle, which part of it: ``background-comms`` or ``background-disk``; of
    #: results that were received, the sender's address.
    prefix: str
    #: The user's own, or Dask's.
    label: str
    unit: str

    @property
    def way(self) -> str:
        """One of :data:`WAYS`; empty where it is none."""
        if self.context in (TRANSFERS, RESULTS):
            return self.label
        if self.context == P2P:
            return "shuffled" if (self.prefix, self.label) == ("background-comms", "process") else ""
        return {"disk-write": "spilled", "disk-read": "read-back", "memory-read": "found-in-memory"}.get(self.label, "")

    @property
    def rest(self) -> Metered:
        """What it counts as where too many are kept apart."""
        return Metered(self.context, "", "", OTHER if self.context == EXECUTE else self.label, self.unit)
