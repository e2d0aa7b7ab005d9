"""Program: the actions of the ranks of an MPI program, in columns."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from dask_efficiency.mpi.collectives.call import Collective


class MpiTraceError(ValueError):
    """A recorded MPI program that cannot be understood or that cannot run to its end.

    Parameters
    ----------
    place
        File and line, or the file.
    wrong
        What is there, and what was expected.
    """

    def __init__(self, place: str, wrong: str) -> None:
        super().__init__(f"{place}: {wrong}")
        self.place = place
        self.wrong = wrong


class Op(IntEnum):
    """What an action does."""

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


#: The source or tag of a receive that takes any.
ANY = -1

#: A receive whose size is what the sender sends.
UNKNOWN = -1


@dataclass(slots=True)
class Actions:
    """What one rank does, action by action: columns of equal length.

    Parameters
    ----------
    ops
        :class:`Op`.
    amounts
        Of ``COMPUTE``: instructions or flops. Of ``SLEEP``: seconds. Of ``COLLECTIVE``: instructions after it. Of
        ``SEND`` and ``ISEND``: 1.0 if it waits for its receive whatever its size (MPI_Ssend).
    peers
        The other rank; of ``WAIT`` and ``TEST`` the sender; of ``COLLECTIVE`` the number of its
        :class:`CollectiveCall`.
    tags
        Of messages.
    nbytes
        Of messages; of ``WAIT`` and ``TEST`` the receiver.
    lines
        Where they stand in the rank's file.
    """

    ops: array[int] = field(default_factory=lambda: array("B"))
    amounts: array[float] = field(default_factory=lambda: array("d"))
    peers: array[int] = field(default_factory=lambda: array("i"))
    tags: array[int] = field(default_factory=lambda: array("i"))
    nbytes: array[int] = field(default_factory=lambda: array("q"))
    lines: array[int] = field(default_factory=lambda: array("I"))

    def __len__(self) -> int:
        return len(self.ops)

    def add(self, op: Op, line: int, peer: int = 0, tag: int = 0, nbytes: int = 0, amount: float = 0.0) -> None:
        """One more action."""
        self.ops.append(op)
        self.amounts.append(amount)
        self.peers.append(peer)
        self.tags.append(tag)
        self.nbytes.append(nbytes)
        self.lines.append(line)


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """A collective as the ranks of a communicator make it together.

    Parameters
    ----------
    ranks
        The communicator's, of the world, in its order.
    call
        What it moves; without the nodes, as these depend on where the ranks run.
    """

    ranks: tuple[int, ...]
    call: Collective


@dataclass(frozen=True, slots=True)
class Program:
    """A recorded MPI program: what each of its ranks does.

    Parameters
    ----------
    name
        What it is called: its file.
    ranks
        By rank.
    calls
        The collectives, which the ranks' actions know by their positions; equal ones are one.
    files
        By rank: where its actions stand.
    instructions_per_second
        What the amounts of computation count, of the machine that it was recorded on; 0 where the trace does not say.
    notes
        What the trace lacks.
    """

    name: str
    ranks: Sequence[Actions]
    calls: Sequence[CollectiveCall]
    files: Sequence[str]
    instructions_per_second: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Ranks."""
        return len(self.ranks)

    def where(self, rank: int, action: int) -> str:
        """File and line of an action."""
        return f"{self.files[rank]}, line {self.ranks[rank].lines[action]}"
