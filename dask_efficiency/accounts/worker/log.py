"""The log of a worker's slots: a list of plain facts about its tasks, which several readers follow.

Theory of operation
===================

**The question.** The accounts, the recorder of a trace and the statistics of ended tasks all need to know what happened
to a task, and when. The log answers it for all of them: the event loop appends an entry where something happens, and
readers work out later what that means. :mod:`~dask_efficiency.accounts.worker.slots` describes the first reader, with
its rules. This page describes the log itself.

::

    Dask's hook, in the middle of a stimulus --+                 +--> Slots --> Ledger
    pauses, found in Dask's log of stimuli ----+--> log --> batch
    the event loop spills or reads back -------+                 +--> WorkerRecorder --> trace

**An entry** is a named tuple of an instant (monotonic nanoseconds) and what can be known at that instant only:

==========  ==========================================  ===========================================================
entry       written when                                what it takes along
==========  ==========================================  ===========================================================
Taken       a task becomes ``executing``                with which worker its result was lost; when its message was
                                                        sent, if the event loop spilled while it was unread
Moved       a task whose thread was at work, or whose   which set of tasks Dask counts it in; the thread's run;
            result was on its way, changes its state    the sizes of its input and output
Observed    the reason why free slots are free changes  how many tasks wait for data or for a resource, or are ready
Turned      the worker paused or went on, without any   how many tasks were ready
            hook: found later, with its exact instant
Spilled     the event loop was at the disk from ``at``  how many tasks were ready, waited for data, or held a slot
            to ``stop``                                 and waited for the loop
Noted       a task without a slot changes its state,    where it comes from, whether it is on its way, its size
            while a trace is recorded
==========  ==========================================  ===========================================================

**States of the log.** There are two: it is written, or it is read. Both happen on the event loop, so no lock is needed.
``WorkerHooks._read`` takes all entries, which are in the order of their instants, empties the list, and gives one batch
to the slots and, while one records, to the recorder. It does so

- before each report of the accounts (a heartbeat, a window's edge, the final snapshot), between two stimuli;
- within a stimulus, once there are 200 entries (``hooks.MAX_ENTRIES``). The last task that ended then stays with the
  slots, because the same stimulus may still add that its result could not be stored;
- at each new stimulus, where only Dask's digests tell which task spilled.

**Results** that are stored, released or spilled are no entries:
:class:`~dask_efficiency.accounts.worker.results.WorkerResults` hears of them at once, as it needs no order.

**Invariants**, each with the test that holds it:

1. Where the log is cut into batches makes no difference: the accounts and the trace are the same, to the nanosecond
   (``test_wherever_the_log_of_a_real_worker_is_cut_the_accounts_and_the_trace_are_those_of_then`` in
   ``tests/runs/recording/worker/test_slot_time.py``; ``tests/plugin/worker/test_hooks.py`` has it of Dask's states).
2. A batch is read in the order of its instants, and entries of one instant in the order in which they were written
   (``test_entries_are_read_by_when_they_happened_and_those_of_one_instant_as_they_were_written`` in
   ``tests/accounts/worker/test_slots.py``). A pause fires no hook: it is found at the next hook, and a call to the disk
   is written when it is over. Who writes such an entry late sorts the log.
3. An instant before one that the ledger has seen counts as that one, so an entry that comes too late names no time
   twice (``test_a_clock_that_runs_backwards_stands_still`` in ``tests/accounts/worker/test_ledger.py``).
4. Entries hold no object of Dask's but the key. So a log can be written to a file as JSON and read without a worker
   (``test_a_log_as_plain_data_is_the_log``); keys become texts.
5. A failure takes no user's task down. One of the hooks or the slots switches the meter off, and the report says so;
   one of the recorder ends the recording.

**Why a log.** A hook runs in the middle of a stimulus: Dask has freed a slot and given it to the next task before the
output of the first is stored, and has yet to add its digests. A reader that looks at Dask's state there sees a moment
that never lasts. Facts of the moment are safe to write down; conclusions are drawn between stimuli, when digests have
arrived. It also makes the hook cheap: it runs for each transition of each task, so it appends one tuple, made by
``tuple.__new__`` (to call the class is one more call of a Python function), and a batch shares the cost of all that
follows.

**What was tried and rejected.**

- *Two lanes.* The accounts and the recorder followed tasks by calls of their own, through a circle of objects (hooks,
  tracker, pending tasks, spills). The recorder became a reader of the same entries, and what only a trace wants to know
  (``Done``, ``begun``) stands in the entry of the slot, filled while one records.
- *Callbacks from readers to their owners.* They led from a live meter back to itself. A recorder keeps its failure
  instead, and its owner asks for it.
- *Sampling how many tasks are ``executing``.* In the middle of a stimulus that number belongs to no instant.

**Limits.** A slot is not a thread: a task that secedes gives its slot back, and its thread goes on outside the sum.
Instants of pauses are those of the clock of the day, converted by reading both clocks when they are found. The log does
not survive its worker: entries that are not read when a process is killed are lost, and the scheduler books the time
since the last heartbeat as ``lost-worker``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from dask_efficiency.accounts.intake import fitting
from dask_efficiency.accounts.worker.balance import Availability

#: Characters to which prefixes are cut, wherever they are counted, and names in labels of metrics. A guess: they are
#: words.
MAX_PREFIX_LENGTH = 200


def prefix_of(prefix: str) -> str:
    """A prefix as it is counted, wherever it is: cut, and such that it may travel."""
    return prefix if len(prefix) <= MAX_PREFIX_LENGTH and prefix.isascii() else fitting(prefix, MAX_PREFIX_LENGTH)


def span_of(span: Any) -> str:
    """A span's id as it is counted, empty of none; users may annotate tasks with any."""
    return prefix_of(span) if type(span) is str else fitting(span or "", MAX_PREFIX_LENGTH)


