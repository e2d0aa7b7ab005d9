"""Stragglers: workers that take longer than their peers for the same work."""
