"""Saved reports of a job that runs every night, as they would be after weeks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dask_efficiency import EfficiencyReport
from dask_efficiency.accounts.metered import BYTES, MEMORY, PROCESS
from dask_efficiency.report.values import MeteredRow
from tests.report.comparison_samples import run

DAY = 86_400.0
#: 2026-11-01 03:00 UTC.
FIRST = 1_793_502_000.0


def night(number: int, wall: float = 60.0, *, peak: int = 0, spill: float = 10.0, **fields: Any) -> EfficiencyReport:
    """A run of four threads in a night; ``peak`` in bytes is that of its worker."""
    given = {"name": "nightly.py", "started": FIRST + number * DAY, "window_seconds": wall, "nthreads": {"w0": 4}}
    if peak:
        given["metered"] = [MeteredRow("w0", MEMORY, "", "", PROCESS, BYTES, peak)]
    return run(wall, thread_cpu=4 * wall - spill, spill=spill, fields=given | fields)


def saved(folder: Path, reports: Sequence[EfficiencyReport]) -> Path:
    """The folder, with a file for each of the reports."""
    folder.mkdir(exist_ok=True)
    for number, report in enumerate(reports):
        report.save(folder / f"{number:03}.json")
    return folder
