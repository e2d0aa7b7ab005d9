"""Section on the critical path of a report's trace."""

from __future__ import annotations

from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.runs.path.path import CriticalPath
from dask_efficiency.runs.path.scope import Question
from dask_efficiency.runs.sections.path import quick_improvements, sections
from dask_efficiency.runs.trace.errors import EmptyTraceError
from dask_efficiency.show.document import SCREEN, Extent, Section, section
from dask_efficiency.show.finding import MAX_SHOWN


def critical_path(report: EfficiencyReport, extent: Extent = SCREEN) -> Section:
    """Critical path of a report with a trace, as one section of its page."""
    heading = "Critical path: why it took so long"
    if report.trace is None or not extent.drawn:
        return Section(heading)
    try:
        path = CriticalPath.of(report.trace, Question())
    except EmptyTraceError:  # no task ended in the window
        return Section(heading)
    first = (f"{number}. {'. '.join(one.lines)}" for number, one in enumerate(path.findings[:MAX_SHOWN], 1))
    return section(heading, f"{path.headline}.", *first, *sections(path), quick_improvements(path))
