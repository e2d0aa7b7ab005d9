"""Values that a report holds: losses, savings, culprits, the profile, and what was metered."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dask_efficiency.accounts.buckets import GOOD, Breakdown, Bucket
from dask_efficiency.accounts.lines import SampleRow, Stack


@dataclass(frozen=True, slots=True)
class BucketLoss:
    """Thread time lost to one bucket."""

    bucket: Bucket
    thread_seconds: float
    #: Thread-seconds over the mean number of threads: the possible reduction of the runtime.
    wall_seconds: float
    #: Of the finalized thread-seconds, in [0, 1].
    share: float
    money: float | None


def losses_of(whole: Breakdown, threads: float, money: Callable[[float], float | None]) -> tuple[BucketLoss, ...]:
    """Losses of a breakdown, the largest first, for a mean number of threads and a price of thread-seconds."""
    finalized = whole.total_ns - whole.ns(Bucket.NO_WORK, Bucket.RUNNING)

    def loss(bucket: Bucket) -> BucketLoss:
        seconds = whole[bucket]
        wall = seconds / threads if threads else 0.0
        return BucketLoss(bucket, seconds, wall, whole.ns(bucket) / finalized, money(seconds))

    lost = [Bucket(bucket) for bucket in whole if bucket not in (*GOOD, Bucket.NO_WORK, Bucket.RUNNING)]
    return tuple(map(loss, sorted(lost, key=lambda bucket: -whole[bucket])))


#: Factors whose product is the efficiency, each with the buckets that it takes away, in order (after the POP
#: methodology).
FACTORS: dict[str, tuple[Bucket, ...]] = {
    "supply": (Bucket.IDLE, Bucket.CONSTRAINED),
    "transfer": (Bucket.WAITING_ON_DATA,),
    "memory": (Bucket.PAUSED, Bucket.SPILL),
    "goodput": (Bucket.FAILED, Bucket.CANCELLED, Bucket.RECOMPUTED, Bucket.LOST_WORKER, Bucket.RETIRING),
    "in-task": (Bucket.THREAD_NONCPU, Bucket.OVERHEAD),
    "unknown": (Bucket.UNMEASURED,),
}


def factors_of(whole: Breakdown) -> dict[str, float]:
    """Factors of a breakdown's efficiency, each in [0, 1], or NaN without finalized time."""
    left = whole.total_ns - whole.ns(Bucket.NO_WORK, Bucket.RUNNING)
    # once nothing is left no factor can take more, so the product stays the efficiency
    neutral = 1.0 if left else math.nan
    factors = {}
    for name, buckets in FACTORS.items():
        before, left = left, left - whole.ns(*buckets)
        factors[name] = left / before if before else neutral
    return factors


#: Client phases of a compute(), in the order in which they happen.
PHASES = ("optimize", "upload", "schedule", "run", "seceded", "gather", "calls")


#: Activities of a client as its samples tell them, in words: of the user's own code, and of Dask.
OWN_ACTIVITIES = {
    "compute": "computing",
    "sleep": "sleeping",
    "file": "waiting for files",
    "network": "waiting for the network",
    "child-process": "waiting for child processes",
    "lock": "waiting for another thread",
    "await": "awaiting something",
    "import": "importing modules",
    "unknown": "waiting",
    "own": "in your own code",
}
DASK_ACTIVITIES = {
    "build": "building graphs",
    "optimize": "optimizing graphs",
    "hash": "hashing data",
    "pickle": "pickling",
    "unpickle": "unpickling results",
    "receive": "receiving results",
    "send": "sending data",
    "call": "waiting for answers",
    "wait": "waiting for tasks",
    "local": "running tasks by itself",
    "release": "letting go of futures",
}


@dataclass(frozen=True, slots=True)
class ClientRow:
    """Sampled time of the client in one activity, at one stack."""

    #: A key of :data:`OWN_ACTIVITIES` or :data:`DASK_ACTIVITIES`.
    activity: str
    #: Down to the function that tells the activity, and some inside of it without their lines; empty if not kept.
    stack: Stack
    #: Nanoseconds; all rows add up to the window.
    ns: int
    #: Part of them without work on the cluster.
    idle_ns: int
    #: Part of them in which the client's thread kept the GIL from all others for long.
    held_ns: int


@dataclass(frozen=True, slots=True)
class GraphsSent:
    """Graphs that one line of the client's sent."""

    graphs: int
    #: Those before which none of the client's results was outstanding.
    rounds: int
    #: True if by the program's text each is made of what the one before gave. Known of the line with most rounds.
    needs_last: bool = False


@dataclass(frozen=True, slots=True)
class Made:
    """Collections of Dask that one line of the client's made."""

    #: Function that the line called, ``"from_array"``; may be empty.
    called: str
    collections: int
    #: Chunks of arrays, partitions of bags, and delayed values, of all and of the largest one; 0 of dataframes.
    parts: int
    largest: int
    #: Dataframes of a function that makes one of many files or parts, as ``called`` says.
    frames: int
    #: Prefixes of some of their tasks, before these are fused.
    prefixes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """Tasks of one prefix that failed for good in one way; tasks that waited for them are not counted."""

    prefix: str
    #: ``"ZeroDivisionError('division by zero')"``.
    error: str
    #: ``"etl.py:88"``: innermost line of the user's own code in the traceback; may be empty.
    line: str
    tasks: int


@dataclass(frozen=True, slots=True)
class Unfinished:
    """Tasks of one prefix that were outstanding at the end of the window."""

    prefix: str
    tasks: int
    #: Number of them that each worker ran by its last heartbeat, and that each paused worker had and did not run.
    running: Mapping[str, int]
    held_up: Mapping[str, int]
    #: Seconds for which the longest had run by then.
    seconds: float


