"""Predictions from a report's trace, on the report's own page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from dask_efficiency.show.document import Document, Section, section
from dask_efficiency.simulation.model.result import PredictionValues
from dask_efficiency.simulation.model.sweeps import SweepValues
from dask_efficiency.simulation.sections import prediction as simulation
from dask_efficiency.simulation.sections import sweep as simulation_sweep

#: How the heading of the section begins behind which predictions stand.
AFTER = "Critical path"


def with_predictions(document: Document, predictions: Sequence[PredictionValues | SweepValues]) -> Document:
    """A report's page with a section about these, behind that about the critical path; else at its end."""
    if not predictions:
        return document
    titles = [part.title for part in document.sections]
    behind = next((i + 1 for i, title in enumerate(titles) if title.startswith(AFTER)), len(titles))
    parts = document.sections
    return replace(document, sections=(*parts[:behind], in_report(predictions), *parts[behind:]))


def in_report(predictions: Sequence[PredictionValues | SweepValues]) -> Section:
    """What the run would take elsewhere."""
    return section("Simulation: what it would take elsewhere", *map(_one, predictions))


def _one(found: PredictionValues | SweepValues) -> Section:
    if isinstance(found, SweepValues):
        parts = (simulation_sweep.clusters(found), simulation_sweep.sure(found), simulation.notes(found.notes))
        said = simulation_sweep.verdict(found)
    else:
        parts = (simulation.sure(found), simulation.spent(found), simulation.notes(found.notes))
        said = simulation.verdict(found)
    heading = "By number of workers" if isinstance(found, SweepValues) else simulation.where(found)
    return section(heading, f"{said}.", *(block for part in parts for block in part.blocks))
