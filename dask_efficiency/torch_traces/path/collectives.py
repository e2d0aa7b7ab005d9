"""Collectives: the exchanges of each rank, and the arrivals of ranks at the collectives of a job."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import MISSING, Bool, Column, ColumnTable, Int8, Int32, Int64
from dask_efficiency.torch_traces.kineto.numbers import MAX_RANKS
from dask_efficiency.torch_traces.kineto.trace import NAMED_BY_PROGRAMS, Category, Events, RankTrace
from dask_efficiency.torch_traces.path.region import step_at, steps_of
from dask_efficiency.torch_traces.path.roles import cpu_collectives, events_named, gpu_collectives

#: Operator around the call that asks for a kernel of NCCL, which names the collective; and annotations that do.
_COMMS = "record_param_comms"
_ASKING = re.compile(r"nccl:")

#: Bytes of an element by PyTorch's names of types.
_NBYTES = {
    **dict.fromkeys(("bool", "byte", "char", "uint8", "int8", "unsigned char", "signed char"), 1),
    **dict.fromkeys(("half", "bfloat16", "short", "float16", "int16"), 2),
    **dict.fromkeys(("float", "int", "float32", "int32"), 4),
    **dict.fromkeys(("double", "long", "long int", "float64", "int64"), 8),
}


class CollectiveKind(IntEnum):
    """Kind of collective, by the names of ``torch.distributed``."""

    ALL_REDUCE = 0
    ALL_GATHER = 1
    REDUCE_SCATTER = 2
    ALL_TO_ALL = 3
    BROADCAST = 4
    REDUCE = 5
    GATHER = 6
    SCATTER = 7
    BARRIER = 8
    #: From one rank to another; a pair has one row for the send and one for the receive.
    SEND = 9
    RECEIVE = 10
    #: NCCL's kernel for sends and receives of an unknown purpose.
    EXCHANGE = 11
    #: Unknown, or several at once (``coalesced``).
    OTHER = 12


#: Collectives that no rank can leave before the last one has arrived, so that all leave at nearly the same instant.
TOGETHER = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL,
    CollectiveKind.BARRIER,
    CollectiveKind.EXCHANGE,
)

#: Collectives between two ranks.
POINT_TO_POINT = (CollectiveKind.SEND, CollectiveKind.RECEIVE)

#: Collectives to which every rank sends equally much.
_ALIKE = (
    *(CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER),
    *(CollectiveKind.BROADCAST, CollectiveKind.REDUCE),
)

#: Parts of names of kernels, annotations and arguments without underscores; the first one that fits gives the kind.
_SPELLED = (
    ("allreduce", CollectiveKind.ALL_REDUCE),
    ("reducescatter", CollectiveKind.REDUCE_SCATTER),
    ("allgather", CollectiveKind.ALL_GATHER),
    ("alltoall", CollectiveKind.ALL_TO_ALL),
    ("broadcast", CollectiveKind.BROADCAST),
    ("sendrecv", CollectiveKind.EXCHANGE),
    ("barrier", CollectiveKind.BARRIER),
    ("reduce", CollectiveKind.REDUCE),
    ("gather", CollectiveKind.GATHER),
    ("scatter", CollectiveKind.SCATTER),
    ("send", CollectiveKind.SEND),
    ("recv", CollectiveKind.RECEIVE),
)


def kind_of(name: str) -> CollectiveKind:
    """Kind of a collective by the name of its kernel, annotation or argument, such as ``gloo:all_reduce``."""
    plain = name.split("(", 1)[0].lower().replace("_", "").replace("-", "")
    return next((kind for spelled, kind in _SPELLED if spelled in plain), CollectiveKind.OTHER)


@dataclass(frozen=True, slots=True, repr=False)
class CollectiveArrivals(ColumnTable):
    """A row for each rank of each collective, by collective and then by rank."""

    #: Number of the collective, from 0 in the order in which they ended.
    collective: Int32
    #: Position in :attr:`~dask_efficiency.torch_traces.kineto.trace.KinetoTrace.ranks`.
    rank: Int32
    #: Row of its kernel or annotation among the rank's events.
    event: Int32
    #: A :class:`CollectiveKind`.
    kind: Int8
    #: Position in :attr:`Collectives.groups`.
    group: Int32
    #: Arrival and leaving, on the rank's own clock.
    start: Annotated[Int64, Column(unit="nanoseconds")]
    stop: Annotated[Int64, Column(unit="nanoseconds")]
    #: The larger of what the rank sent and received; missing where the trace lacks it.
    nbytes: Annotated[Int64, Column(unit="bytes")]
    #: Number of the profiler's step in which the rank asked for it; missing outside of steps.
    step: Int32

    @property
    def begins(self) -> NDArray[np.intp]:
        """First row of each collective."""
        changes = np.flatnonzero(np.diff(self.collective)) + 1
        return np.concatenate([[0], changes]).astype(np.intp) if len(self) else np.empty(0, np.intp)

    @property
    def together(self) -> Bool:
        """Mask of the collectives that no rank can leave before the last one has arrived."""
        return np.isin(self.kind, TOGETHER)

    def shifted(self, offset: Int64) -> Self:
        """On the clock of the job, by the offset of each rank."""
        shift = offset[self.rank]
        return replace(self, start=self.start + shift, stop=self.stop + shift)

    def last_rows(self) -> NDArray[np.intp]:
        """Row of the rank that arrived last at each collective, on the clock of the job; of several, the first."""
        order = np.lexsort((-np.arange(len(self)), self.start, self.collective))
        return order[np.append(self.begins[1:], len(self)) - 1] if len(self) else order

    def repeated(self, values: Int64) -> Int64:
        """A value of each collective for each of its rows."""
        return np.repeat(values, np.diff(np.append(self.begins, len(self))))


@dataclass(frozen=True, slots=True)
class Collectives:
    """Exchanges between the ranks of a job."""

    arrivals: CollectiveArrivals
    #: Names of process groups; where the trace lacks them, of streams or of the library.
    groups: tuple[str, ...] = ()
    #: Number of kernels or annotations that are in no collective, by reason.
    left_out: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return int(self.arrivals.collective[-1]) + 1 if len(self.arrivals) else 0


@dataclass(frozen=True, slots=True, repr=False)
class Exchanges(ColumnTable):
    """A row for each kernel or annotation with which a rank took part in a collective, by rank and then time."""

    #: Position of the rank.
    rank: Int32
    #: Row in the rank's events.
    event: Int32
    #: A :class:`CollectiveKind`.
    kind: Int8
    #: Position of the process group's name in the rank's names; missing where it has none.
    group: Int32
    #: Stream of the kernel; missing on the CPU.
    stream: Int32
    start: Annotated[Int64, Column(unit="nanoseconds")]
    stop: Annotated[Int64, Column(unit="nanoseconds")]
    nbytes: Annotated[Int64, Column(unit="bytes")]
    #: Elements that every rank must send; missing where ranks may differ, or the trace lacks it.
    elements: Int64
    #: Number of the profiler's step in which it was asked for.
    step: Int32
    #: Position of its name in the rank's names, on the CPU; missing for kernels.
    annotation: Int32


@dataclass(frozen=True, slots=True)
class RankExchanges:
    """Exchanges of one rank, and what tells its groups from those of others; small, and without its trace."""

    #: Number in the job.
    rank: int
    exchanges: Exchanges
    #: Names in which groups and annotations of the exchanges are positions.
    names: tuple[str, ...]
    #: Members of process groups by name.
    groups: Mapping[str, tuple[int, ...]]
    #: Number of members of process groups by name, also where Kineto cut the list of them.
    sizes: Mapping[str, int]
    #: Name of the rank's host; empty where the trace lacks it.
    host: str

    @classmethod
    def of(cls, trace: RankTrace) -> Self:
        """Exchanges of a trace."""
        found = _exchanges_of(trace)
        used = np.setdiff1d(np.concatenate([found.group, found.annotation]), [MISSING])
        place = np.full(len(trace.names) + 1, MISSING, np.int32)
        place[used] = np.arange(len(used))
        exchanges = replace(found, group=place[found.group], annotation=place[found.annotation])
        host = str(trace.about.get("host_name") or "")
        return cls(
            trace.rank, exchanges, tuple(trace.names[name] for name in used.tolist()), trace.groups, _sizes(trace), host
        )


def _sizes(trace: RankTrace) -> dict[str, int]:
    job = trace.about.get("distributedInfo")
    configured = job.get("pg_config") if isinstance(job, dict) else None
    listed = [group for group in configured if isinstance(group, dict)] if isinstance(configured, list) else []
    sizes = {str(group.get("pg_name")): group.get("pg_size") for group in listed}
    members = {name: len(ranks) for name, ranks in trace.groups.items()}
    return {name: size for name, size in sizes.items() if type(size) is int and 0 < size <= MAX_RANKS} | members


def _exchanges_of(trace: RankTrace) -> Exchanges:
    """Exchanges of a rank with others, from kernels on its GPU and annotations on its CPU."""
    events = trace.events
    kernel = gpu_collectives(trace)
    rows = events.by_start(np.flatnonzero(kernel | cpu_collectives(trace)))
    # The event that names the collective: itself, or the operator around the call that asked for it.
    operators = (events.collective != MISSING) & (events.category == Category.OPERATOR)
    operators &= events_named(trace, lambda name: name == _COMMS)
    naming = np.where(events.collective[rows] != MISSING, rows, _around(events, np.flatnonzero(operators), rows))
    asking = np.isin(events.category, NAMED_BY_PROGRAMS) & events_named(trace, lambda name: bool(_ASKING.match(name)))
    around, call = _around(events, np.flatnonzero(asking), rows), events.call[rows]
    names = np.where(naming != MISSING, events.collective[naming], MISSING)
    names = np.where((names == MISSING) & (around != MISSING), events.name[around], names)
    names = np.where(names != MISSING, names, events.name[rows])
    kinds = {int(name): kind_of(trace.names[name]) for name in np.unique(names)}
    kind = np.array([kinds[int(name)] for name in names], np.int8)
    return Exchanges(
        rank=np.zeros(len(rows), np.int32),
        event=rows.astype(np.int32),
        kind=kind,
        group=np.where(naming != MISSING, events.group[naming], MISSING),
        stream=np.where(kernel[rows], events.stream[rows], MISSING),
        start=events.start[rows],
        stop=events.stop[rows],
        nbytes=_nbytes(trace, naming),
        elements=np.where((naming != MISSING) & np.isin(kind, _ALIKE), events.elements_in[naming], MISSING),
        step=step_at(steps_of(trace), np.where(call != MISSING, events.start[call], events.start[rows])),
        annotation=np.where(kernel[rows], MISSING, events.name[rows]),
    )


def _around(events: Events, outer: NDArray[np.intp], rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Event around the call of each row, among events that do not overlap on a thread; else missing."""
    around = np.full(len(rows), MISSING, np.intp)
    calls = events.call[rows]
    outer = events.by_start(outer)
    for thread in np.unique(events.thread[outer]):
        of_thread = outer[events.thread[outer] == thread]
        asked = np.flatnonzero((calls != MISSING) & (events.thread[calls] == thread))
        at = events.start[calls[asked]]
        position = np.searchsorted(events.start[of_thread], at, side="right") - 1
        inside = (position >= 0) & (at <= events.stop[of_thread[position]])
        around[asked[inside]] = of_thread[position[inside]]
    return around


def _nbytes(trace: RankTrace, naming: NDArray[np.intp]) -> Int64:
    events = trace.events
    elements = np.maximum(events.elements_in[naming], events.elements_out[naming])
    sizes = np.array([_NBYTES.get(name.lower(), MISSING) for name in [*trace.names, ""]], np.int64)
    size = sizes[events.element_type[naming]]
    known = (naming != MISSING) & (elements != MISSING) & (size != MISSING)
    return np.where(known, elements * size, MISSING)
