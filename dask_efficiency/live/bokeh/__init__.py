"""Pages on Dask's own dashboard: the cluster's thread time in the last minutes."""

from dask_efficiency.live.bokeh.pages import NoDashboardError, hide, show

__all__ = ["NoDashboardError", "hide", "show"]
