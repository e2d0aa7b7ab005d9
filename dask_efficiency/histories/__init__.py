"""Histories: runs over weeks, the first that got worse, and what had changed with it."""

from typing import TYPE_CHECKING

from dask_efficiency.plugin.wings import public

if TYPE_CHECKING:
    from dask_efficiency.histories.history import Change, RunHistory, RunSeries, WorseRun

__all__ = ["Change", "RunHistory", "RunSeries", "WorseRun"]

__getattr__, __dir__ = public(__name__, dict.fromkeys(__all__, "history"))
