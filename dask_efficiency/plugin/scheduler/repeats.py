"""RepeatCounter: how often results were computed once more because somebody asked for them again."""

from __future__ import annotations

from dask_efficiency.accounts.worker.balance import OTHER
from dask_efficiency.accounts.worker.log import MAX_PREFIX_LENGTH

#: Prefixes that are counted separately; later ones are counted as
#: :data:`~dask_efficiency.accounts.worker.balance.OTHER`.
MAX_PREFIXES = 1_000


class RepeatCounter:
    """The repeats since it was made, by prefix."""

    def __init__(self) -> None:
        #: By prefix and hash of the key, how often it was computed once more.
        self._again: dict[str, dict[int, int]] = {}

    def add(self, number: int, prefix: str) -> None:
        """The key of this hash was computed once more."""
        again = self._again.get(prefix)
        if again is None:
            again = self._new_prefix(prefix)
        again[number] = again.get(number, 0) + 1

    def _new_prefix(self, prefix: str) -> dict[int, int]:
        if len(self._again) >= MAX_PREFIXES:
            prefix = OTHER
        return self._again.setdefault(prefix[:MAX_PREFIX_LENGTH], {})

    def by_prefix(self) -> dict[str, tuple[int, int]]:
        """Tasks computed once more, and how often the key that was computed most often was computed.

        That includes its first time, which may have been before the counter was made.
        """
        return {prefix: (sum(again.values()), max(again.values()) + 1) for prefix, again in self._again.items()}
