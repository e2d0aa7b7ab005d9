"""HTTP, subprocesses and Prometheus for a fleet that is watched."""
