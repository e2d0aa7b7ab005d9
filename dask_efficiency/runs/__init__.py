"""A recorded run: its recorder, trace, critical path, replay and stragglers."""
