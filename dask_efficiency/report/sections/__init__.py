"""Sections of reports, comparisons and stragglers, ready to be rendered."""
