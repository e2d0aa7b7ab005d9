"""Short measurements of a worker's hardware, in a process of their own that imports NumPy and nothing of Dask."""
