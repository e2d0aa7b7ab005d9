"""Sensors of a worker's host: cores, memory, disks and network, once a second at most."""
