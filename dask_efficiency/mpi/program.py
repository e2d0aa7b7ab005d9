"""Program: the actions of the ranks of an MPI program, in columns."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from dask_efficiency.mpi.collectives.call import Collective

#: Source or tag of a wildcard receive.
ANY = -1
#: Size of a receive that takes the sender's size.
UNKNOWN = -1


class MpiTraceError(ValueError):
    """A recorded MPI program that cannot be read or that cannot run to its end; ``place`` is a file, or its line."""

    def __init__(self, place: str, wrong: str) -> None:
        super().__init__(f"{place}: {wrong}")
        self.place = place
        self.wrong = wrong


class Op(IntEnum):
    """Kind of an action."""

    COMPUTE = 0
    SLEEP = 1
    SEND = 2
    ISEND = 3
    RECV = 4
    IRECV = 5
    WAIT = 6
    WAITALL = 7
    TEST = 8
    COLLECTIVE = 9


@dataclass(slots=True)
class Actions:
    """Actions of one rank, in columns of equal length."""

    #: :class:`Op`.
    ops: array[int] = field(default_factory=lambda: array("B"))
    #: ``COMPUTE``: instructions or flops. ``SLEEP``: seconds. ``COLLECTIVE``: instructions after it. ``SEND`` and
    #: ``ISEND``: 1.0 if it waits for its receive whatever its size (MPI_Ssend).
    amounts: array[float] = field(default_factory=lambda: array("d"))
    #: The other rank; ``WAIT`` and ``TEST``: the sender; ``COLLECTIVE``: the number of its :class:`CollectiveCall`.
    peers: array[int] = field(default_factory=lambda: array("i"))
    tags: array[int] = field(default_factory=lambda: array("i"))
    #: Of messages; ``WAIT`` and ``TEST``: the receiver.
    nbytes: array[int] = field(default_factory=lambda: array("q"))
    #: Line in the rank's file.
    lines: array[int] = field(default_factory=lambda: array("I"))

    def __len__(self) -> int:
        return len(self.ops)

    def add(self, op: Op, line: int, peer: int = 0, tag: int = 0, nbytes: int = 0, amount: float = 0.0) -> None:
        """Append an action."""
        self.ops.append(op)
        self.amounts.append(amount)
        self.peers.append(peer)
        self.tags.append(tag)
        self.nbytes.append(nbytes)
        self.lines.append(line)


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """A collective call of the ranks of a communicator, without its nodes, which depend on the hosts."""

    #: In the order of the communicator.
    ranks: tuple[int, ...]
    call: Collective


@dataclass(frozen=True, slots=True)
class Program:
    """A recorded MPI program."""

    name: str
    ranks: Sequence[Actions]
    #: Collectives, whose positions are in the ranks' actions; equal ones are shared.
    calls: Sequence[CollectiveCall]
    #: By rank.
    files: Sequence[str]
    #: Speed of the machine that it was recorded on, in the unit of the amounts; 0 where the trace lacks it.
    instructions_per_second: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    def where(self, rank: int, action: int) -> str:
        """File and line of an action."""
        return f"{self.files[rank]}, line {self.ranks[rank].lines[action]}"
