"""Live figures of a cluster: Prometheus, a tab of Dask's dashboard, and `dask-efficiency top`."""