@dataclass(frozen=True, slots=True)
class Repeat:
    """Tasks of one prefix that computed a result again on request, other than those lost with a worker."""

    tasks: int
    #: Most computations of one key, including the first one, which may precede the window.
    times: int
    #: Where they are steps within the tasks of another prefix, as graphs are fused: their own prefix, and that one.
    name: str = ""
    within: str = ""


@dataclass(frozen=True, slots=True)
class ProfiledOperator:
    """Time of one operator or kernel in tasks that ran under ``torch.profiler``."""

    prefix: str
    #: Empty for time in no operator.
    name: str
    #: Kind of the time, as on a critical path: ``"compute-cpu"``, ``"gpu-compute"``; empty for several together.
    kind: str
    seconds: float
    #: Number of profiled runs of the prefix in which the time is.
    runs: int


#: Key of :attr:`EfficiencyReport.savings` for all cures together.
ALL = "all"
#: Kinds whose saving is a bound that no cure reaches: some bytes have to move.
BOUNDS = frozenset({str(Bucket.WAITING_ON_DATA)})


@dataclass(frozen=True, slots=True)
class Saved:
    """Seconds that a cure saves of the work on the cluster, with a 90 % interval."""

    seconds: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Culprit:
    """Time lost by tasks of one prefix on one line of code, for one reason.

    Names are as recorded: make them harmless before display.
    """

    bucket: str
    #: One of :data:`~dask_efficiency.accounts.buckets.CAUSES`; empty for a bucket without causes.
    cause: str
    #: Empty if unknown; for ``idle/parallelism``, that of the tasks that everything waited for.
    prefix: str
    #: ``"etl.py:88"``: the innermost line of the user's own code; empty without a sample.
    line: str
    #: Function that the line called, or its own function if it called none.
    function: str
    seconds: float
    #: Main holder of the GIL for ``gil``, and of the lock for ``lock``: ```f` in etl.py:12 (prefix clean)``. Empty if
    #: unknown.
    held_by: str
    #: The user's line that sent the graph, if the line is a library's.
    computed_by: str = ""
    #: The user's own function that the line is in, if that is neither the one that it called nor the prefix.
    within: str = ""
    #: The line of the task's own module that called it, if the line is in another module of the user's.
    called_at: str = ""


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """Sampled time of tasks of one prefix at one place, for one reason."""

    #: ``thread-cpu``, ``library-threads`` or ``thread-noncpu``.
    bucket: str
    #: One of :data:`~dask_efficiency.accounts.buckets.CAUSES`; of ``thread-cpu``, the way of computing: ``python``,
    #: ``gil`` for C code that may hold the GIL, or empty for code that does not.
    cause: str
    prefix: str
    #: Stack of the task without Dask's own frames; empty if not kept.
    stack: Stack
    #: Sampled nanoseconds; rows of a bucket, cause and prefix add up to the whole.
    ns: int

    @property
    def place(self) -> SampleRow:
        """Key of the row: everything but the time."""
        return SampleRow(self.bucket, self.cause, self.prefix, self.stack)


@dataclass(frozen=True, slots=True)
class GilHolder:
    """Nanoseconds for which tasks of one prefix waited for the GIL while one thread had it."""

    prefix: str
    #: Prefix of the holder's task, or :data:`~dask_efficiency.accounts.lines.EVENT_LOOP`.
    holder: str
    stack: Stack
    ns: int


@dataclass(frozen=True, slots=True)
class LockLook:
    """Looks of samplers in which tasks of one prefix waited at locks, and in which one thread may have held it."""

    prefix: str
    #: Prefix of its task, or its name in parentheses; :data:`~dask_efficiency.accounts.lines.LOOKS` for all looks, and
    #: :data:`~dask_efficiency.accounts.lines.WAITING` for the threads that waited, one for each look.
    holder: str
    stack: Stack
    looks: int


@dataclass(frozen=True, slots=True)
class LongHold:
    """A period in which one thread kept others from the GIL, or blocked its event loop."""

    worker: str
    #: Prefix of its task, or :data:`~dask_efficiency.accounts.lines.EVENT_LOOP`.
    holder: str
    stack: Stack
    seconds: float
    #: Messages that the event loop was at work on, in words.
    doing: str = ""


@dataclass(frozen=True, slots=True)
class MeteredRow:
    """Count on one worker, in one context, for tasks of one span and prefix, under one label."""

    #: Empty if there were too many rows to keep workers apart.
    worker: str
    #: ``execute``: in tasks; ``p2p``: in the background of shuffles; ``transfers``: results sent between workers;
    #: ``memory``: of the worker; ``messages``: what was serialized and deserialized; ``files``: what tasks read, and
    #: the files' sizes; or the place of other spilling, and of the parts of transfers: ``gather-dep``, ``get-data``,
    #: ``memory-monitor``.
    context: str
    span: str
    #: Prefix of the tasks; for received results, the sending worker.
    prefix: str
    label: str
    #: ``seconds``, ``bytes``, ``count`` or the user's own.
    unit: str
    value: float


@dataclass(frozen=True, slots=True)
class HeldFor:
    """Results of one prefix that were kept for one reason, by looks of the scheduler."""

    prefix: str
    #: One of :class:`~dask_efficiency.accounts.memory.Why`.
    why: str
    #: Prefix of the tasks that need them, or the client that has futures of them, and prefix of the results for which
    #: these tasks wait; empty of none.
    needed_by: str
    waits_for: str
    byte_seconds: float
    #: Seconds for which the results were kept so, all together.
    result_seconds: float
    #: Bytes when all workers' processes together, or that of this worker, had most memory.
    at_peak: int


@dataclass(frozen=True, slots=True)
class Amount:
    """Bytes moved one way, and the number of results or messages."""

    nbytes: int
    count: int
