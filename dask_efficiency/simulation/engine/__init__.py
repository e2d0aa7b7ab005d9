"""Dask's own scheduler and worker state machines under virtual time, in a process of their own."""
