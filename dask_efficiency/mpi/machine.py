"""Machine: the ranks of a program at work on the hosts of a network, in virtual time, as an MPI implementation does."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from dask_efficiency.mpi.collectives.call import Collective
from dask_efficiency.mpi.collectives.choice import AUTO, VERSIONS, check_algorithm, check_version, choose
from dask_efficiency.mpi.collectives.expansion import rounds_of
from dask_efficiency.mpi.collectives.rounds import Round
from dask_efficiency.mpi.messages import Connections, Mailbox, Request, SentMessage
from dask_efficiency.mpi.program import ANY, MpiTraceError, Op, Program
from dask_efficiency.mpi.timeline import RankActivity, RankTimeline
from dask_efficiency.simulation.model.events import EventHeap
from dask_efficiency.simulation.model.topology import Topology

#: Bytes from which on a message waits for its receiver: MPICH 3.2.1's default over TCP.
EAGER_BYTES = 65_536
#: Of a host of speed 1, if neither trace nor user give it (a round number; only ratios of times depend on it).
INSTRUCTIONS_PER_SECOND = 1e9


@dataclass(frozen=True, slots=True)
class MpiSettings:
    """Behaviour and costs of an MPI implementation."""

    #: Version of MPICH that chooses the algorithms.
    version: str = VERSIONS[-1]
    #: Algorithms by collective instead of MPICH's choice.
    algorithms: Mapping[str, str] = field(default_factory=dict)
    #: Smaller messages are sent at once, others when their receiver is ready, after the latency there and back.
    eager_bytes: int = EAGER_BYTES
    #: Include that latency, and the order of answers among the receiver's own messages (see
    #: :class:`~dask_efficiency.mpi.messages.Connections`). SimGrid's model has neither.
    handshake: bool = True
    #: Time of sender and of receiver for each message.
    overhead_seconds: float = 0.0
    #: Rate at which a rank combines data in a reduction.
    reduce_bytes_per_second: float = float("inf")
    #: Of a host of speed 1; 0 means the trace's.
    instructions_per_second: float = 0.0

    def __post_init__(self) -> None:
        check_version(self.version)
        for name, algorithm in self.algorithms.items():
            if algorithm != AUTO:
                check_algorithm(name, algorithm)
        if self.eager_bytes < 0:
            raise ValueError(f"eager_bytes: expected at least 0, got {self.eager_bytes!r}")
        for setting in ("overhead_seconds", "instructions_per_second"):
            if not 0 <= (value := getattr(self, setting)) < inf:
                raise ValueError(f"{setting}: expected at least 0, got {value!r}")
        if not self.reduce_bytes_per_second > 0:
            raise ValueError(f"reduce_bytes_per_second: expected more than 0, got {self.reduce_bytes_per_second!r}")


#: Events between two reports of progress: some tenths of a second.
STEPS = 50_000
#: Ranks that an error names (a few lines).
MAX_SHOWN = 10


@dataclass(slots=True, eq=False)
class Rank:
    """State of one rank: its current action and its pending requests."""

    number: int
    host: str
    #: Instructions a nanosecond.
    speed: float
    doing: int = 0
    #: Its remaining steps, each up to where it has to wait.
    steps: Iterator[None] = field(init=False)
    mailbox: Mailbox = field(default_factory=Mailbox)
    #: Requests that it has begun and not waited for, by sender, receiver and tag.
    requests: dict[tuple[int, int, int], deque[Request]] = field(default_factory=dict)
    #: Number of requests that it waits for, and nanoseconds of work to do after them.
    pending: int = 0
    owed: float = 0.0
    timeline: RankTimeline = field(default_factory=RankTimeline)


class Machine:
    """A program's ranks at work on their hosts."""

    def __init__(self, program: Program, hosts: Sequence[str], topology: Topology, settings: MpiSettings) -> None:
        self._program = program
        self._settings = settings
        self.clock = EventHeap()
        self._network = topology.model(self.clock)
        speed = settings.instructions_per_second or program.instructions_per_second or INSTRUCTIONS_PER_SECOND
        speeds = {host.name: speed * host.speed / 1e9 for host in topology.hosts}
        self.ranks = [Rank(number, host, speeds[host]) for number, host in enumerate(hosts)]
        self._calls = _Calls(program, hosts, settings)
        self._connections = Connections()
        self._overhead = round(1e9 * settings.overhead_seconds)
        self._byte = 1e9 / settings.reduce_bytes_per_second
        #: Number of messages, and bytes by hosts of sender and receiver.
        self.messages = 0
        self.moved: dict[tuple[str, str], int] = defaultdict(int)

    def run(self, report: Callable[[int], object] = lambda actions: None) -> None:
        """Run the program to its end; ``report`` is called now and then with the number of actions done."""
        for rank in self.ranks:
            rank.steps = self._steps(rank)
            self.clock.at(0, self._continue, rank)
        while self.clock.steps(STEPS):
            report(sum(rank.doing for rank in self.ranks))

    @property
    def algorithms(self) -> dict[str, dict[str, int]]:
        """Number of uses by ranks of each algorithm, by collective."""
        uses: dict[str, dict[str, int]] = {}
        for (name, algorithm), count in sorted(self._calls.used.items()):
            uses.setdefault(name, {})[algorithm] = count
        return uses

    # -- one rank ----------------------------------------------------------------------------------

    def _continue(self, rank: Rank) -> None:
        """Continue a rank until it has to wait."""
        next(rank.steps, None)

    def _steps(self, rank: Rank) -> Iterator[None]:
        """Do the actions of a rank; each step ends where the clock or a message is to continue it."""
        actions = self._program.ranks[rank.number]
        for i, op in enumerate(actions.ops):
            rank.doing = i
            peer, tag, amount = actions.peers[i], actions.tags[i], actions.amounts[i]
            if op == Op.COMPUTE or op == Op.SLEEP:
                nanoseconds = amount / rank.speed if op == Op.COMPUTE else 1e9 * amount
                yield from self._spend(rank, RankActivity.COMPUTE, nanoseconds)
            elif op == Op.COLLECTIVE:
                yield from self._collective(rank, peer)
                yield from self._spend(rank, RankActivity.COMPUTE, amount / rank.speed)
            elif op == Op.WAIT or op == Op.WAITALL or op == Op.TEST:
                yield from self._wait_for(rank, self._waited(rank, i, op))
            elif op == Op.SEND or op == Op.ISEND:
                yield from self._spend(rank, RankActivity.OVERHEAD, self._overhead)
                request = self._send(rank, peer, tag, actions.nbytes[i], synchronous=bool(amount))
                yield from self._begun(rank, (rank.number, peer, tag), request, waits=op == Op.SEND)
            else:
                request = self._receive(rank, peer, tag)
                yield from self._begun(rank, (peer, rank.number, tag), request, waits=op == Op.RECV)
        yield from self._wait_for(rank, _take_requests(rank))  # like MPI_Finalize

    def _spend(self, rank: Rank, kind: RankActivity, nanoseconds: float) -> Iterator[None]:
        """Be busy."""
        end = self.clock.now + round(nanoseconds)
        if end > self.clock.now:
            rank.timeline.add(kind, end, rank.doing)
            self.clock.at(end, self._continue, rank)
            yield

    def _begun(self, rank: Rank, key: tuple[int, int, int], request: Request, *, waits: bool) -> Iterator[None]:
        if waits:
            yield from self._wait_for(rank, [request])
        else:
            rank.requests.setdefault(key, deque()).append(request)

    def _waited(self, rank: Rank, i: int, op: int) -> list[Request]:
        """Take the requests that an action waits for; none if it only tests, or another call has waited for them."""
        if op == Op.WAITALL:
            return _take_requests(rank)
        actions = self._program.ranks[rank.number]
        source, destination, tag = actions.peers[i], actions.nbytes[i], actions.tags[i]
        for key in [(sender, destination, its) for its in (tag, ANY) for sender in (source, ANY)]:
            if requests := rank.requests.get(key):
                request = requests.popleft()
                if op == Op.TEST:
                    requests.append(request)  # it stays for the wait that follows
                    return []
                if not requests:
                    del rank.requests[key]
                return [request]
        return []

    def _collective(self, rank: Rank, position: int) -> Iterator[None]:
        """Do the rounds of a collective."""
        ranks, tag = self._program.calls[position].ranks, self._calls.tags[position]
        for here in self._calls.rounds(position, rank.number):
            yield from self._spend(rank, RankActivity.OVERHEAD, self._overhead * len(here.sends))
            requests = [self._receive(rank, ranks[message.peer], tag) for message in here.receives]
            requests += [
                self._send(rank, ranks[message.peer], tag, message.nbytes, here.synchronous) for message in here.sends
            ]
            yield from self._wait_for(rank, requests, here.reduces * self._byte)

    # -- messages ----------------------------------------------------------------------------------

    def _send(self, rank: Rank, peer: int, tag: int, nbytes: int, synchronous: bool = False) -> Request:
        eager = nbytes < self._settings.eager_bytes and not synchronous
        message = SentMessage(rank.number, peer, tag, nbytes, eager, self.clock.now)
        self.messages += 1
        self.moved[rank.host, self.ranks[peer].host] += nbytes
        if eager:
            self._start(message)
        if (receive := self.ranks[peer].mailbox.match_send(message)) is not None:
            self._matched(message, receive)
        return message.send

    def _receive(self, rank: Rank, source: int, tag: int) -> Request:
        request = Request(is_send=False)
        if (message := rank.mailbox.match_receive(source, tag, request)) is not None:
            self._matched(message, request)
        return request

    def _matched(self, message: SentMessage, receive: Request) -> None:
        message.receive, receive.message = receive, message
        if message.eager:
            receive.done = message.arrived
            return
        message.started = now = self.clock.now
        if message.sent < now:
            message.poster = message.destination
        if not self._settings.handshake:
            self._start(message)
            return
        # The sender's request to send arrives after the latency; the answer goes when the receiver is ready, too.
        asked = message.sent + self._network.delay(*self._hosts(message))
        if asked > now:
            self.clock.at(asked, self._answer, message)
        else:
            self._answer(message)

    def _hosts(self, message: SentMessage) -> tuple[str, str]:
        return self.ranks[message.source].host, self.ranks[message.destination].host

    def _answer(self, message: SentMessage) -> None:
        """Answer a message's sender, if the receiver's connection to it is free."""
        source, destination = self._hosts(message)
        message.ordered = source != destination
        if not message.ordered or self._connections.answer(message):
            self._answered(message)

    def _answered(self, message: SentMessage) -> None:
        source, destination = self._hosts(message)
        self.clock.at(self.clock.now + self._network.delay(destination, source), self._start, message)

    def _start(self, message: SentMessage) -> None:
        if message.ordered:
            self._connections.begin(message)
        self._network.transfer(*self._hosts(message), message.nbytes, lambda: self._arrived(message))

    def _arrived(self, message: SentMessage) -> None:
        message.arrived = True
        if message.ordered:
            for held in self._connections.arrived(message):
                self._answered(held)
        if not message.eager:
            self._done(self.ranks[message.source], message.send)
        if message.receive is not None:
            self._done(self.ranks[message.destination], message.receive)

    # -- waiting -----------------------------------------------------------------------------------

    def _wait_for(self, rank: Rank, requests: list[Request], work: float = 0.0) -> Iterator[None]:
        """Wait for requests, then do the work of receiving."""
        for request in requests:
            if not request.is_send:
                work += self._overhead
            if not request.done:
                request.awaited = True
                rank.pending += 1
        if rank.pending:
            rank.owed = work
            yield
        yield from self._spend(rank, RankActivity.OVERHEAD, work)

    def _done(self, rank: Rank, request: Request) -> None:
        request.done = True
        if not request.awaited:
            return
        rank.pending -= 1
        message = request.message
        if rank.pending or message is None:
            return
        other = message.destination if request.is_send else message.source
        now = self.clock.now
        # until the message could go, this rank waited for the other
        rank.timeline.add(RankActivity.WAITING, min(message.started, now), rank.doing, other, message.poster)
        done = (now, rank.doing, other, message.poster, message.started, message.nbytes)
        rank.timeline.add(RankActivity.COMMUNICATION, *done)
        # Without work of receiving, it goes on after all else that has been to happen now.
        if round(rank.owed):
            self._continue(rank)
        else:
            self.clock.at(now, self._continue, rank)


