"""A fleet of machines in Prometheus: who is an outlier, round by round, with Dask or without."""
