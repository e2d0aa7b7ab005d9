"""The log of a worker's slots: what happened, in order, as plain facts. Hooks write it, readers make accounts of it.

An entry holds what can be known in its moment only. What it means is found later, by whoever reads many at once: so it
can be written down, and read again without a worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from dask_efficiency.accounts.worker.balance import Availability

#: Longer prefixes are cut to so many characters, wherever they are counted.
MAX_PREFIX_LENGTH = 200

#: In the place of the state in which a task ended that the protocol of a P2P shuffle stopped; upstream says
#: ``rescheduled`` of these and of those whose user raised ``Reschedule``.
BY_SHUFFLE = "rescheduled by a shuffle"

#: When a task's thread began and stopped, by the monotonic clock, and its CPU time between, in nanoseconds; the
#: thread's ident (0 where it was no thread of ours), and its native id (-1 where nobody records).
Run = tuple[int, int, int, int, int]


class Place(StrEnum):
    """Among which tasks upstream counts a task after a transition."""

    EXECUTING = "executing"
    LONG_RUNNING = "long-running"
    NEITHER = "neither"


class Done(NamedTuple):
    """What only a trace wants to know of a task that moved."""

    #: Number of the stimulus; each transition has its own where nobody can tell.
    stimulus: int
    #: When it was handed to its thread, by upstream's clock of the day; 0.0 where that is not known.
    handed: float = 0.0
    #: Of one that ended outside the worker's threads: when it began and stopped by that clock of the scheduler, and how
    #: far that is ahead, all in seconds.
    outside: tuple[float, float, float] | None = None
    #: Nanoseconds that storing its result took.
    stored: int = 0


class Taken(NamedTuple):
    """A task became ``executing``."""

    at: int
    key: Any
    prefix: str
    span: str
    #: With which worker its result was lost, by the scheduler's mark; empty where it was not there before.
    recomputed: str
    #: When the message that brought it was sent, where the event loop spilled meanwhile.
    since: int | None = None
    #: While somebody records: the number of the stimulus, and upstream's number of the run.
    begun: tuple[int, int] | None = None


class Moved(NamedTuple):
    """A task whose thread was at work, or its result on its way, changed its state."""

    at: int
    key: Any
    start: str
    finish: str
    #: Where it is now.
    place: Place
    #: Of one whose thread is done; None where it was no thread of ours, or is not.
    run: Run | None = None
    #: Of one that was in no thread of ours, nanoseconds of wall time that upstream measured.
    elsewhere: int = 0
    #: Of one that goes on without a slot, nanoseconds of CPU and of wall time until now; None where nobody can tell.
    used: tuple[int, int] | None = None
    #: Bytes of its input or, where it has none, of its output; -1 where nobody wants to know.
    nbytes: float = -1.0
    #: Bytes of its output; -1 where that is not known.
    made: int = -1
    #: Whether the GPU was watched.
    watched: bool = False
    #: While somebody records.
    done: Done | None = None


class Observed(NamedTuple):
    """Why slots are free that are: whether the worker takes tasks, how many wait for data, how many for a resource."""

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
    #: Whether the memory manager asked for it.
    asked: bool
    #: Tasks that were ready, and those that waited for data.
    ready: int
    waiting: int
    #: Tasks that had slots and waited for the event loop.
    held_up: int


class Noted(NamedTuple):
    """A task without a slot changed its state, or one that may have come from elsewhere: only a trace wants to know."""

    at: int
    key: Any
    start: str
    finish: str
    #: Its state now; empty where it is forgotten.
    state: str
    #: Upstream's number of its run; -1 of a task that is forgotten.
    run_id: int = -1
    #: The worker that it comes from, and whether it is on its way; empty where it does not.
    sender: str = ""
    in_flight: bool = False
    #: Bytes of its result, as far as that is known.
    nbytes: int = 0


Entry: TypeAlias = Taken | Moved | Observed | Turned | Spilled | Noted


def in_order(entries: Iterable[Entry]) -> list[Entry]:
    """Entries by when they happened, those of one instant as they were written: some are known later than others."""
    return sorted(entries, key=itemgetter(0))


# -- as plain data -------------------------------------------------------------------------------

_KINDS = {kind.__name__: kind for kind in (Taken, Moved, Observed, Turned, Spilled, Noted)}


def to_plain(entries: Iterable[Entry]) -> list[list[Any]]:
    """Entries as lists that JSON can hold, each led by its kind: so a scene that was seen once can be read again.

    Keys of tasks are texts afterwards.
    """
    return [
        [type(entry).__name__, *(str(value) if name == "key" else value for name, value in entry._asdict().items())]
        for entry in entries
    ]


def from_plain(rows: Iterable[Sequence[Any]]) -> list[Entry]:
    """Entries of what :func:`to_plain` made.

    Raises
    ------
    ValueError
        On a kind that is none, or fields that are not its own.
    """
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
    "place": Place,
    "availability": Availability,
    "done": lambda values: Done(*values),
}
