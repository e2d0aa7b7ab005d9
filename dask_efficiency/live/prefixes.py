"""The task prefixes of a cluster in the last seconds: whose tasks took the threads' time, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.worker.balance import OTHER, TASK_BUCKETS
from dask_efficiency.show.labels import label

#: Prefixes shown one by one.
MAX_PREFIXES = 10


@dataclass(frozen=True, slots=True)
class PrefixTimes:
    """The prefixes that took most time, the largest first, and the rest as one."""

    #: Short and harmless.
    names: tuple[str, ...]
    #: Thread-seconds by :data:`~dask_efficiency.accounts.worker.balance.TASK_BUCKETS`, shape (prefixes, buckets).
    seconds: NDArray[np.float64]


def prefix_times(
    then: Mapping[str, Sequence[int]], now: Mapping[str, Sequence[int]], *, at_most: int = MAX_PREFIXES
) -> PrefixTimes:
    """The prefixes by the thread time of their tasks that ended in between.

    Parameters
    ----------
    then, now
        Settled nanoseconds of each prefix by :data:`~dask_efficiency.accounts.worker.balance.TASK_BUCKETS`.
    at_most
        Number of prefixes. The others are the last row, "(other)", with those that the ledger does not tell apart.
    """
    nothing = (0,) * len(TASK_BUCKETS)
    # Subtract before converting: of a big cluster the nanoseconds of a year are too many for a float.
    grown = {
        prefix: [ns - ago for ns, ago in zip(row, then.get(prefix, nothing), strict=True)]
        for prefix, row in now.items()
        if row != then.get(prefix, nothing)
    }
    gained = np.array(list(grown.values()), dtype=np.float64).reshape(-1, len(TASK_BUCKETS))
    names = list(grown)
    ranked = [i for i in np.argsort(-gained.sum(axis=1), kind="stable").tolist() if names[i] != OTHER]
    chosen, rest = ranked[:at_most], ranked[at_most:]
    shown, rows = [label(names[i]) for i in chosen], gained[chosen]
    if rest or OTHER in grown:
        folded = gained[[*rest, *(i for i, name in enumerate(names) if name == OTHER)]].sum(axis=0)
        shown.append(OTHER)
        rows = np.vstack([rows, folded])
    return PrefixTimes(tuple(shown), rows / 1e9)
