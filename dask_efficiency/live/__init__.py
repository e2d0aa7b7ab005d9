"""What a cluster does now: Prometheus, a tab of Dask's dashboard, and `dask-efficiency top`."""
