"""Metered: quantities that Dask's ``context_meter`` counts, in tasks and in the background of shuffles."""

from __future__ import annotations

from typing import NamedTuple

from dask_efficiency.accounts.rows import OTHER

#: Units of ``context_meter``, if users give no others.
SECONDS, BYTES, COUNT = "seconds", "bytes", "count"
#: Unit of ours: objects in lists and the like that were pickled.
ITEMS = "objects"

#: Units of memory: of integrals over time, which are kept as byte-milliseconds, and of slopes.
BYTE_SECONDS, BYTES_AN_HOUR = "byte-seconds", "bytes/hour"

#: Contexts: tasks, the background of P2P shuffles, transfers between workers, a worker's memory, results of tasks,
#: messages as they are serialized and deserialized, and files that tasks read.
EXECUTE, P2P, TRANSFERS, MEMORY, RESULTS, MESSAGES = "execute", "p2p", "transfers", "memory", "results", "messages"
FILES = "files"

#: Labels of memory: of the worker's process; of results in it, and on disk, as Dask estimates their size in memory.
PROCESS, IN_MEMORY, ON_DISK = "process", "held", "spilled"
#: Labels of results, whether in memory or on disk; and of the process as if nothing were on disk.
MANAGED, UNSPILLED = "managed", "unspilled"
#: Label of the most by which results, by their sizes, were more than their process had; and of the bytes by which the
#: state of actors grew, by prefix.
OVERCOUNTED, ACTORS = "overcounted", "actors"
#: Follows the label of results that were there when the process had most memory.
AT_PEAK = " at peak"
#: The worker's limit, its thresholds; the memory of its host or container, and the most of its control group; and the
#: slope of the process's memory beyond results, without what tasks take for a while.
LIMIT, HOST, CONTAINER, GROWTH = "limit", "host", "container", "growth"
THRESHOLDS = ("target", "spill", "pause")

#: Label of the bytes that tasks of a prefix read. And first words of labels that end in a file's name, or ``(other)``:
#: its size, and bytes read with it open, as it was seen to be opened again, to stay open, or neither.
READ, SIZE, AGAIN, KEPT_OPEN, ONCE = "read", "size", "again", "kept-open", "once"
#: Labels of ours. Of results: those of tasks, and those that left a faster memory or came back, by their size in it.
MADE = "made"
SPILLED_UNCOMPRESSED, READ_UNCOMPRESSED = "spilled-uncompressed", "read-back-uncompressed"
DEVICE_TO_HOST, HOST_TO_DEVICE = "device-to-host", "host-to-device"
#: Of transfers: results that came, and results that others or clients fetched.
RECEIVED, SENT = "received", "sent"
#: In the background of shuffles: taking in what others send, and sending what is left at the barrier.
RECEIVE, FLUSH = "receive", "flush"

#: Disk, and the (de)serialising and (de)compressing that goes with it.
SPILL_LABELS = frozenset({"disk-read", "disk-write", "serialize", "deserialize", "compress", "decompress"})
#: Labels of reading inputs back, before a task starts; the others are of writing, after it stops.
UNSPILL_LABELS = frozenset({"disk-read", "deserialize", "decompress"})
#: Dask's own labels inside a task; any other is the user's, or begins with :data:`OF_SHUFFLES`.
DASK_LABELS = SPILL_LABELS | {"thread-cpu", "thread-noncpu", "executor", "other", "failed", "cancelled", "memory-read"}
#: Prefix of the labels of P2P shuffles in tasks.
OF_SHUFFLES = "p2p-"
#: Prefixes of the keys of P2P shuffles' barriers, of tables and of rechunked arrays.
BARRIERS = ("shuffle-barrier", "rechunk-barrier", "p2p-barrier")
#: Prefixes of the keys of their tasks that put data in, and take it out, which wait for buffers to be sent or written.
MOVERS = (
    *("shuffle-transfer", "rechunk-transfer", "hash-join-transfer"),
    *("p2pshuffle", "hashjoinp2p", "rechunk-p2p"),
)


def of_shuffles(prefix: str) -> bool:
    """True for tasks of P2P shuffles, also if Dask fused them with others, which joins their names."""
    return any(name in prefix for name in (*BARRIERS, *MOVERS))


#: Ways of data: results are made, spilled, read back, found in memory, received, and sent to workers and clients;
#: inputs of P2P shuffles are shuffled.
WAYS = (
    MADE,
    "spilled",
    SPILLED_UNCOMPRESSED,
    "read-back",
    READ_UNCOMPRESSED,
    DEVICE_TO_HOST,
    HOST_TO_DEVICE,
    "found-in-memory",
    RECEIVED,
    SENT,
    "shuffled",
)


class Metered(NamedTuple):
    """One metered quantity; seconds are kept as nanoseconds."""

    #: :data:`EXECUTE`, :data:`P2P`, :data:`TRANSFERS`, :data:`MEMORY`, or where else a worker spills: ``gather-dep``,
    #: ``get-data``, ``memory-monitor``.
    context: str
    span: str
    #: Of the tasks; in the background of a shuffle, which part of it:
    #: ``background-comms`` or ``background-disk``; of results that were received, the sender's address.
    prefix: str
    label: str
    unit: str

    @property
    def way(self) -> str:
        """One of :data:`WAYS`, or empty."""
        if self.context in (TRANSFERS, RESULTS):
            return self.label
        if self.context == P2P:
            return "shuffled" if (self.prefix, self.label) == ("background-comms", "process") else ""
        return {"disk-write": "spilled", "disk-read": "read-back", "memory-read": "found-in-memory"}.get(self.label, "")

    @property
    def is_level(self) -> bool:
        """True if the largest counts, and no sum: levels of memory, and sizes of known files."""
        if self.context == MEMORY:
            return self.unit != BYTE_SECONDS
        of_file = self.context == FILES and self.label.startswith(SIZE) and not self.label.endswith(OTHER)
        return self.unit == BYTES and of_file

    @property
    def is_of_worker(self) -> bool:
        """True for a worker's own memory, of which there are few: its limit, peaks and the like."""
        return self.context == MEMORY and not self.prefix and not self.span

    @property
    def rest(self) -> Metered:
        """The quantity as which it counts once too many are kept apart; of these there are few, whatever is counted."""
        known = self.context in (TRANSFERS, MEMORY, RESULTS) or (self.way and self.context != EXECUTE)
        known = known or (self.context, self.label) == (FILES, READ)
        unit = self.unit if self.unit in (SECONDS, BYTES, COUNT, ITEMS, BYTE_SECONDS, BYTES_AN_HOUR) else OTHER
        if self.context == FILES and (way := self.label.partition(" ")[0]) in (SIZE, AGAIN, KEPT_OPEN, ONCE):
            return Metered(FILES, "", "", f"{way} {OTHER}", unit)
        return Metered(self.context, "", "", self.label if known else OTHER, unit)
