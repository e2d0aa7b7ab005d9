"""Contents of heartbeats: written on workers, checked and read on the scheduler."""
