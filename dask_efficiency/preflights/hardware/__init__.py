"""Short measurements of what a worker runs on, in a process of their own that imports NumPy and nothing of Dask's."""
