"""Source of a command: a recorded run in a file or on a scheduler that records, or a table of tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dask_efficiency.cli.inputs import Input, InputKind, look_at
from dask_efficiency.cli.options import Connection
from dask_efficiency.files.storage import read_csv, read_parquet

if TYPE_CHECKING:
    import pandas as pd

    from dask_efficiency.runs.trace.run_trace import RunTrace

#: What a what-if of a recorded run can leave out.
WITHOUT = ("transfer", "spill", "scheduler")


def recorded(source: str, connection: Connection) -> RunTrace:
    """Read the run from a file, or ask a scheduler that records; for any other source, name its command."""
    given = look_at(source)
    if given.kind is InputKind.SCHEDULER:
        from dask_efficiency.runs.questions import ask_trace

        return connection.ask(given.where, ask_trace)
    if given.kind not in (InputKind.TRACE, InputKind.OTHER):
        raise given.refusal(
            "a recorded run, which `efficiency_report(trace=True)` makes and `report.trace.save('run.trace')` saves, "
            "or the address of a scheduler that records"
        )
    from dask_efficiency.runs.trace.files import load_trace

    return load_trace(given.where)


def run_or_table(source: Input) -> RunTrace | pd.DataFrame:
    """Read a recorded run or a table of tasks from a file."""
    is_csv = source.kind is InputKind.CSV or source.where.lower().endswith((".csv", ".csv.gz"))
    if source.kind not in (InputKind.TRACE, InputKind.CSV, InputKind.PARQUET, InputKind.OTHER):
        raise source.refusal("a recorded run or a table of tasks")
    if not is_csv and source.kind is not InputKind.PARQUET:
        from dask_efficiency.runs.trace.files import load_trace

        return load_trace(source.where)
    return read_csv(source.where) if is_csv else read_parquet(source.where)