class _Calls:
    """Collectives of a program on the hosts of its ranks."""

    def __init__(self, program: Program, hosts: Sequence[str], settings: MpiSettings) -> None:
        self._program = program
        self._hosts = hosts
        self._settings = settings
        self._chosen: dict[int, tuple[Collective, str]] = {}
        #: Number of uses by ranks, by collective and algorithm.
        self.used: Counter[tuple[str, str]] = Counter()
        groups: dict[tuple[int, ...], int] = {}
        #: Tag of each call's messages.
        self.tags = [ANY - 1 - groups.setdefault(call.ranks, len(groups)) for call in program.calls]
        self._places = [{rank: i for i, rank in enumerate(ranks)} for ranks in groups]

    def rounds(self, position: int, rank: int) -> Sequence[Round]:
        """Rounds of a rank in a collective."""
        if position not in self._chosen:
            self._chosen[position] = self._choose(position)
        call, algorithm = self._chosen[position]
        self.used[call.name, algorithm] += 1
        place = self._places[ANY - 1 - self.tags[position]][rank]
        return rounds_of(call, algorithm, place, self._settings.version, self._settings.algorithms)

    def _choose(self, position: int) -> tuple[Collective, str]:
        """The collective with its nodes, and its algorithm."""
        call = self._program.calls[position]
        numbers: dict[str, int] = {}
        nodes = tuple(numbers.setdefault(self._hosts[rank], len(numbers)) for rank in call.ranks)
        placed = replace(call.call, nodes=nodes)
        return placed, choose(placed, self._settings.version, self._settings.algorithms)


