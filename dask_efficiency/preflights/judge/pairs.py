"""Pairs: who exchanges data with whom in each round, so that a slow worker is told from its partners."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from random import Random
from typing import NamedTuple, TypeVar

from dask_efficiency.preflights.judge.links import MeasuredPairs


class Pair(NamedTuple):
    """Two workers; data goes from the first to the second and back."""

    first: str
    second: str


#: Rounds in which everybody takes part; with few workers one more, so that everybody meets everybody.
COMMON_ROUNDS = 2
FEW_WORKERS = 4

#: Rounds at most. The others are for those of whom it is not known yet whether they are slow, and for slow paths.
MAX_ROUNDS = 8

Turn = TypeVar("Turn", bound=Hashable)


def first_round(hosts: Mapping[str, str], random: Random) -> list[Pair]:
    """Pairs at random, on different hosts.

    Parameters
    ----------
    hosts
        Worker to its host.
    random
        Decides.

    Returns
    -------
    list of Pair
        Each worker at most once. With an odd number one rests, and where a host has more than half of the workers, as
        many as find no partner on another; workers of one host are pairs only where there is no other host.
    """
    workers = list(hosts)
    random.shuffle(workers)
    if len(set(hosts.values())) == 1:
        return [Pair(*two) for two in zip(workers[::2], workers[1::2], strict=False)]
    by_host: dict[str, list[str]] = {}
    for worker in workers:
        by_host.setdefault(hosts[worker], []).append(worker)
    # Host by host in a row, the row's first half meets its second: so only a host with more than half meets itself.
    row = [worker for group in sorted(by_host.values(), key=len, reverse=True) for worker in group]
    half = len(row) // 2
    pairs = (Pair(*two) for two in zip(row, row[len(row) - half :], strict=False))
    return [pair for pair in pairs if hosts[pair.first] != hosts[pair.second]]


def next_round(number: int, hosts: Mapping[str, str], links: MeasuredPairs, random: Random) -> list[Pair]:
    """The pairs of a round after the first: the slow with the fast; later, those of whom it is not known yet.

    Parameters
    ----------
    number
        Of the round, from 1.
    hosts
        Worker to its host.
    links
        What the rounds before showed.
    random
        Decides among those that are alike.

    Returns
    -------
    list of Pair
        Each worker at most once, and nobody with a partner that it has met; empty when all is known.
    """
    if number >= MAX_ROUNDS:
        return []
    lots = {worker: random.random() for worker in hosts}
    # Who rested comes first, then the slowest.
    slowest = sorted(hosts, key=lambda worker: (len(links.partners(worker)) > 0, -links.least(worker), lots[worker]))
    fastest = dict.fromkeys(sorted(hosts, key=lambda worker: (links.least(worker), lots[worker])))
    several_hosts = len(set(hosts.values())) > 1
    pairs: list[Pair] = []

    def join(worker: str, wanted: Iterable[str]) -> bool:
        """Pair a worker with the first that it can be paired with."""
        met = links.partners(worker)
        for other in wanted:
            if other == worker or other not in fastest or other in met:
                continue
            if several_hosts and hosts[worker] == hosts[other]:
                continue
            del fastest[worker], fastest[other]
            pairs.append(Pair(worker, other))
            return True
        return False

    common = number < COMMON_ROUNDS + (len(hosts) <= FEW_WORKERS)
    for worker in slowest:
        if worker not in fastest or (not common and links.is_settled(worker)):
            continue
        unmet = frozenset[str]().union(*links.unmet(worker))
        wanted = [other for other in fastest if other in unmet] if unmet and number >= COMMON_ROUNDS else []
        if not join(worker, wanted):
            join(worker, list(fastest))
    if not common:
        _cross(links, fastest, join)
    return pairs


def _cross(links: MeasuredPairs, free: Mapping[str, None], join: Callable[[str, Iterable[str]], bool]) -> None:
    """Add a pair across each two groups that seem to have a slow path between them, of workers that did not cross."""
    for one, other in links.doubtful_paths():
        fresh = sorted((worker for worker in one if worker in free), key=lambda worker: _crossed(links, worker, other))
        partners = sorted(other & free.keys(), key=lambda worker: _crossed(links, worker, one))
        for worker in fresh:
            if join(worker, partners):
                break


def _crossed(links: MeasuredPairs, worker: str, group: frozenset[str]) -> tuple[bool, str]:
    return bool(group & {*links.partners(worker)}), worker


def startable(waiting: Iterable[Turn], busy: Iterable[str], places: Callable[[Turn], Iterable[str]]) -> list[Turn]:
    """Those that may begin now, so that at each place, a machine, one thing is measured at a time.

    Parameters
    ----------
    waiting
        What has not begun, in the order in which it is to begin.
    busy
        Places where something is measured now.
    places
        Gives the places that one of them needs.
    """
    taken = set(busy)
    start = []
    for turn in waiting:
        needed = set(places(turn))
        if not needed & taken:
            taken |= needed
            start.append(turn)
    return start
