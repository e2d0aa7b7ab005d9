"""Where the package meets a live cluster: worker, scheduler and client halves."""

from __future__ import annotations

import re

import distributed

#: The oldest release of distributed that this package is tested with.
OLDEST_DISTRIBUTED = (2026, 1)

_version = tuple(int(part) for part in re.findall(r"\d+", distributed.__version__)[:2])
if _version < OLDEST_DISTRIBUTED:
    raise ImportError(f"dask_efficiency needs distributed 2026.1.0 or later; found {distributed.__version__}")
