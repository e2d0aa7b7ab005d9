"""Machines whose metrics stay away from those of their peers."""