#: Stands for the final state of a task that the protocol of a P2P shuffle stopped; upstream has
#: ``rescheduled`` for these and for those whose user raised ``Reschedule``.
BY_SHUFFLE = "rescheduled by a shuffle"
#: Start and stop of a task's thread by the monotonic clock, and its CPU time between, in nanoseconds; the thread's
#: ident (0 if it was no thread of ours), and its native id (-1 while no trace is recorded).
Run = tuple[int, int, int, int, int]


class TaskSet(StrEnum):
    """Set of tasks in which Dask counts a task after a transition."""

    EXECUTING = "executing"
    LONG_RUNNING = "long-running"
    NEITHER = "neither"


class Done(NamedTuple):
    """Facts of a task that moved which only a trace needs."""

    #: Number of the stimulus; if unknown, each transition has its own.
    stimulus: int
    #: Instant at which it was handed to its thread, by Dask's clock of the day; 0.0 if unknown.
    handed: float = 0.0
    #: Start and stop of a task outside the worker's threads by the scheduler's clock of the day, and that clock's
    #: lead, in seconds.
    outside: tuple[float, float, float] | None = None
    stored: int = 0


class Taken(NamedTuple):
    """A task became ``executing``."""

    at: int
    key: Any
    prefix: str
    span: str
    #: Mark of the worker that lost its result; empty if it had none before.
    recomputed: str
    #: Instant at which the message that brought it was sent, if the event loop spilled meanwhile.
    since: int | None = None
    #: While a trace is recorded: number of the stimulus, and Dask's number of the run.
    begun: tuple[int, int] | None = None


class Moved(NamedTuple):
    """A task whose thread was at work, or whose result was on its way, changed its state."""

    at: int
    key: Any
    start: str
    finish: str
    place: TaskSet
    #: Run of a task whose thread is done; None if it is not, or was no thread of ours.
    run: Run | None = None
    #: Wall nanoseconds, by Dask, of a task in no thread of ours.
    elsewhere: int = 0
    #: CPU and wall nanoseconds so far of a task that goes on without a slot; None if unknown.
    used: tuple[int, int] | None = None
    #: Bytes of its input or, if it has none, of its output; -1 if not needed.
    nbytes: float = -1.0
    #: Bytes of its output; -1 if unknown.
    made: int = -1
    watched: bool = False
    done: Done | None = None


class Observed(NamedTuple):
    """Reasons why slots are free: whether the worker takes tasks, and how many wait for data or for a resource."""

    at: int
    availability: Availability
    waiting: int
    constrained: int
    #: Tasks that are ready; looked at where the worker is paused.
    ready: int = 0


class Turned(NamedTuple):
    """The worker began or ceased to take tasks."""

    at: int
    availability: Availability
    #: Tasks that are ready; looked at where the worker is paused.
    ready: int = 0


class Spilled(NamedTuple):
    """The event loop spilled or read back, from ``at`` on."""

    at: int
    stop: int
    asked: bool
    #: Tasks that were ready, and those that waited for data.
    ready: int
    waiting: int
    #: Tasks that had slots and waited for the event loop.
    held_up: int


class Noted(NamedTuple):
    """A task without a slot, or one that may have come from elsewhere, changed its state; written for a trace only."""

    at: int
    key: Any
    start: str
    finish: str
    #: Its state now; empty where it is forgotten.
    state: str
    #: Upstream's number of its run; -1 of a task that is forgotten.
    run_id: int = -1
    #: Worker that it comes from, empty if from none; and true if it is on its way.
    sender: str = ""
    in_flight: bool = False
    #: Bytes of its result; 0 if unknown.
    nbytes: int = 0


Entry: TypeAlias = Taken | Moved | Observed | Turned | Spilled | Noted


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """Sort entries by instant, those of one instant as written: some are known later than others."""
    return sorted(entries, key=itemgetter(0))


# -- as plain data -------------------------------------------------------------------------------

_KINDS = {kind.__name__: kind for kind in (Taken, Moved, Observed, Turned, Spilled, Noted)}


def to_plain(entries: Iterable[Entry]) -> list[list[Any]]:
    """Convert entries to lists that JSON can hold, each led by its kind, to read a log again; keys become texts."""
    return [
        [type(entry).__name__, *(str(value) if name == "key" else value for name, value in entry._asdict().items())]
        for entry in entries
    ]


def from_plain(rows: Iterable[Sequence[Any]]) -> list[Entry]:
    """Restore the entries of :func:`to_plain`; raises ValueError on an unknown kind, or another number of fields."""
    found: list[Entry] = []
    for kind, *values in rows:
        fields = _KINDS[kind]._fields if kind in _KINDS else ()
        if len(fields) != len(values):
            raise ValueError(f"a row is {kind!r} and {len(values)} values; expected one of {sorted(_KINDS)}, whole")
        named = dict(zip(fields, map(_tupled, values), strict=True))
        for name, restore in _RESTORED.items():
            if named.get(name) is not None:
                named[name] = restore(named[name])
        found.append(_KINDS[kind](**named))
    return found


def _tupled(value: Any) -> Any:
    return tuple(map(_tupled, value)) if isinstance(value, list) else value


_RESTORED: dict[str, Callable[[Any], Any]] = {
    "place": TaskSet,
    "availability": Availability,
    "done": lambda values: Done(*values),
}
