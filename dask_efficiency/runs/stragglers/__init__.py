"""Stragglers of a run that is over."""
