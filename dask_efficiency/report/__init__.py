"""Efficiency reports: measured, explained, compared and shown."""
