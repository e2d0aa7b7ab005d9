"""The trace of a run: what was recorded, and its files."""
