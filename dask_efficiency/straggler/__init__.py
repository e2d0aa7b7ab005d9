"""Stragglers: workers that take longer than their peers for the same work; scores that know no run and no Dask."""
