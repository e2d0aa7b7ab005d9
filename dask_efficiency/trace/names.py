"""Names: texts as small numbers, bounded in count and length."""

from __future__ import annotations

#: Different names at most; later ones share one.
MAX_NAMES = 10_000

#: Longer names are cut.
MAX_NAME_LENGTH = 200


class Names:
    """Numbers for names; what is beyond :data:`MAX_NAMES` is one name, the last."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        #: The number of a name that has one.
        self.known = self._numbers.get

    def number(self, name: str) -> int:
        """The number of a name, a new one if it has none."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers.setdefault(name[:MAX_NAME_LENGTH], len(self._numbers))
            if number >= MAX_NAMES:
                del self._numbers[name[:MAX_NAME_LENGTH]]
                number = self._numbers.setdefault("(other)", len(self._numbers))
        return number

    def all(self) -> list[str]:
        """The names in the order of their numbers."""
        return list(self._numbers)
