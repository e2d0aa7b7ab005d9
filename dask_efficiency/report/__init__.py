"""What a breakdown means, said in a terminal, a notebook or a file: pure functions of values."""

from dask_efficiency.report.files import load_report
from dask_efficiency.report.model import EfficiencyReport, Loss

__all__ = ["EfficiencyReport", "Loss", "load_report"]
