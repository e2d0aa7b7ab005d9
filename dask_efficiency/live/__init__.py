"""What a cluster did in the last seconds: one model for the dashboard's tab and for `dask-efficiency top`."""
