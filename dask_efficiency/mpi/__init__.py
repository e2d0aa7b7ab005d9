"""Programs of MPI on the same networks: what a recorded one would take on other hosts."""
