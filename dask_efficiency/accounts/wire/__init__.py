"""What travels with a heartbeat: written, checked and read."""
