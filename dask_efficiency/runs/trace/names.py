"""Names: texts as small numbers, bounded in count and length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

#: Different names at most; later ones share one.
MAX_NAMES = 10_000

#: Longer names are cut.
MAX_NAME_LENGTH = 200


class Names:
    """Numbers for names; what is beyond :data:`MAX_NAMES` is one name, the last."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        """The number of a name, a new one if it has none."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers.setdefault(name[:MAX_NAME_LENGTH], len(self._numbers))
            if number >= MAX_NAMES:
                del self._numbers[name[:MAX_NAME_LENGTH]]
                number = self._numbers.setdefault("(other)", len(self._numbers))
        return number

    def numbers(self, names: Sequence[str]) -> list[int]:
        """The numbers of names."""
        numbers = [*map(self._numbers.get, names)]
        return [*map(self.number, names)] if None in numbers else cast("list[int]", numbers)

    def all(self) -> list[str]:
        """The names in the order of their numbers."""
        return list(self._numbers)
