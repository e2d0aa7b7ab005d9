"""Exclusion: the machines, metrics or events on which a round failed, and judging that goes on without them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from dask_efficiency.accounts.slow_worker import SlowWorker
from dask_efficiency.fleet.outliers.metric_series import MetricSeries
from dask_efficiency.show.figures import DETAIL_LENGTH

#: Most machines, or metrics, that a round goes on without, and never half of them: with more that fail it is given up.
#: A guess.
MOST_LEFT_OUT = 3

#: Finds machines of a window that are unlike their peers; the second series, if any, is from just before it.
Detector = Callable[[MetricSeries, MetricSeries | None], list[SlowWorker]]

#: Takes what a round goes on without.
LeavingOut = Callable[["Exclusion"], None]

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Exclusion:
    """Machines, metrics or events that a round went on without."""

    #: ``machine``, ``metric`` or ``event``.
    about: str
    names: tuple[str, ...]
    why: Exception

    def __str__(self) -> str:
        """Line for people."""
        names = ", ".join(name[:80] for name in self.names)
        return f"goes on without the {self.about} {names}: {failure(self.why)}"


def failure(error: Exception) -> str:
    """Error in a line, with the place in the code that raised it."""
    text = " ".join(str(error).split())[:DETAIL_LENGTH]
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = "" if trace is None else f" ({Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno})"
    return f"{type(error).__name__}{f': {text}' if text else ''}{place}"


def judged(
    detector: Detector, window: MetricSeries, past: MetricSeries | None
) -> tuple[list[SlowWorker], Exclusion | None]:
    """Findings of a window; without the few machines, or else metrics, that the detector fails on.

    Raises what the detector raised if it fails without any few of them, too.
    """
    try:
        return detector(window, past), None
    except Exception as error:
        failed = error

    def judge(part: Callable[[MetricSeries, set[str]], MetricSeries], kept: Sequence[str]) -> list[SlowWorker]:
        some = set(kept)
        return detector(part(window, some), None if past is None else part(past, some))

    for about, names, part in (("machine", window.workers, _machines), ("metric", window.metrics, _metrics)):
        spared = _without(names, partial(judge, part))
        if spared is not None:
            found, without = spared
            return found, Exclusion(about, without, failed)
    raise failed


def _without(names: Sequence[str], judge: Callable[[Sequence[str]], Result]) -> tuple[Result, tuple[str, ...]] | None:
    """Result for all names but a few, and these; None if no few are to blame. It is known to fail for all."""
    rest = list(names)
    blamed: list[str] = []
    while len(blamed) < MOST_LEFT_OUT and 2 * (len(blamed) + 1) < len(names):
        # It fails without the first `low`, and passes without the first `high`, or with nobody.
        low, high = 0, len(rest)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if _passes(judge, rest[middle:]) else (middle, high)
        blamed.append(rest.pop(low))
        try:
            return judge(rest), tuple(blamed)
        except Exception:
            continue
    return None


def _passes(judge: Callable[[Sequence[str]], object], names: Sequence[str]) -> bool:
    try:
        judge(names)
    except Exception:
        return False
    return True


def _machines(series: MetricSeries, names: set[str]) -> MetricSeries:
    return series.only(np.array([i for i, name in enumerate(series.workers) if name in names], np.intp))


def _metrics(series: MetricSeries, names: set[str]) -> MetricSeries:
    there = [j for j, name in enumerate(series.metrics) if name in names]
    return replace(series, metrics=tuple(series.metrics[j] for j in there), values=series.values[there])
