"""Witnesses: what a recorded run says beside its accounts, kept with its report."""

from __future__ import annotations

import logging
from dataclasses import replace

from dask_efficiency.paths.path import critical_path
from dask_efficiency.paths.summary import PathSummary
from dask_efficiency.report.model import EfficiencyReport
from dask_efficiency.stragglers.finding import Finding
from dask_efficiency.stragglers.offline import find_stragglers
from dask_efficiency.trace.errors import EmptyTraceError
from dask_efficiency.trace.run_trace import RunTrace

logger = logging.getLogger("dask_efficiency")


def with_witnesses(report: EfficiencyReport, trace: RunTrace) -> EfficiencyReport:
    """The report with its trace, what the critical path says, and the stragglers of the run as a whole.

    The report must not be lost with a witness: one that fails is missing, and a note says so.
    """
    notes = list(report.notes)
    path: PathSummary | None = None
    found: list[Finding] = list(report.stragglers)
    try:
        path = critical_path(trace).to_summary()
    except EmptyTraceError:  # no task ended in the window
        pass
    except Exception as error:
        notes.append(_missing("critical path", report, error))
    try:
        known = {(finding.worker, finding.host) for finding in found}
        found += [one for one in find_stragglers(trace) if (one.worker, one.host) not in known]
    except Exception as error:
        notes.append(_missing("search for stragglers in the trace", report, error))
    return replace(report, trace=trace, path=path, stragglers=tuple(found), notes=tuple(notes))


def _missing(what: str, report: EfficiencyReport, error: Exception) -> str:
    logger.error("dask_efficiency: no %s of %r", what, report.name, exc_info=error)
    return f"there is no {what}: {type(error).__name__}: {error}"[:500]
