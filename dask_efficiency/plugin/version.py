"""The package's version, which scheduler and workers must have in common, and the distributed that it needs."""

from __future__ import annotations

import re

__version__ = "0.1.0"

#: The oldest release of distributed that this package is tested with.
OLDEST_DISTRIBUTED = (2026, 1)


def check_distributed(version: str) -> None:
    """Raise ImportError where this release of distributed is too old."""
    if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < OLDEST_DISTRIBUTED:
        raise ImportError(f"dask_efficiency needs distributed 2026.1.0 or later; found {version}")
