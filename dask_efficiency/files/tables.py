"""Tables in files of CSV and Parquet, which hold no more than a file may."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dask_efficiency.files.storage import check_held, reading

if TYPE_CHECKING:
    import pandas as pd


def read_csv(path: str) -> pd.DataFrame:
    """A table of comma-separated values, which may be compressed."""
    import pandas as pd

    with reading(path) as file:
        frame: pd.DataFrame = pd.read_csv(file)
    return frame


def read_parquet(path: str) -> pd.DataFrame:
    """A table in Parquet; its rows may take no bytes at all in the file."""
    import fsspec
    import pandas as pd
    from pyarrow.parquet import read_metadata

    with fsspec.open(path, "rb", compression=None) as file:
        about, size = read_metadata(file), file.seek(0, 2)
        groups = [about.row_group(number) for number in range(about.num_row_groups)]
        rows = sum(group.num_rows for group in groups)
        nbytes = sum(group.total_byte_size for group in groups)
        check_held(path, size, max(nbytes, 8 * rows * about.num_columns))
        file.seek(0)
        return pd.read_parquet(file)
