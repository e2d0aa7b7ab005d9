"""Messages between ranks: which receive gets which, and in which order large ones go."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import TypeVar

from dask_efficiency.mpi.program import ANY

#: Sender and receiver.
Way = tuple[int, int]
Waiting = TypeVar("Waiting")


@dataclass(slots=True, eq=False)
class SentMessage:
    """Bytes from one rank to another."""

    source: int
    destination: int
    #: Tags of collectives are below :data:`~dask_efficiency.mpi.program.ANY`.
    tag: int
    nbytes: int
    #: True if it is sent before the receiver is ready.
    eager: bool
    #: Instant of the send, in nanoseconds.
    sent: int
    #: Instant at which it could start, and the rank that was ready last.
    started: int = field(init=False)
    poster: int = field(init=False)
    arrived: bool = False
    #: True if the answer to its sender is in order with the receiver's own messages to it.
    ordered: bool = False
    send: Request = field(default_factory=lambda: Request(is_send=True))
    receive: Request | None = None

    def __post_init__(self) -> None:
        self.started, self.poster = self.sent, self.source
        self.send.message, self.send.done = self, self.eager


@dataclass(slots=True, eq=False)
class Request:
    """A send or receive that has been begun."""

    is_send: bool
    #: Place among the receives of its rank that found no message.
    order: int = 0
    done: bool = False
    #: True if its rank waits for it.
    awaited: bool = False
    message: SentMessage | None = None


class Mailbox:
    """Unmatched messages to one rank, and its unmatched receives.

    Messages of one source and tag are received in the order in which they were sent. A wildcard receive gets the
    message that was sent first, and a message goes to the receive that was posted first (MPI 4.0, 3.5).
    """

    __slots__ = ("_asked", "_made", "_unmatched", "_wild")

    def __init__(self) -> None:
        self._unmatched: dict[tuple[int, int], deque[tuple[int, SentMessage]]] = {}
        self._asked: dict[tuple[int, int], deque[Request]] = {}
        #: Wildcard receives with their source and tag.
        self._wild: list[tuple[int, int, Request]] = []
        self._made = 0

    def match_send(self, message: SentMessage) -> Request | None:
        """Receive that a message matches; None if it has to wait for one."""
        key = (message.source, message.tag)
        asked = self._asked.get(key)
        for i, (source, tag, request) in enumerate(self._wild):
            if _matches(source, tag, message.source, message.tag) and not (asked and asked[0].order < request.order):
                del self._wild[i]
                return request
        if asked:
            return _first(self._asked, key)
        self._made += 1
        self._unmatched.setdefault(key, deque()).append((self._made, message))
        return None

    def match_receive(self, source: int, tag: int, request: Request) -> SentMessage | None:
        """Message that a receive matches; None if it has to wait for one."""
        key = (source, tag)
        if ANY in key:
            fitting = [(sent[0][0], key) for key, sent in self._unmatched.items() if _matches(source, tag, *key)]
            if fitting:
                return _first(self._unmatched, min(fitting)[1])[1]
            self._wild.append((source, tag, request))
        elif key in self._unmatched:
            return _first(self._unmatched, key)[1]
        else:
            self._asked.setdefault(key, deque()).append(request)
        self._made += 1
        request.order = self._made
        return None

    @property
    def unmatched_receives(self) -> list[tuple[int, int]]:
        """Source and tag of unmatched receives, in their order."""
        asked = [(request.order, key) for key, waiting in self._asked.items() for request in waiting]
        asked += [(request.order, (source, tag)) for source, tag, request in self._wild]
        return [key for _, key in sorted(asked)]

    @property
    def unmatched_messages(self) -> list[SentMessage]:
        """Unmatched messages."""
        return [message for waiting in self._unmatched.values() for _, message in waiting]


def _first(waiting: dict[tuple[int, int], deque[Waiting]], key: tuple[int, int]) -> Waiting:
    """Take the first of a key's queue."""
    first = waiting[key].popleft()
    if not waiting[key]:
        del waiting[key]
    return first


def _matches(source: int, tag: int, sender: int, sent: int) -> bool:
    """True if a wildcard receive matches a message."""
    return source in (ANY, sender) and (tag == sent or (tag == ANY and sent > ANY))


class Connections:
    """Order of large messages between two ranks on different hosts.

    Two ranks have one connection, on which everything goes in order. So the answer that lets a message begin waits
    while its rank sends to the same rank: of two ranks that exchange large messages, the second to be ready sends
    second. If both are ready at once, either both send at the same time, or one has begun when it sees the other's
    request. That is chance; here the two cases alternate. Measured with MPICH 4.0.2 over UCX 1.13 and TCP, by two ranks
    that exchange messages of 200 kB to 4 MB again and again: an exchange takes as long as one message or two, and half
    to all of them take as long as two.
    """

    def __init__(self) -> None:
        #: Messages whose sender has been answered, those of them that have begun, and those that wait for an answer.
        self._answered: dict[Way, int] = defaultdict(int)
        self._begun: dict[Way, int] = defaultdict(int)
        self._held: dict[Way, list[SentMessage]] = {}
        #: Pairs (lower rank, higher rank) of which one had to wait the last time that both were ready at once.
        self._waited_last: set[Way] = set()

    def answer(self, message: SentMessage) -> bool:
        """True if the receiver's answer goes now; otherwise :meth:`arrived` releases it."""
        back = (message.destination, message.source)
        if self._begun[back] or (self._answered[back] and self._has_to_wait(back)):
            self._held.setdefault(back, []).append(message)
            return False
        self._answered[message.source, message.destination] += 1
        return True

    def begin(self, message: SentMessage) -> None:
        """Note that an answered message begins."""
        self._begun[message.source, message.destination] += 1

    def arrived(self, message: SentMessage) -> list[SentMessage]:
        """Messages that are answered once this one has arrived."""
        way = (message.source, message.destination)
        self._begun[way] -= 1
        self._answered[way] -= 1
        if self._answered[way]:
            return []
        released = self._held.pop(way, [])
        self._answered[way[::-1]] += len(released)
        return released

    def _has_to_wait(self, way: Way) -> bool:
        pair = (min(way), max(way))
        if pair in self._waited_last:
            self._waited_last.remove(pair)
            return False
        self._waited_last.add(pair)
        return True
