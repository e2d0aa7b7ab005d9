"""Continuity: what holds for most of some minutes, unlike a burst of jitter."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def lasting(holds: NDArray[np.bool_], *, length: int, share: float) -> NDArray[np.intp]:
    """When something began to hold for most of a stretch.

    Parameters
    ----------
    holds
        Shape (rows, instants).
    length
        Length of the stretch, in instants.
    share
        For how much of the stretch it must hold, in (0, 1].

    Returns
    -------
    array, shape (rows,)
        The first instant of the first such stretch, without stray instants at its start; -1 where there is none.
    """
    if not 0 < share <= 1 or length < 1:
        raise ValueError(f"share is {share!r}, length {length!r}; expected a share in (0, 1] of 1 or more")
    rows, instants = holds.shape
    if instants < length:
        return np.full(rows, -1, np.intp)
    sums = np.zeros((rows, instants + 1), np.int32)
    np.cumsum(holds, axis=1, out=sums[:, 1:])
    enough = sums[:, length:] - sums[:, :-length] >= np.ceil(share * length - 1e-9)
    first = np.where(enough.any(axis=1), enough.argmax(axis=1), -1)
    some = max(length // 8, 1)
    for row in np.flatnonzero(first >= 0):
        within = sums[row, first[row] : first[row] + length + 1]
        dense = holds[row, first[row] : first[row] + length - some + 1] & (
            within[some:] - within[:-some] >= share * some
        )
        first[row] += int(dense.argmax() if dense.any() else holds[row, first[row] :].argmax())
    return first


def independent(begins: NDArray[Any], *, together: float, follow: float) -> NDArray[np.bool_]:
    """Which of some faults are not the consequence of another one that began shortly before.

    Parameters
    ----------
    begins
        The instants at which they begin, in any unit of time.
    together
        Faults that begin at most so far apart began at the same time.
    follow
        A fault that begins later than that, but at most so much later, is a consequence.
    """
    kept: list[float] = []
    result = np.zeros(len(begins), np.bool_)
    for i in np.argsort(begins, kind="stable").tolist():
        result[i] = not any(together < begins[i] - earlier <= follow for earlier in kept)
        if result[i]:
            kept.append(float(begins[i]))
    return result
