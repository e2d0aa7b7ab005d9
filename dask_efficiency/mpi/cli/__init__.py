"""The commands of MPI programs."""
