"""Predictions from a report's trace, on the report's own page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from dask_efficiency.show.document import Document, Section, section

#: How the heading of the section begins behind which predictions stand.
AFTER = "Critical path"


class Predicted(Protocol):
    """What a run would take elsewhere."""

    @property
    def section(self) -> Section:
        """What a report's page says of it."""


def with_predictions(document: Document, predictions: Sequence[Predicted]) -> Document:
    """A report's page with a section about these, behind that about the critical path; else at its end."""
    if not predictions:
        return document
    titles = [part.title for part in document.sections]
    behind = next((i + 1 for i, title in enumerate(titles) if title.startswith(AFTER)), len(titles))
    parts = document.sections
    added = section("Simulation: what it would take elsewhere", *(found.section for found in predictions))
    return replace(document, sections=(*parts[:behind], added, *parts[behind:]))
