"""Failures: tasks that failed for good, counted by prefix, error and line."""

from __future__ import annotations

from typing import NamedTuple

from dask_efficiency.accounts.intake import fitting
from dask_efficiency.accounts.lines import NOWHERE, Frame
from dask_efficiency.accounts.rows import MAX_SENT, OTHER

#: Characters of an error. A guess that bounds memory.
MAX_ERROR = 300
#: Beginning of the error of a task that was given up as the workers that ran it died.
KILLED = "KilledWorker"
#: Part of the error of a task that the scheduler refuses, as its input is larger than a worker's memory.
REFUSED = "worth of input dependencies"


class FailedAs(NamedTuple):
    """Tasks of a prefix that failed in one way."""

    prefix: str
    error: str
    #: Innermost line of the user's own code.
    frame: Frame


def add_failure(failures: dict[FailedAs, int], prefix: str, error: str, frame: Frame) -> None:
    """Count one more task; beyond :data:`MAX_SENT`, errors of a prefix share one entry, and so do new prefixes."""
    found = FailedAs(prefix, error, frame)
    for shared in (FailedAs(prefix, OTHER, NOWHERE), FailedAs(OTHER, OTHER, NOWHERE)):
        if found in failures or len(failures) < MAX_SENT:
            break
        found = shared
    failures[found] = failures.get(found, 0) + 1


def error_text(error: object) -> str:
    """Error in a line, ``"ValueError: no such file"``; empty without one, or for an exit."""
    if error is None or isinstance(error, (SystemExit, GeneratorExit)):
        return ""
    return f"{type(error).__name__}: {fitting(error)}"[:MAX_ERROR].removesuffix(": ")
