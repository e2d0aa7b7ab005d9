"""Transitions: which of them may matter to slots, and which to a trace."""

from __future__ import annotations

from functools import cache
from itertools import product

from dask_efficiency.accounts.worker.slots import AT_WORK

#: Between two of these states nothing moves that matters to slots.
_QUIET = frozenset({"memory", "released", "forgotten", "fetch", "flight", "missing", "error"})

#: States of a task that was received and has no slot.
WITHOUT_SLOT = frozenset({"waiting", "ready", "constrained"})

#: States in which a task may be in flight, beside ``flight`` itself.
MAYBE_IN_FLIGHT = frozenset({"cancelled", "resumed"})


def matters(start: str, finish: str) -> bool:
    """Whether a transition may change who holds a slot, or why a slot is free.

    A task that becomes ready does not, unless the worker is paused: it runs in this very stimulus, or no slot is free.
    """
    return finish != "ready" and (finish == "waiting" or start not in _QUIET or finish not in _QUIET)


#: Of all that upstream may do, what does not.
QUIET = frozenset(
    (start, finish)
    for start, finish in product(_QUIET | WITHOUT_SLOT | MAYBE_IN_FLIGHT | AT_WORK, repeat=2)
    if not matters(start, finish)
)


@cache
def noted(start: str, finish: str) -> bool:
    """Whether a transition may mean something for a trace, beside what it does to slots."""
    return (
        finish in ("ready", "waiting", "fetch", "flight")
        or start == "flight"
        or start in MAYBE_IN_FLIGHT
        or (start in WITHOUT_SLOT and finish not in ("executing", "constrained"))
        or (start in ("fetch", "missing") and finish == "released")
    )
