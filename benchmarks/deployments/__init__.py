"""Real deployments of Dask, given work with known totals."""
