"""Lines of time-independent traces: the words of each action.

Source: SimGrid 3.32, "Replaying SMPI traces", and src/smpi/internals/smpi_replay.cpp for the arguments; older releases
write names as ``allReduce``, ``Isend`` or ``reduceScatter``. We differ: the last word of an action may be ``@`` and the
name of a communicator, which SimGrid's replay passes over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from dask_efficiency.mpi.program import ANY, UNKNOWN, Actions, Op

#: Bytes of an element by SimGrid's number of the datatype, on 64-bit Linux: the list of predefined datatypes in
#: src/smpi/mpi/smpi_datatype.cpp of 3.32.
_NBYTES = {
    -1: 0,
    **dict(enumerate((8, 4, 1, 2, 8, 4, 1, 8, 1, 1, 2, 4, 8, 8, 16, 4, 1))),  # MPI_DOUBLE to MPI_C_BOOL
    **dict(enumerate((1, 2, 4, 8, 1, 2, 4, 8, 8, 16, 32, 8, 8), 17)),  # MPI_INT8_T to MPI_OFFSET
    **dict(enumerate((8, 16, 16, 8, 8, 8, 16, 16), 30)),  # the pairs that MPI_MINLOC takes
    **dict(enumerate((4, 4, 8, 16, 8, 16, 16, 4, 2, 4, 8, 16), 38)),  # Fortran's
    **dict(enumerate((32, 1, 8, 16, 32, 0, 0, 1, 8, 8), 50)),  # C++'s, and those of the implementation
}

#: Bytes of the elements that counts are of, without and with an argument of the ``init`` line.
BYTE, DOUBLE = 1, 8
#: SimGrid 3.32 writes this for MPI_PROC_NULL, and in receives also for MPI_ANY_SOURCE.
_NOBODY = "-333"
#: SimGrid writes these for MPI_ANY_SOURCE and MPI_ANY_TAG.
_ANY_SOURCES, _ANY_TAGS = (-555, -2, -1), (-444, -1)
#: Name of the communicator of all ranks.
WORLD = ""
#: First tag of messages in other communicators, above those of programs: MPICH's largest is 2**29 - 1 with several
#: processes a host.
_FIRST_TAG = 1 << 30


def nbytes_of_type(number: str) -> int:
    """Bytes of an element of a datatype, by SimGrid's number; a ValueError for an unknown one."""
    try:
        return _NBYTES[int(number)]
    except (ValueError, KeyError):
        raise ValueError(f"expected the number of a datatype, -1 to {max(_NBYTES)}, got {number[:80]!r}") from None


#: Words of each collective in their order: numbers of elements, in all or by rank, and the rest. After them comes the
#: datatype of what is sent or received, or of both. A missing root is rank 0. Totals say nothing new.
_COLLECTIVES: dict[str, tuple[str, ...]] = {
    "barrier": (),
    "bcast": ("send", "root"),
    "reduce": ("send", "amount", "root"),
    **dict.fromkeys(("allreduce", "scan", "exscan"), ("send", "amount")),
    **dict.fromkeys(("alltoall", "allgather"), ("send", "receive")),
    **dict.fromkeys(("gather", "scatter"), ("send", "receive", "root")),
    "gatherv": ("send", "receives", "root"),
    "allgatherv": ("send", "receives"),
    "scatterv": ("sends", "receive", "root"),
    "alltoallv": ("total of sends", "sends", "total of receives", "receives"),
    "reducescatter": ("receives", "amount"),
}


class CollectiveOfRank(NamedTuple):
    """A collective as one rank calls it."""

    communicator: str
    #: Name of :class:`~dask_efficiency.mpi.collectives.call.Collective`.
    name: str
    #: Rank in the communicator.
    root: int
    #: Bytes, in all or by rank; empty where the line lacks them.
    sends: tuple[int, ...]
    receives: tuple[int, ...]
    element: int