def _take_requests(rank: Rank) -> list[Request]:
    """Take all requests of a rank, for it to wait for."""
    requests = [request for waiting in rank.requests.values() for request in waiting]
    rank.requests.clear()
    return requests


def check_finished(program: Program, machine: Machine) -> None:
    """Raise :class:`MpiTraceError` if ranks deadlock, with file and line of each and whom it waits for."""
    waiting = [rank for rank in machine.ranks if rank.pending]
    if not waiting:
        return
    stuck = [f"rank {rank.number} {_waiting_for(program, rank)}" for rank in waiting[:MAX_SHOWN]]
    more = f"; and {len(waiting) - MAX_SHOWN} more ranks" if len(waiting) > MAX_SHOWN else ""
    raise MpiTraceError(program.name, f"the program does not end: {'; '.join(stuck)}{more}")


def _waiting_for(program: Program, rank: Rank) -> str:
    actions = program.ranks[rank.number]
    where = program.where(rank.number, rank.doing)
    op = actions.ops[rank.doing]
    if op == Op.COLLECTIVE:
        call = program.calls[actions.peers[rank.doing]].call
        return f"waits in {call.name} ({where})"
    asked = rank.mailbox.unmatched_receives
    if op in (Op.RECV, Op.WAIT, Op.WAITALL) and asked:
        source, tag = asked[0]
        sender = "any rank" if source == ANY else f"rank {source}"
        tagged = "any tag" if tag == ANY else f"tag {tag}"
        return f"waits for a message of {sender} with {tagged} ({where})"
    return f"waits for rank {actions.peers[rank.doing]} to receive ({where})" if op == Op.SEND else f"waits ({where})"
