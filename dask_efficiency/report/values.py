"""Values that a report holds: losses, savings, culprits, the profile, and what was metered."""

from __future__ import annotations

from dataclasses import dataclass

from dask_efficiency.accounts.buckets import Bucket
from dask_efficiency.accounts.profile import Place, Stack


@dataclass(frozen=True, slots=True)
class BucketLoss:
    """Thread time that one cause took from useful work."""

    bucket: Bucket
    thread_seconds: float
    #: Thread-seconds divided by the mean number of threads: what the run would be shorter by.
    wall_seconds: float
    #: Share of the thread-seconds that were there to be used, in [0, 1].
    share: float
    #: None where the report carries no price.
    money: float | None


@dataclass(frozen=True, slots=True)
class Repeat:
    """How often results of one prefix were computed that had been there before: somebody asked for them again.

    What was lost with a worker and had to be computed again is none of it.
    """

    #: Tasks that computed a result once more.
    tasks: int
    #: The most times that one key was computed; its first time, which may have been before the window, is one of them.
    times: int


@dataclass(frozen=True, slots=True)
class HeldResult:
    """Results of one prefix that a client wanted and no task waited for, in the mean over workers short of memory.

    Of many results on a worker the oldest are counted: there may be more.
    """

    prefix: str
    #: The client's key, or that there were several.
    client: str
    nbytes: float
    #: Part of the bytes of the results that were counted on these workers, in [0, 1].
    share: float


#: In :attr:`EfficiencyReport.savings`: all cures together.
ALL = "all"


#: Kinds of which it holds what no cure reaches: some bytes have to move.
BOUNDS = frozenset({str(Bucket.WAITING_ON_DATA)})


@dataclass(frozen=True, slots=True)
class Saved:
    """By how many seconds the work on the cluster is shorter with a cure, and between which, nine times in ten."""

    seconds: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Culprit:
    """Time that tasks of one prefix lost on one line of code, for one reason.

    Names are as they were recorded: whoever shows them makes them harmless.
    """

    bucket: str
    #: One of :data:`~dask_efficiency.accounts.causes.CAUSES`; empty for a bucket without causes.
    cause: str
    #: Empty where it is not known; for ``idle/parallelism``, whose tasks everything waited for.
    prefix: str
    #: ``"etl.py:88"``: the innermost line of the user's own code; empty where no sample was taken.
    line: str
    #: What that line was calling, or its own function where it called none.
    function: str
    #: Thread-seconds.
    seconds: float
    #: For ``gil``, who had it most: ```f` in etl.py:12 (prefix clean)``. Empty where it is not known.
    held_by: str
    #: Where the line is a library's: the user's line that sent the graph.
    computed_by: str = ""


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """How long tasks of one prefix were at one place, for one reason."""

    #: ``thread-cpu``, ``library-threads`` or ``thread-noncpu``.
    bucket: str
    #: One of :data:`~dask_efficiency.accounts.causes.CAUSES`; empty for a bucket without causes.
    cause: str
    prefix: str
    #: Of the task, without what Dask called it by; empty where it is not kept.
    stack: Stack
    #: Nanoseconds as sampled: all rows of a bucket, cause and prefix together are its whole.
    ns: int

    @property
    def place(self) -> Place:
        """Where and why, without how long."""
        return Place(self.bucket, self.cause, self.prefix, self.stack)


@dataclass(frozen=True, slots=True)
class GilHolder:
    """Who had the GIL while tasks of one prefix waited for it."""

    #: Of the tasks that waited.
    prefix: str
    #: Of the holder's task, or :data:`~dask_efficiency.accounts.profile.EVENT_LOOP`.
    holder: str
    #: Where the holder was.
    stack: Stack
    #: Nanoseconds of the waiting that are put down to it.
    ns: int


@dataclass(frozen=True, slots=True)
class LongHold:
    """One stretch of time in which one thread kept all others from the GIL, or blocked its event loop."""

    worker: str
    #: Prefix of its task, or :data:`~dask_efficiency.accounts.profile.EVENT_LOOP`.
    holder: str
    stack: Stack
    seconds: float


@dataclass(frozen=True, slots=True)
class MeteredRow:
    """What was counted on one worker, in one context, for tasks of one span and prefix, under one label."""

    #: Empty where there were too many rows to tell workers apart.
    worker: str
    #: ``execute``: in tasks; ``p2p``: in the background of shuffles; ``transfers``: results that went from worker to
    #: worker; ``memory``: the most of it at a time; or where else a worker spilled: ``gather-dep``, ``get-data``,
    #: ``memory-monitor``.
    context: str
    span: str
    #: Of the tasks; of results that were received, the worker that sent them.
    prefix: str
    #: The user's own, or Dask's.
    label: str
    #: ``seconds``, ``bytes``, ``count`` or the user's own.
    unit: str
    value: float


@dataclass(frozen=True, slots=True)
class Amount:
    """Bytes that went one way, in so many results or messages."""

    nbytes: int
    count: int
