"""Runs the rounds of all ranks as MPI would with rendezvous only: a send ends when its receive has been posted."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dask_efficiency.mpi.collectives.rounds import Message, Round

#: What a rank sends with a message, taken when it posts the round.
Payload = object


class Deadlock(AssertionError):
    """Ranks wait for each other for ever."""


class Mismatch(AssertionError):
    """A message is not the one that its receiver expects."""


class Behaviour(NamedTuple):
    """Effect of messages on the ranks: the payload of each, and what a rank does with it in a round."""

    sent: Callable[[int, Message], Payload]
    received: Callable[[int, Message, Payload, Round], None]


NOTHING = Behaviour(lambda rank, message: None, lambda rank, message, payload, each: None)


def run(rounds: Sequence[Sequence[Round]], behaviour: Behaviour = NOTHING) -> None:
    """Run all ranks' rounds to their end; raises Deadlock or Mismatch if the ranks do not fit together."""
    size = len(rounds)
    at = [-1] * size
    open_parts = [0] * size
    sends: dict[tuple[int, int], deque[tuple[Message, Payload]]] = {}
    receives: dict[tuple[int, int], deque[tuple[Message, list[Payload]]]] = {}
    arrived: list[list[tuple[Message, list[Payload]]]] = [[] for _ in rounds]
    ready = deque(range(size))

    def match(source: int, target: int) -> None:
        sent, expected = sends.get((source, target)), receives.get((source, target))
        while sent and expected:
            (message, payload), (wanted, box) = sent.popleft(), expected.popleft()
            if (message.nbytes, message.blocks, message.ranks) != (wanted.nbytes, wanted.blocks, wanted.ranks):
                raise Mismatch(f"{source} sends {message} to {target}, which expects {wanted}")
            box.append(payload)
            for rank in (source, target):
                open_parts[rank] -= 1
                if not open_parts[rank]:
                    ready.append(rank)

    while ready:
        rank = ready.popleft()
        if at[rank] >= 0:
            for message, box in arrived[rank]:
                behaviour.received(rank, message, box[0], rounds[rank][at[rank]])
        at[rank] += 1
        if at[rank] == len(rounds[rank]):
            continue
        each = rounds[rank][at[rank]]
        arrived[rank] = [(message, []) for message in each.receives]
        open_parts[rank] = len(each.sends) + len(each.receives)
        if not open_parts[rank]:
            ready.append(rank)
            continue
        for message, box in arrived[rank]:
            assert message.peer != rank
            receives.setdefault((message.peer, rank), deque()).append((message, box))
        for message in each.sends:
            assert message.peer != rank
            sends.setdefault((rank, message.peer), deque()).append((message, behaviour.sent(rank, message)))
        for message in each.receives:
            match(message.peer, rank)
        for message in each.sends:
            match(rank, message.peer)
    stuck = {rank: rounds[rank][at[rank]] for rank in range(size) if at[rank] < len(rounds[rank])}
    if stuck:
        raise Deadlock(f"ranks wait for ever: {stuck}")
