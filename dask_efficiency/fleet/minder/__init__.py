"""Minder's method: a machine is at fault if its metrics stay unlike those of its peers for minutes."""
