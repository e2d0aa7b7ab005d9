"""Findings of a summary: what costs wall clock, and what it could save at most."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dask_efficiency.show.finding import Finding

if TYPE_CHECKING:
    from dask_efficiency.torch_traces.summaries.summary import TorchSummary


def findings_of(summary: TorchSummary) -> tuple[Finding, ...]:
    """Losses of wall clock, the largest first."""
    return ()
