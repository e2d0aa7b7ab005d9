"""A recorded run on another cluster, under virtual time: everything but Dask itself."""
