"""Errors of Kineto's files, and of questions about them."""

from __future__ import annotations

from collections.abc import Iterable


class KinetoFileError(ValueError):
    """A file is damaged, or is no trace of Kineto's; the message names the file and the position."""


class RanksError(ValueError):
    """Files that are not one job: a rank is missing, is there twice, or belongs to another job."""


class UnknownRankError(KeyError):
    """There is no such rank."""

    def __init__(self, rank: int, known: Iterable[int]) -> None:
        super().__init__(rank)
        self.rank = rank
        self.known = tuple(known)

    def __str__(self) -> str:
        return f"no rank {self.rank} in this trace; there is: {', '.join(map(str, self.known)) or 'none'}"


class UnknownAnnotationError(LookupError):
    """No annotation has this name, or it has fewer instances; the message lists those that exist."""
