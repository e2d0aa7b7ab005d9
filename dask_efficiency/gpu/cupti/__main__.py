"""Adds the compiled library to an installation that lacks it: ``python -m dask_efficiency.gpu.cupti``."""

from __future__ import annotations

import sys

from dask_efficiency.gpu.cupti.build import compile_callbacks
from dask_efficiency.gpu.cupti.callbacks import LIBRARY

if __name__ == "__main__":
    try:
        compile_callbacks(LIBRARY)
    except OSError as error:
        sys.exit(f"cannot make {LIBRARY}: {error}")
