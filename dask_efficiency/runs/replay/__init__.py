"""A recorded run, run again with changes."""
