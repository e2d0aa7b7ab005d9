"""What ranks make together: each rank's collectives put into one, or an error that names who disagrees."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from math import gcd

from dask_efficiency.mpi.collectives.call import Collective
from dask_efficiency.mpi.errors import MpiTraceError
from dask_efficiency.mpi.lines import WORLD, LineReader, Made
from dask_efficiency.mpi.program import CollectiveCall, Op


class Agreement:
    """Joins the collectives of all ranks.

    Parameters
    ----------
    readers
        By rank: what was read.
    known
        The collectives that ranks made, by what they are.
    files
        By rank, for errors.
    """

    def __init__(self, readers: Sequence[LineReader], known: Mapping[Made, int], files: Sequence[str]) -> None:
        self._readers = readers
        self._made = list(known)
        self._files = files
        self._calls: dict[CollectiveCall, int] = {}
        #: By communicator and what its ranks made: the position of the call.
        self._joined: dict[tuple[str, tuple[int, ...]], int] = {}

    def calls(self) -> tuple[CollectiveCall, ...]:
        """The calls; the actions of the ranks know them by their positions from now on.

        Raises
        ------
        MpiTraceError
            Where ranks of a communicator do not make the same collectives in the same order.
        """
        positions = [self._positions(reader) for reader in self._readers]
        for name, ranks in self._communicators().items():
            rows = [positions[rank].get(name, array("L")) for rank in ranks]
            shared = min(map(len, rows))
            for k in range(shared):
                self._join(name, ranks, [row[k] for row in rows])
            if shared < max(map(len, rows)):
                self._missing(name, ranks, [len(row) for row in rows], rows)
        return tuple(self._calls)

    def _positions(self, reader: LineReader) -> dict[str, array[int]]:
        """Positions of a rank's collectives among its actions, by communicator."""
        found: dict[str, array[int]] = {}
        actions = reader.actions
        for i, op in enumerate(actions.ops):
            if op == Op.COLLECTIVE:
                found.setdefault(self._made[actions.peers[i]].communicator, array("L")).append(i)
        return found

    def _communicators(self) -> dict[str, tuple[int, ...]]:
        found = {WORLD: tuple(range(len(self._readers)))}
        for rank, reader in enumerate(self._readers):
            for name, ranks in reader.communicators.items():
                if found.setdefault(name, ranks) != ranks:
                    raise MpiTraceError(
                        self._files[rank],
                        f"the communicator {name!r} has other ranks here than in {self._files[found[name][0]]}",
                    )
        return found

    def _join(self, communicator: str, ranks: tuple[int, ...], actions: list[int]) -> None:
        numbers = tuple(self._readers[rank].actions.peers[action] for rank, action in zip(ranks, actions, strict=True))
        position = self._joined.get((communicator, numbers))
        if position is None:
            made = [self._made[number] for number in numbers]
            self._check(ranks, actions, made)
            call = CollectiveCall(ranks, _joined(made))
            position = self._calls.setdefault(call, len(self._calls))
            self._joined[communicator, numbers] = position
        for rank, action in zip(ranks, actions, strict=True):
            self._readers[rank].actions.peers[action] = position

    def _check(self, ranks: tuple[int, ...], actions: list[int], made: list[Made]) -> None:
        for rank, action, one in zip(ranks, actions, made, strict=True):
            if (one.name, one.root) != (made[0].name, made[0].root):
                there = f"rank {ranks[0]} makes {_said(made[0])} ({self._place(ranks[0], actions[0])})"
                raise MpiTraceError(
                    self._place(rank, action), f"rank {rank} makes {_said(one)} where {there}; ranks must agree"
                )

    def _missing(self, name: str, ranks: tuple[int, ...], counts: list[int], rows: list[array[int]]) -> None:
        fewest, most = counts.index(min(counts)), counts.index(max(counts))
        action = rows[most][counts[fewest]]
        where = f" of the communicator {name!r}" if name else ""
        raise MpiTraceError(
            self._place(ranks[most], action),
            f"rank {ranks[most]} makes {counts[fewest] + 1} collectives{where} or more, and rank {ranks[fewest]} "
            f"({self._files[ranks[fewest]]}) makes {counts[fewest]}: it would wait for ever",
        )

    def _place(self, rank: int, action: int) -> str:
        return f"{self._files[rank]}, line {self._readers[rank].actions.lines[action]}"


def _said(made: Made) -> str:
    rooted = made.name in ("bcast", "reduce", "gather", "gatherv", "scatter", "scatterv")
    return f"{made.name} from root {made.root}" if rooted else made.name


def _joined(made: list[Made]) -> Collective:
    """One collective of what its ranks say; what only the root or only the others say is taken from them."""
    name, root = made[0].name, made[0].root
    sizes = _sizes(name, root, made)
    # Where ranks count in different datatypes, the elements that all have are bytes.
    element = gcd(*sizes, max(one.element for one in made)) or 1
    return Collective(name, len(made), sizes, root, element=element)


def _sizes(name: str, root: int, made: list[Made]) -> tuple[int, ...]:
    sends = [one.sends for one in made]
    receives = [one.receives for one in made]
    match name:
        case "barrier":
            return ()
        case "bcast":
            return (sends[root][0],)
        case "scatter":
            return (max(row[0] for row in receives),)
        case "gatherv":
            # The root that gives its part in place says 0 as sent.
            return tuple(max(sent[0], there) for sent, there in zip(sends, receives[root], strict=True))
        case "scatterv":
            return tuple(max(row[0], there) for row, there in zip(receives, sends[root], strict=True))
        case "allgatherv" | "reduce_scatter":
            return receives[0]
        case "alltoallv":
            ranks = range(len(made))
            return tuple(max(sends[one][other], receives[other][one]) for one in ranks for other in ranks)
        case _:
            return (max(row[0] for row in sends),)
