"""What can be wrong with Kineto's files, and with questions about them."""

from __future__ import annotations

from collections.abc import Iterable


class KinetoFileError(ValueError):
    """A file is no trace of Kineto's, or is damaged; the message names the file and the position."""


class RanksError(ValueError):
    """Files do not make one job: a rank is missing, there twice, or of another job."""


class UnknownRankError(KeyError):
    """There is no such rank."""

    def __init__(self, rank: int, known: Iterable[int]) -> None:
        super().__init__(rank)
        self.rank = rank
        self.known = tuple(known)

    def __str__(self) -> str:
        return f"no rank {self.rank} in this trace; there is: {', '.join(map(str, self.known)) or 'none'}"


class UnknownAnnotationError(LookupError):
    """No annotation has such a name, or it has fewer instances; the message says what there is."""
