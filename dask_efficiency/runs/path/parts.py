"""Parts of a path's wall clock as findings, the headline above them, and the summary that a report keeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dask_efficiency.show.figures import format_share, shorten
from dask_efficiency.show.finding import MAX_FINDINGS, MAX_HEADLINE, WORTH_FINDING, Basis, Finding

#: A finding, and its subject as a headline words it.
PathPart: TypeAlias = tuple[Finding, str]
#: Figure of a finding by which a path ranks it.
SHARE = "share_of_wall_clock"


@dataclass(frozen=True, slots=True)
class PathSummary:
    """Main figures of the critical path of a recorded run, see :class:`~dask_efficiency.CriticalPath`."""

    headline: str
    makespan_seconds: float
    seconds_by_kind: Mapping[str, float]
    floor_seconds: float
    longest_task_seconds: float
    chain_seconds: float
    #: True if tasks could be smaller: not where each worker has one, or where they compute in threads of their own.
    divisible: bool = True


def worth_finding(parts: Sequence[PathPart], whole: float) -> tuple[Finding, ...]:
    """Select the findings that save or take enough of the whole, in their order."""
    least = WORTH_FINDING * whole
    worth = (finding for finding, _ in parts if finding.saves_seconds is None or finding.saves_seconds >= least)
    return tuple(finding for finding in worth if finding.evidence[SHARE] >= WORTH_FINDING)[:MAX_FINDINGS]


def headline(parts: Sequence[PathPart], took: str, of: str) -> str:
    """Word the duration and the largest part; at most :data:`MAX_HEADLINE` characters, without a full stop."""
    if not parts:
        return "Nothing took any time"
    largest, title = parts[0]
    return shorten(f"{took}; {format_share(largest.evidence[SHARE])} of {of} is {title}", MAX_HEADLINE)


def finding(
    kind: str, wording: tuple[str, str], saves: float | None, share: float, where: str, page: str = "critical-path"
) -> Finding:
    """Make a finding about a share of the wall clock; ``saves`` is at most so many seconds, None if nothing helps."""
    (title, advice), basis = wording, Basis.UNKNOWN if saves is None else Basis.BOUNDED
    return Finding(kind, title, where, 0.0, saves, None, basis, advice, f"docs/{page}.md", {SHARE: share})
