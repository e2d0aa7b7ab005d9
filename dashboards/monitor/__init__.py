"""A demo cluster that loses time in changing ways, and a real Prometheus that watches it."""
