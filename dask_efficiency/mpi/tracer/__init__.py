"""The recorder of MPI programs: a C library that the user's MPI compiles, preloaded into each rank."""
