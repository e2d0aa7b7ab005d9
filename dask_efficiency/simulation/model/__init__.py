"""The model of a cluster under virtual time: everything but Dask itself."""
