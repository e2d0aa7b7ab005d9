"""The messages that MPICH sends for a collective call, and which algorithm it chooses."""
