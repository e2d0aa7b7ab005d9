"""Sensors of a worker's host and GPUs: their names, how counters become rates, and how they travel."""
