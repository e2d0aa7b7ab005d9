"""Minder's method: a machine whose metrics look unlike those of its peers for minutes is at fault."""
