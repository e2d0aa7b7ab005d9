"""Which part of a trace a path explains: an annotation of the program's, or all of it."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool
from dask_efficiency.torch_traces.kineto.errors import UnknownAnnotationError
from dask_efficiency.torch_traces.kineto.trace import CALLS, Category, RankTrace
from dask_efficiency.torch_traces.path.calls import named
from dask_efficiency.torch_traces.path.graph import Region

#: What can be asked for by name: the first of these kinds that has such a name. Old versions have annotations among
#: the operators.
_CAN_BE_NAMED = (Category.ANNOTATION, Category.OPERATOR, Category.PYTHON)

#: What happens on threads.
ON_THREADS = (Category.OPERATOR, Category.ANNOTATION, Category.PYTHON, *CALLS)

#: Names that a message lists.
MAX_LISTED = 20


def find_region(trace: RankTrace, annotation: str = "", instance: int | tuple[int, int] | None = None) -> Region:
    """The events of some instances of an annotation.

    Parameters
    ----------
    annotation
        Part of the name of annotations, or of operators or Python functions where no annotation has it; empty for all
        of the trace.
    instance
        Which one of those that have it, from 0 in the order of time; the first one by default. Or the first and the
        last of several, both included.

    Returns
    -------
    Region
        Of all that happens on threads, what begins in the window, both ends included, and takes any time. Of work on
        a GPU and of synchronisations, those that a call in it asked for; not those of which no call is known.

    Raises
    ------
    UnknownAnnotationError
        If no name has that part, or there are fewer instances; it says what there is.

    References
    ----------
    HTA (``traceinsight`` 0.6.1), ``critical_path_analysis``. We differ: instances are counted in the order of time
    and among annotations only, while HTA takes every event with such a name in the order of the file, so that the
    GPU's part of the same annotation counts as another instance; all kernels of a graph belong to the call that
    launched it, while HTA keeps one of them; and an instance that is not there is an error.
    """
    events = trace.events
    if annotation:
        chosen, which = _instances(trace, annotation, instance)
        start, stop = int(events.start[chosen].min()), int(events.stop[chosen].max())
        description = f"{annotation} {which}"
    else:
        known = events.category != Category.OTHER
        start = int(events.start[known].min()) if known.any() else 0
        stop = int(events.stop[known].max()) if known.any() else 0
        description = "the whole trace"
    return Region(start, stop, np.flatnonzero(_inside(trace, start, stop)).astype(np.int32), description)


def _inside(trace: RankTrace, start: int, stop: int) -> Bool:
    events = trace.events
    begins = (events.start >= start) & (events.start <= stop)
    on_threads = begins & (events.stop > events.start) & np.isin(events.category, ON_THREADS)
    asked_for = (events.call != MISSING) & on_threads[events.call]
    inside: Bool = on_threads | asked_for
    return inside


def _instances(
    trace: RankTrace, annotation: str, instance: int | tuple[int, int] | None
) -> tuple[NDArray[np.intp], str]:
    """Rows of the instances that were asked for, and which these are, for people."""
    found = _named(trace, annotation)
    if not found.size:
        raise UnknownAnnotationError(f"no annotation has {annotation!r} in its name; there is: {_known(trace)}")
    first, last = instance if isinstance(instance, tuple) else (instance or 0, instance or 0)
    if not 0 <= first <= last < len(found):
        wanted = f"{first} to {last}" if isinstance(instance, tuple) else str(first)
        raise UnknownAnnotationError(
            f"no instance {wanted} of {annotation!r}; there is: 0"
            + (f" to {len(found) - 1}" if len(found) > 1 else "")
            + f" ({', '.join(_listed([trace.names[name] for name in trace.events.name[found]]))})"
        )
    return found[first : last + 1], str(first) if first == last else f"{first} to {last}"


def _named(trace: RankTrace, annotation: str) -> NDArray[np.intp]:
    """Rows with that in their name, in the order of time."""
    events = trace.events
    wanted = named(trace, lambda name: annotation in name)
    for category in _CAN_BE_NAMED:
        found = np.flatnonzero(wanted & (events.category == category))
        if found.size:
            return found[np.argsort(events.start[found], kind="stable")]
    return np.empty(0, np.intp)


def _known(trace: RankTrace) -> str:
    rows = np.flatnonzero(trace.events.category == Category.ANNOTATION)
    return ", ".join(_listed([trace.names[name] for name in trace.events.name[rows]])) or "none"


def _listed(names: list[str]) -> list[str]:
    """Each name once, with how often it is there; the most frequent ones."""
    counts = Counter(names)
    listed = [
        f"{name!r} ({count} times)" if count > 1 else repr(name) for name, count in counts.most_common(MAX_LISTED)
    ]
    return [*listed, "..."] if len(counts) > MAX_LISTED else listed
