"""MpiTraceError: a recorded MPI program that cannot be understood."""

from __future__ import annotations


class MpiTraceError(ValueError):
    """A recorded MPI program that cannot be understood or that cannot run to its end.

    Parameters
    ----------
    place
        File and line, or the file.
    wrong
        What is there, and what was expected.
    """

    def __init__(self, place: str, wrong: str) -> None:
        super().__init__(f"{place}: {wrong}")
        self.place = place
        self.wrong = wrong
