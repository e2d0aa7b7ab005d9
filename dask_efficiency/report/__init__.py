"""What a breakdown means, said in a terminal, a notebook or a file: pure functions of values."""

from dask_efficiency.report.files import load_report
from dask_efficiency.report.model import Loss, ReportValues

__all__ = ["ReportValues", "Loss", "load_report"]
