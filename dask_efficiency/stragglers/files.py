"""Files in which stragglers can be looked for: recorded runs, and tables as CSV or Parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dask_efficiency.trace.files import load_trace
from dask_efficiency.trace.run_trace import RunTrace

if TYPE_CHECKING:
    import pandas as pd

_PARQUET = (".parquet", ".pq")
_CSV = (".csv", ".csv.gz")


def read_source(path: str) -> RunTrace | pd.DataFrame:
    """The run in a local file or any fsspec URL, by the ending of its name.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is not what its name says; a name of another ending is that of a recorded run.
    ImportError
        If pandas is needed and not installed.
    """
    name = path.lower()
    if not name.endswith(_PARQUET + _CSV):
        return load_trace(path)
    import pandas as pd

    frame: pd.DataFrame = pd.read_parquet(path) if name.endswith(_PARQUET) else pd.read_csv(path)
    return frame
