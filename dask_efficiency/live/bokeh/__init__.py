"""Bokeh: pages on Dask's own dashboard, of what the cluster's threads did in the last minutes."""

from dask_efficiency.live.bokeh.pages import NoDashboardError, hide, show

__all__ = ["NoDashboardError", "hide", "show"]
