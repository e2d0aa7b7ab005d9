"""Continuity: what holds for most of some minutes, and not what a burst of jitter does."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def lasting(holds: NDArray[np.bool_], *, length: int, share: float) -> NDArray[np.intp]:
    """Where something began to hold for most of a stretch.

    Parameters
    ----------
    holds
        Shape (rows, instants).
    length
        Of the stretch, in instants.
    share
        How much of the stretch it must hold, in (0, 1].

    Returns
    -------
    array, shape (rows,)
        First instant of the first such stretch at which it holds; -1 where there is none.
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
    for row in np.flatnonzero(first >= 0):
        first[row] += int(holds[row, first[row] :].argmax())
    return first
