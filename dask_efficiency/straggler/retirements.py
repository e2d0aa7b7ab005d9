"""Retirements: limits how many machines are retired: a share of the fleet, or one, and two always stay."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

#: Seconds of a day, after which a retirement is forgotten: the machine has been replaced by then, or is not missed.
DAY_SECONDS = 86_400.0
#: Machines that always stay; fewer cannot be compared with each other.
MIN_LEFT = 2
#: Default of the largest share of a fleet that is retired; a guess.
RETIRE_SHARE = 0.25
#: Seconds to wait for the retirement of workers, whose data has to move first; a guess.
RETIRE_SECONDS = 60.0


def most_retired(size: int, share: float) -> int:
    """Number of machines of a fleet that may be retired: a share of it, or one, and two always stay."""
    if not 0 < share < 1:
        raise ValueError(f"retire_share is {share!r:.80}; expected more than 0 and less than 1")
    return max(0, min(max(1, math.floor(share * size + 1e-9)), size - MIN_LEFT))


class Retirements:
    """Decides which machines are retired, with some seconds between two, and remembers which were within a day."""

    def __init__(self, *, share: float, every_seconds: float) -> None:
        most_retired(0, share)
        if not every_seconds >= 0:
            raise ValueError(f"retire_every is {every_seconds!r:.80}; expected 0 or more seconds")
        self._share = share
        self._every_seconds = every_seconds
        self._at: dict[str, float] = {}

    def chosen(self, wanted: Sequence[str], fleet: Collection[str], *, at: float) -> tuple[str | None, str]:
        """Most urgent machine (wanted ones come in that order) that is there and may be retired now, or the reason."""
        self._at = {name: then for name, then in self._at.items() if at - then < DAY_SECONDS}
        present = [name for name in wanted if name in fleet]
        if not present:
            return None, ""
        gone = [name for name in self._at if name not in fleet]
        size = len(fleet) + len(gone)
        most = most_retired(size, self._share)
        if len(self._at) + 1 > most or len(fleet) - 1 < MIN_LEFT:
            return None, f"{len(self._at)} of {size} were retired within a day; the most is {most}"
        if self._at and at - max(self._at.values()) < self._every_seconds:
            return None, f"the last one was retired {at - max(self._at.values()):.0f} s ago"
        return present[0], ""

    def retired(self, name: str, *, at: float) -> None:
        """Remember a retirement, or the attempt of one."""
        self._at[name] = at
