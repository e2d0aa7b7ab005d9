"""MPI programs under virtual time, on the networks of simulated clusters."""
