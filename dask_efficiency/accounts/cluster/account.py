"""Account: what threads did, by bucket, by activity and by cause, side by side in one array of nanoseconds."""

from __future__ import annotations

from itertools import accumulate
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dask_efficiency.accounts.buckets import FINALIZED, Bucket
from dask_efficiency.accounts.causes import NAMES
from dask_efficiency.accounts.wire.heartbeats import FIELDS
from dask_efficiency.accounts.worker.balance import FREE_BUCKETS, Outcome

#: What a thread slot can be doing, in the order of :class:`~dask_efficiency.accounts.buckets.Bucket`: the activity
#: view, which accrues while tasks run and knows nothing of their outcome.
ACTIVITIES = tuple(
    str(bucket) for bucket in FINALIZED if bucket not in (Bucket.FAILED, Bucket.CANCELLED, Bucket.RECOMPUTED)
)

#: Finalized time by bucket; what the slots were doing, and its causes; the causes of finalized time; and tasks.
Part = Literal["recorded", "activity", "cause_activity", "causes", "tasks"]
PARTS: dict[Part, tuple[str, ...]] = {
    "recorded": tuple(map(str, FINALIZED)),
    "activity": ACTIVITIES,
    "cause_activity": NAMES,
    "causes": NAMES,
    "tasks": tuple(map(str, Outcome)),
}

_ENDS = list(accumulate(map(len, PARTS.values())))

#: Length of an account, and the slice of each part.
WIDTH = _ENDS[-1]
WHERE: dict[Part, slice] = dict(zip(PARTS, map(slice, [0, *_ENDS], _ENDS), strict=False))

_STARTS: dict[Part, int] = dict(zip(PARTS, [0, *_ENDS], strict=False))


def place(part: Part, name: str) -> int:
    """Find the position of a number in an account."""
    return _STARTS[part] + PARTS[part].index(name)


def named(row: NDArray[Any], part: Part) -> dict[str, int]:
    """Name the numbers of a part of an account; zeros are left out."""
    return {name: n for name, n in zip(PARTS[part], row.tolist(), strict=True) if n}


#: By the group of a heartbeat's numbers, the part of an account that they are.
_PART_OF: dict[str, Part] = {
    "settled": "recorded",
    "tasks": "tasks",
    "active": "activity",
    "causes.settled": "causes",
    "causes.active": "cause_activity",
}

# What a slot is free for is its activity, too.
_PAIRS = [
    *((i, place(_PART_OF[group], name)) for i, (group, name) in enumerate(FIELDS) if group),
    *((FIELDS.index(("settled", str(bucket))), place("activity", bucket)) for bucket in FREE_BUCKETS),
]
_FROM, _TO = np.array(_PAIRS).T


def gained(grown: NDArray[np.int64]) -> NDArray[np.int64]:
    """Map a heartbeat's growth, by ``heartbeats.NUMBERS``, to what it adds to an account.

    Numbers that shrank, as causes may, add nothing.
    """
    account = np.zeros(WIDTH, np.int64)
    account[_TO] = grown[_FROM]
    return np.maximum(account, 0, out=account)
