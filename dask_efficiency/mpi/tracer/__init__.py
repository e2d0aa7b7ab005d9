"""What records the calls of MPI programs: a C library that the user's own MPI compiles, preloaded into each rank."""
