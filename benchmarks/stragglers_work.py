"""Work of many shapes for a cluster, light enough for four workers on two cores; one round at a time.

``mixed`` has everything that a fault can slow: tasks that compute, results that are spilled, and results that go from
one worker to others. The other shapes are those in which healthy workers look unlike each other.
"""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from distributed import Client, wait

#: Seconds after which a round that a worker holds up is given up.
PATIENCE = 6.0


def burn(cpu_seconds: float, wait_seconds: float = 0.0, *inputs: Any) -> int:
    until = time.thread_time() + cpu_seconds
    while time.thread_time() < until:
        sum(range(200))
    time.sleep(wait_seconds)
    return 0


def step(cpu_seconds: float, wait_seconds: float = 0.0, *inputs: Any) -> int:
    return burn(cpu_seconds, wait_seconds)


def load(nbytes: int, seconds: float, *inputs: Any) -> bytes:
    """Bytes that do not compress, after a while."""
    burn(seconds / 3, seconds * 2 / 3)
    return np.random.default_rng().bytes(nbytes)


def combine(seconds: float, *inputs: Any) -> int:
    burn(seconds / 3, seconds * 2 / 3)
    return sum(map(len, inputs))


def convert(array: Any, seconds_a_byte: float) -> int:
    """Takes as long as its input is large."""
    burn(0.3 * len(array) * seconds_a_byte, 0.7 * len(array) * seconds_a_byte)
    return len(array)


@dataclass(slots=True)
class Place:
    """The client, its workers' addresses, the random generator, and futures that rounds keep."""

    client: Client
    addresses: Sequence[str]
    rng: np.random.Generator
    kept: list[Any]

    def on(self, worker: int) -> dict[str, Any]:
        """Arguments of ``submit`` for a task that must run there."""
        return {"workers": [self.addresses[worker % len(self.addresses)]], "pure": False}

    def map(self, function: Callable[..., Any], *columns: Any, **kwargs: Any) -> list[Any]:
        futures: list[Any] = self.client.map(function, *columns, pure=False, **kwargs)
        return futures


def _done(futures: Sequence[Any]) -> None:
    with suppress(TimeoutError):  # what a paused worker holds does not end
        wait(futures, timeout=PATIENCE)


def _in_turns(place: Place, tasks: int) -> None:
    """Tasks that compute, two workers at a time: as if each worker had a core of its own."""
    for first in range(0, len(place.addresses), 2):
        pair = list(place.addresses[first : first + 2])
        _done(place.map(burn, [0.025] * tasks * len(pair), workers=pair))


def mixed(place: Place) -> None:
    """Loads that are spilled, combinations of other workers' loads, and tasks that compute."""
    workers = len(place.addresses)
    loads = place.map(load, [500_000] * 8 * workers, [0.02] * 8 * workers)
    _done(loads)
    place.kept.append(loads)
    del place.kept[:-4]
    mates = [list(place.rng.permutation(len(loads))) for _ in range(2)]
    pairs = zip(*([loads[i] for i in mate] for mate in mates), strict=True)
    _done([place.client.submit(combine, 0.02, *pair, pure=False) for pair in pairs])
    _in_turns(place, 16)


def computing(place: Place) -> None:
    _in_turns(place, 25)


def equal(place: Place) -> None:
    _done(place.map(burn, [0.01] * 80 * len(place.addresses), [0.02] * 80 * len(place.addresses)))


def designed(place: Place) -> None:
    """Tasks of a prefix whose durations go round, as those of a parameter study."""
    seconds = [0.1 * (0.5 + i * 7 % 11 / 10) for i in range(25 * len(place.addresses))]
    _done(place.map(burn, [0.002] * len(seconds), seconds))


def heavy(place: Place) -> None:
    """A few tasks of a prefix take much longer than the others."""
    seconds = 0.02 * place.rng.lognormal(0, 1.0, 40 * len(place.addresses))
    _done(place.map(burn, (seconds / 3).tolist(), (seconds * 2 / 3).tolist()))


def pareto(place: Place) -> None:
    """The longest task takes as long as many others together."""
    seconds = np.minimum(0.01 * (1 + place.rng.pareto(1.3, 50 * len(place.addresses))), 2.0)
    _done(place.map(burn, [0.003] * len(seconds), seconds.tolist()))


