"""Form of a program that stands still."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from distributed import Client

from benchmarks.public_reports.programs import Expected


@dataclass(frozen=True, slots=True)
class Hang:
    """Program that stands still after a while.

    Parameters
    ----------
    report
        Public report that it is after.
    start
        Starts it; gives what must be kept meanwhile, such as futures.
    expected
        What a reader should be told first.
    end
        Lets it go on, where a cluster could not be closed otherwise.
    cluster
        Arguments of its LocalCluster.
    """

    report: str
    start: Callable[[Client], Any]
    expected: Expected
    end: Callable[[Client], object] = lambda client: None
    cluster: Mapping[str, Any] = field(default_factory=dict)
