"""A comparison in a terminal."""

from __future__ import annotations

from dask_efficiency.report.compare import ComparisonValues
from dask_efficiency.report.comparison_sections import context, sections, title
from dask_efficiency.report.comparison_verdict import verdict
from dask_efficiency.report.document import Document


def comparison_document(comparison: ComparisonValues) -> Document:
    """What changed from one run to another."""
    return Document(title(comparison), context(comparison), verdict(comparison), sections(comparison))
