"""Pairs: assigns partners in each round, so that a slow worker stands out from its partners."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from random import Random
from typing import NamedTuple, TypeVar

from dask_efficiency.preflights.judge.links import SLOW_PAIRS, SOME_OTHERS, MeasuredPairs
from dask_efficiency.preflights.judge.readings import TWICE
from dask_efficiency.straggler.peers import MIN_PEERS


class Pair(NamedTuple):
    """Two workers; data goes from the first to the second and back."""

    first: str
    second: str


#: Pairs of a first look: everybody takes part in its rounds until there are so many, as few pairs may hide that most
#: are slow, or a slow path. Four workers all meet; from twelve on one round is enough.
FIRST_PAIRS = 6
#: Most rounds. Later ones are for workers not settled yet, and for slow paths. Bounds time.
MAX_ROUNDS = 8

Turn = TypeVar("Turn", bound=Hashable)


def first_round(hosts: Mapping[str, str], random: Random) -> list[Pair]:
    """Pairs at random, on different hosts, each worker at most once."""
    # With an odd number one rests; where a host has more than half of the workers, as many rest as find no partner on
    # another; workers of one host are paired only if there is no other host.
    workers = list(hosts)
    random.shuffle(workers)
    if len(set(hosts.values())) == 1:
        return [Pair(*two) for two in zip(workers[::2], workers[1::2], strict=False)]
    by_host: dict[str, list[str]] = {}
    for worker in workers:
        by_host.setdefault(hosts[worker], []).append(worker)
    # The first half of a row sorted by host meets the second: only a host with more than half can meet itself.
    row = [worker for group in sorted(by_host.values(), key=len, reverse=True) for worker in group]
    half = len(row) // 2
    pairs = (Pair(*two) for two in zip(row, row[len(row) - half :], strict=False))
    return [pair for pair in pairs if hosts[pair.first] != hosts[pair.second]]


def in_doubt(hosts: Mapping[str, str], links: MeasuredPairs, random: Random) -> dict[str, str]:
    """Workers without a fast pair, and as many good ones, and some of groups that only slow pairs join; with hosts.

    None where nobody can tell who is slow.
    """
    doubtful, divided = [worker for worker in hosts if not links.is_good(worker)], links.divided()
    if not (doubtful or divided) or len(hosts) < MIN_PEERS:
        return {}
    good = [worker for worker in hosts if links.is_good(worker)]
    chosen = doubtful + random.sample(good, min(len(good), max(len(doubtful), SOME_OTHERS)))
    for group in divided:
        chosen += random.sample(sorted(group), min(len(group), SOME_OTHERS))
    return {worker: hosts[worker] for worker in chosen}


def everybody_if_slow(hosts: Mapping[str, str], links: MeasuredPairs, random: Random) -> Mapping[str, str]:
    """All workers if those measured after a first look seem slow, or a path to them: others may be behind it too."""
    measured = {worker for worker in hosts if links.partners(worker)}
    if measured == {*hosts} or not (links.suspects or any(links.to_confirm())):
        return {}
    return hosts


def next_round(
    number: int, hosts: Mapping[str, str], links: MeasuredPairs, random: Random, *, first_look: bool = False
) -> list[Pair]:
    """Pairs of a later round, with new partners: slow workers with fast ones, then those that are not settled."""
    if number >= MAX_ROUNDS:
        return []
    lots = {worker: random.random() for worker in hosts}
    # Good ones are equal: in the order of their speed two pairs would meet each other, and be a group of their own.
    least = {worker: max(1.0, links.least(worker)) for worker in hosts}
    # Workers that rested come first, then the slowest.
    slowest = sorted(hosts, key=lambda worker: (len(links.partners(worker)) > 0, -least[worker], lots[worker]))
    fastest = dict.fromkeys(sorted(hosts, key=lambda worker: (least[worker], random.random())))
    several_hosts = len(set(hosts.values())) > 1
    pairs: list[Pair] = []

    def join(worker: str, wanted: Iterable[str]) -> bool:
        """Pair a worker with the first of these that it can be paired with."""
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

    # Everybody takes part in two rounds; with few workers in one more, so that everybody meets everybody.
    rounds = SLOW_PAIRS if len(hosts) <= SLOW_PAIRS + 1 else TWICE
    common = len(links.links) < FIRST_PAIRS if first_look else number < rounds
    for worker in slowest:
        settled = links.partners(worker) if first_look else links.is_settled(worker)
        if worker not in fastest or (settled and not common):
            continue
        unmet = frozenset[str]().union(*links.unmet(worker))
        wanted = [other for other in fastest if other in unmet] if unmet and not common else []
        if not join(worker, wanted):
            join(worker, list(fastest))
    if not common and not first_look:
        _cross(links, fastest, join)
    return pairs


def _cross(links: MeasuredPairs, free: Mapping[str, None], join: Callable[[str, Iterable[str]], bool]) -> None:
    """Add a pair across each two groups that seem to have a slow path between them, of workers that did not cross."""
    for left, right in links.doubtful_paths():
        fresh = sorted((worker for worker in left if worker in free), key=lambda worker: _crossed(links, worker, right))
        partners = sorted(right & free.keys(), key=lambda worker: _crossed(links, worker, left))
        for worker in fresh:
            if join(worker, partners):
                break


def _crossed(links: MeasuredPairs, worker: str, group: frozenset[str]) -> tuple[bool, str]:
    return bool(group & {*links.partners(worker)}), worker


def startable(waiting: Iterable[Turn], busy: Iterable[str], places: Callable[[Turn], Iterable[str]]) -> list[Turn]:
    """Turns, of those waiting, that may begin now, so that one thing is measured at a time at each place, a machine."""
    taken = set(busy)
    start = []
    for turn in waiting:
        needed = set(places(turn))
        if not needed & taken:
            taken |= needed
            start.append(turn)
    return start
