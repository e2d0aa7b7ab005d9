"""Predictions from a report's trace, on the report's own page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from dask_efficiency.show.document import Document, Section, section

#: Title prefix of the section that predictions follow.
AFTER = "Critical path"


class Predicted(Protocol):
    """Prediction of a run's time on another cluster."""

    @property
    def section(self) -> Section:
        """Section of a report's page."""


def with_predictions(document: Document, predictions: Sequence[Predicted]) -> Document:
    """Page with a section of predictions after the critical path, or at its end."""
    if not predictions:
        return document
    titles = [part.title for part in document.sections]
    behind = next((i + 1 for i, title in enumerate(titles) if title.startswith(AFTER)), len(titles))
    parts = document.sections
    added = section("Simulation: what it would take elsewhere", *(found.section for found in predictions))
    return replace(document, sections=(*parts[:behind], added, *parts[behind:]))
