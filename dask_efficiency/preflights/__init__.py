"""Preflights: which workers are slow, measured before a job starts."""
