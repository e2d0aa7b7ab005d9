"""The critical path of a run: what bounded its wall time."""
