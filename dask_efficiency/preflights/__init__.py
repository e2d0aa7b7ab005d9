"""Preflights: measure workers before a job starts, to find the slow ones."""

from typing import TYPE_CHECKING

from dask_efficiency.plugin.wings import public

if TYPE_CHECKING:
    from dask_efficiency.preflights.judge.result import PreflightResult

__all__ = ["PreflightResult"]

__getattr__, __dir__ = public(__name__, {"PreflightResult": "judge.result"})
