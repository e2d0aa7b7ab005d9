"""Algorithms that MPICH chooses for collective calls, and their messages."""
