"""Collectives: who took part in each exchange between the ranks of a job, and when it came and left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.tables import Bool, Column, Int8, Int32, Int64, Table


class CollectiveKind(IntEnum):
    """What ranks exchange, by the names of ``torch.distributed``."""

    ALL_REDUCE = 0
    ALL_GATHER = 1
    REDUCE_SCATTER = 2
    ALL_TO_ALL = 3
    BROADCAST = 4
    REDUCE = 5
    GATHER = 6
    SCATTER = 7
    BARRIER = 8
    #: One rank to another one; in a pair the one row is the send, the other one the receive.
    SEND = 9
    RECEIVE = 10
    #: NCCL's kernel for anything made of sends and receives, where nothing says what it is for.
    EXCHANGE = 11
    #: Of no kind that is known, or several at once (``coalesced``).
    OTHER = 12


#: No rank can leave before the last one has come, so that all leave at nearly the same instant.
TOGETHER = (
    CollectiveKind.ALL_REDUCE,
    CollectiveKind.ALL_GATHER,
    CollectiveKind.REDUCE_SCATTER,
    CollectiveKind.ALL_TO_ALL,
    CollectiveKind.BARRIER,
    CollectiveKind.EXCHANGE,
)

#: From one rank to another one.
POINT_TO_POINT = (CollectiveKind.SEND, CollectiveKind.RECEIVE)

#: By kind, how names of kernels, of annotations and of arguments spell it without underscores; the first one that fits.
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
    """The kind of a collective by the name of its kernel, annotation or argument.

    >>> kind_of("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)").name
    'ALL_GATHER'
    >>> kind_of("gloo:all_reduce").name
    'ALL_REDUCE'
    """
    plain = name.split("(", 1)[0].lower().replace("_", "").replace("-", "")
    return next((kind for spelled, kind in _SPELLED if spelled in plain), CollectiveKind.OTHER)


@dataclass(frozen=True, slots=True, repr=False)
class Arrivals(Table):
    """A row for each rank that takes part in a collective, by collective and then by rank."""

    #: Number of the collective, from 0 in the order in which they were over.
    collective: Int32
    #: Position in :attr:`~dask_efficiency.torch_traces.kineto.trace.KinetoTrace.ranks`.
    rank: Int32
    #: Row of its kernel or annotation in the rank's events.
    event: Int32
    #: A :class:`CollectiveKind`.
    kind: Int8
    #: Position in :attr:`Collectives.groups`.
    group: Int32
    #: When the rank came and when it left, on the rank's own clock.
    start: Annotated[Int64, Column(unit="nanoseconds")]
    stop: Annotated[Int64, Column(unit="nanoseconds")]
    #: What the rank gave or got, whichever is more; missing where the trace does not say.
    nbytes: Annotated[Int64, Column(unit="bytes")]
    #: Number of the profiler's step in which the rank asked for it; missing outside of them.
    step: Int32

    @property
    def begins(self) -> NDArray[np.intp]:
        """The first row of each collective."""
        changes = np.flatnonzero(np.diff(self.collective)) + 1
        return np.concatenate([[0], changes]).astype(np.intp) if len(self) else np.empty(0, np.intp)

    @property
    def together(self) -> Bool:
        """Whether no rank can have left before the last one came."""
        return np.isin(self.kind, TOGETHER)


@dataclass(frozen=True, slots=True)
class Collectives:
    """The exchanges between the ranks of a job."""

    arrivals: Arrivals
    #: Names of process groups; where the trace does not name them, of streams or of the library.
    groups: tuple[str, ...] = ()
    #: How many kernels or annotations of ranks are in none, by why.
    left_out: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return int(self.arrivals.collective[-1]) + 1 if len(self.arrivals) else 0
