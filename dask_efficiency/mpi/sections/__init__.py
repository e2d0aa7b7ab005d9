"""What is shown of MPI programs and of where their ranks are placed."""
