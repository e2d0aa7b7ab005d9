"""Messages between ranks: which receive gets which, and in which order large ones go."""

from __future__ import annotations

from collections import defaultdict, deque

from dask_efficiency.mpi.program import ANY


class SentMessage:
    """Bytes from one rank to another.

    Parameters
    ----------
    source, destination, tag
        Whose; tags of collectives are below :data:`~dask_efficiency.mpi.program.ANY`.
    nbytes
        How many.
    eager
        Whether it goes before the receiver has asked for it.
    sent
        When it was sent, in nanoseconds.
    """

    __slots__ = (
        "arrived",
        "destination",
        "eager",
        "nbytes",
        "ordered",
        "poster",
        "receive",
        "send",
        "sent",
        "source",
        "started",
        "tag",
    )

    def __init__(self, source: int, destination: int, tag: int, nbytes: int, eager: bool, sent: int) -> None:
        self.source = source
        self.destination = destination
        self.tag = tag
        self.nbytes = nbytes
        self.eager = eager
        self.sent = sent
        #: When it could go, and which rank came last.
        self.started = sent
        self.poster = source
        self.arrived = False
        #: Whether its sender is answered in order with what the receiver sends it.
        self.ordered = False
        self.send = Request(True)
        self.receive: Request | None = None


class Request:
    """A send or receive that has been begun.

    Parameters
    ----------
    is_send
        Which of the two.
    """

    __slots__ = ("awaited", "done", "is_send", "message", "order")

    def __init__(self, is_send: bool, order: int = 0) -> None:
        self.is_send = is_send
        self.done = False
        #: Whether its rank does nothing else until it is done.
        self.awaited = False
        self.message: SentMessage | None = None
        self.order = order


class Mailbox:
    """What was sent to one rank and not asked for, and what it has asked for and not got.

    Messages of one source and tag are received in the order in which they were sent; a receive that takes any gets what
    was sent first, and a message goes to the receive that asked first (MPI 4.0, 3.5).
    """

    __slots__ = ("_asked", "_made", "_unasked", "_wild")

    def __init__(self) -> None:
        self._unasked: dict[tuple[int, int], deque[tuple[int, SentMessage]]] = {}
        self._asked: dict[tuple[int, int], deque[Request]] = {}
        #: Receives that take any source or tag, with what they take.
        self._wild: list[tuple[int, int, Request]] = []
        self._made = 0

    def sent(self, message: SentMessage) -> Request | None:
        """The receive that a message is for; None if it has to wait for one."""
        key = (message.source, message.tag)
        asked = self._asked.get(key)
        first = asked[0] if asked else None
        for i, (source, tag, request) in enumerate(self._wild):
            if _takes(source, tag, message.source, message.tag) and (first is None or request.order < first.order):
                del self._wild[i]
                return request
        if asked and first is not None:
            asked.popleft()
            if not asked:
                del self._asked[key]
            return first
        self._made += 1
        self._unasked.setdefault(key, deque()).append((self._made, message))
        return None

    def asked(self, source: int, tag: int, request: Request) -> SentMessage | None:
        """The message that a receive gets; None if it has to wait for one."""
        key = (source, tag)
        if ANY in key:
            fitting = [(found[0][0], one) for one, found in self._unasked.items() if _takes(source, tag, *one)]
            if not fitting:
                self._made += 1
                request.order = self._made
                self._wild.append((source, tag, request))
                return None
            key = min(fitting)[1]
        waiting = self._unasked.get(key)
        if waiting:
            _, message = waiting.popleft()
            if not waiting:
                del self._unasked[key]
            return message
        self._made += 1
        request.order = self._made
        self._asked.setdefault(key, deque()).append(request)
        return None

    @property
    def asked_for(self) -> list[tuple[int, int]]:
        """Source and tag of the receives that have got nothing, in their order."""
        asked = [(request.order, key) for key, waiting in self._asked.items() for request in waiting]
        asked += [(request.order, (source, tag)) for source, tag, request in self._wild]
        return [key for _, key in sorted(asked)]

    @property
    def unasked(self) -> list[SentMessage]:
        """Messages that nobody has asked for."""
        return [message for waiting in self._unasked.values() for _, message in waiting]


def _takes(source: int, tag: int, sender: int, sent: int) -> bool:
    """Whether a receive that may take any takes a message."""
    return source in (ANY, sender) and (tag == sent or (tag == ANY and sent > ANY))


#: Sender and receiver.
Way = tuple[int, int]


class Connections:
    """The large messages between each two ranks on different hosts.

    Two ranks have one connection, and what one sends the other over it goes in order. An answer that lets a message
    begin therefore waits where its rank is sending to the same rank: of two ranks that exchange large messages, the one
    that comes second sends second. Where both come at once, either both send at the same time, or one's message has
    begun when it sees the other's question. That is chance; here each of the two happens by turns.

    References
    ----------
    Measured with MPICH 4.0.2 over UCX 1.13 and TCP, by two ranks that exchange messages of 200 kB to 4 MB again and
    again: an exchange takes once or twice what one message takes, and half to all of them take twice.
    """

    def __init__(self) -> None:
        #: Messages whose sender has been answered, of these the begun ones, and those that wait to be answered.
        self._answered: dict[Way, int] = defaultdict(int)
        self._begun: dict[Way, int] = defaultdict(int)
        self._held: dict[Way, list[SentMessage]] = {}
        #: By lower and higher rank: those of which one had to wait the last time that both came at once.
        self._had_to_wait: set[Way] = set()

    def answer(self, message: SentMessage) -> bool:
        """Whether the receiver's answer goes now; if not, :meth:`arrived` says when."""
        back = (message.destination, message.source)
        if self._begun[back] or (self._answered[back] and self._has_to_wait(back)):
            self._held.setdefault(back, []).append(message)
            return False
        self._answered[message.source, message.destination] += 1
        return True

    def begin(self, message: SentMessage) -> None:
        """Note that an answered message's bytes go."""
        self._begun[message.source, message.destination] += 1

    def arrived(self, message: SentMessage) -> list[SentMessage]:
        """The messages that are answered now that this one is there."""
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
        if pair in self._had_to_wait:
            self._had_to_wait.remove(pair)
            return False
        self._had_to_wait.add(pair)
        return True
