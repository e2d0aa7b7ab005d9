"""Preflight: which workers are slow before a job starts, judged from short measurements of them alone and in pairs."""
