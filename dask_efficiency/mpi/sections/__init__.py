"""Sections about simulated MPI programs and their placements."""