class SharedNumbers:
    """Numbers of collectives and tags that all ranks of a program share."""

    def __init__(self) -> None:
        #: Numbers of collectives; equal ones have the same.
        self.collectives: dict[CollectiveOfRank, int] = {}
        self._tags: dict[tuple[str, int], int] = {}

    def tag(self, communicator: str, tag: int) -> int:
        """Tag that no other communicator has."""
        if communicator == WORLD or tag == ANY:
            return tag
        return self._tags.setdefault((communicator, tag), _FIRST_TAG + len(self._tags))


class LineReader:
    """Reads the lines of one of ``size`` ranks."""

    def __init__(self, rank: int, size: int, known: SharedNumbers) -> None:
        self.actions = Actions()
        #: Ranks of each communicator, in its order, but that of all ranks.
        self.communicators: dict[str, tuple[int, ...]] = {}
        self._rank = rank
        self._size = size
        self._known = known
        self._default = BYTE
        self._line = 0
        self._communicator = WORLD

    def read(self, line: int, name: str, words: list[str]) -> None:
        """Take one action; raise a ValueError if it is invalid."""
        self._line = line
        action = name.lower().replace("_", "")
        reader = _READERS.get(action)
        if reader is None:
            raise ValueError(f"expected an action of MPI such as send, wait or allreduce, got {name[:80]!r}")
        self._communicator = WORLD
        if words and words[-1].startswith("@"):
            self._communicator = words.pop()[1:]
            if self._communicator not in self.communicators:
                raise ValueError(f"expected a communicator that a '#comm' line above names, got {self._communicator!r}")
        try:
            reader(self, action, words)
        except IndexError:
            raise ValueError(f"{name}: expected more than {len(words)} numbers") from None

    def group(self, words: Sequence[str]) -> None:
        """Take a line ``#comm NAME RANK RANK ...``."""
        if len(words) < 2:
            raise ValueError("expected '#comm', a name and the ranks of a communicator")
        ranks = tuple(_whole(word) for word in words[1:])
        if len(set(ranks)) < len(ranks) or not all(0 <= rank < self._size for rank in ranks):
            raise ValueError(f"expected different ranks below {self._size} in the communicator {words[0]!r}")
        if self._rank not in ranks:
            raise ValueError(f"expected rank {self._rank} among the ranks of the communicator {words[0]!r}")
        self.communicators[words[0]] = ranks

    # -- actions of one rank -----------------------------------------------------------------------

    def _init(self, action: str, words: list[str]) -> None:
        self._default = DOUBLE if words else BYTE

    def _compute(self, action: str, words: list[str]) -> None:
        self.actions.add(Op.COMPUTE if action == "compute" else Op.SLEEP, self._line, amount=_amount(words[0]))

    def _send(self, action: str, words: list[str]) -> None:
        if words[0] == _NOBODY:
            return
        op = Op.SEND if action in ("send", "ssend") else Op.ISEND
        nbytes = _count(words[2]) * self._element(words, 3)
        synchronous = float("ss" in action)
        tag = self._known.tag(self._communicator, _whole(words[1]))
        self.actions.add(op, self._line, self._peer(words[0]), tag, nbytes, synchronous)

    def _receive(self, action: str, words: list[str]) -> None:
        op = Op.RECV if action == "recv" else Op.IRECV
        count = _whole(words[2])
        nbytes = UNKNOWN if count < 0 else count * self._element(words, 3)
        self.actions.add(op, self._line, self._source(words[0]), self._tag(words[1]), nbytes)

    def _sendrecv(self, action: str, words: list[str]) -> None:
        # Like the call: starts both and waits for both. SimGrid's traces have no tags here.
        send = _count(words[0]) * self._element(words, 4)
        receive = _count(words[2]) * self._element(words, 5)
        destination, source = self._peer(words[1]), self._peer(words[3])
        self.actions.add(Op.IRECV, self._line, source, 0, receive)
        self.actions.add(Op.ISEND, self._line, destination, 0, send)
        self.actions.add(Op.WAIT, self._line, source, 0, self._rank)
        self.actions.add(Op.WAIT, self._line, self._rank, 0, destination)

    def _wait(self, action: str, words: list[str]) -> None:
        if words[0] == _NOBODY:
            return
        op = Op.WAIT if action == "wait" else Op.TEST
        self.actions.add(op, self._line, self._source(words[0]), self._tag(words[2]), self._peer(words[1]))

    def _collective(self, action: str, words: list[str]) -> None:
        name = "reduce_scatter" if action == "reducescatter" else action
        ranks = len(self.communicators.get(self._communicator, ())) or self._size
        parts: dict[str, list[str]] = {}
        place = 0
        for part in _COLLECTIVES[action]:
            count = ranks if part in ("sends", "receives") else 1
            optional = words[place : place + 1] or ["0"]
            parts[part] = optional if part == "root" else [words[i] for i in range(place, place + count)]
            place += count
        sends, receives = (parts.get(side) or parts.get(f"{side}s", []) for side in ("send", "receive"))
        sent = received = self._element(words, place) if parts else 1
        if sends and receives:
            received = self._element(words, place + 1)
        element = received if "receives" in parts and "sends" not in parts else sent
        root = _whole(parts["root"][0]) if "root" in parts else 0
        if not 0 <= root < ranks:
            raise ValueError(f"{name}: expected a root below {ranks}, got {root}")
        nbytes_sent, nbytes_received = (
            tuple(_count(word) * size for word in side) for side, size in ((sends, sent), (receives, received))
        )
        called = CollectiveOfRank(self._communicator, name, root, nbytes_sent, nbytes_received, element)
        number = self._known.collectives.setdefault(called, len(self._known.collectives))
        amount = _amount(parts["amount"][0]) if "amount" in parts else 0.0
        self.actions.add(Op.COLLECTIVE, self._line, number, amount=amount)

    # -- words -------------------------------------------------------------------------------------

    def _element(self, words: Sequence[str], position: int) -> int:
        return nbytes_of_type(words[position]) if position < len(words) else self._default

    def _source(self, word: str) -> int:
        if word == _NOBODY:
            raise ValueError(
                f"expected a rank to receive from, got {word}, which SimGrid writes for MPI_ANY_SOURCE and for "
                "MPI_PROC_NULL alike; 'dask-efficiency mpi record' tells them apart"
            )
        return ANY if _whole(word) in _ANY_SOURCES else self._peer(word)

    def _tag(self, word: str) -> int:
        tag = _whole(word)
        return self._known.tag(self._communicator, ANY if tag in _ANY_TAGS else tag)

    def _peer(self, word: str) -> int:
        rank = _whole(word)
        if not 0 <= rank < self._size:
            raise ValueError(f"expected a rank below {self._size}, got {word[:80]!r}")
        return rank