def skewed(place: Place) -> None:
    """One worker has partitions of three times the size."""
    parts = []
    for worker in range(len(place.addresses)):
        size = 600_000 if worker == 0 else 200_000
        sizes = (size * place.rng.lognormal(0, 0.3, 20)).astype(int).tolist()
        loads = [place.client.submit(load, nbytes, 0.02, **place.on(worker)) for nbytes in sizes]
        parts += [place.client.submit(convert, one, 1e-7, **place.on(worker)) for one in loads]
    _done(parts)


def hidden(place: Place) -> None:
    """One worker's tasks of two kinds under one name come in other shares than those of the others."""
    tasks = []
    for worker in range(len(place.addresses)):
        long = place.rng.random(40) < 0.5
        seconds = np.where(long, 0.08, 0.02)
        tasks += [place.client.submit(burn, 0.005, float(each), **place.on(worker)) for each in seconds]
    _done(tasks)


def threads(place: Place) -> None:
    """Tasks that hold the GIL: two at a time where a worker has two threads."""
    _done(place.map(burn, [0.02] * 25 * len(place.addresses)))


def full(place: Place) -> None:
    """All workers hold more than their memory takes and spill."""
    workers = len(place.addresses)
    loads = place.map(load, [1_500_000] * 10 * workers, [0.05] * 10 * workers)
    _done(loads)
    place.kept.append(loads)
    del place.kept[:-2]
    _done(place.map(combine, [0.05] * 10 * workers, loads))


def stolen(place: Place) -> None:
    """All inputs are at one worker; the others steal what uses them."""
    roots = [place.client.submit(load, 100_000, 0.01, **place.on(1)) for _ in range(8)]
    _done(roots)
    uses = [place.client.submit(combine, 0.05, roots[i % 8], pure=False) for i in range(30 * len(place.addresses))]
    _done(uses)


def tree(place: Place) -> None:
    """Reductions two by two: later levels keep fewer workers busy."""
    level = place.map(load, [100_000] * 64, (0.06 * (0.5 + np.arange(64) * 7 % 11 / 10)).tolist())
    while len(level) > 1:
        level = [place.client.submit(_merge, *level[i : i + 2], pure=False) for i in range(0, len(level), 2)]
    _done(level)


def _merge(*inputs: Any) -> bytes:
    burn(0.01, 0.03)
    return bytes(max(map(len, inputs)))


def tiny(place: Place) -> None:
    _done(place.map(operator.add, range(300), range(300)) + place.map(burn, [0.001] * 300))


def lone_spiller(place: Place) -> None:
    """A chain with large results on one worker; the others have little to do."""
    found: tuple[Any, ...] = ()
    for _ in range(12):
        found = (place.client.submit(load, 14_000_000, 0.1, *found, **place.on(2)),)
    _done([*found, *place.map(burn, [0.005] * 20, [0.02] * 20)])


def shuffle(place: Place) -> None:
    workers = len(place.addresses)
    loads = place.map(load, [300_000] * 6 * workers, [0.03] * 6 * workers)
    _done(loads)
    _done([place.client.submit(combine, 0.03, *loads[i :: 2 * workers], **place.on(i)) for i in range(2 * workers)])


def services(place: Place) -> None:
    """Tasks wait for something outside, now for longer and now not."""
    usual = 0.05 * float(place.rng.lognormal(0, 0.5))
    seconds = usual * place.rng.gamma(2.0, 0.5, 20 * len(place.addresses))
    _done(place.map(burn, [0.001] * len(seconds), seconds.tolist()))


def divided(place: Place) -> None:
    """One worker has a kind of work of its own, in addition to what all do."""
    tasks = place.map(step, [0.01] * 20 * len(place.addresses), [0.02] * 20 * len(place.addresses))
    tasks += [place.client.submit(burn, 0.01, 0.05, **place.on(0)) for _ in range(20)]
    _done(tasks)


SHAPES: dict[str, Callable[[Place], None]] = {
    shape.__name__: shape
    for shape in (
        mixed,
        computing,
        equal,
        designed,
        heavy,
        pareto,
        skewed,
        hidden,
        threads,
        full,
        stolen,
        tree,
        tiny,
        lone_spiller,
        shuffle,
        services,
        divided,
    )
}
