"""Sweep: a run on clusters of several sizes, in workers or in the memory of each, with the best of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from dask_efficiency.show.figures import format_bytes
from dask_efficiency.show.shown import Shown
from dask_efficiency.simulation.model.requirements import OVERFULL
from dask_efficiency.simulation.model.result import Prediction, SelfReplay
from dask_efficiency.simulation.model.run_figures import RunFigures
from dask_efficiency.simulation.model.units import few_names, note_not_simulated

if TYPE_CHECKING:
    import pandas as pd

    from dask_efficiency.show.document import Section

#: Share above the fastest makespan within which the cluster with the fewest worker-seconds is the best: a convention.
NEARLY = 0.10
#: Share of the time that twice as many workers must save to be worth it; twice as fast saves 0.5: a convention.
MIN_SAVED = 0.20


# It has no slots, because cached properties need a ``__dict__``.
@dataclass(frozen=True, repr=False)
class Sweep(Shown):
    """Recorded run, predicted on clusters of several sizes.

    Parameters
    ----------
    predictions
        In the order of their sizes; at least one.
    price_per_worker_hour
        Any currency; None leaves money out.
    not_simulated
        The other sizes, if Ctrl-C ended it early.
    of_memory
        True if sizes are memory limits, in bytes; otherwise they are numbers of workers.
    impossible
        Why the run does not end, by size, where it is so.
    """

    _sections_module: ClassVar[str] = "dask_efficiency.simulation.sections.sweep"

    predictions: tuple[Prediction, ...]
    price_per_worker_hour: float | None = None
    not_simulated: tuple[int, ...] = ()
    of_memory: bool = False
    impossible: Mapping[int, str] = field(default_factory=dict)

    def size(self, prediction: Prediction) -> int:
        """Size of a prediction's cluster: number of workers, or memory limit of each."""
        workers = prediction.cluster.workers
        return workers[0].memory_limit if self.of_memory else len(workers)

    @property
    def recorded(self) -> RunFigures:
        """Main figures of the recorded run."""
        return self.self_replay.recorded

    @property
    def self_replay(self) -> SelfReplay:
        """Self replay that is common to all predictions."""
        return self.predictions[0].self_replay

    @property
    def notes(self) -> tuple[str, ...]:
        """Caveats of the predictions, a sentence each."""
        named: Callable[[float], str] = format_bytes if self.of_memory else str
        what = "memory limits" if self.of_memory else "numbers of workers"
        left = note_not_simulated([named(size) for size in self.not_simulated], what)
        full = [named(self.size(one)) for one in self.predictions if one.runs.overfull]
        ended = [f"Memory gets so full that a nanny would end workers, with {few_names(full)}: here, they go on."]
        impossible = (f"With {named(size)}, the run does not end: {why}" for size, why in self.impossible.items())
        common = (note for note in self.predictions[0].notes if not note.startswith(OVERFULL))
        return (*left, *impossible, *(ended if full else ()), *common)

    @cached_property
    def best(self) -> Prediction | None:
        """Prediction with the fewest worker-seconds of those within 10 % of the fastest; the smaller of equal ones.

        Workers cost nothing while they start, and before and after the run. Of memory limits, it is the smallest with
        which no nanny would end a worker; None without any.
        """
        near = [
            prediction
            for prediction in self.lasting
            if prediction.makespan_seconds <= (1 + NEARLY) * self.fastest.makespan_seconds
        ]
        return min(near, key=self.size if self.of_memory else worker_seconds, default=None)

    @property
    def fastest(self) -> Prediction:
        """Prediction with the smallest makespan; of memory limits, without a nanny that ends workers, if any."""
        return min(self.lasting or self.predictions, key=lambda prediction: prediction.makespan_seconds)

    @property
    def lasting(self) -> Sequence[Prediction]:
        """Predictions without memory limits with which a nanny would end a worker."""
        return [prediction for prediction in self.predictions if not (self.of_memory and prediction.runs.overfull)]

    @cached_property
    def knee(self) -> Prediction:
        """Last prediction, from the smallest cluster up, for which each doubling saved at least a fifth of the time.

        A step from ``n`` to ``m`` workers, or bytes, counts as ``log2(m / n)`` doublings.
        """
        reached = self.predictions[0]
        for smaller, larger in pairwise(self.predictions):
            doublings = math.log2(self.size(larger) / self.size(smaller))
            if larger.makespan_seconds > smaller.makespan_seconds * (1 - MIN_SAVED) ** doublings:
                break
            reached = larger
        return reached

    def money(self, prediction: Prediction) -> float | None:
        """Price of all workers from the first graph to the last result of a run; None if no price is given."""
        if self.price_per_worker_hour is None:
            return None
        return worker_seconds(prediction) / 3600 * self.price_per_worker_hour

    @property
    def section(self) -> Section:
        """Section for a report's page."""
        section: Section = self._from_sections("in_report")
        return section

    def to_frame(self) -> pd.DataFrame:
        """Tabulate the clusters. Needs pandas.

        Returns
        -------
        DataFrame
            Columns as in :meth:`to_dict`: ``workers``, ``threads`` (of all of them), ``makespan_seconds``, ``speedup``
            (over the recorded run), ``efficiency``, ``busy``, ``others_share`` (shares in [0, 1]), ``worker_seconds``
            and ``money`` (NaN without a price); ``memory_limit`` of each worker, ``ideal_memory`` (the limit with which
            none of them would have spilled or paused; bytes), ``overfull`` (share of the simulated runs in which a
            nanny would have ended a worker); and ``low`` and ``high``, the ends of the ``interval`` (seconds).
        """
        from dask_efficiency.show.columns import as_frame, seconds

        low, high = zip(*(prediction.interval for prediction in self.predictions), strict=True)
        return as_frame(self._from_sections("columns") | {"low": seconds(low), "high": seconds(high)})


def worker_seconds(prediction: Prediction) -> float:
    """Workers times makespan, which is paid for."""
    return len(prediction.cluster.workers) * prediction.makespan_seconds


def parse_sizes(workers: str | Sequence[int]) -> tuple[int, ...]:
    """Sort numbers of workers, or parse a list (``"4,6,12"``) or a range of doublings (``"2..64"``)."""
    numbers: Sequence[int] = _parse_range(workers.strip()) if isinstance(workers, str) else workers
    if not isinstance(numbers, Sequence):
        raise TypeError(f"workers is {workers!r:.80}; expected numbers of workers, such as [2, 4, 8]")
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int):
            raise TypeError(f"workers holds {number!r:.80}; expected whole numbers")
        if number < 1:
            raise ValueError(f"workers holds {number}; expected at least 1 worker")
    if not numbers:
        raise ValueError("workers is empty; expected at least one number of workers")
    return tuple(sorted(set(numbers)))


def doublings(first: int, last: int) -> tuple[int, ...]:
    """Numbers from the first, each twice the one before, and the last."""
    return *(first << i for i in range((last // first).bit_length())), last


def _parse_range(text: str) -> tuple[int, ...]:
    if ends := re.fullmatch(r"(\d+)\.\.(\d+)", text):
        first, last = map(int, ends.groups())
        if 1 <= first <= last:
            return doublings(first, last)
    elif re.fullmatch(r"\d+(,\d+)*", text) and all(map(int, text.split(","))):
        return tuple(map(int, text.split(",")))
    raise ValueError(
        f"{text!r:.80} is not a range of numbers of workers such as 2..64, which is 2, 4, 8, 16, 32 and 64, "
        "or a list such as 4,6,12"
    )
