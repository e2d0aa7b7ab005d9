"""The recorded run that a command is given: in a file, or on a scheduler that records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dask_efficiency.cli.connection import Connection
from dask_efficiency.cli.source import Kind, look_at

if TYPE_CHECKING:
    from dask_efficiency.runs.trace.run_trace import RunTrace


def recorded(source: str, connection: Connection) -> RunTrace:
    """The run that a file holds, or that a scheduler has recorded.

    Raises
    ------
    ClickException
        If the source is something else; it says what, and which command takes that.
    OSError, ValueError, ImportError
        If it cannot be read.
    """
    given = look_at(source)
    if given.kind is Kind.SCHEDULER:
        from dask_efficiency.plugin.client.questions import ask_trace

        return connection.ask(given.where, ask_trace)
    if given.kind not in (Kind.TRACE, Kind.OTHER):
        raise given.refusal(
            "a recorded run, which `efficiency_report(trace=True)` makes and `report.trace.save('run.trace')` saves, "
            "or the address of a scheduler that records"
        )
    from dask_efficiency.runs.trace.files import load_trace

    return load_trace(given.where)
