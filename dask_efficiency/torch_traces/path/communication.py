"""Communication: the kernels and annotations of one rank that exchange data with other ranks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Column, Int8, Int32, Int64, Table
from dask_efficiency.torch_traces.kineto.trace import NAMED_BY_PROGRAMS, Category, Events, RankTrace
from dask_efficiency.torch_traces.path.calls import named
from dask_efficiency.torch_traces.path.collectives import CollectiveKind, kind_of
from dask_efficiency.torch_traces.path.exchanges import cpu_collectives, gpu_collectives
from dask_efficiency.torch_traces.path.steps import step_at, steps_of

#: What encloses the call that asks for a kernel of NCCL, and says what it is for.
_COMMS = "record_param_comms"
_ASKING = re.compile(r"nccl:")

#: Bytes of an element, by the names that PyTorch gives to types.
_NBYTES = {
    **dict.fromkeys(("bool", "byte", "char", "uint8", "int8", "unsigned char", "signed char"), 1),
    **dict.fromkeys(("half", "bfloat16", "short", "float16", "int16"), 2),
    **dict.fromkeys(("float", "int", "float32", "int32"), 4),
    **dict.fromkeys(("double", "long", "long int", "float64", "int64"), 8),
}


@dataclass(frozen=True, slots=True, repr=False)
class Communication(Table):
    """A row for each part that a rank took in a collective, in time order."""

    #: Row in the rank's events.
    event: Int32
    #: A :class:`~dask_efficiency.torch_traces.path.collectives.CollectiveKind`.
    kind: Int8
    #: Position of the process group's name in the rank's names; missing where it is not said.
    group: Int32
    #: Of the kernel; missing for what runs on the CPU.
    stream: Int32
    start: Annotated[Int64, Column(unit="nanoseconds")]
    stop: Annotated[Int64, Column(unit="nanoseconds")]
    nbytes: Annotated[Int64, Column(unit="bytes")]
    #: Elements that each rank must give alike; missing where ranks may differ, or nothing is said.
    elements: Int64
    #: Number of the profiler's step in which it was asked for.
    step: Int32


def communication_of(trace: RankTrace) -> Communication:
    """What a rank exchanged with others, as kernels on its GPU and as annotations on its CPU."""
    events = trace.events
    kernel = gpu_collectives(trace)
    rows = np.flatnonzero(kernel | cpu_collectives(trace))
    rows = rows[np.argsort(events.start[rows], kind="stable")]
    naming = _naming_event(trace, rows)
    names = np.where(naming != MISSING, events.collective[naming], MISSING)
    names = np.where(names != MISSING, names, _annotation(trace, rows))
    names = np.where(names != MISSING, names, events.name[rows])
    kinds = {int(name): kind_of(trace.names[name]) for name in np.unique(names)}
    kind = np.array([kinds[int(name)] for name in names], np.int8)
    return Communication(
        event=rows.astype(np.int32),
        kind=kind,
        group=np.where(naming != MISSING, events.group[naming], MISSING),
        stream=np.where(kernel[rows], events.stream[rows], MISSING),
        start=events.start[rows],
        stop=events.stop[rows],
        nbytes=_nbytes(trace, naming),
        elements=_alike(events, naming, kind),
        step=step_at(steps_of(trace), _asked(events, rows)),
    )


def _asked(events: Events, rows: NDArray[np.intp]) -> Int64:
    """When the CPU asked for each, or when it began."""
    call = events.call[rows]
    return np.where(call != MISSING, events.start[call], events.start[rows])


def _naming_event(trace: RankTrace, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """The event that says what each is: itself, or the operator around the call that asked for it; else missing."""
    events = trace.events
    operators = (events.collective != MISSING) & (events.category == Category.OPERATOR)
    operators &= named(trace, lambda name: name == _COMMS)
    around = _around(events, np.flatnonzero(operators), rows)
    return np.where(events.collective[rows] != MISSING, rows, around)


def _annotation(trace: RankTrace, rows: NDArray[np.intp]) -> Int32:
    """The name of the annotation around the call that asked for each; else missing."""
    events = trace.events
    asking = np.isin(events.category, NAMED_BY_PROGRAMS) & named(trace, lambda name: bool(_ASKING.match(name)))
    around = _around(events, np.flatnonzero(asking), rows)
    return np.where(around != MISSING, events.name[around], MISSING)


def _around(events: Events, outer: NDArray[np.intp], rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Of events on CPU threads that do not overlap, the one around the call of each row; else missing."""
    found = np.full(len(rows), MISSING, np.intp)
    calls = events.call[rows]
    outer = outer[np.argsort(events.start[outer], kind="stable")]
    for thread in np.unique(events.thread[outer]):
        of_thread = outer[events.thread[outer] == thread]
        asked = np.flatnonzero((calls != MISSING) & (events.thread[calls] == thread))
        at = events.start[calls[asked]]
        position = np.searchsorted(events.start[of_thread], at, side="right") - 1
        inside = (position >= 0) & (at <= events.stop[of_thread[position]])
        found[asked[inside]] = of_thread[position[inside]]
    return found


def _nbytes(trace: RankTrace, naming: NDArray[np.intp]) -> Int64:
    events = trace.events
    elements = np.maximum(events.elements_in[naming], events.elements_out[naming])
    sizes = np.array([_NBYTES.get(name.lower(), MISSING) for name in [*trace.names, ""]], np.int64)
    size = sizes[events.element_type[naming]]
    known = (naming != MISSING) & (elements != MISSING) & (size != MISSING)
    return np.where(known, elements * size, MISSING)


#: Of these each rank gives as much as the others.
_ALIKE: Sequence[CollectiveKind] = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.BROADCAST,
    CollectiveKind.REDUCE,
)


def _alike(events: Events, naming: NDArray[np.intp], kind: Int8) -> Int64:
    known = (naming != MISSING) & np.isin(kind, _ALIKE)
    return np.where(known, events.elements_in[naming], MISSING)