_READERS: dict[str, Callable[[LineReader, str, list[str]], None]] = {
    # These take no time.
    **dict.fromkeys(("finalize", "commsize", "commsplit", "commdup", "location"), lambda reader, action, words: None),
    "init": LineReader._init,
    **dict.fromkeys(("compute", "sleep"), LineReader._compute),
    **dict.fromkeys(("send", "isend", "ssend", "issend"), LineReader._send),
    **dict.fromkeys(("recv", "irecv"), LineReader._receive),
    "sendrecv": LineReader._sendrecv,
    **dict.fromkeys(("wait", "test"), LineReader._wait),
    "waitall": lambda reader, action, words: reader.actions.add(Op.WAITALL, reader._line),
    **dict.fromkeys(_COLLECTIVES, LineReader._collective),
}


def _whole(word: str) -> int:
    """Integer, also written as 1e6."""
    try:
        return int(word)
    except ValueError:
        number = _number(word)
        if not number.is_integer():
            raise ValueError(f"expected a whole number, got {word[:80]!r}") from None
        return int(number)


def _count(word: str) -> int:
    if (count := _whole(word)) < 0:
        raise ValueError(f"expected a number of elements of at least 0, got {word[:80]!r}")
    return count


def _amount(word: str) -> float:
    if (amount := _number(word)) < 0:
        raise ValueError(f"expected an amount of at least 0, got {word[:80]!r}")
    return amount


def _number(word: str) -> float:
    try:
        number = float(word)
    except ValueError:
        raise ValueError(f"expected a number, got {word[:80]!r}") from None
    if not -1e300 < number < 1e300:
        raise ValueError(f"expected a finite number, got {word[:80]!r}")
    return number
